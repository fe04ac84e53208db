# SPDX-License-Identifier: Apache-2.0
"""Describe what each recorded switch of a stack did: pins that moved, and patches that came, went, landed or were rewritten."""

import hashlib
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
    """A pin before and after a switch, as tags or short commits; None: there was, or is, none. `lane`: None for the main pin."""

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

    def moves_pins(self, lane: str | None) -> bool:
        """Return whether an upstream's pin moved in a lane."""
        return any(move.lane == lane and move.old is not None and move.new is not None for move in self.pins)

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
    """Describe the switches of a stack, newest first; those that were undone come before the others.

    Raises:
        StackError: A record cannot be read, was not made by this user in this folder, or a switch was interrupted.

    """
    with switch.reading(root):
        return (*reversed(tuple(_undone(root))), *_standing(root))


def standing(root: Path, lane: str | None) -> tuple[Switched, ...]:
    """Describe the switches of one lane that can be undone, newest first, back to the one that added the lane.

    Raises:
        StackError: as `log`.

    """
    of_lane = [each for each in log(root) if not each.undone and each.is_of(lane)]
    first = next((number for number, each in enumerate(of_lane) if each.begins(lane)), len(of_lane))
    return tuple(of_lane[: first + 1])


def _standing(root: Path) -> Iterator[Switched]:
    """Yield the switches that can be undone, newest first; each file's later content is what the next switch replaced."""
    later: _Content = {}
    for record in reversed(switch.history(root)):
        before = switch.replaced(root, record)
        # Of patches it is enough to know whether the switch wrote or removed them.
        tables = [path for path in before if path.endswith(".toml")]
        after = {path: later[path] if path in later else _now(root, path) for path in tables}
        yield _described(record, before, {path: data for path, data in after.items() if _is_written(record, path, data)})
        later |= before


def _undone(root: Path) -> Iterator[Switched]:
    """Yield the switches that can be redone, the next one to redo first."""
    now: _Content = {}
    for record in reversed(switch.undone(root)):
        after = switch.replaced(root, record, undone=True)
        before = {path: now[path] if path in now else _now(root, path) for path in after}
        yield _described(record, before, after, undone=True)
        now |= after


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


def _described(record: Record, before: Mapping[str, bytes | None], after: _Content, *, undone: bool = False) -> Switched:
    """Describe a switch; `after` lacks the files whose later content is unknown."""
    patches = {path.removeprefix(f"{FOLDER}/"): path for path in before if _is_patch(path)}
    new = {path: after.get(path, b"") for path in before}
    if not undone:
        new = {path: None if written is None else new[path] for path, written in record.changes.items()}
    added = tuple(name for name, path in patches.items() if before[path] is None and new[path] is not None)
    gone = [name for name, path in patches.items() if before[path] is not None and new[path] is None]
    landed = tuple(_landed(before, after, gone))
    resolved = [path for path in before if path.startswith(f"{FOLDER}/{RESOLUTIONS}/")]
    pin_moves = tuple(_moves(before.get(pins.FILE), after.get(pins.FILE))) if pins.FILE in after else ()
    known = {*patches.values(), *resolved, *([pins.FILE] if pin_moves else [])}
    return Switched(
        record.number,
        record.title,
        record.time,
        undone,
        pin_moves,
        added,
        tuple(name for name in gone if name not in {landing.patch for landing in landed}),
        landed,
        tuple(name for name, path in patches.items() if before[path] is not None and new[path] is not None),
        len(resolved),
        tuple(path for path in before if path not in known),
    )


def _is_patch(path: str) -> bool:
    return path.startswith(f"{FOLDER}/") and path.endswith(".patch") and not path.startswith(f"{FOLDER}/{RESOLUTIONS}/")


def _moves(before: bytes | None, after: bytes | None) -> Iterator[PinMove]:
    old, new = _parsed(before), _parsed(after)
    old_lanes, new_lanes = _tables(old.pop(pins.LANES, None)), _tables(new.pop(pins.LANES, None))
    yield from _moved(old, new, None)
    for lane in new_lanes:
        if lane in old_lanes:  # a lane that comes or goes moves no pin
            yield from _moved(old | _tables(old_lanes[lane]), new | _tables(new_lanes[lane]), lane)


def _moved(old: Mapping[str, object], new: Mapping[str, object], lane: str | None) -> Iterator[PinMove]:
    for name in dict.fromkeys([*old, *new]):
        was, now = _revision(old.get(name)), _revision(new.get(name))
        if was != now:
            yield PinMove(name, was, now, lane)


def _tables(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}


def _revision(pin: object) -> str | None:
    if not isinstance(pin, dict):
        return None
    tag, commit = pin.get("tag"), pin.get("commit", pin.get("digest"))
    return str(tag) if isinstance(tag, str) else str(commit)[:12] if isinstance(commit, str) else None


def _landed(before: Mapping[str, bytes | None], after: _Content, gone: list[str]) -> Iterator[Landing]:
    """Yield the patches that left with a new record of the release in which they landed."""
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
