# SPDX-License-Identifier: Apache-2.0
"""Read a model's `config.json`: JSON of bounded size, its text model, and its formats."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stack.base.did_you_mean import similar
from stack.base.errors import StackError
from stack.deploy import formats
from stack.deploy.formats import Format
from stack.deploy.shapes import quantization
from stack.deploy.shapes.families import BUILDERS, WRAPPERS
from stack.deploy.shapes.keys import Keys
from stack.deploy.shapes.model import Model
from stack.deploy.shapes.source import Source
from stack.model import document

LARGEST = 8 * 2**20
"""Bytes of the largest file; those with a list of all quantized layers have some hundred thousand."""
GPT_OSS = "gpt_oss"
_BESIDE = "hf_quant_config.json"
"""ModelOpt's file beside a `config.json` that names no formats itself; vLLM reads it, too."""
_WIDTHS = {"bfloat16": "bfloat16", "float16": "float16", "half": "float16", "float32": "bfloat16", None: "bfloat16"}
"""The type in which vLLM serves by the configuration's type: it makes 16 bits of float32."""


def load(file: Path) -> Mapping[str, Any]:
    """Read a JSON object from a user's file.

    Raises:
        StackError: it cannot be read, is too large, or is not a JSON object.

    """
    demand(file)
    try:
        values = json.loads(document.read_text(file, largest=LARGEST, piped=True))
    except (ValueError, RecursionError) as bad:
        raise StackError(f"{file} is not valid JSON", "name the config.json of a checkpoint") from bad
    if not isinstance(values, dict):
        raise StackError(f"{file} is not a JSON object", "name the config.json of a checkpoint")
    return values


def demand(file: Path) -> None:
    """Refuse a path that does not lead to a file, without reading it.

    Raises:
        StackError: it is missing, or a folder.

    """
    if file.is_dir():
        inside = file / "config.json"
        remedy = f"name its config.json: --config {inside}" if inside.is_file() else "name the config.json of a checkpoint"
        raise StackError(f"{file} is a folder", remedy)
    if not file.exists():
        raise StackError(f"{file} is missing", "name the config.json of a checkpoint")


def kind(values: Mapping[str, Any]) -> str | None:
    """Return a configuration's `model_type`; None if it has none."""
    named = values.get("model_type")
    return named if isinstance(named, str) else None


def formats_beside(file: Path, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the formats of the file beside a configuration that has none, as vLLM does."""
    beside = file.parent / _BESIDE
    if values.get("quantization_config") is not None or not beside.is_file():
        return values
    return {**values, "quantization_config": load(beside)}


def model(values: Mapping[str, Any], where: str, capability: str, dtype: str | None = None) -> Model:
    """Build a model from its configuration.

    Args:
        values: the configuration.
        where: its name for errors.
        capability: the compute capability of the GPU: some layers are kept in other types on others.
        dtype: the type that the server is told to use, None for the configuration's own.

    Raises:
        StackError: its kind, a key or a value is missing or not known.

    """
    top = Keys(values, f"{where}: ")
    named = top.text("model_type")
    inner, place = values, f"{where}: "
    if named in WRAPPERS:
        inner, named, place = top.value("text_config"), WRAPPERS[named], f"{where}: text_config."
        if not isinstance(inner, dict):
            raise top.error("text_config", "is missing, or is not an object")
        inner = {**inner, "model_type": named}
    builder = BUILDERS.get(named)
    if builder is None:
        kinds = sorted((*BUILDERS, *WRAPPERS, GPT_OSS))
        near = similar(named, kinds)
        listed = f"the nearest supported kind is {near[0]}" if near else f"supported are {', '.join(kinds)}"
        raise top.error("model_type", f"{named!r:.60} is not supported yet", listed)
    keys = Keys(inner, place)
    dense = _dense(keys, dtype)
    own = values.get("quantization_config", inner.get("quantization_config"))
    read = quantization.read(own, dense, f"{where}: quantization_config")
    tied = Keys(values, place).flag("tie_word_embeddings") or keys.flag("tie_word_embeddings")
    return replace(builder(Source(keys, read, dense, capability, tied)), quantized=own is not None)


def _dense(keys: Keys, dtype: str | None) -> Format:
    """Return the model's own type."""
    named = dtype or keys.value("dtype") or keys.value("torch_dtype")
    if dtype is not None and dtype in formats.TYPES:
        return formats.TYPES[dtype]
    if not isinstance(named, str | None) or named not in _WIDTHS:
        raise keys.error("dtype", f"is {named!r:.40}", "known are bfloat16, float16 and float32")
    return formats.TYPES[_WIDTHS[named]]
