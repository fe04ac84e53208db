# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's MXFP4 experts for many tokens on SM90, of the series mxfp4-decode. They take the decode kernels' weights."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from stack.validation.numerics.experts import Experts
from stack.validation.numerics.kernels import Kernel, cuda
from stack.validation.numerics.kernels.decode import plain, steady
from stack.validation.numerics.kernels.environment import gpu, missing

CAPABLE = ("sm90",)


def experts(layer: Experts) -> npt.ArrayLike:
    """Compute the experts of a layer. If only some of the experts are local, pass a map from all experts to these.

    Raises:
        Unsteady: the same inputs gave different bits.

    """
    import torch  # noqa: PLC0415
    from flashinfer.fused_moe import mxfp4_moe_prefill  # noqa: PLC0415

    def on_gpu(array: npt.NDArray[Any]) -> Any:
        return torch.from_numpy(np.array(array)).cuda()

    here = slice(layer.elsewhere, None)
    weights: Mapping[str, Any] = plain({name: tensor[here].contiguous() for name, tensor in cuda.checkpoint(layer).items()})
    of_all = np.maximum(np.arange(layer.experts, dtype=np.int32) - layer.elsewhere, -1)
    x, route = on_gpu(layer.inputs).bfloat16(), [on_gpu(part) for part in layer.route]
    where = {"expert_map": on_gpu(of_all)} if layer.elsewhere else {}

    def once() -> npt.NDArray[np.float32]:
        out = torch.full_like(x, torch.nan)
        sizes = {"intermediate_size": layer.intermediate, **asdict(layer.glu)}
        names = ("w13", "w13_scale", "w2", "w2_scale")
        biases = {name: weights[name] for name in ("w13_bias", "w2_bias")}
        mxfp4_moe_prefill(x, *(weights[name] for name in names), *route, **biases, **where, **sizes, out=out)
        return np.asarray(out.float().cpu().numpy())

    return steady(once)


def lacks() -> str:
    """Return why the kernel does not run on this machine; empty if it does."""
    return gpu(*CAPABLE) or missing("flashinfer")


EXPERTS = (Kernel("mxfp4-prefill", CAPABLE, lacks, experts),)
