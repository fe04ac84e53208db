# SPDX-License-Identifier: Apache-2.0
"""Change many files of a stack at once, and undo such a change.

A switch is first written completely below `.stack/`: the old bytes for undo, and the new ones, ready to be renamed. Renaming
its journal into place then announces it; from that moment it counts. Then each new file is renamed to its place, and the old
bytes move into the history. If the process is killed before the announcement, the old state stays. If it is killed afterwards,
the next writing command finishes the switch (`recover`); every step may run twice. Reading commands refuse to run until then.
After the announcement files are only renamed, never written, so a full disk cannot stop the switch half-way.

A checkout may come from somebody else, with a forged `.stack`. Nothing in it is opened through a link, a journal may name only
files that commands write, and it counts only with this checkout's id (`checkout.py`).
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stack.base import files
from stack.base.errors import StackError
from stack.base.files import Folder
from stack.base.text import printable
from stack.model import checkout, paths

FOLDER = ".stack"
KEPT = 20
"""How many switches can be undone, and how many redone."""

WRITTEN = ("pins.toml", "pyproject.toml")
WRITTEN_BELOW = ("stacks/", "kernels/src/", "sources/")
"""The files that a switch may name."""

_LOG = logging.getLogger(__name__)
_JOURNAL = "switch.json"
_LOCK = "lock"
_PENDING = "pending"
_TABLES = ".toml"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HISTORY = "history"
_UNDONE = "undone"
_WAIT = 10.0
"""Seconds that a writer waits for readers and other writers."""


@dataclass(frozen=True, slots=True)
class Record:
    """A switch that can be undone; `changes` maps a path to the SHA-256 of the written bytes, None for a removed file.

    `time`: when it was made, in seconds since the epoch; None if an older version made it. `landed`: see `apply`.
    """

    number: int
    title: str
    changes: Mapping[str, str | None]
    time: int | None = None
    landed: Mapping[str, str] = field(default_factory=dict)


class Interrupted(StackError):
    """Raised when a switch was interrupted half-way, so that old and new files are mixed."""

    def __init__(self, root: Path, title: str) -> None:
        super().__init__(f"`{title}` was interrupted while it changed {root}", "finish it: stack undo --finish")


@dataclass(frozen=True, slots=True)
class _Place:
    """A stack's folder and its `.stack`, both open while this process holds the lock."""

    root: Folder
    own: Folder


def apply(
    root: Path,
    changes: Mapping[str, bytes | None],
    *,
    title: str,
    expected: Mapping[str, bytes | None] | None = None,
    for_good: bool = False,
    landed: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Replace files together; return the paths that changed. `changes` maps a path below root to its bytes, None to remove it.

    `expected` holds the bytes from which the caller computed `changes`; if a file differs by now, nothing is changed.
    `for_good`: `undo` cannot revert this switch. `landed`: for the history, the patches that leave since upstream has them, by their
    paths below `stacks/`, and the release that has each of them.

    Raises:
        StackError: A file has changed meanwhile, another command is switching, the folder cannot be written, or a switch may not
            name one of the paths.

    """
    for path in changes:
        if fault := _fault(path):
            raise StackError(
                f"{path!r} {fault}", f"a switch writes {', '.join(WRITTEN)} and files below {', '.join(WRITTEN_BELOW)}"
            )
    with _locked(root) as place:
        _recover(place)
        for path, content in (expected or {}).items():
            if _read(place.root, path) != content:
                raise StackError(f"{path} was changed while this command ran", "nothing was written: run it again")
        changed = {path: new for path, new in sorted(changes.items()) if _read(place.root, path) != new}
        if changed:
            number = 0 if for_good else _next(_numbers(place.own, _HISTORY))
            # Others choose the names of releases and branches; the journal holds printable text only.
            shown = printable(title)
            gone = {patch: release for patch, release in (landed or {}).items() if f"{patch}{release}".isprintable()}
            _announce(place, changed, {"title": shown, "number": number, "landed": gone})
            _finish(place)
        return tuple(changed)


def recover(root: Path) -> bool:
    """Finish a switch that was interrupted after its announcement, and log that; otherwise write nothing.

    Returns:
        Whether a switch had been interrupted.

    Raises:
        StackError: The switch was not announced by this user in this folder.

    """
    if not _interrupted(root):
        return False
    with _locked(root) as place:
        _recover(place)
    return True


def adopt(root: Path) -> None:
    """Accept the journals of a checkout that was moved or copied here as if they had been written here.

    Raises:
        StackError: A journal does not have the form that a switch writes.

    """
    with _locked(root) as place:
        own = checkout.identify(root)
        with contextlib.ExitStack() as opened:
            folders = [place.own, *(opened.enter_context(place.own.below(*names)) for names in _journal_folders(place.own))]
            for folder in folders:
                if folder.exists(_JOURNAL):
                    folder.write(f"{_JOURNAL}.part", json.dumps(_parsed(folder) | {"checkout": own}, indent=1).encode())
                    folder.move(f"{_JOURNAL}.part", folder, _JOURNAL)


def _journal_folders(own: Folder) -> list[tuple[str, ...]]:
    pending = [(_PENDING,)] if own.exists(_PENDING) else []
    return [*pending, *((kind, str(number)) for kind in (_HISTORY, _UNDONE) for number in _numbers(own, kind))]


@contextlib.contextmanager
def reading(root: Path) -> Iterator[None]:
    """Keep writers away while several files are read; write nothing.

    Raises:
        Interrupted: A switch was interrupted half-way.
        StackError: The stack's very first switch happened meanwhile, so that old and new files may be mixed.

    """
    with _unlocked(root) as own, contextlib.ExitStack() as held:
        lock = _open_lock(own, os.O_RDONLY) if own is not None else None
        if lock is not None:
            held.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_SH)
        if own is not None and own.exists(_JOURNAL):
            raise Interrupted(root, _described(_journal(root, own)))
        yield
        if lock is None and (root / FOLDER / _LOCK).exists():
            raise StackError(f"{root} was changed while this command read it", "run it again")


def history(root: Path) -> tuple[Record, ...]:
    """List the switches that can be undone, newest last.

    Raises:
        StackError: One of them was not made by this user in this folder.

    """
    with _unlocked(root) as own:
        return () if own is None else _records(root, own, _HISTORY)


def undone(root: Path) -> tuple[Record, ...]:
    """List the switches that can be redone, the last one undone at the end.

    Raises:
        StackError: One of them was not made by this user in this folder.

    """
    with _unlocked(root) as own:
        return () if own is None else _records(root, own, _UNDONE)


def replaced(root: Path, record: Record, *, undone: bool = False) -> dict[str, bytes | None]:
    """Read the bytes that a switch replaced, None for a file that it added; of one that was `undone`, what the undo replaced.

    Raises:
        StackError: The record cannot be read, or is gone by now.

    """
    with _unlocked(root) as own:
        try:
            if own is not None:
                with own.below(_UNDONE if undone else _HISTORY, str(record.number)) as kept:
                    return {path: kept.read(f"{index}.old") for index, path in enumerate(record.changes)}
        except FileNotFoundError:
            pass
    raise StackError(f"{root} was changed while this command read it", "run it again")


def written(root: Path, record: Record, *, undone: bool = False) -> dict[str, bytes | None]:
    """Read the TOML files that a switch wrote, None for one that it removed; of one that was `undone`, what the undo wrote.

    Files that an older version has not kept are left out.

    Raises:
        StackError: The record is gone by now.

    """
    tables = [(index, path) for index, path in enumerate(record.changes) if path.endswith(_TABLES)]
    with _unlocked(root) as own:
        try:
            if own is not None:
                with own.below(_UNDONE if undone else _HISTORY, str(record.number)) as kept:
                    found = {path: kept.read(f"{index}.kept") for index, path in tables}
                    return {path: data for path, data in found.items() if _hash(data) == record.changes[path]}
        except FileNotFoundError:
            pass
    raise StackError(f"{root} was changed while this command read it", "run it again")


def undo(root: Path) -> Record:
    """Restore the state before the last switch.

    Raises:
        StackError: There is nothing to undo, or a file has changed since that switch and its content would be lost.

    """
    with _locked(root) as place:
        _recover(place)
        records = _records(root, place.own, _HISTORY)
        if not records:
            raise StackError("nothing to undo", "no switch is recorded for this stack")
        last = records[-1]
        before = _replaced_by(place, last, _HISTORY)
        number = _next(_numbers(place.own, _UNDONE))
        _announce(place, before, {"title": last.title, "number": number, "landed": dict(last.landed), "undoes": last.number})
        _finish(place)
        return last


def redo(root: Path) -> Record:
    """Repeat the last switch that `undo` reverted.

    Raises:
        StackError: There is nothing to redo, or a file has changed since the undo and its content would be lost.

    """
    with _locked(root) as place:
        _recover(place)
        records = _records(root, place.own, _UNDONE)
        if not records:
            raise StackError("nothing to redo", "no switch of this stack was taken back")
        last = records[-1]
        after = _replaced_by(place, last, _UNDONE)
        number = _next(_numbers(place.own, _HISTORY))
        _announce(place, after, {"title": last.title, "number": number, "landed": dict(last.landed), "redoes": last.number})
        _finish(place)
        return last


def _replaced_by(place: _Place, record: Record, kind: str) -> dict[str, bytes | None]:
    """Read the bytes that a recorded switch replaced.

    Raises:
        StackError: A file is no longer as the switch left it.

    """
    for path, written in record.changes.items():
        now = _read(place.root, path)
        if _hash(now) != written:
            since, verb = (f"`{record.title}`", "undo") if kind == _HISTORY else (f"the undo of `{record.title}`", "redo")
            back = f"copy your change, put the file back (`git checkout {path}`), then {verb}"
            raise StackError(f"{path} was changed since {since}", f"{verb} would lose that: {back}")
    with place.own.below(kind, str(record.number)) as kept:
        return {path: kept.read(f"{index}.old") for index, path in enumerate(record.changes)}


@contextlib.contextmanager
def _unlocked(root: Path) -> Iterator[Folder | None]:
    """Open `.stack` for reading; yield None if it is missing."""
    with contextlib.ExitStack() as opened:
        try:
            top = opened.enter_context(files.opened(root))
            own = opened.enter_context(top.below(FOLDER)) if top.exists(FOLDER) else None
        except OSError as failed:
            raise StackError(f"{root} cannot be read ({failed.strerror})", "check --root and the folder's rights") from failed
        yield own


def _interrupted(root: Path) -> bool:
    with _unlocked(root) as own:
        return own is not None and own.exists(_JOURNAL)


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[_Place]:
    try:
        with files.opened(root) as top, top.below(FOLDER, create=True) as own:
            lock = _open_lock(own, os.O_RDWR | os.O_CREAT)
            assert lock is not None
            try:
                _acquire(lock, root)
                # An ignore file inside the folder keeps it out of the user's repository.
                if not own.exists(".gitignore"):
                    own.write("gitignore.part", b"*\n")
                    own.move("gitignore.part", own, ".gitignore")
                yield _Place(top, own)
            finally:
                os.close(lock)
    except OSError as failed:
        raise StackError(
            f"{root} cannot be written ({failed.strerror})", "free disk space or check the folder's rights"
        ) from failed


def _open_lock(own: Folder, flags: int) -> int | None:
    """Open the lock file without emptying it; return None if it is missing."""
    try:
        return own.open(_LOCK, flags)
    except FileNotFoundError:
        return None


def _acquire(descriptor: int, root: Path) -> None:
    patience = time.monotonic() + _WAIT
    while not files.lock_if_free(descriptor, root):
        if time.monotonic() > patience:
            raise StackError(f"another stack command is at work on {root}", "wait until it has ended")
        time.sleep(0.05)


def _announce(place: _Place, changes: Mapping[str, bytes | None], journal: dict[str, object]) -> None:
    """Write the whole switch, then rename its journal into place. A kill before that leaves only files to be discarded."""
    journal["checkout"] = checkout.identify(place.root.path)
    journal["time"] = int(time.time())
    journal["changes"] = {path: _hash(new) for path, new in changes.items()}
    text = json.dumps(journal, indent=1).encode()
    place.own.remove_tree(_PENDING)
    with place.own.below(_PENDING, create=True) as pending:
        for index, (path, new) in enumerate(changes.items()):
            old = _read(place.root, path)
            if old is not None:
                pending.write(f"{index}.old", old)
            if new is not None:
                pending.write(f"{index}.new", new)
                if path.endswith(_TABLES):
                    # The history tells what these files said, whatever becomes of them later.
                    pending.write(f"{index}.kept", new)
                # Create folders now, not at the renaming: they need disk space, and a file may be in the way.
                with _holder(place.root, path, create=True):
                    pass
        for kind in (_HISTORY, _UNDONE):
            with place.own.below(kind, create=True):
                pass
        pending.write(_JOURNAL, text)
        pending.sync()
    place.own.write(f"{_JOURNAL}.part", text)
    place.own.move(f"{_JOURNAL}.part", place.own, _JOURNAL)
    place.own.sync()


def _recover(place: _Place) -> None:
    if place.own.exists(_JOURNAL):
        journal = _journal(place.root.path, place.own)
        _finish(place)
        _LOG.warning(
            "stack: finished `%s`, which had been interrupted (%d files)", _described(journal), len(journal["changes"])
        )


def _finish(place: _Place) -> None:
    """Carry out the announced switch; after a kill it can simply run again."""
    own = place.own
    journal = _journal(place.root.path, own)
    if own.exists(_PENDING):
        with own.below(_PENDING) as pending:
            _check_bytes(pending, journal)
            for index, path in enumerate(journal["changes"]):
                if pending.exists(f"{index}.new"):
                    _move(pending, f"{index}.new", place.root, path)
        # Remove files last: a folder that becomes empty is removed, too, unless a new file keeps it.
        for path, new in journal["changes"].items():
            if new is None:
                _remove(place.root, path)
        _file_away(own, journal)
    own.remove(_JOURNAL)
    own.sync()


def _file_away(own: Folder, journal: Mapping[str, Any]) -> None:
    """Keep what a switch replaced, for undo or for redo; keep nothing of a switch that is `for_good`."""
    for verb, kind in (("undoes", _HISTORY), ("redoes", _UNDONE)):
        if verb in journal:
            with own.below(kind) as holder:
                _discard(own, holder, str(journal[verb]))
    if not journal["number"]:
        _discard(own, own, _PENDING)
        return
    kind = _UNDONE if "undoes" in journal else _HISTORY
    with own.below(kind) as kept:
        own.move(_PENDING, kept, str(journal["number"]))
        for number in _numbers(own, kind)[:-KEPT]:
            _discard(own, kept, str(number))


def _described(journal: Mapping[str, Any]) -> str:
    """Return the title of a journal's interrupted switch."""
    for verb, name in (("undoes", "undo"), ("redoes", "redo")):
        if verb in journal:
            return f"{name} of {journal['title']}"
    return str(journal["title"])


def _discard(own: Folder, holder: Folder, name: str) -> None:
    """Remove one of our folders: rename it away first, since removing file by file can be interrupted."""
    own.remove_tree("waste")
    if holder.exists(name):
        holder.move(name, own, "waste")
        own.remove_tree("waste")


def _hash(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def _numbers(own: Folder, kind: str) -> list[int]:
    if not own.exists(kind):
        return []
    with own.below(kind) as kept:
        return sorted(int(name) for name in kept.names() if name.isascii() and name.isdigit())


def _next(numbers: Sequence[int]) -> int:
    return numbers[-1] + 1 if numbers else 1


def _records(root: Path, own: Folder, kind: str) -> tuple[Record, ...]:
    records = []
    for number in _numbers(own, kind):
        with own.below(kind, str(number)) as folder:
            journal = _journal(root, folder)
        landed = journal.get("landed", {})
        records.append(Record(journal["number"], journal["title"], journal["changes"], journal.get("time"), landed))
    return tuple(records)


def _journal(root: Path, folder: Folder) -> dict[str, Any]:
    """Read a folder's journal, which this user must have written for this checkout.

    Raises:
        StackError: The journal was not written by this user for this checkout.

    """
    journal = _parsed(folder)
    own = checkout.identity(root)
    if own is None or journal.get("checkout") != own:
        raise StackError(
            f"{folder.path / _JOURNAL} was not written by you in this folder",
            f"remove {root / FOLDER} if it came with the checkout; if you moved or copied your own: stack undo --adopt",
        )
    return journal


def _parsed(folder: Folder) -> dict[str, Any]:
    """Read a journal in the form that a switch writes, whoever wrote it.

    Raises:
        StackError: The journal has another form, or names a file that no switch writes.

    """
    strange = StackError(
        f"{folder.path / _JOURNAL} is not what stack wrote", "remove the folder .stack if it came with the checkout"
    )
    try:
        journal = json.loads(folder.read(_JOURNAL) or b"")
        numbers = [journal["number"], *(journal.get(key, 0) for key in ("undoes", "redoes", "time"))]
        title = journal["title"]
        sound = isinstance(title, str) and title.isprintable()
        sound = sound and all(type(number) is int and number >= 0 for number in numbers)
        changes = journal["changes"].items()
        landed = [text for pair in journal.get("landed", {}).items() for text in pair]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as bad:
        raise strange from bad
    sound = sound and all(isinstance(text, str) and text.isprintable() for text in landed)
    if not sound or not all(new is None or (isinstance(new, str) and _SHA256.fullmatch(new)) for _, new in changes):
        raise strange
    if any(_fault(path) for path, _ in changes):
        raise strange
    return dict(journal)


def _fault(path: str) -> str:
    """Return why a switch may not name a path; empty if it may."""
    try:
        unfit = paths.fault(path.encode("utf-8"))
    except UnicodeEncodeError:
        return "is not UTF-8"
    if unfit or path in WRITTEN or path.startswith(WRITTEN_BELOW):
        return unfit
    return "is not a file of the stack"


def _check_bytes(pending: Folder, journal: dict[str, Any]) -> None:
    """Check that the files to be renamed are those that the journal announced."""
    for index, (path, new) in enumerate(journal["changes"].items()):
        waiting = pending.read(f"{index}.new")
        if waiting is not None and hashlib.sha256(waiting).hexdigest() != new:
            raise StackError(
                f"what waits for {path} in {pending.path} is not what was announced", f"remove {pending.path.parent}"
            )


@contextlib.contextmanager
def _holder(root: Folder, path: str, *, create: bool = False) -> Iterator[Folder]:
    """Open the folder that holds the file of a path."""
    with root.below(*path.split("/")[:-1], create=create) as folder:
        yield folder


def _move(pending: Folder, name: str, root: Folder, path: str) -> None:
    # The folder exists already, unless somebody has removed it since the announcement.
    with _holder(root, path, create=True) as folder:
        pending.move(name, folder, path.rpartition("/")[2])
        folder.sync()


def _remove(root: Folder, path: str) -> None:
    """Remove a file, and the folders that become empty, as git does."""
    *folders, name = path.split("/")
    with contextlib.suppress(FileNotFoundError), root.below(*folders) as holder:
        holder.remove(name)
    with contextlib.suppress(OSError):
        while folders:
            *folders, name = folders
            with root.below(*folders) as holder:
                holder.remove_empty(name)


def _read(root: Folder, path: str) -> bytes | None:
    try:
        with _holder(root, path) as folder:
            return folder.read(path.rpartition("/")[2])
    except (FileNotFoundError, NotADirectoryError):
        return None
