# SPDX-License-Identifier: Apache-2.0
"""Write to a stack that may have lanes, so that a command changes what it names and nothing that another lane carries.

Commands compute files as their lane sees them, at the common paths. `apply` works out which files have to be written for that: a
lane writes only its own files, and none where they would equal the common ones. If a common file changes, each lane that used it
gets the earlier content as its own, in the same switch.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stack.base.errors import StackError
from stack.model import document, lane_files, lane_pins, paths, pins, series, switch
from stack.model import stack as stacks
from stack.model.pins import MAIN, Pins
from stack.model.stack import FOLDER, Stack

Files = Mapping[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Change:
    """The files that a command writes in one lane, and the files from which it computed them; both by the common paths."""

    files: Files
    expected: Files = field(default_factory=dict)


def named(lane: str | None) -> str:
    """Return the name of a lane for people."""
    return MAIN if lane is None else lane


def key(name: str | None) -> str | None:
    """Return a lane that a person names, None for what stands in no lane."""
    return None if name == MAIN else name


def option(stack: Stack) -> str:
    """Return the option that makes a command act in the stack's lane, with a space before it; empty for no lane."""
    return f" --lane {stack.lane}" if stack.lane is not None else ""


def contents(stack: Stack, paths: Iterable[str]) -> dict[str, bytes | None]:
    """Return the content of files below the root as the stack's lane sees them; None for a missing file.

    Raises:
        StackError: A file cannot be read, or is too large.

    """
    reader = _Reader(stack.root)
    return {path: reader.seen(stack.lane, path) for path in paths}


def text(stack: Stack, path: str) -> str:
    """Return the text of a file below the root as the stack's lane sees it.

    Raises:
        StackError: The file is missing, not UTF-8, or cannot be read.

    """
    data = contents(stack, [path])[path]
    if data is None or stack.lane is None:
        return document.read_text(stack.root / path)
    return data.decode("utf-8")


def apply(
    stack: Stack,
    files: Files,
    *,
    title: str,
    expected: Files | None = None,
    follow: bool = False,
    landed: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Write files of a stack as its lane sees them; return the paths that changed. See `apply_all`."""
    return apply_all(stack.root, {stack.lane: Change(files, expected or {})}, title=title, follow=follow, landed=landed)


def apply_all(
    root: Path,
    changes: Mapping[str | None, Change],
    *,
    title: str,
    follow: bool = False,
    landed: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Write the changes of one lane or several in one switch; None stands for what is in no lane.

    Args:
        root: The stack's folder.
        changes: By lane, the files to write and those that must not have changed.
        title: What `stack undo` shows.
        follow: Lanes that use a common file follow its change, instead of keeping the earlier content.
        landed: The patches that leave since upstream has them, as `switch.apply` records them.

    Raises:
        StackError: A file has changed meanwhile, cannot be written, or cannot be edited for a lane as it is written.

    """
    reader = _Reader(root)
    lanes = reader.pins(None).lanes
    if not lanes:
        [only] = changes.values()
        return switch.apply(root, only.files, title=title, expected=only.expected, landed=landed)
    for lane, change in changes.items():
        for path, wanted in change.expected.items():
            if reader.seen(lane, path) != wanted:
                raise StackError(f"{path} was changed while this command ran", "nothing was written: run it again")
    wanted_files = {lane: change.files for lane, change in changes.items()}
    files = _Writer(reader, lanes, wanted_files, follow).files()
    names = [lane for lane in changes if lane is not None]
    suffix = f" --lane {names[0]}" if len(changes) == 1 and names else ""
    return switch.apply(root, files, title=f"{title}{suffix}", expected=reader.read, landed=landed)


def begin(root: Path, lane: str, source: str | None = None) -> tuple[str, ...]:
    """Begin a lane with the pins and patches of another one, by default those in no lane; return the paths that changed.

    Raises:
        StackError: The name is taken or not valid, or there is no such source, or one of its files has an unfit name.

    """
    reader = _Reader(root)
    files: dict[str, bytes | None] = {pins.FILE: lane_pins.begun(reader.text(pins.FILE), lane, reader.pins(source)).encode()}
    if source is not None:
        _check_fit(root, source)
        own = root / lane_files.FOLDER / source
        for file in sorted(path for path in own.rglob("*") if path.is_file()):
            path = file.relative_to(own).as_posix()
            files[f"{lane_files.FOLDER}/{lane}/{path}"] = reader.file(file.relative_to(root).as_posix())
    origin = f" --from {source}" if source is not None else ""
    return switch.apply(root, files, title=f"lane add {lane}{origin}", expected=reader.read)


def drop(root: Path, lane: str) -> tuple[str, ...]:
    """Remove a lane, with its pins and its own files; return the paths that changed.

    Raises:
        StackError: There is no such lane, its tables cannot be removed as they are written, or one of its files has an unfit name.

    """
    if lane == MAIN:
        raise StackError(f"{MAIN} cannot be dropped: it holds what is in no lane", "name a lane: stack lane list")
    reader = _Reader(root)
    files: dict[str, bytes | None] = {pins.FILE: lane_pins.dropped(reader.text(pins.FILE), lane).encode()}
    _check_fit(root, lane)
    own = root / lane_files.FOLDER / lane
    for file in sorted(path for path in own.rglob("*") if path.is_file() or path.is_symlink()):
        files[file.relative_to(root).as_posix()] = None
    return switch.apply(root, files, title=f"lane drop {lane}", expected=reader.read)


def unfit(root: Path, lane: str) -> Iterator[tuple[str, str]]:
    """Yield the lane's own files that no command can write or remove, by their paths below the root, each with the reason."""
    for file in sorted((root / lane_files.FOLDER / lane).rglob("*")):
        path = file.relative_to(root).as_posix()
        raw = os.fsencode(path)
        if fault := paths.fault(raw):
            yield path, fault
        elif path != raw.decode("utf-8", "replace"):
            yield path, "is not UTF-8"


def _check_fit(root: Path, lane: str) -> None:
    for path, fault in unfit(root, lane):
        raise StackError(f"{path!r} {fault}", "remove or rename it, then run the command again")


class _Reader:
    """Reads files of a stack once each; `read` holds what it has seen, by path, None for a missing file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.read: dict[str, bytes | None] = {}

    def file(self, path: str) -> bytes | None:
        if path not in self.read:
            there = (self.root / path).is_file()
            self.read[path] = document.read_bytes(self.root / path) if there else None
        return self.read[path]

    def text(self, path: str) -> str:
        return (self.file(path) or b"").decode("utf-8")

    def optional_text(self, path: str) -> str | None:
        data = self.file(path)
        return None if data is None else data.decode("utf-8")

    def pins(self, lane: str | None) -> Pins:
        return lane_pins.parsed(self.text(pins.FILE), lane)

    def seen(self, lane: str | None, path: str) -> bytes | None:
        """Return the content of a file as a lane sees it."""
        if lane is None or not lane_files.is_laned(path):
            return self.file(path)
        own = lane_files.place(lane, path)
        if lane_files.is_patch(path):
            return self.file(own) if self.file(own) is not None else self.file(path)
        seen = lane_files.joined(self.optional_text(path), self.optional_text(own))
        return None if seen is None else seen.encode()


@dataclass(frozen=True, slots=True)
class _Writer:
    """Computes the files to write from the files that each changed lane wants to see."""

    reader: _Reader
    lanes: Iterable[str]
    wanted: Mapping[str | None, Files]
    follow: bool

    def files(self) -> dict[str, bytes | None]:
        main = self.wanted.get(None, {})
        files: dict[str, bytes | None] = {path: data for path, data in main.items() if path != pins.FILE}
        for lane in self.lanes:
            own = self.wanted.get(lane, {})
            stray = next((path for path in own if path != pins.FILE and not lane_files.is_laned(path)), None)
            if stray is not None:
                raise StackError(f"{stray} is not a file that a lane may change", "change it without --lane")
            for path in dict.fromkeys(path for path in (*main, *own) if lane_files.is_laned(path)):
                place = lane_files.place(lane, path)
                new = self._patch(lane, path) if lane_files.is_patch(path) else self._toml(lane, path)
                if new != self.reader.file(place):
                    files[place] = new
        if any(pins.FILE in change for change in self.wanted.values()):
            files[pins.FILE] = self._pins().encode()
        return files

    def _after(self, path: str) -> bytes | None:
        """Return a common file's content after the change."""
        main = self.wanted.get(None, {})
        return main[path] if path in main else self.reader.file(path)

    def _toml(self, lane: str, path: str) -> bytes | None:
        """Return the lane's own version of a TOML file after the change."""
        held = self.reader.optional_text(lane_files.place(lane, path))
        after = self._after(path)
        common = None if after is None else after.decode("utf-8")
        wanted = self.wanted.get(lane, {})
        if path in wanted:
            seen = wanted[path]
            new = None if seen is None else lane_files.own_text(path, common, seen.decode("utf-8"), held)
        elif self.follow:
            new = held
        else:
            new = lane_files.kept_text(path, self.reader.optional_text(path), common, held)
        return None if new is None else new.encode()

    def _patch(self, lane: str, path: str) -> bytes | None:
        """Return the lane's own version of a patch file after the change."""
        wanted, after = self.wanted.get(lane, {}), self._after(path)
        held = self.reader.file(lane_files.place(lane, path))
        if path in wanted:
            new = wanted[path]
        elif not self._lists(lane, path):
            new = None
        elif held is not None:
            new = held
        else:
            new = after if self.follow and after is not None else self.reader.file(path)
        return None if new == after else new

    def _lists(self, lane: str, path: str) -> bool:
        """Return whether a lane carries a patch after the change."""
        _, name, file = path.split("/", 2)
        list_path = f"{FOLDER}/{name}/{series.FILE}"
        own, after = self._toml(lane, list_path), self._after(list_path)
        seen = lane_files.joined(None if after is None else after.decode("utf-8"), None if own is None else own.decode("utf-8"))
        return lane_files.lists(seen, file)

    def _pins(self) -> str:
        """Return the text of `pins.toml` in which each lane has its new pins, or those that it had."""
        main = self.wanted.get(None, {}).get(pins.FILE)
        text = self.reader.text(pins.FILE) if main is None else main.decode("utf-8")
        for lane in self.lanes:
            new = self.wanted.get(lane, {}).get(pins.FILE)
            text = lane_pins.edited(text, lane, self.reader.pins(lane) if new is None else lane_pins.parsed(new.decode(), lane))
        return text


def alone(stack: Stack) -> dict[str, bytes]:
    """Return the files of a stack that carries by itself what a lane carries: its pins, list, series and patches.

    Raises:
        StackError: A file cannot be read, or the lane's pins cannot be written by themselves.

    """
    names = [f"{FOLDER}/{stacks.FILE}"]
    for member in stack.series:
        names += [f"{FOLDER}/{member.name}/{series.FILE}", *(f"{FOLDER}/{ref.path}" for ref in member.patches)]
    files = {path: data for path, data in contents(stack, names).items() if data is not None}
    text = document.read_text(stack.root / pins.FILE)
    return {pins.FILE: lane_pins.alone(text, stack.lane).encode()} | files


def needless(stack: Stack) -> Iterable[str]:
    """Return the lane's own patch files that equal the common ones, by their paths below the root."""
    paths = [ref.path for ref in stack.patches if stack.owns(ref.path)]
    return [stack.place(path) for path in paths if _same(stack.root / stack.place(path), stack.root / FOLDER / path)]


def _same(own: Path, common: Path) -> bool:
    return common.is_file() and document.read_bytes(own) == document.read_bytes(common)


def of_every(root: Path) -> tuple[str | None, ...]:
    """Return all lanes of a stack, first None for what stands in no lane.

    Raises:
        StackError: `pins.toml` is invalid.

    """
    return (None, *pins.load(root / pins.FILE).lanes)


def carried(root: Path) -> dict[str | None, Stack]:
    """Load the stack as every lane sees it.

    Raises:
        StackError: The stack is invalid in one of them.

    """
    return {lane: stacks.load(root, lane) for lane in of_every(root)}


def others(stack: Stack) -> dict[str | None, Stack | None]:
    """Load a stack as every lane but its own sees it; None for a lane that is invalid.

    Raises:
        StackError: `pins.toml` is invalid.

    """
    return {lane: _loaded(stack.root, lane) for lane in of_every(stack.root) if lane != stack.lane}


def _loaded(root: Path, lane: str | None) -> Stack | None:
    try:
        return stacks.load(root, lane)
    except StackError:
        return None


def carriers(stack: Stack, name: str) -> tuple[str, ...]:
    """Return the other lanes that need a series: those that carry patches of it, and those that are invalid.

    Raises:
        StackError: `pins.toml` is invalid.

    """
    return tuple(named(lane) for lane, other in others(stack).items() if other is None or _carries(other, name))


def _carries(stack: Stack, name: str) -> bool:
    return any(member.name == name and member.patches for member in stack.series)


def folders(stack: Stack, name: str) -> tuple[str, ...]:
    """Return the folders of a series below the root, first the common one, then those of lanes.

    Raises:
        StackError: `pins.toml` is invalid.

    """
    own = (lane_files.place(lane, f"{FOLDER}/{name}") for lane in of_every(stack.root) if lane is not None)
    return (f"{FOLDER}/{name}", *(folder for folder in own if (stack.root / folder).is_dir()))
