# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels on a CPU: their own sources, compiled for this machine, run thread by thread by one that is stricter than a GPU.

`machine.cpp` is that machine and says what it refuses; `device/` is what kernels see of it in place of CUDA's headers: any kernel
that asks for nothing else runs. Sums of a matrix multiplication are rounded to float32 after each product, which is one of the many
orders that GPUs have; how fast anything is cannot be seen here.
"""

import ctypes
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

SHARED_LIMIT = 101_376
"""Bytes of shared memory of a block on SM121."""

_PLACE = re.compile(r" \[\+(0x[0-9a-f]+)\]$")


class Kind(IntEnum):
    """What memory is to a kernel."""

    CONSTANT = 0
    """Weights: there before anything runs."""
    INPUT = 1
    """Written by the kernel before the first one."""
    OUTPUT = 2
    """Written by the kernels; nothing is in it before."""


class KernelFault(RuntimeError):
    """A kernel did what it must not: which one, its block and thread, what, and where in its source."""


_APART = 1 << 20
"""Bytes between two inputs, at least: more than a kernel of the tests reads beyond one."""
_ALIGNED = 256


@dataclass(frozen=True, slots=True)
class Machine:
    """A library that was built by `building.build`."""

    library: ctypes.CDLL
    path: Path
    copies: list[npt.NDArray[np.uint8]] = field(default_factory=list)
    """Of what kernels only read, until they are forgotten."""

    @classmethod
    def load(cls, path: Path) -> "Machine":
        """A library.

        Raises:
            OSError: it does not load.

        """
        library = ctypes.CDLL(str(path))
        library.emulated_begin.argtypes = [ctypes.c_uint64, ctypes.c_size_t]
        library.emulated_buffer.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        library.emulated_problem.restype = ctypes.c_char_p
        library.emulated_kernels.restype = ctypes.c_char_p
        library.emulated_shared.restype = ctypes.c_size_t
        library.emulated_unwritten.argtypes = [ctypes.c_char_p]
        library.emulated_unwritten.restype = ctypes.c_size_t
        return cls(library, path)

    def begin(self, seed: int = 0, shared_limit: int = SHARED_LIMIT) -> None:
        """Forget all buffers and faults. `seed`: of the order of threads, their own for 0; `shared_limit` in bytes."""
        self.copies.clear()
        self.library.emulated_begin(seed, shared_limit)

    def give(self, name: str, array: npt.NDArray[Any] | None, kind: Kind) -> ctypes.c_void_p:
        """The address of an array for kernels, which they may touch from now on; an output's bytes become 0xFF.

        None stays none. The array has to be contiguous, and an output to live; of the others it is a copy.
        """
        if array is None:
            return ctypes.c_void_p(None)
        assert array.flags.c_contiguous, name
        place = array.ctypes.data if kind is Kind.OUTPUT else self._alone(array)
        address = ctypes.c_void_p(place)
        self.library.emulated_buffer(name.encode(), address, array.nbytes, kind)
        return address

    def _alone(self, array: npt.NDArray[Any]) -> int:
        """The address of a copy, aligned as the array is, with nothing beside it: what is read beyond it is in no other buffer."""
        room = np.empty(array.nbytes + 2 * _APART + _ALIGNED, np.uint8)
        self.copies.append(room)
        offset = _APART + (array.ctypes.data - room.ctypes.data - _APART) % _ALIGNED
        room[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)
        return int(room.ctypes.data + offset)

    def call(self, launcher: str, *arguments: Any) -> None:
        """Call a launcher.

        Raises:
            KernelFault: a kernel did what it must not, or the launcher refuses the arguments.

        """
        code = self.library[launcher](*arguments)
        if problem := self.library.emulated_problem().decode():
            raise KernelFault(self._located(problem))
        if code:
            raise KernelFault(f"{launcher} refuses its arguments, with error {code}")

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels that were launched since `begin`, in their order, with what their templates were given."""
        return tuple(self.library.emulated_kernels().decode().splitlines())

    @property
    def shared(self) -> int:
        """The most shared memory that one of them asked for, in bytes."""
        return int(self.library.emulated_shared())

    def unwritten(self, name: str) -> int:
        """How many bytes of an output nobody has written."""
        return int(self.library.emulated_unwritten(name.encode()))

    def _located(self, problem: str) -> str:
        """A problem with the line of the source that it is at, where there is who can tell."""
        found = _PLACE.search(problem)
        if found is None:
            return problem
        plain = problem[: found.start()]
        if not shutil.which("addr2line"):
            return plain
        asked = subprocess.run(
            ["addr2line", "-i", "-e", self.path, found[1]], capture_output=True, text=True, check=False, timeout=60
        )
        lines = [Path(line.split(" ")[0]).name for line in asked.stdout.splitlines()]
        inside = [line for line in lines if not line.startswith(("primitives.cuh", "?"))]
        return f"{plain} ({inside[0]})" if inside else plain


def bfloat16_bits(numbers: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Numbers that bfloat16 has, as its bits."""
    return np.ascontiguousarray((np.ascontiguousarray(numbers, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16))


def from_bfloat16_bits(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """The numbers of bfloat16's bits."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
