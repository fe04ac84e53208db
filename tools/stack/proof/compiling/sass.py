# SPDX-License-Identifier: Apache-2.0
"""Count the machine instructions (SASS) of an object by their full names."""

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
    """A machine instruction: its full name, and its operands as printed."""

    name: str
    operands: str


def functions(toolkit: Toolkit, built: Path, architecture: str) -> Mapping[str, Sequence[Instruction]]:
    """Return the instructions of each function for one architecture, in order, by mangled name.

    Raises:
        StackError: The disassembler cannot read the object.

    """
    by_function: dict[str, list[Instruction]] = {}
    current = None
    body: list[Instruction] = []
    for line in dumped(toolkit, built, "-sass").splitlines():
        if stated := _ARCHITECTURE.match(line):
            current = stated[1]
        elif named := _FUNCTION.match(line):
            body = by_function.setdefault(named[1], []) if current == architecture else []
        elif current == architecture and (instruction := _INSTRUCTION.match(line)):
            body.append(Instruction(instruction[1], instruction[2]))
    return by_function


def instructions(toolkit: Toolkit, built: Path, architecture: str) -> Mapping[str, int]:
    """Count each instruction in the code for one architecture (`QMMA.SF.16832.F32.E4M3.E2M1.E8`: 224).

    Raises:
        StackError: The disassembler cannot read the object.

    """
    return Counter(instruction.name for body in functions(toolkit, built, architecture).values() for instruction in body)


def dumped(toolkit: Toolkit, built: Path, what: str) -> str:
    """Return the disassembler's output for an object; `what` is an option such as `-sass` or `-res-usage`.

    Raises:
        StackError: The disassembler cannot read the object.

    """
    done = subprocess.run([str(toolkit.cuobjdump), what, str(built)], capture_output=True, text=True, check=False)
    if done.returncode:
        message = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[0]
        raise StackError(
            f"cuobjdump cannot read {built.name} ({message})", "update the disassembler on PATH, or take it off PATH"
        )
    return done.stdout


def number(counts: Mapping[str, int], name: str) -> int:
    """Count the instructions with these modifiers, in order: `LDG.128` matches `LDG.E.LTC128B.128.CONSTANT`, too."""
    return sum(times for full, times in counts.items() if _is(full, name))


def _is(full: str, name: str) -> bool:
    operation, *wanted = name.split(".")
    first, *modifiers = full.split(".")
    rest = iter(modifiers)
    return first == operation and all(modifier in rest for modifier in wanted)
