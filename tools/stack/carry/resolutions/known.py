# SPDX-License-Identifier: Apache-2.0
"""Load a stack's resolutions, and apply them to files in conflict."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.carry.resolutions.file import NAME, Resolution, parse
from stack.carry.resolutions.hunks import Hunk, Merge, encoded, merges
from stack.model import document

SUFFIX = ".toml"
_SHORTEST = 4
"""Least number of a key's digits that a person has to give."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The resolutions that match a file in conflict.

    `data` is the merged file; None if a hunk is unknown, or known only with other lines around it. `used`: resolutions with the
    same lines around them. `offered`: those with other lines around them; those made in a file of this path come first.
    """

    data: bytes | None
    used: tuple[Resolution, ...]
    offered: tuple[Resolution, ...]


class Resolutions:
    """All resolutions of a folder; `named` has them by their file names without suffix."""

    def __init__(self, named: Mapping[str, Resolution]) -> None:
        self.named = dict(sorted(named.items()))
        self._by_hunk: dict[Hunk, Resolution] = {resolution.hunk: resolution for resolution in self.named.values()}
        self._by_key: dict[str, list[Resolution]] = {}
        for resolution in self:
            self._by_key.setdefault(resolution.key, []).append(resolution)

    @classmethod
    def load(cls, folder: Path) -> "Resolutions":
        """Read the TOML files of a folder; a missing folder has none.

        Raises:
            StackError: a file is not valid; the message names file and key.

        """
        if folder.is_symlink():
            raise StackError(f"{folder} is a link", "put the folder itself there: a switch would write beside it")
        named: dict[str, Resolution] = {}
        files: dict[Hunk, Path] = {}
        for file in sorted(folder.glob(f"*{SUFFIX}")):
            resolution = named[file.stem] = _load(file)
            first = files.setdefault(resolution.hunk, file)
            if first is not file:
                raise StackError(f"{file} resolves the same conflict as {first.name}", "remove one of them")
        return cls(named)

    def __iter__(self) -> Iterator[Resolution]:
        return iter(self.named.values())

    def get(self, key: str) -> tuple[Resolution, ...]:
        """Return all resolutions with a key: of one conflict with different lines around it."""
        return tuple(self._by_key.get(key, ()))

    def find(self, beginning: str) -> str:
        """Return the name that begins with `beginning`; an exact match wins over longer names.

        Raises:
            StackError: no name matches, or several do.

        """
        if not re.fullmatch(rf"[0-9a-f]{{{_SHORTEST},15}}|{NAME}", beginning):
            raise StackError(f"{beginning!r} is no key", f"name at least {_SHORTEST} of its hexadecimal digits")
        matches = [name for name in self.named if name.startswith(beginning)]
        if beginning in matches or len(matches) == 1:
            return beginning if beginning in matches else matches[0]
        if matches:
            raise StackError(f"several keys begin with {beginning}", f"name one of {', '.join(matches)}")
        raise StackError(f"no resolution {beginning}", "`stack resolutions list` shows all")

    def apply(self, path: str, base: bytes, ours: bytes, theirs: bytes) -> Applied | None:
        """Merge a file in conflict with the resolutions of its hunks; None if no hunk is known."""
        results = [self._of(path, merged) for merged in merges(base, ours, theirs)] if self.named else []
        known = [result for result in results if result is not None]
        return next((result for result in known if result.data is not None), known[0] if known else None)

    def _of(self, path: str, merged: Merge) -> Applied | None:
        """Look up the resolutions of one merge's hunks."""
        if not any(hunk.key in self._by_key for hunk in merged.hunks):
            return None
        used = [self._by_hunk[hunk] for hunk in merged.hunks if hunk in self._by_hunk]
        offered = [resolution for hunk in merged.hunks if hunk not in self._by_hunk for resolution in self.get(hunk.key)]
        whole = len(used) == len(merged.hunks)
        return Applied(
            encoded(merged.joined([resolution.resolved for resolution in used])) if whole else None,
            tuple(dict.fromkeys(used)),
            tuple(dict.fromkeys(sorted(offered, key=lambda resolution: resolution.path != path))),
        )


def _load(file: Path) -> Resolution:
    name = re.fullmatch(NAME, file.stem)
    if name is None:
        raise StackError(f"{file} is no resolution", f"its name has to be <key>{SUFFIX}, the key 16 hexadecimal digits")
    if file.is_symlink():
        raise StackError(f"{file} is a link", "put the file itself there")
    resolution = parse(document.load(file))
    if resolution.key != name[1]:
        raise StackError(
            f"{file}: base, ours and theirs have the key {resolution.key}", "restore them: what was resolved cannot be edited"
        )
    return resolution
