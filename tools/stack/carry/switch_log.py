# SPDX-License-Identifier: Apache-2.0
"""Describe what each recorded switch of a stack did: pins that moved, and patches that came, went, landed or were rewritten."""

import hashlib
import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.base import files
from stack.base.errors import StackError
from stack.base.files import Folder
from stack.model import document, pins, series, switch
from stack.model.stack import FOLDER, RESOLUTIONS
from stack.model.switch import Record

_Content = dict[str, bytes | None]


@dataclass(frozen=True, slots=True)
class PinMove:
    """A pin before and after a switch, as tags or short commits; None: there was, or is, none. `lane`: None for no lane."""

    upstream: str
    old: str | None
    new: str | None
    lane: str | None = None


@dataclass(frozen=True, slots=True)
class Landing:
    """A patch, by its path, that left since a release has it."""

    patch: str
    release: str


@dataclass(frozen=True, slots=True)
class Switched:
    """The effect of one switch. Patches are paths below `stacks/`; `other`: further files that changed.

    `time`: seconds since the epoch, None if unknown; of an undone switch, the time of the undo. `undone`: `stack redo` repeats it.
    """

    number: int
    title: str
    time: int | None
    undone: bool
    pins: tuple[PinMove, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    landed: tuple[Landing, ...]
    rewritten: tuple[str, ...]
    resolutions: int
    other: tuple[str, ...]

    def moves_pins(self, lane: str | None = None) -> bool:
        """Return whether an upstream's pin moved in a lane, None for what stands in no lane."""
        return any(move.old is not None and move.new is not None and move.lane == lane for move in self.pins)

    def begins(self, lane: str | None) -> bool:
        """Return whether the switch added a lane."""
        return lane is not None and self.title.split()[:3] == ["lane", "add", lane]

    def is_of(self, lane: str | None) -> bool:
        """Return whether the command acted in a lane, by its title; None: in main."""
        words = self.title.split()
        if words[:2] in (["lane", "add"], ["lane", "drop"]):
            return words[2:3] == [lane]
        if "--all-lanes" in words:
            return True
        return words[-1] == lane if words[-2:-1] == ["--lane"] else lane is None


def log(root: Path) -> tuple[Switched, ...]:
    """Describe the switches of a stack, newest first; an undone switch stands where it was undone.

    Raises:
        StackError: A record cannot be read, was not made by this user in this folder, or a switch was interrupted.

    """
    with switch.reading(root):
        undone = list(_undone(root))[::-1]
        undone.sort(key=_age)
        # Clocks may go back; the order in which switches can be undone stays.
        return tuple(heapq.merge(undone, _standing(root), key=_age))


def standing(root: Path, lane: str | None) -> tuple[Switched, ...]:
    """Describe the switches of one lane that can be undone, newest first, back to the one that added the lane.

    Raises:
        StackError: as `log`.

    """
    of_lane = [each for each in log(root) if not each.undone and each.is_of(lane)]
    first = next((number for number, each in enumerate(of_lane) if each.begins(lane)), len(of_lane))
    return tuple(of_lane[: first + 1])


def _age(each: Switched) -> int:
    return -(each.time or 0)


def _standing(root: Path) -> Iterator[Switched]:
    """Yield the switches that can be undone, newest first."""
    later: _Content = {}
    for record in reversed(switch.history(root)):
        before = switch.replaced(root, record)
        yield _described(record, before, _known(root, record, later))
        later |= before


def _undone(root: Path) -> Iterator[Switched]:
    """Yield the switches that can be redone, the next one to redo first."""
    now: _Content = {}
    for record in reversed(switch.undone(root)):
        after = switch.replaced(root, record, undone=True)
        yield _described(record, _known(root, record, now, undone=True), after, undone=True)
        now |= after


def _known(root: Path, record: Record, later: Mapping[str, bytes | None], *, undone: bool = False) -> _Content:
    """Return the TOML files that a record says were written, as they were then.

    An older version has not kept them. They are known all the same if the next record, or else the stack, still has these bytes.
    """
    found = switch.written(root, record, undone=undone)
    for path in (path for path in record.changes if path.endswith(".toml") and path not in found):
        data = later[path] if path in later else _now(root, path)
        if _is_written(record, path, data):
            found[path] = data
    return found


def _is_written(record: Record, path: str, data: bytes | None) -> bool:
    """Return whether these bytes are those that the switch wrote: a person may have edited the file since."""
    return record.changes[path] == (None if data is None else hashlib.sha256(data).hexdigest())


def _now(root: Path, path: str) -> bytes | None:
    try:
        with files.opened(root) as top:
            return _read(top, path.split("/"))
    except (OSError, StackError):
        return None


def _read(folder: Folder, parts: list[str]) -> bytes | None:
    if len(parts) == 1:
        return folder.read(parts[0])
    with folder.below(parts[0]) as below:
        return _read(below, parts[1:])


def _described(
    record: Record, before: Mapping[str, bytes | None], after: Mapping[str, bytes | None], *, undone: bool = False
) -> Switched:
    """Describe a switch. `before` of an undone switch, and `after` of any other, lack the files that the record does not keep."""
    patches = {path.removeprefix(f"{FOLDER}/"): path for path in record.changes if _is_patch(path)}
    had, has = (record.changes, after) if undone else (before, record.changes)
    gone = [name for name, path in patches.items() if had[path] is not None and has[path] is None]
    landed = {each.patch: each for each in _landed(before, after, gone)}
    landed |= {patch: Landing(patch, release) for patch, release in record.landed.items()}
    resolved = [path for path in record.changes if path.startswith(f"{FOLDER}/{RESOLUTIONS}/")]
    both = pins.FILE in before and pins.FILE in after
    pin_moves = tuple(_moves(before[pins.FILE], after[pins.FILE])) if both else ()
    known = {*patches.values(), *resolved, *([pins.FILE] if pin_moves else [])}
    return Switched(
        record.number,
        record.title,
        record.time,
        undone,
        pin_moves,
        tuple(name for name, path in patches.items() if had[path] is None and has[path] is not None),
        tuple(name for name in gone if name not in landed),
        tuple(landed.values()),
        tuple(name for name, path in patches.items() if had[path] is not None and has[path] is not None),
        len(resolved),
        tuple(path for path in record.changes if path not in known),
    )


def _is_patch(path: str) -> bool:
    return path.startswith(f"{FOLDER}/") and path.endswith(".patch") and not path.startswith(f"{FOLDER}/{RESOLUTIONS}/")


def _moves(before: bytes | None, after: bytes | None) -> Iterator[PinMove]:
    """Yield the pins that moved, those in no lane first. A lane that is new or gone has moved nothing."""
    old, new = _parsed(before), _parsed(after)
    old_lanes, new_lanes = _tables(old.pop(pins.LANES, None)), _tables(new.pop(pins.LANES, None))
    lanes = [name for name in new_lanes if name in old_lanes]
    pairs = [(None, old, new), *((lane, old | _tables(old_lanes[lane]), new | _tables(new_lanes[lane])) for lane in lanes)]
    for lane, earlier, later in pairs:
        for name in dict.fromkeys([*earlier, *later]):
            was, now = _revision(earlier.get(name)), _revision(later.get(name))
            if was != now:
                yield PinMove(name, was, now, lane)


def _tables(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _revision(pin: object) -> str | None:
    if not isinstance(pin, dict):
        return None
    tag, commit = pin.get("tag"), pin.get("commit", pin.get("digest"))
    return str(tag) if isinstance(tag, str) else str(commit)[:12] if isinstance(commit, str) else None


def _landed(before: Mapping[str, bytes | None], after: Mapping[str, bytes | None], gone: list[str]) -> Iterator[Landing]:
    """Yield the patches that left with a new record of the release in which they landed, for histories of an older version."""
    for path in before:
        name = path.removeprefix(f"{FOLDER}/").removesuffix(f"/{series.FILE}")
        if not path.endswith(f"/{series.FILE}") or path not in after:
            continue
        known = {str(entry) for entry in _records(before[path])}
        for entry in _records(after[path]):
            patch = f"{name}/{entry.get('file')}"
            if str(entry) not in known and patch in gone:
                yield Landing(patch, str(entry.get("release")))


def _records(data: bytes | None) -> list[dict[str, Any]]:
    listed = _parsed(data).get("landed", [])
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


def _parsed(data: bytes | None) -> dict[str, Any]:
    try:
        return document.parse((data or b"").decode("utf-8"))
    except ValueError:  # a person has written something else there
        return {}
