# SPDX-License-Identifier: Apache-2.0
"""Small libraries with fat binaries in them, and wheels that hold such."""

import struct
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CUBIN, PTX = 2, 1
SPECIFIC, FAMILY = 0x0010_0000, 0x0020_0000


@dataclass(frozen=True)
class Made:
    """One image of a container."""

    gpu: int
    kind: int = CUBIN
    data: bytes = b"machine code"
    flags: int = 0x11
    compressed: bool = False


def container(images: Sequence[Made]) -> bytes:
    inside = b""
    for one in images:
        data = one.data + bytes(-len(one.data) % 8)
        size = len(one.data) if one.compressed else 0
        inside += (
            struct.pack("<HHIQIIHHIQQ", one.kind, 0x101, 64, len(data), size, 0, 8, 1, one.gpu, 0, one.flags) + bytes(16) + data
        )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(inside)) + inside


def library(containers: Sequence[Sequence[Made]], section: bytes = b".nv_fatbin") -> bytes:
    """An ELF file with that one section, and the table of names."""
    fat = b"".join(container(images) for images in containers)
    names = b"\0" + section + b"\0.shstrtab\0"
    before = b"host code" + bytes(7)
    places = [64 + len(before), 64 + len(before) + len(fat)]
    table = places[1] + len(names)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    rows = [(0, 0, 0), (1, places[0], len(fat)), (2 + len(section), places[1], len(names))]
    sections = b"".join(struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, place, size, 0, 0, 1, 0) for name, place, size in rows)
    return header + before + fat + names + sections


def wheel(folder: Path, name: str, files: Mapping[str, bytes]) -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, data in files.items():
            archive.writestr(file, data)
    return path
