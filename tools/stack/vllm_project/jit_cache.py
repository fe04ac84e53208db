# SPDX-License-Identifier: Apache-2.0
"""Provide modules of FlashInfer that were compiled ahead of time; FlashInfer looks here before it compiles.

FlashInfer 0.7 asks for providers, earlier releases for a folder. The modules belong to one build of FlashInfer and are not
offered to another one, whose kernels may differ.
"""

import importlib
import json
import logging
from pathlib import Path
from types import SimpleNamespace

_HERE = Path(__file__).resolve().parent
_ABOUT = json.loads((_HERE / "about.json").read_text(encoding="utf-8"))
__version__ = str(_ABOUT["version"])
jit_cache_dir = _HERE / "jit_cache"


def _fits() -> bool:
    """Return whether the installed FlashInfer is the build that the modules belong to."""
    build = importlib.import_module("flashinfer.version").__version__
    if build != __version__:
        logging.getLogger(__name__).warning(
            "flashinfer-jit-cache belongs to FlashInfer %s, and is not used by %s: install both from one build",
            __version__,
            build,
        )
    return bool(build == __version__)


def get_jit_cache_dir() -> str:
    """Return the folder of the modules, or a path that does not exist if they do not fit."""
    return str(jit_cache_dir if _fits() else _HERE / "nothing-fits")


def get_jit_cache_providers() -> "tuple[SimpleNamespace, ...]":
    """Return the provider in FlashInfer's form, or nothing if it does not fit."""
    if not _fits():
        return ()
    return (
        SimpleNamespace(
            provider_id=_ABOUT["provider"],
            distribution="flashinfer-jit-cache",
            version=__version__,
            jit_cache_dir=jit_cache_dir,
            cuda_architectures=frozenset(_ABOUT["architectures"]),
            modules=frozenset(_ABOUT["modules"]),
        ),
    )
