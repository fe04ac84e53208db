# SPDX-License-Identifier: Apache-2.0
"""Read /metrics of vLLM, SGLang and llama.cpp: requests, KV cache, preemptions, CUDA graphs, NaN."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from stack.base.text import counted
from stack.doctor.finding import Found, fine, note, wrong
from stack.doctor.server.client import NoAnswer
from stack.doctor.server.interview import Interview
from stack.doctor.server.judge import NAN_FIX

_SAMPLE = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]{0,199})(?:\{([^}]{0,4000})\})?[ \t]{1,9}(\S{1,40})")
_MODE = re.compile(r'\bmode="([a-z_]{1,60})"')
_LINES = 100_000
"""Lines that are read."""
_FULL = 0.9
"""Share of the KV cache from which requests wait or are preempted."""
_RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing")
_WAITING = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred")
_CACHE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "llamacpp:kv_cache_usage_ratio")
_PREEMPTED = ("vllm:num_preemptions_total", "sglang:num_retracted_requests_total", "sglang:num_retracted_reqs")
_FINISHED = ("vllm:request_success_total", "sglang:num_requests_total")
_OFTEN = 0.01
"""Share of requests from which preemptions are worth knowing."""
_CORRUPT = "vllm:corrupted_requests_total"
_GRAPHS = "sglang:cuda_graph_passes_total"


@dataclass(frozen=True, slots=True)
class Metrics:
    """Numbers of a server about itself; None: it does not tell.

    `running`, `waiting`: requests; `cache`: share of the KV cache in use, that of the fullest engine; `preempted`, `finished`: requests
    since the start; `corrupt`: requests with NaN in their logits; `graphs`: decode passes with CUDA graphs, and all; `engine`: whose names they are.
    """

    running: int | None
    waiting: int | None
    cache: float | None
    preempted: int | None
    finished: int | None
    corrupt: int | None
    graphs: tuple[int, int] | None
    engine: str


def look(interview: Interview) -> Iterator[Found]:
    """Ask /metrics before any other load is made."""
    try:
        reply = interview.client.get("/metrics")
        if reply.status != 200:
            raise reply.refusal()
    except NoAnswer as failed:
        if failed.status is None or failed.status in (401, 403):
            raise
        what = "it has no /metrics, so nothing is known about other requests, the KV cache and preemptions"
        yield note(what, "SGLang: --enable-metrics; llama-server: --metrics; vLLM has it unless a proxy hides it")
        return
    read = parse(reply.data.decode("utf-8", "replace"))
    if not read.engine:
        yield note("/metrics has none of the numbers of vLLM, SGLang or llama.cpp", "ask the server itself, without the proxy")
        return
    yield from (tuple(_faults(read)) or (fine(_summary(read)),))


def parse(text: str) -> Metrics:
    """Read the text format of Prometheus; samples of several engines are added up."""
    sums, most, modes = dict[str, float](), dict[str, float](), dict[str, float]()
    for line in text.splitlines()[:_LINES]:
        if line.startswith("#") or (match := _SAMPLE.match(line[:5000])) is None:
            continue
        name, value = match[1], _number(match[3])
        if value is None:
            continue
        sums[name] = sums.get(name, 0.0) + value
        most[name] = max(most.get(name, 0.0), value)
        if name == _GRAPHS and (mode := _MODE.search(match[2] or "")):
            modes[mode[1]] = modes.get(mode[1], 0.0) + value
    engine = next((name.partition(":")[0] for name in sums if name.startswith(("vllm:", "sglang:", "llamacpp:"))), "")
    decode = {mode: value for mode, value in modes.items() if mode.startswith("decode")}
    with_graphs = int(sum(value for mode, value in decode.items() if mode.endswith("cuda_graph")))
    return Metrics(
        _whole(sums, *_RUNNING),
        _whole(sums, *_WAITING),
        next((most[name] for name in _CACHE if name in most), None),
        _whole(sums, *_PREEMPTED),
        _whole(sums, *_FINISHED),
        _whole(sums, _CORRUPT),
        (with_graphs, int(sum(decode.values()))) if decode else None,
        engine,
    )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value < 1e15 else None


def _whole(sums: dict[str, float], *names: str) -> int | None:
    return next((int(sums[name]) for name in names if name in sums), None)


def _faults(read: Metrics) -> Iterator[Found]:
    if read.corrupt:
        yield wrong(f"{counted(read.corrupt, 'request')} had NaN in the logits since the server started", NAN_FIX)
    if read.graphs is not None and read.graphs[1] and not read.graphs[0]:
        what = f"none of {read.graphs[1]} decode passes used CUDA graphs"
        yield wrong(what, "take --disable-cuda-graph out, or raise --cuda-graph-max-bs")
    if read.waiting:
        what = f"{counted(read.waiting, 'request')} of others wait, and {read.running or 0} run: answers are late, and the speed below is shared"
        yield note(what, "ask again while nobody else does; for more requests at a time raise --max-num-seqs, if memory allows")
    elif read.running:
        yield note(
            f"{counted(read.running, 'request')} of others run at the same time: the speed below is shared",
            "ask again while nobody does",
        )
    if read.cache is not None and read.cache >= _FULL:
        what = f"the KV cache is {read.cache:.0%} full: new requests wait, and running ones are preempted"
        yield note(
            what, "a smaller --max-model-len or --max-num-seqs, --kv-cache-dtype fp8, or a larger --gpu-memory-utilization"
        )
    if read.preempted and read.preempted >= (read.finished or 0) * _OFTEN:
        what = f"{counted(read.preempted, 'request')} were preempted for want of KV cache since the start: each is computed again from its beginning"
        yield note(what, "a smaller --max-num-seqs, --kv-cache-dtype fp8, or a larger --gpu-memory-utilization")


def _summary(read: Metrics) -> str:
    parts = []
    if read.running is not None:
        parts.append("no other request runs")
    if read.cache is not None:
        parts.append(f"the KV cache is {min(read.cache, 1):.0%} full")
    if read.preempted is not None:
        parts.append(f"{read.preempted or 'no'} {'request was' if read.preempted <= 1 else 'requests were'} preempted")
    if read.graphs is not None and read.graphs[1]:
        parts.append(f"{read.graphs[0]} of {read.graphs[1]} decode passes used CUDA graphs")
    elif read.engine == "vllm":
        parts.append("whether CUDA graphs are on stands in vLLM's log only (stack doctor --log)")
    return "; ".join(parts) or f"/metrics of {read.engine} has no fault"
