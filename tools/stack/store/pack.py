# SPDX-License-Identifier: Apache-2.0
"""Writing many objects at once, as one pack and its index (gitformat-pack(5)).

A carry of 40 patches writes 500 objects: as loose files they are 500 files in 200 folders, which takes longer than everything else
that it does. Git's own `pack-objects` packs what is in the repository already, and `unpack-objects` makes loose files.
"""

import contextlib
import hashlib
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

KINDS = {"commit": 1, "tree": 2, "blob": 3}
_LARGE_OFFSET = 1 << 31
"""Offsets from here on have a table of their own in the index: a pack does not become so large."""
_FANOUT = 256


def write(repository: Path, objects: Mapping[str, tuple[str, bytes]]) -> None:
    """Write objects (kind and content by their ids) to a repository: all of them or none, whenever this process is killed.

    The same objects always make the same file.

    Raises:
        OSError: the repository cannot be written.
        ValueError: they are more than one pack may hold.

    """
    order = sorted(objects)
    name = hashlib.sha1("".join(order).encode("ascii"), usedforsecurity=False).hexdigest()
    folder = repository / "objects/pack"
    index = folder / f"pack-{name}.idx"
    if index.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    pack, places = _pack({one: objects[one] for one in order})
    _store(folder / f"pack-{name}.pack", pack)
    # Git looks for the index: as long as it is missing, the pack is not there.
    _store(index, _index(places, pack[-20:]))


def _pack(objects: Mapping[str, tuple[str, bytes]]) -> tuple[bytes, list[tuple[str, int, int]]]:
    """The pack, and for each object its id, checksum and offset."""
    parts = [b"PACK" + struct.pack(">II", 2, len(objects))]
    offset = len(parts[0])
    places = []
    for one, (kind, data) in objects.items():
        # Level 0: git reads it back right away, and most of it is never read again.
        part = _head(KINDS[kind], len(data)) + zlib.compress(data, 0)
        places.append((one, zlib.crc32(part), offset))
        parts.append(part)
        offset += len(part)
    if offset >= _LARGE_OFFSET:
        raise ValueError("too much for one pack")
    content = b"".join(parts)
    return content + hashlib.sha1(content, usedforsecurity=False).digest(), places


def _head(kind: int, size: int) -> bytes:
    """Kind and size: four bits of the size in the first byte, seven in each that follows, the lowest first."""
    head = bytearray([kind << 4 | size & 15])
    size >>= 4
    while size:
        head[-1] |= 0x80
        head.append(size & 0x7F)
        size >>= 7
    return bytes(head)


def _index(places: list[tuple[str, int, int]], checksum: bytes) -> bytes:
    """The index of a pack, in its second version; `places` are in the order of the ids."""
    counts = [0] * _FANOUT
    for one, _, _ in places:
        counts[int(one[:2], 16)] += 1
    total = 0
    fanout = []
    for count in counts:
        total += count
        fanout.append(total)
    content = b"".join(
        [
            b"\377tOc",
            struct.pack(f">I{_FANOUT}I", 2, *fanout),
            bytes.fromhex("".join(one for one, _, _ in places)),
            struct.pack(f">{total}I", *(check for _, check, _ in places)),
            struct.pack(f">{total}I", *(offset for _, _, offset in places)),
            checksum,
        ]
    )
    return content + hashlib.sha1(content, usedforsecurity=False).digest()


def _store(place: Path, data: bytes) -> None:
    # Named as git names its own: whoever sweeps the store knows them.
    part = place.with_name(f"tmp_{place.suffix[1:]}_{os.getpid()}_{place.stem[-12:]}")
    try:
        part.write_bytes(data)
        part.chmod(0o444)
        part.rename(place)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
        raise
