# SPDX-License-Identifier: Apache-2.0
"""What is read off machine code: loads of 16 bytes, how many at once, spills, names. The real disassembler's output is read in test_check.py."""

import pytest

from stack.proof.compiling import resources
from stack.proof.compiling.resources import Kernel
from stack.proof.compiling.sass import Instruction


def code(text: str) -> list[Instruction]:
    return [
        Instruction(*line.strip().split(" ", 1)) if " " in line.strip() else Instruction(line.strip(), "")
        for line in text.strip().splitlines()
    ]


COPIES = """
LDGSTS.E.BYPASS.LTC128B.128 [R31], desc[UR10][R20.64], P5
LDGSTS.E [R23+0x400], desc[UR10][R20.64], P3
LDGDEPBAR
LDGSTS.E.BYPASS.LTC128B.128 [R25], desc[UR10][R20.64], P5
LDGDEPBAR
DEPBAR.LE SB0, 0x1
LDGSTS.E.BYPASS.LTC128B.128 [R25], desc[UR10][R20.64], P5
"""
# The second load's address is no result of the first's; the third's is.
REGISTERS = """
LDG.E.128 R4, desc[UR4][R2.64]
LDG.E.128.CONSTANT R8, desc[UR4][R2.64+0x10]
LDG.E R30, desc[UR4][R2.64+0x20]
IADD3 R12, R13, R14, RZ
LDG.E.128 R16, desc[UR4][R8.64]
FADD R20, R19, R21
LDG.E.128 R4, desc[UR4][R2.64]
STL [R1], R20
LDL.64 R40, [R1+0x8]
"""


def test_copies_count_until_the_first_wait() -> None:
    assert resources._loads(code(COPIES)) == (0, 3, 2)


def test_loads_count_until_one_of_their_registers_is_used() -> None:
    assert resources._loads(code(REGISTERS)) == (2, 4, 2)


@pytest.mark.parametrize(("register", "at_once"), [("R3", 2), ("R4", 1), ("R7", 1), ("R8", 2)])
def test_a_load_of_16_bytes_fills_four_registers(register: str, at_once: int) -> None:
    between = f"LDG.E.128 R4, desc[UR4][R2.64]\nMOV R50, {register}\nLDG.E.128 R12, desc[UR4][R2.64]"
    assert resources._loads(code(between)) == (0, 2, at_once)


def test_a_wait_before_any_copy_is_for_something_else() -> None:
    assert resources._loads(code("DEPBAR.LE SB0, 0x0\n" + COPIES)) == (0, 3, 2)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void flashinfer::mxfp4::mxfp4_gemv_kernel<1, 2, 8>(flashinfer::mxfp4::Gemv)", "mxfp4_gemv_kernel<1, 2, 8>"),
        ("copy(float const*, float*, int)", "copy"),
        ("void a::kernel<(int)2, b::c<float> >(a::d)", "kernel<(int)2, b::c<float> >"),
    ],
)
def test_names_are_those_of_the_source(name: str, short: str) -> None:
    assert resources._short(name) == short


def test_a_kernel_is_a_line() -> None:
    kernel = Kernel("mxfp4_gemv_kernel<1>", 66, 16, 0, 3, 12, 6)
    assert str(kernel) == "mxfp4_gemv_kernel<1>: 66 registers, 16 B stack, 0 B shared, 3 spills, 12 loads of 16 B, 6 at once"
    assert str(Kernel("k" * 100, 66, 0, 0, 0, 0, 0)).startswith(
        "k" * 77 + "...: 66 registers, 0 B stack, 0 B shared, no spills"
    )
