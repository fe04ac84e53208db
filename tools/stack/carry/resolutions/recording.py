# SPDX-License-Identifier: Apache-2.0
"""Make the resolutions of a file's hunks from the file that a person resolved."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.carry.resolutions import hunks
from stack.carry.resolutions.file import Resolution, dump, parse
from stack.carry.resolutions.hunk_mapping import Unclear, cut
from stack.carry.resolutions.hunks import Hunk, Merge
from stack.carry.resolutions.known import Resolutions
from stack.model.document import Table

_MARKERS = ("<<<<<<< ", "||||||| ", ">>>>>>> ")


class NotRecorded(Exception):
    """Raised when the resolved file cannot be rebuilt from resolutions of its hunks; `reason` says why, in a few words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def record(
    path: str, base: bytes, ours: bytes, theirs: bytes, resolved: bytes, *, upstream: str, patch: str, rung: str
) -> tuple[Resolution, ...]:
    """Return the resolution of every conflicting hunk of a file, in order; check that applying them gives `resolved`.

    Raises:
        NotRecorded: applying them gives another file, or it is ambiguous which lines resolve which hunk.

    """
    text = hunks.text(resolved)
    ways = list(hunks.merges(base, ours, theirs))
    if not ways or text is None:
        raise NotRecorded("it is binary, larger than 512 KiB, or has a ruler of 200 signs")
    place = _Place(path, upstream, patch, rung)
    refused: list[NotRecorded] = []
    for merge in ways:
        try:
            new = _of(merge, text, place)
            known = Resolutions({str(number): _read_back(resolution) for number, resolution in enumerate(new)})
            applied = known.apply(path, base, ours, theirs)
            if applied is None or applied.data != resolved:
                raise NotRecorded("its hunks, resolved so, give another file")
        except NotRecorded as why:
            refused.append(why)
        else:
            return new
    raise refused[0]


@dataclass(frozen=True, slots=True)
class _Place:
    """The file, and the patch and the rung for which it was resolved."""

    path: str
    upstream: str
    patch: str
    rung: str


def _of(merge: Merge, text: str, place: _Place) -> tuple[Resolution, ...]:
    """Return the resolution of each hunk of one merge.

    Raises:
        NotRecorded: it is ambiguous which lines resolve which hunk.

    """
    if not merge.hunks:
        raise NotRecorded("its lines merge without a conflict")
    try:
        parts = cut(merge, hunks.lines(text))
    except Unclear as unclear:
        raise NotRecorded(str(unclear)) from unclear
    resolutions: list[Resolution] = []
    for hunk, part in zip(merge.hunks, parts, strict=True):
        _check_markers(hunk, part)
        resolutions.append(
            Resolution(
                key=hunk.key,
                path=place.path,
                upstream=place.upstream,
                patch=place.patch,
                rung=place.rung,
                before=hunk.before,
                base=hunk.base,
                ours=hunk.ours,
                theirs=hunk.theirs,
                after=hunk.after,
                resolved="".join(part),
            )
        )
    new = tuple(dict.fromkeys(resolutions))
    if len({resolution.hunk for resolution in new}) < len(new):
        raise NotRecorded("the same conflict is resolved in different ways")
    return new


def _check_markers(hunk: Hunk, part: Sequence[str]) -> None:
    known = {line for version in (hunk.base, hunk.ours, hunk.theirs) for line in hunks.lines(version)}
    if any(line.startswith(_MARKERS) and line not in known for line in part):
        raise NotRecorded("conflict markers are left in it")


def _read_back(resolution: Resolution) -> Resolution:
    try:
        table = Table(tomllib.loads(dump(resolution).encode().decode()), file=Path(resolution.key))
        return parse(table)
    except (StackError, UnicodeEncodeError) as bad:
        raise NotRecorded(getattr(bad, "problem", "its path is not UTF-8")) from bad
