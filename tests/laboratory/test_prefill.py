# SPDX-License-Identifier: Apache-2.0
"""The library of the prefill kernels: that it compiles for SM90a, with multiplications that run beside the conversions."""

from pathlib import Path

import pytest

from laboratory.prefill import building
from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.model.stack import load
from stack.proof.compiling import toolkit
from stack.store import cache as places
from stack.validation.kernels import carried_kernels
from tests import keeping
from tests.keeping import Keep, Measured

ROOT = Path(__file__).parents[2]
SIZES = b"<kUp, 64, 80, 96, 128>"


@pytest.fixture(scope="module")
def kernels() -> dict[str, bytes]:
    with Stores(load(ROOT), Place(places.root())) as stores:
        return carried_kernels(stores)


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        (SIZES, ""),
        # ptxas keeps registers for each size: with a fifth size no multiplication runs beside a conversion.
        (b"<kUp, 48, 64, 80, 96, 128>", "serializes"),
        (b"<kUp, 72>", "nvcc for sm_90a"),
    ],
)
def test_multiplications_run_beside_conversions(
    kernels: dict[str, bytes], sizes: bytes, problem: str, tmp_path: Path, keep: Keep
) -> None:
    tools = toolkit.find(places.root())
    headers = {**kernels, "moe_prefill.cuh": kernels["moe_prefill.cuh"].replace(SIZES, sizes)}
    assert (headers == kernels) is (sizes == SIZES)
    library = tmp_path / "prefill.so"

    def built() -> Measured:
        try:
            building.build(headers, tools, library)
        except StackError as refused:
            return {"refused": str(refused), "there": library.exists()}
        return {"refused": "", "there": library.read_bytes().startswith(b"\x7fELF")}

    inputs = {"kernels": repr(headers), "program": keeping.code(building.SOURCE, Path(building.__file__))}
    found = keep({**inputs, **keeping.cuda(tools)}, built)
    assert problem in str(found["refused"])
    assert found["there"] is (not problem)
