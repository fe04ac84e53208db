# SPDX-License-Identifier: Apache-2.0
"""A model in the cache that all programs of Hugging Face share: what it lacks, and whether its files have their hashes.

A file of the cache is a link to a blob that has the name of its hash: SHA-256 for large files (LFS), git's blob id for others. So
a whole revision can be checked without network.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.model import document

WANTED = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
"""Files that a server reads. Some repositories also have the weights in other formats, in folders and in files of other names."""
_CONFIG = ("config.json", "tokenizer_config.json")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "tekken.json", "vocab.json")
_INDEX = "model.safetensors.index.json"
_SHA256, _GIT = 64, 40
_THREADS = 4
_AT_ONCE = 2**20


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a revision: its name, its size in bytes, and its hash, as hexadecimal digits of SHA-256 or of git's blob id."""

    name: str
    size: int
    hash: str


def lacking(snapshot: Path) -> tuple[str, ...]:
    """Name what a snapshot lacks of a whole model, as far as its own files say it; empty: nothing.

    Raises:
        StackError: The index of the weights is damaged.

    """
    missing = [name for name in _CONFIG if not (snapshot / name).is_file()]
    if not any((snapshot / name).is_file() for name in _TOKENIZERS):
        missing.append(_TOKENIZERS[0])
    return (*missing, *(name for name in _weights(snapshot) if not (snapshot / name).is_file()))


def _weights(snapshot: Path) -> tuple[str, ...]:
    index = snapshot / _INDEX
    if not index.is_file():
        found = sorted(path.name for path in snapshot.glob("*.safetensors")) if snapshot.is_dir() else []
        # A part of several, without the index that names the others.
        return tuple(found) if found and not any("-of-" in name for name in found) else (*found, _INDEX)
    try:
        named = set(json.loads(document.read_text(index, piped=True))["weight_map"].values())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as bad:
        raise StackError(f"{index} is not an index of weights", "remove it: it is downloaded again") from bad
    if not all(isinstance(name, str) and "/" not in name for name in named):
        raise StackError(f"{index} names files elsewhere", "remove it: it is downloaded again")
    return tuple(sorted(named))


def parts(snapshot: Path) -> tuple[Part, ...]:
    """Return the files of a snapshot whose blobs have the name of their hash."""
    return tuple(_parts(snapshot))


def _parts(snapshot: Path) -> Iterator[Part]:
    for file in sorted(snapshot.iterdir()):
        name = file.resolve().name
        if file.is_symlink() and file.is_file() and re.fullmatch(rf"[0-9a-f]{{{_SHA256}}}|[0-9a-f]{{{_GIT}}}", name):
            yield Part(file.name, file.stat().st_size, name)


def damaged(snapshot: Path, files: Iterable[Part], tell: Progress) -> tuple[str, ...]:
    """Read files, and name those that differ from their hash or size."""
    listed = list(files)
    total, read = sum(part.size for part in listed), [0]

    def count(size: int) -> None:
        read[0] += size
        tell("checking the model's hashes", min(read[0], total), max(total, 1))

    with ThreadPoolExecutor(_THREADS) as threads:
        good = threads.map(lambda part: is_good(snapshot / part.name, part, count), listed)
        return tuple(part.name for part, is_good in zip(listed, good, strict=True) if not is_good)


def is_good(file: Path, part: Part, count: Callable[[int], None]) -> bool:
    """Read a file, and return whether it has its size and its hash; `count` gets the bytes that were read.

    Raises:
        StackError: It cannot be read.

    """
    try:
        size = file.stat().st_size
        if size != part.size:
            return False
        hashed = (
            hashlib.sha256() if len(part.hash) == _SHA256 else hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
        )
        with file.open("rb") as opened:
            while piece := opened.read(_AT_ONCE):
                hashed.update(piece)
                count(len(piece))
    except OSError as failed:
        raise StackError(f"{file} cannot be read ({failed.strerror})", "check the disk: dmesg") from failed
    return hashed.hexdigest() == part.hash


def fingerprint(snapshot: Path) -> str:
    """Return a digest over names, sizes and times of a model's files: it tells whether they changed since they were checked."""
    told = []
    for file in sorted(path for path in snapshot.iterdir() if path.exists()):
        state = file.stat()
        told.append(f"{file.name} {state.st_size} {state.st_mtime_ns} {state.st_ino}")
    return hashlib.sha256("\n".join(told).encode()).hexdigest()
