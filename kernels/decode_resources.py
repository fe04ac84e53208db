# SPDX-License-Identifier: Apache-2.0
"""What the decode kernels take on each GPU that they are for: a table, and with --write in docs/decode-kernels.md between its marks.

    python kernels/decode_resources.py [--write]

Compiles the carried tree's modules for each architecture with FlashInfer's own flags; no GPU is needed, two minutes on two cores.
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

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/decode-kernels.md"
BEGIN, END = "<!-- resources -->", "<!-- /resources -->"
_UNITS = ("mxfp4_moe_decode/mxfp4_moe_decode.cu", "mxfp4_gemv/mxfp4_gemv.cu")
_ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a", "sm_120a", "sm_121a")


def main() -> int:
    """Compile, and print or write the table; 1 where a module does not compile."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    lines = ["| kernel | GPU | registers | stack, B | spills | loads of 16 B | at once |", "|---|---|---|---|---|---|---|"]
    with Stores(load(ROOT), Place(cache.root())) as stores:
        for unit in _UNITS:
            found: list[tuple[Kernel, str]] = []
            for architecture in _ARCHITECTURES:
                (one,) = check.check(stores, CompileRequest(unit=Compiles(None, unit=unit), architecture=architecture)).results
                if one.state is not UnitOutcome.COMPILES:
                    print(f"{unit} for {architecture}: {one.problem}", file=sys.stderr)
                    return 1
                found += [(kernel, architecture) for kernel in one.kernels]
            lines += _rows(found)
    table = "\n".join(lines)
    print(table)
    if options.write:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}")
    return 0


def _rows(found: list[tuple[Kernel, str]]) -> Iterator[str]:
    """A line a kernel and its figures, with all GPUs that have the same."""
    for name in dict.fromkeys(kernel.name for kernel, _ in sorted(found, key=lambda pair: pair[0].name)):
        alike: dict[tuple[int, ...], list[str]] = {}
        for kernel, architecture in found:
            if kernel.name == name:
                figures = (kernel.registers, kernel.stack, kernel.spills, kernel.wide, kernel.at_once)
                alike.setdefault(figures, []).append(architecture)
        for figures, architectures in alike.items():
            yield f"| `{name}` | {', '.join(architectures)} | {' | '.join(map(str, figures))} |"


if __name__ == "__main__":
    sys.exit(main())
