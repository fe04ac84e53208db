# SPDX-License-Identifier: Apache-2.0
"""The kernels that are compared, each bound to the weights of many layers, and called as the numerics call it.

For each shape weights are drawn once on the GPU, with every code and a few scales. The layers are copies at different addresses, so
none comes from the cache. Experts are timed from the router's logits to their sum. Ours selects the experts of few tokens itself, as in
vLLM. Before a kernel that takes ids, vLLM's selection runs and is timed with it.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from laboratory.decoding.figures import EXPERTS, HIDDEN, INTERMEDIATE, OURS
from stack.validation.numerics.experts import ALPHA, LIMIT, TOP, Experts
from stack.validation.numerics.formats import E2M1, decode, unpack
from stack.validation.numerics.kernels import cuda
from stack.validation.numerics.kernels import decode as small
from stack.validation.numerics.kernels.environment import gpu, missing

Given = Mapping[str, Any]
Mixture = Callable[[Any, Any, Any, Any], Any]
"""Maps x [tokens, hidden], logits [tokens, experts], ids and weights [tokens, top] to [tokens, hidden]."""
Dense = Callable[[Any], Any]
SIZES = Experts(1)
_SCALES = (118, 122)
"""Range of e8m0 codes, the end excluded, for which outputs are of the order of one."""


@dataclass(frozen=True, slots=True)
class MixtureKernel:
    """A kernel for experts. `lay_out` converts one layer's weights from a checkpoint's layout; `bind` makes a function of them.

    `of_vllm`: it needs vLLM's configuration to run.
    """

    name: str
    lacks: Callable[[], str]
    lay_out: Callable[[Given], Any]
    bind: Callable[[Any], Mixture]
    of_vllm: bool = False

    def layers(self, given: Given, count: int) -> list[Mixture]:
        """Make the layers, as many as fit into memory."""
        first = self.lay_out(given)
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        parts = [first]
        while len(parts) < count:
            parts.append(copy.deepcopy(first))
            taken = (torch.cuda.memory_allocated() - before) / (len(parts) - 1)
            if torch.cuda.mem_get_info()[0] < taken + _RESERVE:
                break
        return [self.bind(part) for part in parts]


_RESERVE = 6 * 2**30
"""Bytes that stay free for activations, scratch memory and another layer's copy."""


@dataclass(frozen=True, slots=True)
class DenseKernel:
    """A kernel for dense layers. `bind` makes a function of codes, scales and bias of an MXFP4 weight; see also MixtureKernel."""

    name: str
    lacks: Callable[[], str]
    bind: Callable[[Any, Any, Any], Dense]
    four_bits: bool = True
    of_vllm: bool = False


def checkpoint(seed: int) -> dict[str, Any]:
    """Draw one layer's experts by vLLM's names; rows of gate and up alternate."""
    draw = torch.Generator("cuda").manual_seed(seed)
    shapes = {"w13": (EXPERTS, 2 * INTERMEDIATE, HIDDEN), "w2": (EXPERTS, HIDDEN, INTERMEDIATE)}
    given = {}
    for name, (count, rows, columns) in shapes.items():
        given[f"{name}_weight"], given[f"{name}_weight_scale"] = _weight((count, rows, columns), draw)
        given[f"{name}_bias"] = torch.randn(count, rows, generator=draw, device="cuda", dtype=torch.bfloat16)
    return given


def dense(outputs: int, inputs: int, seed: int, *, bias: bool = True) -> tuple[Any, Any, Any]:
    """Draw codes, scales and bias of a dense layer; the bias is None without `bias`."""
    draw = torch.Generator("cuda").manual_seed(seed)
    codes, scales = _weight((outputs, inputs), draw)
    added = torch.randn(outputs, generator=draw, device="cuda", dtype=torch.bfloat16) if bias else None
    return codes, scales, added


def tokens(count: int, width: int, seed: int) -> Any:
    """Draw activations: bfloat16 [count, width]."""
    return torch.randn(count, width, generator=torch.Generator("cuda").manual_seed(seed), device="cuda", dtype=torch.bfloat16)


def mixtures(*, sm90: bool, padded: bool) -> Iterator[MixtureKernel]:
    """List the kernels for experts. `sm90`: with FlashInfer's, which compile for 40 minutes. `padded`: with ours in vLLM's layout."""
    topk = not missing("vllm")
    yield MixtureKernel(OURS, small.lacks, small.plain, lambda parts: _ours(parts, topk=topk), of_vllm=topk)
    if topk:
        yield MixtureKernel(f"{OURS}, ids given", small.lacks, small.plain, lambda parts: _ours(parts, most=0), of_vllm=True)
    if padded:
        yield MixtureKernel(
            f"{OURS}, padded",
            lambda: small.lacks("vllm"),
            lambda given: small.padded(SIZES, given),
            _ours,
            of_vllm=True,
        )
    yield _of_vllm("marlin", "MARLIN", lambda: missing("vllm"))
    yield _of_vllm("triton", "TRITON", lambda: missing("vllm"))
    left_out = "" if sm90 else "left out: FlashInfer compiles it for forty minutes (--flashinfer-sm90)"
    yield _of_vllm(
        "flashinfer-sm90", "FLASHINFER_CUTLASS_MXFP4_BF16", lambda: gpu("sm90") or missing("vllm", "flashinfer") or left_out
    )


def linears() -> Iterator[DenseKernel]:
    """List the kernels for dense layers."""
    yield DenseKernel(OURS, small.lacks, _gemv)
    # In a model, other kernels run in between and hide less of the loads. This variant is the opposite extreme.
    yield DenseKernel(f"{OURS}, no PDL", small.lacks, partial(_gemv, early=False))
    yield DenseKernel("marlin", lambda: missing("vllm"), cuda.marlin_layer, of_vllm=True)
    yield DenseKernel("cublas-bf16", lambda: "", _cublas, four_bits=False)


def mixed(given: Given, x: Any, ids: Any, weights: Any) -> Any:
    """Compute experts in float32: [tokens, hidden]; ids and weights have shape [tokens, any]."""
    output = torch.zeros(x.shape, device="cuda")
    for number in ids.unique().tolist():
        rows, places = torch.nonzero(ids == number, as_tuple=True)
        first = x[rows].float() @ values(given["w13_weight"][number], given["w13_weight_scale"][number]).T
        first += given["w13_bias"][number].float()
        gate, up = first[:, 0::2].clamp(max=LIMIT), first[:, 1::2].clamp(-LIMIT, LIMIT)
        hidden = (up + 1) * gate * torch.sigmoid(ALPHA * gate)
        down = (
            hidden @ values(given["w2_weight"][number], given["w2_weight_scale"][number]).T + given["w2_bias"][number].float()
        )
        output.index_add_(0, rows, weights[rows, places, None] * down)
    return output


def multiplied(x: Any, codes: Any, scales: Any, bias: Any) -> Any:
    """Compute a dense layer in float32."""
    product = torch.cat(
        [x.float() @ values(*part).T for part in zip(codes.split(8192), scales.split(8192), strict=True)], dim=1
    )
    return product if bias is None else product + bias.float()


def values(codes: Any, scales: Any) -> Any:
    """Decode a weight [outputs, inputs] to float32, exactly."""
    known = torch.from_numpy(decode(E2M1, unpack(_BYTES)).astype(np.float32)).cuda()
    blocks = known[codes.int()].view(*scales.shape, 32)
    return (blocks * torch.exp2(scales.float() - 127)[..., None]).flatten(-2)


_BYTES = np.arange(256, dtype=np.uint8)[:, None]


def _weight(shape: Sequence[int], draw: Any) -> tuple[Any, Any]:
    byte = {"generator": draw, "device": "cuda", "dtype": torch.uint8}
    codes = torch.randint(256, (*shape[:-1], shape[-1] // 2), **byte)
    return codes, torch.randint(*_SCALES, (*shape[:-1], shape[-1] // 32), **byte)


def _ours(parts: Given, *, topk: bool = True, most: int = small.MOST) -> Mixture:
    """Bind our kernel. As in vLLM, above `most` tokens vLLM's kernel selects the experts if `topk`, else ids are given."""
    from flashinfer.fused_moe import mxfp4_moe_decode  # noqa: PLC0415

    def run(x: Any, logits: Any, ids: Any, weights: Any) -> Any:
        chooses = logits is not None and len(x) <= most
        if topk and logits is not None and not chooses:
            ids, weights = cuda.chosen(logits)
        out = torch.empty_like(x)
        for rows in _slices(len(x)):
            by_logits = {"routing_logits": logits[rows], "top_k": TOP} if chooses else None
            mxfp4_moe_decode(
                x[rows],
                **parts,
                **(by_logits or {"topk_ids": ids[rows], "topk_weights": weights[rows]}),
                intermediate_size=INTERMEDIATE,
                alpha=ALPHA,
                beta=1.0,
                limit=LIMIT,
                out=out[rows],
            )
        return out

    return run


def _slices(count: int) -> list[slice]:
    """Split tokens into the parts that a kernel takes at a time, as vLLM does."""
    return [slice(first, first + small.MOST) for first in range(0, count, small.MOST)]


def _of_vllm(name: str, backend: str, lacks: Callable[[], str]) -> MixtureKernel:
    def bind(parts: Any) -> Mixture:
        mixture = cuda.mixed(backend, SIZES, parts)

        def run(x: Any, logits: Any, _ids: Any, _weights: Any) -> Any:
            if mixture.hidden != HIDDEN:  # vLLM pads the layer's input, too
                x = torch.nn.functional.pad(x, (0, mixture.hidden - HIDDEN))
            return mixture(x, logits)[:, :HIDDEN]

        return run

    return MixtureKernel(name, lacks, lambda given: cuda.converted(backend, SIZES, given), bind, of_vllm=True)


def _gemv(codes: Any, scales: Any, bias: Any, *, early: bool | None = None) -> Dense:
    """Bind our kernel. If `early` is False, it begins only when its predecessor has ended; None lets FlashInfer decide."""
    from flashinfer.gemm import mxfp4_gemv  # noqa: PLC0415

    def run(x: Any) -> Any:
        out = x.new_empty(len(x), len(codes))
        for rows in _slices(len(x)):
            mxfp4_gemv(x[rows], codes, scales, bias, out=out[rows], enable_pdl=early)
        return out

    return run


def _cublas(codes: Any, scales: Any, bias: Any) -> Dense:
    weight = torch.cat([values(*part).bfloat16() for part in zip(codes.split(8192), scales.split(8192), strict=True)])
    return lambda x: torch.nn.functional.linear(x, weight, bias)
