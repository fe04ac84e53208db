# SPDX-License-Identifier: Apache-2.0
"""What each kernel of an object takes and how it loads: registers, stack, shared memory, spills, 16-byte loads and how many at once."""

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
"""Letters of a name that are printed: those of templates have thousands."""
_WORDS = 4
"""Registers of a load of 16 bytes."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: registers a thread, bytes of stack a thread, bytes of shared memory a block (what is chosen at launch is not in it).

    `spills` are instructions that read or write local memory. `wide` are loads of 16 bytes from global memory, and `at_once` how many
    of them a thread has begun before it first waits for one, in the order of the code: of a loop, one round.
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
    """The kernels in an object's code for one architecture, by name.

    Raises:
        StackError: the disassembler cannot read the object.

    """
    code = sass.functions(toolkit, built, architecture)
    usage = dict(_usage(sass.dumped(toolkit, built, "-res-usage"), architecture))
    names = dict(zip(code, _demangled(list(code)), strict=True))
    found = (Kernel(names[one], *usage[one], *_loads(body)) for one, body in code.items() if one in usage)
    return tuple(sorted(found, key=lambda kernel: kernel.name))


def _usage(said: str, architecture: str) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Registers, stack and shared memory by mangled name."""
    current = name = ""
    for line in said.splitlines():
        if stated := _ARCHITECTURE.match(line):
            current = stated[1]
        elif function := _FUNCTION.match(line):
            name = function[1]
        elif current == architecture and (used := _USAGE.search(line)):
            registers, stack, shared = map(int, used.groups())
            yield name, (registers, stack, shared)


def _loads(body: Sequence[Instruction]) -> tuple[int, int, int]:
    """Spills, loads of 16 bytes, and how many of these at once."""
    spills = sum(one.name.split(".")[0] in ("LDL", "STL") for one in body)
    wide = sum(_is_wide(one, "LDG") or _is_wide(one, "LDGSTS") for one in body)
    return spills, wide, max(_copies(body), _most_pending(body))


def _is_wide(one: Instruction, operation: str) -> bool:
    first, *modifiers = one.name.split(".")
    return first == operation and _WIDE in modifiers


def _copies(body: Sequence[Instruction]) -> int:
    """Asynchronous copies to shared memory before the first wait for some of them."""
    begun = 0
    for one in body:
        if one.name.startswith("DEPBAR") and begun:
            break
        begun += _is_wide(one, "LDGSTS")
    return begun


def _most_pending(body: Sequence[Instruction]) -> int:
    """The most loads into registers of which nothing was used when the last of them began."""
    most = 0
    pending: set[int] = set()
    count = 0
    for one in body:
        used = {int(number) for number in _REGISTER.findall(one.operands)}
        if _is_wide(one, "LDG"):
            target, *address = (int(number) for number in _REGISTER.findall(one.operands))
            if pending & set(address):
                pending, count = set(), 0
            pending |= set(range(target, target + _WORDS))
            count += 1
            most = max(most, count)
        elif pending & used:
            pending, count = set(), 0
    return most


def _demangled(names: Sequence[str]) -> list[str]:
    """Names as in the source, without their arguments' types; c++filt comes with the C++ compiler."""
    said = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.splitlines()
    return [_short(name) for name in said] if names else []


def _short(name: str) -> str:
    """`void a::b::kernel<1>(a::b::Arguments)` as `kernel<1>`."""
    name = _ARGUMENTS.sub("", name).removeprefix("void ")
    before, bracket, parameters = name.partition("<")
    return before.rpartition("::")[2] + bracket + parameters
