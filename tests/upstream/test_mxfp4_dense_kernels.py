# SPDX-License-Identifier: Apache-2.0
"""The series mxfp4-dense in FlashInfer: the dense kernel for few tokens, and BF16 to MXFP4 and back.

Their own sources run on this machine's CPU, as those of the experts do in test_mxfp4_moe_kernels.
"""

import numpy as np
import on_cpu
import pytest
import support
import torch

from laboratory import mxfp4
from laboratory.emulated import Machine, from_bfloat16_bits
from stack.validation.numerics.blocks import MXFP4, Rounding, quantize
from stack.validation.numerics.judging import judge
from stack.validation.numerics.linear import Linear

with support.quiet():
    from flashinfer import gemm

KERNELS = "flashinfer/add-mxfp4-dense-layers-for-few-tokens.patch"

PROVES = {
    KERNELS: [
        "test_tokens_are_multiplied",
        "test_every_number_is_quantized_as_defined",
        "test_what_it_cannot_take_is_refused",
    ],
}
UPSTREAM_TESTS = ["tests/test_env.py"]
UPSTREAM_ARGS = ["-p", "support"]

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(name="machine", scope="module")
def _machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """The kernels of this tree, for this machine's CPU."""
    return on_cpu.machine(tmp_path_factory.mktemp("emulated"))


@pytest.mark.parametrize(("tokens", "inputs", "outputs", "processors"), [(1, 96, 70, 48), (9, 160, 33, 2), (3, 672, 230, 1)])
def test_tokens_are_multiplied(tokens: int, inputs: int, outputs: int, processors: int, machine: Machine) -> None:
    # As many rows for the GPU's multiprocessors as make each of the three shapes of blocks.
    layer = Linear(tokens, inputs, outputs, "mxfp4")
    assert not judge(mxfp4.multiplied(machine, layer, processors), layer.truth(), on_cpu.BAR).why


@pytest.mark.parametrize("rounding", [Rounding.EVEN, Rounding.FLOOR])
def test_every_number_is_quantized_as_defined(rounding: Rounding, machine: Machine) -> None:
    bits = mxfp4.every_number()
    made = mxfp4.quantized(machine, bits, rounding)
    with np.errstate(invalid="ignore"):  # some of them are signalling
        right = quantize(MXFP4, from_bfloat16_bits(bits).astype(np.float64), rounding)
    assert np.array_equal(made.scales, right.scales)
    assert np.array_equal(made.codes, right.codes)


def test_what_it_cannot_take_is_refused() -> None:
    nothing = torch.empty(0)
    with pytest.raises(ValueError, match="1 to 16 tokens, not 17"):
        gemm.mxfp4_gemv(torch.zeros(17, 32, dtype=torch.bfloat16), nothing, nothing)
    with pytest.raises(ValueError, match="40 columns are no multiple of 32"):
        gemm.mxfp4_weight_quantize(torch.zeros(1, 40, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match="even or floor, not up"):
        gemm.mxfp4_weight_quantize(torch.zeros(1, 32, dtype=torch.bfloat16), scale_rounding="up")
