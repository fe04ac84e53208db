# SPDX-License-Identifier: Apache-2.0
"""Measure each kernel of an object: registers, stack, shared memory, spills, and 16-byte loads in flight."""

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.proof.compiling import sass
from stack.proof.compiling.sass import Instruction
from stack.proof.compiling.toolkit import Toolkit

_ARCHITECTURE = re.compile(r"^arch = (\S+)$")
_FUNCTION = re.compile(r"^\s*Function (\S+):$")
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)")
_REGISTER = re.compile(r"\bR(\d+)\b")
_ARGUMENTS = re.compile(r"\([^()]*\)$")
_WIDE = "128"
_LONGEST = 80
"""Characters of a printed name; template names can have thousands."""
_WORDS = 4
"""Registers that a 16-byte load fills."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: registers and stack bytes per thread, and static shared memory in bytes per block.

    `spills` counts instructions that read or write local memory. `wide` counts 16-byte loads from global memory. `at_once` is how
    many of them a thread starts before it first waits for one, in code order; a loop counts as one iteration.
    """

    name: str
    registers: int
    stack: int
    shared: int
    spills: int
    wide: int
    at_once: int

    def __str__(self) -> str:
        name = self.name if len(self.name) <= _LONGEST else f"{self.name[: _LONGEST - 3]}..."
        spills = f"{self.spills} spills" if self.spills else "no spills"
        return (
            f"{name}: {self.registers} registers, {self.stack} B stack, {self.shared} B shared, {spills}, "
            f"{self.wide} loads of 16 B, {self.at_once} at once"
        )


def kernels(toolkit: Toolkit, built: Path, architecture: str) -> tuple[Kernel, ...]:
    """Return the kernels in an object's code for one architecture, sorted by name.

    Raises:
        StackError: The disassembler cannot read the object.

    """
    code = sass.functions(toolkit, built, architecture)
    usage = dict(_usage(sass.dumped(toolkit, built, "-res-usage"), architecture))
    names = dict(zip(code, _demangled(list(code)), strict=True))
    listed = (Kernel(names[symbol], *usage[symbol], *_loads(body)) for symbol, body in code.items() if symbol in usage)
    return tuple(sorted(listed, key=lambda kernel: kernel.name))


def _usage(output: str, architecture: str) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Yield registers, stack and shared memory by mangled name."""
    current = name = ""
    for line in output.splitlines():
        if stated := _ARCHITECTURE.match(line):
            current = stated[1]
        elif function := _FUNCTION.match(line):
            name = function[1]
        elif current == architecture and (used := _USAGE.search(line)):
            registers, stack, shared = map(int, used.groups())
            yield name, (registers, stack, shared)


def _loads(body: Sequence[Instruction]) -> tuple[int, int, int]:
    """Count spills, 16-byte loads, and how many of these are in flight at once."""
    spills = sum(instruction.name.split(".")[0] in ("LDL", "STL") for instruction in body)
    wide = sum(_is_wide(instruction, "LDG") or _is_wide(instruction, "LDGSTS") for instruction in body)
    return spills, wide, max(_copies(body), _most_pending(body))


def _is_wide(instruction: Instruction, operation: str) -> bool:
    first, *modifiers = instruction.name.split(".")
    return first == operation and _WIDE in modifiers


def _copies(body: Sequence[Instruction]) -> int:
    """Count the asynchronous copies to shared memory before the first wait for some of them."""
    begun = 0
    for instruction in body:
        if instruction.name.startswith("DEPBAR") and begun:
            break
        begun += _is_wide(instruction, "LDGSTS")
    return begun


def _most_pending(body: Sequence[Instruction]) -> int:
    """Return the largest number of loads in flight: started, and no register of theirs used yet."""
    most = 0
    pending: set[int] = set()
    count = 0
    for instruction in body:
        used = {int(number) for number in _REGISTER.findall(instruction.operands)}
        if _is_wide(instruction, "LDG"):
            target, *address = (int(number) for number in _REGISTER.findall(instruction.operands))
            if pending & set(address):
                pending, count = set(), 0
            pending |= set(range(target, target + _WORDS))
            count += 1
            most = max(most, count)
        elif pending & used:
            pending, count = set(), 0
    return most


def _demangled(names: Sequence[str]) -> list[str]:
    """Return names as in the source, without argument types; c++filt comes with the C++ compiler."""
    demangled = subprocess.run(
        ["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [_short(name) for name in demangled] if names else []


def _short(name: str) -> str:
    """Shorten `void a::b::kernel<1>(a::b::Arguments)` to `kernel<1>`."""
    name = _ARGUMENTS.sub("", name).removeprefix("void ")
    before, bracket, parameters = name.partition("<")
    return before.rpartition("::")[2] + bracket + parameters
