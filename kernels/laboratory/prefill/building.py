# SPDX-License-Identifier: Apache-2.0
"""Build the carried prefill kernels as a library without tensors: `python -m laboratory.prefill.building LIBRARY`. It needs no GPU.

PYTHONPATH=tools:kernels python -m laboratory.prefill.building prefill.so
PYTHONPATH=kernels python -m laboratory.prefill.measuring prefill.so         # on a machine with an H100 or H200, and torch
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from laboratory.variants.building import lay_out
from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.model.stack import load
from stack.proof.compiling.toolkit import Toolkit, find
from stack.store import cache
from stack.validation.kernels import carried_kernels

ROOT = Path(__file__).parents[3]
SOURCE = Path(__file__).with_name("library.cu")
# -arch=sm_90a would not do: nvcc's shorthand may add a pass for plain SM90, which lacks the instructions for matrices.
_FLAGS = ("-O3", "-std=c++17", "-use_fast_math", "-gencode=arch=compute_90a,code=sm_90a", "-Xcompiler=-fPIC", "-shared")
_SERIALIZED = "wgmma.mma_async instructions are serialized"
"""Words of ptxas if matrix multiplications have to wait for each other. That costs up to a third of the speed."""


def build(headers: Mapping[str, bytes], toolkit: Toolkit, library: Path) -> None:
    """Compile the library.

    Raises:
        StackError: nvcc refuses the kernels, or ptxas serializes their multiplications.

    """
    with tempfile.TemporaryDirectory() as work:
        lay_out(Path(work), headers)
        command = [str(toolkit.nvcc), *_FLAGS, f"-I{work}", "-o", str(library), str(SOURCE)]
        done = subprocess.run(command, env=toolkit.environment, check=False, capture_output=True, text=True, errors="replace")
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    if done.returncode:
        raise StackError(
            f"nvcc for sm_90a: {next((line for line in lines if 'error' in line), 'says nothing')}", "mend the kernels"
        )
    if any(_SERIALIZED in line for line in lines):
        library.unlink(missing_ok=True)
        raise StackError(
            "ptxas serializes the matrix multiplications", "use fewer registers, or fewer sizes of tiles in a kernel"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the library; return 2 if this is not possible."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("library", type=Path)
    options = parser.parse_args(arguments)
    try:
        with Stores(load(ROOT), Place(cache.root())) as stores:
            build(carried_kernels(stores), find(cache.root()), options.library.absolute())
    except StackError as cannot:
        print(f"prefill: {cannot}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
