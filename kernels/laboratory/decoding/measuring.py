# SPDX-License-Identifier: Apache-2.0
"""Time kernels: run many layers in one CUDA graph, replayed often.

Before that, each kernel's first step is compared with float32. For our kernels, the outputs of the last replay are compared with those
of each step run alone.
"""

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from laboratory.decoding import figures, kernels
from laboratory.decoding.figures import DENSE, HIDDEN, LAYERS, OURS, VOCABULARY, Row
from laboratory.decoding.kernels import DenseKernel, MixtureKernel
from stack.validation.decode_goals import LM_HEAD, MOE, QKV_O, SATURATED
from stack.validation.numerics.cases import BFLOAT16_BAR
from stack.validation.numerics.kernels import cuda

HEAD_TOKENS = (1, 2, 4, 8, 16)
_HEADS = 8
"""Number of copies of lm_head's weight: 2.5 GB, many times any cache."""
_COPY = 4 * 2**30
_WARM = 3
_LONGEST = 200
"""Most characters of an error that are shown."""


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """How to measure; `layers` is the number of layers of experts. `sm90` and `padded` are those of `kernels.mixtures`."""

    tokens: tuple[int, ...]
    layers: int
    replays: int
    seed: int
    sm90: bool = False
    padded: bool = False


def copied(replays: int) -> float:
    """Measure the bytes per second that a large copy on the device reads and writes.

    The copy is launched, not replayed: in a graph it takes another path, on an H200 at 2.8 TB/s instead of 4.3.
    """
    size = min(_COPY, torch.cuda.mem_get_info()[0] // 4)
    source, target = (torch.randint(256, (size,), dtype=torch.uint8, device="cuda") for _ in range(2))
    for _ in range(_WARM):
        target.copy_(source)
    return Row("copy", "copy", 0, 1, 2 * size, _seconds(lambda: target.copy_(source), replays)).rate


def timed(step: Callable[[], object], replays: int) -> tuple[float, ...]:
    """Capture a step in a graph, and return the seconds of each replay."""
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):  # compile and allocate before the capture
        for _ in range(_WARM):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    for _ in range(_WARM):
        graph.replay()
    return _seconds(graph.replay, replays)


def _seconds(run: Callable[[], object], times: int) -> tuple[float, ...]:
    """Return the seconds of each run."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(times)]
    for start, end in events:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return tuple(start.elapsed_time(end) / 1e3 for start, end in events)


def mixtures(options: MeasureOptions) -> Iterator[list[Row]]:
    """Measure experts, one kernel at a time: its layers are freed before the next kernel's are made."""
    given = kernels.checkpoint(options.seed)
    for kernel in kernels.mixtures(sm90=options.sm90, padded=options.padded):
        empty = [Row(MOE, kernel.name, count, 1, 0) for count in options.tokens]
        yield _guarded(kernel, empty, lambda kernel=kernel: _mixture(kernel, given, options))  # type: ignore[misc]


def denses(options: MeasureOptions) -> Iterator[list[Row]]:
    """Measure qkv and o of all layers in sequence, one kernel at a time."""
    return _linears(options, QKV_O, DENSE, options.tokens, LAYERS)


def heads(options: MeasureOptions) -> Iterator[list[Row]]:
    """Measure several copies of lm_head in sequence, one kernel at a time."""
    return _linears(options, LM_HEAD, ((VOCABULARY, HIDDEN),), HEAD_TOKENS, _HEADS)


def _mixture(kernel: MixtureKernel, given: kernels.Given, options: MeasureOptions) -> Iterator[Row]:
    layers = kernel.layers(given, options.layers)
    for count in options.tokens:
        routes = figures.routes(options.seed, len(layers), count)
        touched = routes.touched
        row = Row(MOE, kernel.name, count, len(layers), touched * figures.expert(), touched=touched / len(layers))
        x = kernels.tokens(count, HIDDEN, options.seed)
        logits = torch.from_numpy(routes.logits).cuda().bfloat16()
        ids, weights = (torch.from_numpy(part).cuda() for part in (routes.ids, routes.weights))
        steps = [
            lambda layer=layer, route=route: layer(x, *route)  # noqa: B023 (x belongs to these steps)
            for layer, *route in zip(layers, logits, ids, weights, strict=True)
        ]
        yield _judged(row, options, steps, kernels.mixed(given, x, ids[0], weights[0]))
    if kernel.name.startswith(OURS):  # the other kernels are fixed to four experts per token here
        yield _saturated(kernel, given, layers, options)


def _saturated(kernel: MixtureKernel, given: kernels.Given, layers: Sequence[kernels.Mixture], options: MeasureOptions) -> Row:
    """Measure with sixteen tokens that reach every expert of each layer exactly once."""
    chosen = figures.every_expert(len(layers))
    x = kernels.tokens(chosen.shape[1], HIDDEN, options.seed)
    ids, weights = torch.from_numpy(chosen).cuda(), torch.full(chosen.shape, 1 / chosen.shape[2], device="cuda")
    read = len(layers) * figures.EXPERTS * figures.expert()
    row = Row(SATURATED, kernel.name, chosen.shape[1], len(layers), read, touched=float(figures.EXPERTS))
    steps = [
        lambda layer=layer, mine=mine, shares=shares: layer(x, None, mine, shares)
        for layer, mine, shares in zip(layers, ids, weights, strict=True)
    ]
    return _judged(row, options, steps, kernels.mixed(given, x, ids[0], weights[0]))


def _linears(
    options: MeasureOptions, part: str, shapes: Sequence[tuple[int, int]], counts: Sequence[int], layers: int
) -> Iterator[list[Row]]:
    bias = part != LM_HEAD
    given = [[kernels.dense(*shape, options.seed + layer, bias=bias) for shape in shapes] for layer in range(layers)]

    def measured(kernel: DenseKernel) -> Iterator[Row]:
        bound = [[kernel.bind(*weight) for weight in layer] for layer in given]
        read = layers * sum(figures.matrix(*shape, four_bits=kernel.four_bits, bias=bias) for shape in shapes)
        for count in counts:
            row = Row(part, kernel.name, count, layers, read)
            inputs = [kernels.tokens(count, width, options.seed) for _, width in shapes]
            pairs = [pair for layer in bound for pair in zip(layer, inputs, strict=True)]
            steps = [lambda layer=layer, x=x: layer(x) for layer, x in pairs]
            yield _judged(row, options, steps, kernels.multiplied(inputs[0], *given[0][0]))

    for kernel in kernels.linears():
        empty = [Row(part, kernel.name, count, 1, 0) for count in counts]
        yield _guarded(kernel, empty, lambda kernel=kernel: measured(kernel))  # type: ignore[misc]


def _judged(row: Row, options: MeasureOptions, steps: Sequence[Callable[[], Any]], known: Any) -> Row:
    """Fill in the times, if the first step is right, and if all of our steps compute the same in the graph as alone."""
    off = float((steps[0]().float() - known).norm() / known.norm())
    if not off <= BFLOAT16_BAR:
        return replace(row, why=f"wrong: rel-L2 {off:.2g} to float32", failed=True)
    # Each output is copied to the host before the next step begins, so no two steps overlap here.
    alone = [_bits(each()) for each in steps] if row.kernel.startswith(OURS) else []
    outputs: list[Any] = []

    def step() -> None:
        outputs[:] = [each() for each in steps]

    times = timed(step, options.replays)
    if alone and (why := figures.changed(alone, [_bits(output) for output in outputs])):
        return replace(row, why=why, failed=True)
    return replace(row, times=times)


def _bits(output: Any) -> figures.Bits:
    return np.asarray(output.view(torch.int16).cpu().numpy())


def _guarded(kernel: MixtureKernel | DenseKernel, empty: Sequence[Row], measure: Callable[[], Iterator[Row]]) -> list[Row]:
    """Return a kernel's rows, with the reason if it cannot run or failed. The other kernels are still measured."""
    if lacking := kernel.lacks():
        return [replace(row, why=lacking) for row in empty]
    rows: list[Row] = []
    try:
        with cuda.configured() if kernel.of_vllm else contextlib.nullcontext():
            for row in measure():
                rows.append(row)
    except Exception as error:  # whatever a kernel raises
        why = f"failed: {type(error).__name__}: {' '.join(str(error).split())[:_LONGEST]}"
        rows += [replace(row, why=why, failed=True) for row in empty[len(rows) :] or empty[-1:]]
    gc.collect()
    torch.cuda.empty_cache()
    return rows
