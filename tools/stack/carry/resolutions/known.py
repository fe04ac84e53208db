# SPDX-License-Identifier: Apache-2.0
"""The resolutions of a stack, and what they say of a file in conflict."""

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
"""Digits of a key that a person has to name at least."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What is known of a file in conflict.

    `data` is the merged file, None where a hunk is unknown or known with other surroundings only. `used` are known with the
    very surroundings, `offered` with others: those that were made in a file of this path come first.
    """

    data: bytes | None
    used: tuple[Resolution, ...]
    offered: tuple[Resolution, ...]


class Resolutions:
    """All resolutions of a folder; `named` has them by their files' names without ending."""

    def __init__(self, named: Mapping[str, Resolution]) -> None:
        self.named = dict(sorted(named.items()))
        self._by_hunk: dict[Hunk, Resolution] = {one.hunk: one for one in self.named.values()}
        self._by_key: dict[str, list[Resolution]] = {}
        for one in self:
            self._by_key.setdefault(one.key, []).append(one)

    @classmethod
    def load(cls, folder: Path) -> "Resolutions":
        """Read the TOML files of a folder; a folder that is missing has none.

        Raises:
            StackError: whatever is wrong with one of them, with file and key.

        """
        if folder.is_symlink():
            raise StackError(f"{folder} is a link", "put the folder itself there: a switch would write beside it")
        named: dict[str, Resolution] = {}
        files: dict[Hunk, Path] = {}
        for file in sorted(folder.glob(f"*{SUFFIX}")):
            one = named[file.stem] = _load(file)
            first = files.setdefault(one.hunk, file)
            if first is not file:
                raise StackError(f"{file} resolves the same conflict as {first.name}", "remove one of them")
        return cls(named)

    def __iter__(self) -> Iterator[Resolution]:
        return iter(self.named.values())

    def get(self, key: str) -> tuple[Resolution, ...]:
        """All of one key: one conflict in different surroundings."""
        return tuple(self._by_key.get(key, ()))

    def find(self, beginning: str) -> str:
        """The one name that begins so; a whole name is enough, also where others begin with it.

        Raises:
            StackError: there is none, or several.

        """
        if not re.fullmatch(rf"[0-9a-f]{{{_SHORTEST},15}}|{NAME}", beginning):
            raise StackError(f"{beginning!r} is no key", f"name at least {_SHORTEST} of its hexadecimal digits")
        found = [name for name in self.named if name.startswith(beginning)]
        if beginning in found or len(found) == 1:
            return beginning if beginning in found else found[0]
        if found:
            raise StackError(f"several keys begin with {beginning}", f"name one of {', '.join(found)}")
        raise StackError(f"no resolution {beginning}", "`stack resolutions list` shows all")

    def apply(self, path: str, base: bytes, ours: bytes, theirs: bytes) -> Applied | None:
        """Merge a file in conflict with the resolutions of its hunks; None where nothing is known about any of them."""
        found = [self._of(path, merged) for merged in merges(base, ours, theirs)] if self.named else []
        known = [one for one in found if one is not None]
        return next((one for one in known if one.data is not None), known[0] if known else None)

    def _of(self, path: str, merged: Merge) -> Applied | None:
        """The resolutions of one merge's hunks."""
        if not any(hunk.key in self._by_key for hunk in merged.hunks):
            return None
        used = [self._by_hunk[hunk] for hunk in merged.hunks if hunk in self._by_hunk]
        offered = [one for hunk in merged.hunks if hunk not in self._by_hunk for one in self.get(hunk.key)]
        whole = len(used) == len(merged.hunks)
        return Applied(
            encoded(merged.joined([one.resolved for one in used])) if whole else None,
            tuple(dict.fromkeys(used)),
            tuple(dict.fromkeys(sorted(offered, key=lambda one: one.path != path))),
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
