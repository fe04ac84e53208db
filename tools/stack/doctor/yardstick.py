# SPDX-License-Identifier: Apache-2.0
"""Measure a command that serves by a machine and a model: what the sources refuse there, GPUs and heads; `fitting` counts memory."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.deploy import checkpoints, model_memory
from stack.deploy.checkpoints import Checkpoint
from stack.deploy.model_memory import Needs
from stack.deploy.recipes import Recipe
from stack.doctor import fitting, models
from stack.doctor.finding import Edit, Found, unknown, wrong
from stack.doctor.knowledge import settings
from stack.doctor.knowledge.rule import is_like
from stack.doctor.rules import Target
from stack.doctor.script import Flag, Serve
from stack.projects import Unfit, Use

ASKED = ("--attention-backend", "--moe-backend", "--kv-cache-dtype")
"""Flags that the sources are asked about."""
_FIELDS = {("--attention-config", "backend"): "--attention-backend", ("--kernel-config", "moe_backend"): "--moe-backend"}
"""Fields of configurations that are the same settings as flags (vllm/engine/arg_utils.py, 0.32)."""
_GPT_OSS = "*gpt-oss*"


@dataclass(frozen=True, slots=True)
class Measure:
    """The machine of a command, what its model needs if that is known, and the flags that the pinned sources refuse there.

    `unread`: why the configuration of its model could not be read.
    """

    target: Target
    needs: Needs | None = None
    unfit: tuple[Unfit, ...] = ()
    unread: StackError | None = None


def checkpoint_of(serve: Serve, recipe: Recipe | None) -> Checkpoint | None:
    """Return the checkpoint that a command serves, as far as it is known: by its repository, or as the recipe's."""
    for name in checkpoints.known():
        known = checkpoints.load(name)
        if serve.model is not None and serve.model.lower() == known.repository.lower():
            return known
    is_path = serve.model is None or serve.model.startswith(("/", "$", ".", "~"))
    if recipe is not None and is_path and recipe.model in checkpoints.known():
        return checkpoints.load(recipe.model)
    return None


def measure_of(
    serve: Serve, target: Target, checkpoint: Checkpoint | None, unfit: tuple[Unfit, ...] = (), script: str | None = None
) -> Measure:
    """Return what a command is measured by: its checkpoint, or the `config.json` in the folder that it serves.

    Args:
        serve: the command.
        target: its machine.
        checkpoint: what it serves, if that is published and known.
        unfit: the flags that the pinned sources refuse.
        script: the file that has the command, beside which a relative folder is looked for; None: folders are of another machine.

    """
    folder = None if script is None else models.folder_of(serve, Path(script).parent)
    try:
        needs = model_memory.of_folder(folder, target.capability) if folder is not None else None
        if needs is None and checkpoint is not None:
            needs = model_memory.of_checkpoint(checkpoint, target.capability)
    except StackError as odd:
        return Measure(target, None, unfit, odd)
    return Measure(target, needs, unfit)


def from_log(given: Mapping[str, str], model: str | None, line: int) -> Serve:
    """Return the command of a server by the arguments that its log names."""
    flags = (Flag(f"--{name}", value, line) for name, value in given.items() if value != "None")
    return Serve(line, given.get("model", model), tuple(flags))


def use_of(serve: Serve, target: Target, checkpoint: Checkpoint | None) -> Use:
    """Return what a command is for, to ask the sources."""
    shape = checkpoint.shape if checkpoint is not None else None
    is_gpt_oss = shape is not None or is_like(serve.model, _GPT_OSS)
    return Use(
        _asked(serve),
        target.capability,
        shape.head_dim if shape is not None else None,
        True if is_gpt_oss else None,
        "mxfp4" if is_gpt_oss else None,
        is_whole=serve.is_whole and is_gpt_oss,
    )


def _asked(serve: Serve) -> dict[str, str]:
    """Return the flags with a known value; fields of a configuration count as the flags that set them, too."""
    given = {name: value for name, value in fitting.flags_of(serve).items() if value and not value.startswith("$")}
    found = {name: value for name, value in given.items() if not value.startswith("{")}
    for (config, key), flag in _FIELDS.items():
        value = given.get(f"{config}.{key}") or _field(given.get(config), key)
        if value is not None:
            found.setdefault(flag, value)
    return found


def _field(text: str | None, key: str) -> str | None:
    """Return a text in a JSON object; None if there is none."""
    try:
        data = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, str) else None


def look(serve: Serve, measure: Measure, told: frozenset[str] = frozenset()) -> Iterator[Found]:
    """Yield what cannot work on the machine, and how the memory is used; `told`: flags that rules report already."""
    for refused in measure.unfit:
        flag = next((each for each in reversed(serve.flags) if settings.flag_names(each) == refused.flag), None)
        if flag is not None and flag.name in told:
            continue
        instead = (
            f"{refused.flag} {' or '.join(refused.instead[:3])}, or " if refused.instead and len(refused.instead) < 9 else ""
        )
        edits = (Edit(flag.line, flag.name),) if flag is not None and flag.name != "--kv-cache-dtype" else ()
        yield wrong(
            f"{refused.flag}: {refused.problem}",
            f"{instead}leave it out: vLLM chooses",
            flag.line if flag is not None else serve.line,
            edits,
        )
    yield from _gpus(serve, measure)
    if measure.unread is not None:
        yield unknown(f"whether the model fits: {measure.unread.problem}", measure.unread.remedy, serve.line)
    if measure.needs is not None:
        yield from fitting.look(serve, measure.target, measure.needs)


def _gpus(serve: Serve, measure: Measure) -> Iterator[Found]:
    """Compare the ranks with the GPUs of a machine that has one, and with the model's heads."""
    tensor, pipeline, data = fitting.ranks_of(serve).values()
    line = next((flag.line for flag in serve.flags if settings.flag_names(flag) in fitting.RANKS), serve.line)
    is_alone = not settings.several_nodes(serve) and fitting.flags_of(serve).get("--distributed-executor-backend") != "ray"
    count = (tensor or 1) * (pipeline or 1) * (data or 1)
    if measure.target.unified and is_alone and serve.is_whole and count > 1:
        yield wrong(
            f"it wants {count} GPUs, and {measure.target.title} has one",
            f"on {count} machines: --nnodes {count} --node-rank N --master-addr ADDRESS on each (stack recipe list has recipes for several)",
            line,
        )
    heads = measure.needs.heads if measure.needs is not None else None
    if heads is not None and tensor is not None and heads % tensor:
        yield wrong(
            f"the model's {heads} heads cannot be shared out to {tensor} ranks",
            "a --tensor-parallel-size that divides them",
            line,
        )
