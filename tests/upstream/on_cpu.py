# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's kernels of the tree under test, for this machine's CPU: `laboratory.emulated` runs them thread by thread."""

import sys
from pathlib import Path

import support

sys.path[:0] = [str(Path(__file__).parents[2] / folder) for folder in ("tools", "kernels")]

from laboratory.emulated import Machine, building  # noqa: E402

with support.quiet():
    import flashinfer

TREE = Path(flashinfer.__file__).parents[1]
BAR = 1e-2
"""What a kernel's rel-L2 may be: between bfloat16's rounding and the nearest wrong output."""


def machine(folder: Path) -> Machine:
    """The kernels, built in a folder."""
    plan = building.plan(building.headers(TREE))
    return Machine.load(plan.build(folder / plan.name))
