# SPDX-License-Identifier: Apache-2.0
"""Run CUDA kernels on a CPU: compile their sources for this machine, and run them thread by thread, with stricter checks than a GPU.

`machine.cpp` is the emulated machine and lists what it refuses. `device/` replaces CUDA's headers: any kernel that uses only these can
run. A matrix multiplication rounds its sum to float32 after each product, which is one of the orders that GPUs may use. Speed cannot
be measured here.
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
"""Bytes of shared memory per block on SM121."""

_PLACE = re.compile(r" \[\+(0x[0-9a-f]+)\]$")


class BufferKind(IntEnum):
    """Role of a buffer for a kernel."""

    CONSTANT = 0
    """Weights: complete before any kernel runs."""
    INPUT = 1
    """Written by the predecessor of the first kernel."""
    OUTPUT = 2
    """Written by the kernels, empty before."""


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """The size of a launch."""

    blocks: int
    threads: int
    shared: int
    """Bytes of shared memory of a block."""


class KernelFault(RuntimeError):
    """Raised when a kernel did something forbidden: names the kernel, block, thread, fault, and source line."""


_APART = 1 << 20
"""Bytes between two inputs, at least: more than a kernel of the tests reads beyond its buffer."""
_ALIGNED = 256


@dataclass(frozen=True, slots=True)
class Machine:
    """A library built by `building.build`."""

    library: ctypes.CDLL
    path: Path
    copies: list[npt.NDArray[np.uint8]] = field(default_factory=list)
    """Copies of the inputs, until `begin` forgets them."""

    @classmethod
    def load(cls, path: Path) -> "Machine":
        """Load a library.

        Raises:
            OSError: it cannot be loaded.

        """
        library = ctypes.CDLL(str(path))
        library.emulated_begin.argtypes = [ctypes.c_uint64, ctypes.c_size_t]
        library.emulated_buffer.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        library.emulated_problem.restype = ctypes.c_char_p
        library.emulated_kernels.restype = ctypes.c_char_p
        library.emulated_shapes.restype = ctypes.c_char_p
        library.emulated_shared.restype = ctypes.c_size_t
        library.emulated_unwritten.argtypes = [ctypes.c_char_p]
        library.emulated_unwritten.restype = ctypes.c_size_t
        return cls(library, path)

    def begin(self, seed: int = 0, shared_limit: int = SHARED_LIMIT) -> None:
        """Forget all buffers and faults. `seed` sets the order of threads, 0 their natural one; `shared_limit` is in bytes."""
        self.copies.clear()
        self.library.emulated_begin(seed, shared_limit)

    def give(self, name: str, array: npt.NDArray[Any] | None, kind: BufferKind, *, in_place: bool = False) -> ctypes.c_void_p:
        """Register an array that kernels may access, and return its address; the bytes of an output become 0xFF.

        None becomes a null pointer. The array must be contiguous. An output is used in place, so it must stay alive; inputs are copied,
        unless `in_place` says that they are too large.
        """
        if array is None:
            return ctypes.c_void_p(None)
        assert array.flags.c_contiguous, name
        place = array.ctypes.data if in_place or kind is BufferKind.OUTPUT else self._alone(array)
        address = ctypes.c_void_p(place)
        self.library.emulated_buffer(name.encode(), address, array.nbytes, kind)
        return address

    def _alone(self, array: npt.NDArray[Any]) -> int:
        """Copy an array with the same alignment and with a gap on both sides, so that reads beyond it hit no other buffer."""
        room = np.empty(array.nbytes + 2 * _APART + _ALIGNED, np.uint8)
        self.copies.append(room)
        offset = _APART + (array.ctypes.data - room.ctypes.data - _APART) % _ALIGNED
        room[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)
        return int(room.ctypes.data + offset)

    def call(self, launcher: str, *arguments: Any) -> None:
        """Call a launcher.

        Raises:
            KernelFault: a kernel did something forbidden, or the launcher refuses the arguments.

        """
        code = self.library[launcher](*arguments)
        if problem := self.library.emulated_problem().decode():
            raise KernelFault(self._located(problem))
        if code:
            raise KernelFault(f"{launcher} refuses its arguments, with error {code}")

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels that were launched since `begin`, in order, with their template arguments."""
        return tuple(self.library.emulated_kernels().decode().splitlines())

    @property
    def shapes(self) -> tuple[LaunchShape, ...]:
        """The sizes of these launches."""
        lines = self.library.emulated_shapes().decode().splitlines()
        return tuple(LaunchShape(*map(int, line.split())) for line in lines)

    def record_only(self) -> None:
        """Record launches until `begin`, and run none of them: to learn their sizes at once."""
        self.library.emulated_dry()

    @property
    def shared(self) -> int:
        """The most shared memory that one of these kernels requested, in bytes."""
        return int(self.library.emulated_shared())

    def unwritten(self, name: str) -> int:
        """Count the bytes of an output that no kernel has written."""
        return int(self.library.emulated_unwritten(name.encode()))

    def _located(self, problem: str) -> str:
        """Replace the address in a fault's text by its source line, if addr2line is installed."""
        address = _PLACE.search(problem)
        if address is None:
            return problem
        plain = problem[: address.start()]
        if not shutil.which("addr2line"):
            return plain
        done = subprocess.run(
            ["addr2line", "-i", "-e", self.path, address[1]], capture_output=True, text=True, check=False, timeout=60
        )
        lines = [Path(line.split(" ")[0]).name for line in done.stdout.splitlines()]
        inside = [line for line in lines if not line.startswith(("primitives.cuh", "?"))]
        return f"{plain} ({inside[0]})" if inside else plain


def bfloat16_bits(numbers: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Convert numbers that bfloat16 represents exactly to its bits."""
    return np.ascontiguousarray((np.ascontiguousarray(numbers, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16))


def from_bfloat16_bits(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Convert bits of bfloat16 to float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
