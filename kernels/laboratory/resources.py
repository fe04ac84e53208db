# SPDX-License-Identifier: Apache-2.0
"""Print a table of the registers, stack and loads of the decode kernels by GPU; with --write, put it into docs/kernel-history.md.

    PYTHONPATH=tools:kernels python -m laboratory.resources [--write]

It compiles the carried modules for each architecture with FlashInfer's own flags. This needs no GPU, and takes two minutes on two cores.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from stack.carry.upstream_stores import Place, Stores
from stack.model.series import Compiles
from stack.model.stack import load
from stack.proof.compiling import check
from stack.proof.compiling.check import CompileRequest, UnitOutcome
from stack.proof.compiling.resources import Kernel
from stack.store import cache

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/kernel-history.md"
BEGIN, END = "<!-- resources -->", "<!-- /resources -->"
_UNITS = ("mxfp4_moe_decode/mxfp4_moe_decode.cu", "mxfp4_gemv/mxfp4_gemv.cu")
_ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a", "sm_120a", "sm_121a")


def main() -> int:
    """Compile, and print or write the table; return 1 if a module does not compile."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    lines = ["| kernel | GPU | registers | stack, B | spills | loads of 16 B | at once |", "|---|---|---|---|---|---|---|"]
    with Stores(load(ROOT), Place(cache.root())) as stores:
        for unit in _UNITS:
            found: list[tuple[Kernel, str]] = []
            for architecture in _ARCHITECTURES:
                (result,) = check.check(
                    stores, CompileRequest(unit=Compiles(None, unit=unit), architectures=(architecture,))
                ).results
                if result.state is not UnitOutcome.COMPILES:
                    print(f"{unit} for {architecture}: {result.problem}", file=sys.stderr)
                    return 1
                found += [(kernel, architecture) for kernel in result.kernels]
            lines += _rows(found)
    table = "\n".join(lines)
    print(table)
    if options.write:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}")
    return 0


def _rows(found: list[tuple[Kernel, str]]) -> Iterator[str]:
    """Yield a line for each kernel and set of numbers, with the GPUs that have them."""
    for name in dict.fromkeys(kernel.name for kernel, _ in sorted(found, key=lambda pair: pair[0].name)):
        alike: dict[tuple[int, ...], list[str]] = {}
        for kernel, architecture in found:
            if kernel.name == name:
                figures = (kernel.registers, kernel.stack, kernel.spills, kernel.wide, kernel.at_once)
                alike.setdefault(figures, []).append(architecture)
        for numbers, architectures in alike.items():
            yield f"| `{name}` | {', '.join(architectures)} | {' | '.join(map(str, numbers))} |"


if __name__ == "__main__":
    sys.exit(main())
