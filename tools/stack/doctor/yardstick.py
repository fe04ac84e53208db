# SPDX-License-Identifier: Apache-2.0
"""Measure a command that serves by a machine and a model: what the sources refuse there, GPUs, heads, and memory."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stack.deploy import checkpoints
from stack.deploy.checkpoints import Checkpoint, Shape
from stack.deploy.recipes import Recipe
from stack.doctor import rules
from stack.doctor.finding import Edit, Found, fine, note, wrong
from stack.doctor.knowledge import settings, values
from stack.doctor.knowledge.rule import is_like
from stack.doctor.rules import Target
from stack.doctor.script import Flag, Serve
from stack.projects import Unfit, Use

_BYTES = {"auto": 2.0, "bfloat16": 2.0, "float16": 2.0, "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0}
"""Bytes of a value in the KV cache by its type."""
_SPARE = 0.95
"""Share of a checkpoint's size that its weights take at least: what is quantized at load, and padding, change it by a few percent."""
_RANKS = ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")
ASKED = ("--attention-backend", "--moe-backend", "--kv-cache-dtype")
"""Flags that the sources are asked about."""
_FIELDS = {("--attention-config", "backend"): "--attention-backend", ("--kernel-config", "moe_backend"): "--moe-backend"}
"""Fields of configurations that are the same settings as flags (vllm/engine/arg_utils.py, 0.32)."""
_GPT_OSS = "*gpt-oss*"
_LONGEST = 131072
"""Context of a gpt-oss (its config.json)."""
_TURN = 2048
"""Tokens of a short conversation: with less cache for each request, most of them wait for others to end."""


@dataclass(frozen=True, slots=True)
class Measure:
    """The machine and, if known, the checkpoint of a command, and the flags that the pinned sources refuse there."""

    target: Target
    checkpoint: Checkpoint | None = None
    unfit: tuple[Unfit, ...] = ()


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
    given = {name: value for name, value in _flags(serve).items() if value and not value.startswith("$")}
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
    if measure.checkpoint is not None:
        yield from _memory(serve, measure.target, measure.checkpoint)


def _flags(serve: Serve) -> dict[str, str | None]:
    return {settings.flag_names(flag): flag.value for flag in serve.flags}


def _ranks(serve: Serve) -> dict[str, int | None]:
    """Return the sizes of the parallel groups; None for one that is not written as a number."""
    given = _flags(serve)
    return {name: _whole(given[name]) if name in given else 1 for name in _RANKS}


def _whole(text: str | None) -> int | None:
    return values.whole(text) or None


def _gpus(serve: Serve, measure: Measure) -> Iterator[Found]:
    """Compare the ranks with the GPUs of a machine that has one, and with the model's heads."""
    tensor, pipeline, data = _ranks(serve).values()
    line = next((flag.line for flag in serve.flags if settings.flag_names(flag) in _RANKS), serve.line)
    is_alone = not settings.several_nodes(serve) and _flags(serve).get("--distributed-executor-backend") != "ray"
    count = (tensor or 1) * (pipeline or 1) * (data or 1)
    if measure.target.unified and is_alone and serve.is_whole and count > 1:
        yield wrong(
            f"it wants {count} GPUs, and {measure.target.title} has one",
            f"on {count} machines: --nnodes {count} --node-rank N --master-addr ADDRESS on each (stack recipe list has recipes for several)",
            line,
        )
    shape = measure.checkpoint.shape if measure.checkpoint is not None else None
    if shape is not None and tensor is not None and shape.num_attention_heads % tensor:
        yield wrong(
            f"the model's {shape.num_attention_heads} heads cannot be shared out to {tensor} ranks",
            "a --tensor-parallel-size that divides them",
            line,
        )


def _memory(serve: Serve, target: Target, checkpoint: Checkpoint) -> Iterator[Found]:
    """Compare weights and the KV cache of a whole request with the share of the memory that the server may take."""
    given, ranks = _flags(serve), _ranks(serve)
    tensor, pipeline = ranks["--tensor-parallel-size"], ranks["--pipeline-parallel-size"]
    share = values.number(given.get("--gpu-memory-utilization") or str(rules.DEFAULT))
    set_aside = {"--kv-cache-memory-bytes", "--kv-cache-memory", "--cpu-offload-gb", "--load-format"} & given.keys()
    if checkpoint.size is None or share is None or not 0 < share <= 1 or set_aside or tensor is None or pipeline is None:
        return
    line = next((flag.line for flag in serve.flags if settings.flag_names(flag) == "--gpu-memory-utilization"), serve.line)
    allowed, weights = share * target.memory, checkpoint.size / (tensor * pipeline)
    if weights * _SPARE > allowed:
        yield wrong(
            f"the weights of {checkpoint.name} take {_gb(weights)} on each GPU, and --gpu-memory-utilization {share:g} of {_gb(target.memory)} "
            f"allows {_gb(allowed)}",
            "raise it, spread the model over more GPUs, or take a smaller model",
            line,
        )
        return
    length = _whole(given["--max-model-len"]) if "--max-model-len" in given else _LONGEST
    width = _BYTES.get(given.get("--kv-cache-dtype") or "auto")
    if checkpoint.shape is None or length is None or width is None:
        return
    request = _request(checkpoint.shape, length, width, tensor) / pipeline
    narrower = "take --kv-cache-dtype fp8, " if width > 1 else ""
    yield from _cache(serve, request, allowed - weights, length, line, narrower)


def _request(shape: Shape, length: int, width: float, tensor: int) -> float:
    """Return the bytes of the KV cache of one request on each GPU: half of the layers see a window only."""
    heads = max(1, shape.num_key_value_heads // tensor)
    whole = (shape.num_hidden_layers + 1) // 2
    tokens = whole * length + (shape.num_hidden_layers - whole) * min(length, shape.sliding_window)
    return tokens * 2 * heads * shape.head_dim * width


def _cache(serve: Serve, request: float, left: float, length: int, line: int, narrower: str) -> Iterator[Found]:
    """Say how many requests of the whole length fit into what is left; activations and graphs take some of it, too."""
    if request > left:
        yield wrong(
            f"a request of {length} tokens takes {_gb(request)} of KV cache, and {_gb(left)} are left beside the weights",
            f"lower --max-model-len, {narrower}or raise --gpu-memory-utilization",
            line,
        )
        return
    fits, wanted = int(left / request), _whole(_flags(serve).get("--max-num-seqs"))
    what = f"{_gb(left)} are left beside the weights: at most {fits} requests of {length} tokens ({_gb(request)} each) at once"
    if wanted is None or wanted <= fits:
        yield fine(what, line)
        return
    share = int(left / request * length / wanted)
    what += f", or {share} tokens for each of the {wanted} of --max-num-seqs"
    yield note(f"{what}: most of them wait", "", line) if share < _TURN else fine(what, line)


def _gb(size: float) -> str:
    return f"{size / 10**9:.1f} GB"
