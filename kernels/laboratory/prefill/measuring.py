# SPDX-License-Identifier: Apache-2.0
"""Measure the prefill kernels with gpt-oss-120b's experts, and triton_kernels beside them: `… LIBRARY [--triton FOLDER]`.

FOLDER contains `triton_kernels`, as vLLM's `third_party` does. Both are timed in CUDA graphs, one layer, whose weights are many times
any cache; a graph of one small kernel takes some 10 us. Ours is compared with float32 first, and has to give the same bits twice.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from laboratory.prefill.problem import ALPHA, LIMIT, PARTS, Layer, bound, drawn, reference, routed

EXPERTS, HIDDEN, INTERMEDIATE, CHOICES = 128, 2880, 2880, 4
TOKENS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
SKEWS = (0.0, 1.0)
_RUNS, _WARM = 7, 2
_FLOPS = CHOICES * 3 * HIDDEN * INTERMEDIATE * 2


def seconds(step: Callable[[], object]) -> float:
    """Return the median of several replays of a graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(_WARM):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(_WARM + _RUNS)]
    for start, end in events:
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(float(start.elapsed_time(end)) / 1e3 for start, end in events[_WARM:])


def triton(layer: Layer) -> Callable[[Any, Any], Any]:
    """Lay out weights for triton_kernels as vLLM does on Hopper; return a function of inputs and logits."""
    import triton_kernels.matmul_ogs_details.opt_flags as flags  # noqa: PLC0415
    from triton_kernels.matmul_ogs import FlexCtx, FnSpecs, FusedActivation, PrecisionConfig, matmul_ogs  # noqa: PLC0415
    from triton_kernels.numerics import InFlexData  # noqa: PLC0415
    from triton_kernels.routing import routing  # noqa: PLC0415
    from triton_kernels.swiglu import swiglu_fn  # noqa: PLC0415
    from triton_kernels.tensor import FP4, convert_layout, wrap_torch_tensor  # noqa: PLC0415
    from triton_kernels.tensor_details import layout  # noqa: PLC0415

    flags.update_opt_flags_constraints({"split_k": 1})
    of_codes, codes_options = layout.make_default_matmul_mxfp4_w_layout(mx_axis=1)
    of_scales, scales_options = layout.make_default_matmul_mxfp4_w_scale_layout(mx_axis=1, num_warps=8)

    def laid_out(codes: Any, scales: Any) -> tuple[Any, PrecisionConfig]:
        scales = torch.nn.functional.pad(scales, (0, -scales.shape[-1] % 4)).transpose(-2, -1)
        weight = convert_layout(wrap_torch_tensor(codes.transpose(-2, -1), dtype=FP4), of_codes, **codes_options)
        factors = convert_layout(wrap_torch_tensor(scales), of_scales, **scales_options)
        return weight, PrecisionConfig(weight_scale=factors, flex_ctx=FlexCtx(rhs_data=InFlexData()))

    def alternating(tensor: Any) -> Any:
        up, gate = tensor.chunk(2, dim=1)
        return torch.stack([gate, up], 2).flatten(1, 2).contiguous()

    w13, first = laid_out(alternating(layer.w13), alternating(layer.w13_scale))
    w2, second = laid_out(layer.w2, layer.w2_scale)
    biases = alternating(layer.w13_bias).float(), layer.w2_bias.float()
    activation = FusedActivation(FnSpecs("swiglu", swiglu_fn, ("alpha", "limit")), (ALPHA, LIMIT), 2)

    def run(x: Any, logits: Any) -> Any:
        between, out = x.new_empty(1, len(x) * CHOICES, INTERMEDIATE), x.new_empty(1, *x.shape)
        route, gather, scatter = routing(logits, CHOICES, sm_first=False)
        matmul_ogs(x, w13, biases[0], route, gather_indx=gather, precision_config=first, fused_activation=activation, y=between)
        weights = route.gate_scal
        matmul_ogs(between[0], w2, biases[1], route, scatter_indx=scatter, precision_config=second, gammas=weights, y=out)
        return out[0]

    return run


def _distance(out: Any, right: Any) -> float:
    return float((out.float() - right).norm() / right.norm())


def _checked(library: Path, layer: Layer) -> str:
    """Compare the kernels with float32; return a line of errors.

    Raises:
        SystemExit: the same inputs gave different bits.

    """
    x = torch.randn(300, HIDDEN, device="cuda").bfloat16()
    _, ids, weights = routed(300, EXPERTS, CHOICES, 1, 1.0)
    run = bound(library, layer, x, ids, weights)
    first = run().clone()
    if not torch.equal(first.view(torch.int16), run().view(torch.int16)):
        raise SystemExit("prefill: the same inputs gave different bits")
    right = reference(layer, x, ids, weights)
    ideal = _distance(reference(layer, x, ids, weights, rounds=True), right)
    return f"rel-L2 to float32: {_distance(first, right):.2e}, of an ideal kernel {ideal:.2e}"


def _line(library: Path, layer: Layer, tokens: int, skew: float, beside: Callable[[Any, Any], Any] | None) -> str:
    x = torch.randn(tokens, HIDDEN, device="cuda").bfloat16()
    logits, ids, weights = routed(tokens, EXPERTS, CHOICES, tokens, skew)
    run = bound(library, layer, x, ids, weights)
    whole = seconds(run)
    each = " ".join(f"{name} {seconds(partial(run, bit)) * 1e6:.0f}" for name, bit in PARTS.items())
    other = f"; triton {seconds(partial(beside, x, logits)) * 1e6:.0f} us" if beside else ""
    return f"{tokens} tokens, skew {skew}: {whole * 1e6:.0f} us, {tokens * _FLOPS / whole / 1e12:.0f} TFLOP/s ({each}){other}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each number of tokens."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("library", type=Path)
    parser.add_argument("--triton", type=Path, help="a folder that contains triton_kernels")
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS)
    options = parser.parse_args(arguments)
    if options.triton:
        sys.path.insert(0, str(options.triton))
    layer = drawn(EXPERTS, HIDDEN, INTERMEDIATE, 0)
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}; {_checked(options.library.absolute(), layer)}", flush=True
    )
    beside = triton(layer) if options.triton else None
    for tokens in options.tokens:
        for skew in SKEWS:
            print(_line(options.library.absolute(), layer, tokens, skew, beside), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
