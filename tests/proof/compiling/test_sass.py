# SPDX-License-Identifier: Apache-2.0
"""Names of instructions. What the disassembler prints is read in test_check.py, from real objects."""

import pytest

from stack.proof.compiling import sass

FOUND = {
    "QMMA.SF.16832.F32.E4M3.E2M1.E8": 8,
    "QMMA.SF.16832.F32.E2M1.E4M3.E8": 4,
    "HMMA.16816.F32.BF16": 2,
    "LDG.E.LTC128B.128.CONSTANT": 1,
    "LDG.E": 16,
}


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("QMMA", 12),
        ("QMMA.SF", 12),
        ("QMMA.SF.E4M3.E2M1.E8", 8),
        ("QMMA.E2M1.E4M3", 4),
        ("QMMA.E8.SF", 0),
        ("LDG.128", 1),
        ("LDG", 17),
        ("LD", 0),
        ("OMMA.SF", 0),
        ("QMMA.S", 0),
    ],
)
def test_modifiers_stand_in_their_order(name: str, times: int) -> None:
    assert sass.number(FOUND, name) == times
