# SPDX-License-Identifier: Apache-2.0
"""Write the archive: a compressed tar file that has the same bytes wherever it is made, with a manifest of its content."""

import hashlib
import io
import json
import lzma
import os
import tarfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.base.progress import Count
from stack.model.ids import Sha256
from stack.store import cache as places

MANIFEST = "pack.json"
SCRIPT = "validate.py"
_EPOCH = 315_532_800
"""1980-01-01, the date of every file in the archive."""
_PLAIN = [{"id": lzma.FILTER_LZMA2, "preset": 6}]
_FILTERS = {"x86_64": [{"id": lzma.FILTER_X86}, *_PLAIN]}
"""Filters by the processor that the libraries are for; Python's lzma has none for 64-bit Arm."""
_PIECE = 64 * 2**20
"""Bytes of a piece. Pieces are compressed separately, so that all cores can work; xz reads the pieces of a file as one."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A written archive: path, size, hash, and number of files in it."""

    path: Path
    size: int
    sha256: Sha256
    files: int


def write(target: Path, files: Mapping[str, bytes], about: Mapping[str, Any], tell: Count, limit: int) -> Packed:
    """Write an archive of files by their paths. Its manifest has `about` and the hash of every file.

    The file appears under its name when it is complete.

    Args:
        target: the file to write.
        files: the content of each file, by its path in the archive.
        about: what the manifest says of the archive; `platform` is the processor of its libraries.
        tell: gets how many pieces are compressed, and of how many.
        limit: bytes of the largest archive.

    Raises:
        StackError: the archive is too large.
        OSError: it cannot be written.

    """
    folder = target.name.partition(".")[0]
    hashes = {path: hashlib.sha256(data).hexdigest() for path, data in sorted(files.items())}
    manifest = (json.dumps({**about, "files": hashes}, indent=1) + "\n").encode()
    tar = _tar(folder, {MANIFEST: manifest, **{path: files[path] for path in sorted(files, key=_alike)}})
    begins = range(0, len(tar), _PIECE)
    filters = _FILTERS.get(str(about.get("platform")), _PLAIN)
    target.parent.mkdir(parents=True, exist_ok=True)
    with places.appearing(target) as file, ThreadPoolExecutor(os.cpu_count()) as pool:
        for done, piece in enumerate(pool.map(lambda place: _compressed(tar[place : place + _PIECE], filters), begins), 1):
            file.write(piece)
            tell(done, len(begins))
            if file.tell() > limit:
                raise StackError(
                    f"the archive would be larger than {limit // 10**6} MB",
                    "leave more of the wheels out: tools/stack/validation/pack/targets.py",
                )
    return Packed(target, target.stat().st_size, places.hash_of(target), len(files) + 1)


def _compressed(piece: memoryview, filters: list[dict[str, int]]) -> bytes:
    return lzma.compress(piece, check=lzma.CHECK_SHA256, filters=filters)


def _tar(folder: str, files: Mapping[str, bytes]) -> memoryview:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, data in files.items():
            info = tarfile.TarInfo(f"{folder}/{path}")
            info.size, info.mtime, info.mode = len(data), _EPOCH, 0o755 if path == SCRIPT else 0o644
            archive.addfile(info, io.BytesIO(data))
    return whole.getbuffer()


def _alike(path: str) -> tuple[str, str]:
    """Return a sort key that puts files of one kind next to each other, which compresses better."""
    return path.rpartition("/")[2].rpartition(".")[2], path
