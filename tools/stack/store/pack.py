# SPDX-License-Identifier: Apache-2.0
"""Write many objects at once as one pack and its index (gitformat-pack(5)).

A carry of 40 patches writes 500 objects. As loose files in 200 folders they would take longer than the rest of the carry.
Git's own `pack-objects` only packs objects that are in the repository already, and `unpack-objects` makes loose files.
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
"""Larger offsets would need a second table in the index; our packs never get so large."""
_FANOUT = 256


def write(repository: Path, objects: Mapping[str, tuple[str, bytes]]) -> None:
    """Write objects (kind and content by id) to a repository; a kill leaves all of them or none.

    The same objects always give the same file.

    Raises:
        OSError: The repository cannot be written.
        ValueError: The objects are too large for one pack.

    """
    order = sorted(objects)
    name = hashlib.sha1("".join(order).encode("ascii"), usedforsecurity=False).hexdigest()
    folder = repository / "objects/pack"
    index = folder / f"pack-{name}.idx"
    if index.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    pack, places = _pack({object_id: objects[object_id] for object_id in order})
    _store(folder / f"pack-{name}.pack", pack)
    # Git looks for the index, so the pack counts only once this is there.
    _store(index, _index(places, pack[-20:]))


def _pack(objects: Mapping[str, tuple[str, bytes]]) -> tuple[bytes, list[tuple[str, int, int]]]:
    """Return the pack, and the id, checksum and offset of each object."""
    parts = [b"PACK" + struct.pack(">II", 2, len(objects))]
    offset = len(parts[0])
    places = []
    for object_id, (kind, data) in objects.items():
        # Compression level 0: git reads the pack right away, and most of it is never read again.
        part = _head(KINDS[kind], len(data)) + zlib.compress(data, 0)
        places.append((object_id, zlib.crc32(part), offset))
        parts.append(part)
        offset += len(part)
    if offset >= _LARGE_OFFSET:
        raise ValueError("too much for one pack")
    content = b"".join(parts)
    return content + hashlib.sha1(content, usedforsecurity=False).digest(), places


def _head(kind: int, size: int) -> bytes:
    """Encode kind and size: 4 bits of the size in the first byte, 7 in each further one, lowest bits first."""
    head = bytearray([kind << 4 | size & 15])
    size >>= 4
    while size:
        head[-1] |= 0x80
        head.append(size & 0x7F)
        size >>= 7
    return bytes(head)


def _index(places: list[tuple[str, int, int]], checksum: bytes) -> bytes:
    """Return the version 2 index of a pack; `places` are sorted by id."""
    counts = [0] * _FANOUT
    for object_id, _, _ in places:
        counts[int(object_id[:2], 16)] += 1
    total = 0
    fanout = []
    for count in counts:
        total += count
        fanout.append(total)
    content = b"".join(
        [
            b"\377tOc",
            struct.pack(f">I{_FANOUT}I", 2, *fanout),
            bytes.fromhex("".join(object_id for object_id, _, _ in places)),
            struct.pack(f">{total}I", *(check for _, check, _ in places)),
            struct.pack(f">{total}I", *(offset for _, _, offset in places)),
            checksum,
        ]
    )
    return content + hashlib.sha1(content, usedforsecurity=False).digest()


def _store(place: Path, data: bytes) -> None:
    # Named like git's own temporary files, so that `repository.sweep` recognizes it.
    part = place.with_name(f"tmp_{place.suffix[1:]}_{os.getpid()}_{place.stem[-12:]}")
    try:
        part.write_bytes(data)
        part.chmod(0o444)
        part.rename(place)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
        raise
