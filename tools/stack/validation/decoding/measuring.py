# SPDX-License-Identifier: Apache-2.0
"""Timing kernels beside each other: many layers in one CUDA graph, replayed often. Each kernel's first step is held against float32
before, and what the last replay of ours computed against each step by itself."""

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from stack.validation.decoding import figures, kernels
from stack.validation.decoding.figures import DENSE, HIDDEN, LAYERS, LM_HEAD, MOE, OURS, QKV_O, SATURATED, VOCABULARY, Row
from stack.validation.decoding.kernels import DenseKernel, MixtureKernel
from stack.validation.numerics.cases import BFLOAT16_BAR
from stack.validation.numerics.kernels import cuda

HEAD_TOKENS = (1, 2, 4, 8, 16)
_HEADS = 8
"""Copies of lm_head's weight: 2.5 GB, many times any cache."""
_COPY = 4 * 2**30
_WARM = 3
_LONGEST = 200
"""Characters of what an error says."""


@dataclass(frozen=True, slots=True)
class Asked:
    """How to measure, experts in so many layers; `sm90` and `padded` as `kernels.mixtures` has them."""

    tokens: tuple[int, ...]
    layers: int
    replays: int
    seed: int
    sm90: bool = False
    padded: bool = False


def copied(replays: int) -> float:
    """Bytes a second that a large copy on the device reads and writes.

    Launched, not replayed: in a graph a copy is done by other means, on an H200 at 2.8 TB/s where this one reaches 4.3.
    """
    size = min(_COPY, torch.cuda.mem_get_info()[0] // 4)
    source, target = (torch.randint(256, (size,), dtype=torch.uint8, device="cuda") for _ in range(2))
    for _ in range(_WARM):
        target.copy_(source)
    return Row("copy", "copy", 0, 1, 2 * size, _seconds(lambda: target.copy_(source), replays)).rate


def timed(step: Callable[[], object], replays: int) -> tuple[float, ...]:
    """Seconds of each replay of a graph of what a step launches."""
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):  # what is compiled or allocated when it is first used is no part of the graph
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
    """Of each run."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(times)]
    for start, end in events:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return tuple(start.elapsed_time(end) / 1e3 for start, end in events)


def mixtures(asked: Asked) -> Iterator[list[Row]]:
    """Experts, a kernel at a time: its layers are made once, and gone before the next kernel's are."""
    given = kernels.checkpoint(asked.seed)
    for kernel in kernels.mixtures(sm90=asked.sm90, padded=asked.padded):
        empty = [Row(MOE, kernel.name, count, 1, 0) for count in asked.tokens]
        yield _guarded(kernel, empty, lambda kernel=kernel: _mixture(kernel, given, asked))  # type: ignore[misc]


def denses(asked: Asked) -> Iterator[list[Row]]:
    """qkv and o of each layer, one after the other, a kernel at a time."""
    return _linears(asked, QKV_O, DENSE, asked.tokens, LAYERS)


def heads(asked: Asked) -> Iterator[list[Row]]:
    """lm_head, several copies of it one after the other, a kernel at a time."""
    return _linears(asked, LM_HEAD, ((VOCABULARY, HIDDEN),), HEAD_TOKENS, _HEADS)


def _mixture(kernel: MixtureKernel, given: kernels.Given, asked: Asked) -> Iterator[Row]:
    layers = kernel.layers(given, asked.layers)
    for count in asked.tokens:
        routes = figures.routes(asked.seed, len(layers), count)
        touched = routes.touched
        row = Row(MOE, kernel.name, count, len(layers), touched * figures.expert(), touched=touched / len(layers))
        x = kernels.tokens(count, HIDDEN, asked.seed)
        logits = torch.from_numpy(routes.logits).cuda().bfloat16()
        ids, weights = (torch.from_numpy(part).cuda() for part in (routes.ids, routes.weights))
        steps = [
            lambda one=one, route=route: one(x, *route)  # noqa: B023 (x is of these steps)
            for one, *route in zip(layers, logits, ids, weights, strict=True)
        ]
        yield _judged(row, asked, steps, kernels.mixed(given, x, ids[0], weights[0]))
    if kernel.name.startswith(OURS):  # the others take four experts a token in this model
        yield _saturated(kernel, given, layers, asked)


def _saturated(kernel: MixtureKernel, given: kernels.Given, layers: Sequence[kernels.Mixture], asked: Asked) -> Row:
    """Every expert of each layer with one token of sixteen."""
    chosen = figures.every_expert(len(layers))
    x = kernels.tokens(chosen.shape[1], HIDDEN, asked.seed)
    ids, weights = torch.from_numpy(chosen).cuda(), torch.full(chosen.shape, 1 / chosen.shape[2], device="cuda")
    read = len(layers) * figures.EXPERTS * figures.expert()
    row = Row(SATURATED, kernel.name, chosen.shape[1], len(layers), read, touched=float(figures.EXPERTS))
    steps = [
        lambda one=one, mine=mine, shares=shares: one(x, None, mine, shares)
        for one, mine, shares in zip(layers, ids, weights, strict=True)
    ]
    return _judged(row, asked, steps, kernels.mixed(given, x, ids[0], weights[0]))


def _linears(
    asked: Asked, part: str, shapes: Sequence[tuple[int, int]], counts: Sequence[int], layers: int
) -> Iterator[list[Row]]:
    bias = part != LM_HEAD
    given = [[kernels.dense(*shape, asked.seed + layer, bias=bias) for shape in shapes] for layer in range(layers)]

    def measured(kernel: DenseKernel) -> Iterator[Row]:
        bound = [[kernel.bind(*one) for one in layer] for layer in given]
        read = layers * sum(figures.matrix(*shape, four_bits=kernel.four_bits, bias=bias) for shape in shapes)
        for count in counts:
            row = Row(part, kernel.name, count, layers, read)
            inputs = [kernels.tokens(count, width, asked.seed) for _, width in shapes]
            pairs = [pair for layer in bound for pair in zip(layer, inputs, strict=True)]
            steps = [lambda one=one, x=x: one(x) for one, x in pairs]
            yield _judged(row, asked, steps, kernels.multiplied(inputs[0], *given[0][0]))

    for kernel in kernels.linears():
        empty = [Row(part, kernel.name, count, 1, 0) for count in counts]
        yield _guarded(kernel, empty, lambda kernel=kernel: measured(kernel))  # type: ignore[misc]


def _judged(row: Row, asked: Asked, steps: Sequence[Callable[[], Any]], known: Any) -> Row:
    """The row with its times, if its first step computes what it should, and if in the graph all of ours compute what they do alone."""
    off = float((steps[0]().float() - known).norm() / known.norm())
    if not off <= BFLOAT16_BAR:
        return replace(row, why=f"wrong: rel-L2 {off:.2g} to float32", failed=True)
    # Copied to the host before the next begins: here no kernel overlaps with another step's.
    alone = [_bits(one()) for one in steps] if row.kernel.startswith(OURS) else []
    outputs: list[Any] = []

    def step() -> None:
        outputs[:] = [one() for one in steps]

    times = timed(step, asked.replays)
    if alone and (why := figures.changed(alone, [_bits(output) for output in outputs])):
        return replace(row, why=why, failed=True)
    return replace(row, times=times)


def _bits(output: Any) -> figures.Bits:
    return np.asarray(output.view(torch.int16).cpu().numpy())


def _guarded(kernel: MixtureKernel | DenseKernel, empty: Sequence[Row], measure: Callable[[], Iterator[Row]]) -> list[Row]:
    """A kernel's rows; with the reason where it cannot run, or where it failed. The others are still measured."""
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
