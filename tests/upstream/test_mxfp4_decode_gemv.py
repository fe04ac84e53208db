# SPDX-License-Identifier: Apache-2.0
"""The series mxfp4-decode in FlashInfer: the dense kernel for few tokens, and BF16 to MXFP4 and back.

Their own sources run on this machine's CPU, as those of the experts do in test_mxfp4_decode_moe.
"""

import numpy as np
import on_cpu
import pytest

from laboratory import mxfp4
from laboratory.emulated import Machine, from_bfloat16_bits
from stack.validation.numerics.blocks import MXFP4, Rounding, quantize
from stack.validation.numerics.judging import judge
from stack.validation.numerics.linear import Linear

KERNELS = "flashinfer/add-an-experimental-mxfp4-gemv-for-few-tokens.patch"

# Most of what the patches bring needs a GPU, and is skipped here.
PROVES = {
    KERNELS: [
        "test_tokens_are_multiplied",
        "test_every_number_is_quantized_as_defined",
        "tests/experimental/test_mxfp4_gemv.py::test_only_few_tokens_are_taken",
        "tests/experimental/test_mxfp4_gemv.py::test_only_whole_blocks_are_quantized",
        "tests/experimental/test_mxfp4_gemv.py::test_other_roundings_are_refused",
        "tests/experimental/test_mxfp4_gemv.py::test_older_devices_are_refused",
        "tests/experimental/test_mxfp4_gemv.py::test_the_api_is_marked",
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
