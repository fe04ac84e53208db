# SPDX-License-Identifier: Apache-2.0
"""Compare what a command's model takes of the memory with what the command allows: weights, KV cache, and states of requests."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stack.base.errors import StackError
from stack.deploy.formats import Format
from stack.deploy.model_memory import Needs
from stack.doctor import rules
from stack.doctor.commands import Serve
from stack.doctor.finding import Found, fine, note, wrong
from stack.doctor.knowledge import settings, values
from stack.doctor.rules import Target

RANKS = ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")
_ELSEWHERE = {"--kv-cache-memory-bytes", "--kv-cache-memory", "--cpu-offload-gb", "--load-format", "--hf-overrides"}
"""Flags with which the share of the memory is not what counts, or the model is another one."""
_STATES = {"--mamba-ssm-cache-dtype", "--mamba-cache-dtype"}
_TURN = 2048
"""Tokens of a short conversation: with less cache for each request, most of them wait for others to end."""
_ROUND = 1024
_SHARE = "--gpu-memory-utilization"


@dataclass(frozen=True, slots=True)
class _Room:
    """The bytes that are left on each GPU beside the weights, and how requests use them."""

    needs: Needs
    form: Format
    left: float
    tensor: int
    pipeline: int
    line: int

    def request(self, tokens: int) -> float:
        return self.needs.request(self.form, tokens, self.tensor) / self.pipeline

    def longest(self, size: float) -> int:
        """Return the most tokens of a request that takes that much at most, rounded down."""
        tokens = self.needs.fitting(self.form, size * self.pipeline, self.tensor)
        return tokens // _ROUND * _ROUND if tokens >= _ROUND else tokens


def flags_of(serve: Serve) -> dict[str, str | None]:
    """Return the flags of a command by their long names; the last one counts."""
    return {settings.flag_names(flag): flag.value for flag in serve.flags}


def ranks_of(serve: Serve) -> dict[str, int | None]:
    """Return the sizes of the parallel groups; None for one that is not written as a number."""
    given = flags_of(serve)
    return {name: values.whole(given[name]) or None if name in given else 1 for name in RANKS}


def look(serve: Serve, target: Target, needs: Needs) -> Iterator[Found]:
    """Yield whether weights, a request of the whole length, and as many requests as may run at once fit into the memory."""
    given, ranks = flags_of(serve), ranks_of(serve)
    tensor, pipeline, data = ranks.values()
    share = values.number(given.get(_SHARE) or str(rules.DEFAULT))
    if needs.weights is None or share is None or not 0 < share <= 1 or tensor is None or pipeline is None:
        return
    if _ELSEWHERE & given.keys() or ("--quantization" in given and not needs.quantized):
        return
    if data != 1 and "--enable-expert-parallel" in given:
        return  # copies of the server share the experts
    line = next((flag.line for flag in serve.flags if settings.flag_names(flag) == _SHARE), serve.line)
    allowed, weights = share * target.memory, needs.weights / (tensor * pipeline)
    if weights > allowed:
        yield wrong(
            f"the weights of {needs.name} take {_gb(weights)} on each GPU, and {_SHARE} {share:g} of {_gb(target.memory)} "
            f"allows {_gb(allowed)}",
            "raise it, spread the model over more GPUs, or take a smaller model",
            line,
        )
        return
    form = needs.cache(given.get("--kv-cache-dtype") or "auto")
    if form is None or _STATES & given.keys():
        return
    try:
        yield from _requests(given, _Room(needs, form, allowed - weights, tensor, pipeline, line))
    except StackError:
        return  # the ranks cannot share the model: that is told of its heads


def _requests(given: Mapping[str, str | None], room: _Room) -> Iterator[Found]:
    """Compare requests of the whole length, and as many as may run at once, with the memory that is left."""
    wanted = values.whole(given.get("--max-num-seqs")) or None
    length, narrower = _length(given, room), "--kv-cache-dtype fp8, " if room.form.bits > 8 else ""
    if length is None:
        return
    request, state = room.request(length), room.needs.state(room.tensor) / room.pipeline
    if request > room.left:
        fits = room.longest(room.left)
        shorter = f"--max-model-len {fits} or less" if fits else "a smaller model"
        yield wrong(
            f"a request of {length} tokens takes {_gb(request)} of KV cache, and {_gb(room.left)} are left beside the weights",
            f"{shorter}, {narrower}or a higher {_SHARE}",
            room.line,
        )
    elif wanted is not None and state and wanted * state > room.left:
        yield wrong(
            f"{wanted} requests at once take {_gb(wanted * state)}: {_gb(state)} each for the states of linear-attention or Mamba layers; "
            f"{_gb(room.left)} are left beside the weights, and vLLM does not start",
            f"--max-num-seqs {int(room.left / state)} or less, or a higher {_SHARE}",
            room.line,
        )
    else:
        yield from _at_once(room, length, wanted, narrower)


def _length(given: Mapping[str, str | None], room: _Room) -> int | None:
    """Return the most tokens of a request; None if it is not known. vLLM takes what fits for `auto` and -1."""
    text = given.get("--max-model-len")
    if "--max-model-len" not in given:
        return room.needs.longest
    if text in ("auto", "-1"):
        return room.longest(room.left) or None
    size = values.tokens(text)
    return size if size else None


def _at_once(room: _Room, length: int, wanted: int | None, narrower: str) -> Iterator[Found]:
    """Say how many requests of the whole length fit into what is left; activations and graphs take some of it, too."""
    request = room.request(length)
    fits = int(room.left / request) if request else 0
    what = f"{_gb(room.left)} are left beside the weights: at most {fits} requests of {length} tokens ({_gb(request)} each) at once"
    if wanted is None or wanted <= fits or not request:
        yield fine(what, room.line)
        return
    share = room.needs.fitting(room.form, room.left / wanted * room.pipeline, room.tensor)
    what += f", or {share} tokens for each of the {wanted} of --max-num-seqs"
    if share >= _TURN:
        yield fine(what, room.line)
        return
    most = int(room.left / room.request(_TURN))
    advice = f"--max-num-seqs {most} leaves each {_TURN} tokens" if most else "lower --max-num-seqs"
    yield note(f"{what}: most of them wait", f"{advice}; {narrower}or a higher {_SHARE} leaves more", room.line)


def _gb(size: float) -> str:
    return f"{size / 10**9:.1f} GB" if size >= 5 * 10**8 else f"{size / 10**6:.1f} MB"
