# SPDX-License-Identifier: Apache-2.0
"""The machine instructions of an object, counted by their full names."""

import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.proof.compiling.toolkit import Toolkit

_FUNCTION = re.compile(r"^\s*Function : (\S+)$")
_ARCHITECTURE = re.compile(r"^\s*code for (\S+)$")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+\{?\s*(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*(?:\.[A-Za-z0-9_]+)*)\s*([^;]*)")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction: its full name, and its operands as they are printed."""

    name: str
    operands: str


def functions(toolkit: Toolkit, built: Path, architecture: str) -> Mapping[str, Sequence[Instruction]]:
    """The instructions of each function in the code for one architecture, in their order, by its mangled name.

    Raises:
        StackError: the disassembler cannot read the object.

    """
    found: dict[str, list[Instruction]] = {}
    current = None
    body: list[Instruction] = []
    for line in dumped(toolkit, built, "-sass").splitlines():
        if stated := _ARCHITECTURE.match(line):
            current = stated[1]
        elif named := _FUNCTION.match(line):
            body = found.setdefault(named[1], []) if current == architecture else []
        elif current == architecture and (instruction := _INSTRUCTION.match(line)):
            body.append(Instruction(instruction[1], instruction[2]))
    return found


def instructions(toolkit: Toolkit, built: Path, architecture: str) -> Mapping[str, int]:
    """How often each instruction stands in the code for one architecture (`QMMA.SF.16832.F32.E4M3.E2M1.E8`: 224).

    Raises:
        StackError: the disassembler cannot read the object.

    """
    return Counter(one.name for body in functions(toolkit, built, architecture).values() for one in body)


def dumped(toolkit: Toolkit, built: Path, what: str) -> str:
    """What the disassembler says of an object: `-sass`, `-res-usage`.

    Raises:
        StackError: it cannot read the object.

    """
    done = subprocess.run([str(toolkit.cuobjdump), what, str(built)], capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[0]
        raise StackError(f"cuobjdump cannot read {built.name} ({said})", "update the disassembler on PATH, or take it off PATH")
    return done.stdout


def number(found: Mapping[str, int], name: str) -> int:
    """How often an instruction with these modifiers stands there: `LDG.128` is in `LDG.E.LTC128B.128.CONSTANT`, too."""
    return sum(times for full, times in found.items() if _is(full, name))


def _is(full: str, name: str) -> bool:
    operation, *wanted = name.split(".")
    first, *modifiers = full.split(".")
    rest = iter(modifiers)
    return first == operation and all(modifier in rest for modifier in wanted)
