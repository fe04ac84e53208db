# SPDX-License-Identifier: Apache-2.0
"""Changing many files of a stack at once, and taking it back.

A switch is first written out whole below `.stack/` (the old bytes for undo, the new ones ready to be renamed), then
announced by renaming its journal into place: from that moment it counts. Then each new file is renamed to where it belongs
and the old bytes move into the history. Killed before the announcement, the old state stands; killed after it, whoever looks
next (`recover`, called by every load) finishes it, and every step may run twice. After the announcement nothing is written
any more, only renamed: a full disk cannot stop it half-way.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.model.errors import StackError

FOLDER = ".stack"
KEPT = 20
"""Switches that can be taken back, and as many that can be made again."""

_JOURNAL = "switch.json"
_PENDING = "pending"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HISTORY = "history"
_UNDONE = "undone"
_WAIT = 10.0
"""Seconds that a writer waits for readers and other writers."""


@dataclass(frozen=True, slots=True)
class Record:
    """A switch that can be taken back; `changes` maps a path to the SHA-256 of what the switch wrote, None for removed."""

    number: int
    title: str
    changes: Mapping[str, str | None]


def apply(
    root: Path,
    files: Mapping[str, bytes | None],
    *,
    title: str,
    expected: Mapping[str, bytes | None] | None = None,
    for_good: bool = False,
) -> tuple[str, ...]:
    """Bring `files` (path below root: bytes, or None to remove) into place together; returns the paths that changed.

    `expected` is what the caller has read before it worked out `files`; when it is no longer there, nothing is changed.
    `for_good`: `undo` does not take this switch back.

    Raises:
        StackError: the files have changed meanwhile, another command is switching, or the folder cannot be written.

    """
    with _locked(root):
        _finish(root)
        for path, content in (expected or {}).items():
            if _read(root / path) != content:
                raise StackError(f"{path} was changed while this command ran", "nothing was written: run it again")
        changed = {path: new for path, new in sorted(files.items()) if _read(root / path) != new}
        if changed:
            _announce(root, changed, {"title": title, "number": 0 if for_good else _next(history(root))})
            _finish(root)
        return tuple(changed)


def recover(root: Path) -> None:
    """Finish a switch that was interrupted after its announcement; where there is none, nothing is written."""
    if (root / FOLDER / _JOURNAL).exists():
        with _locked(root):
            _finish(root)


@contextlib.contextmanager
def reading(root: Path) -> Iterator[None]:
    """Keep writers away while several files are read; nothing is written where no switch has ever been made.

    Raises:
        StackError: the stack's very first switch came in between, so that what was read may be of both states.

    """
    recover(root)
    lock = root / FOLDER / "lock"
    if not lock.exists():
        yield
        if lock.exists():
            raise StackError(f"{root} was changed while this command read it", "run it again")
        return
    with lock.open() as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        # A writer may have been killed half-way between the look above and the lock.
        while (root / FOLDER / _JOURNAL).exists():
            fcntl.flock(handle, fcntl.LOCK_UN)
            recover(root)
            fcntl.flock(handle, fcntl.LOCK_SH)
        yield


def history(root: Path) -> tuple[Record, ...]:
    """The switches that can be taken back, newest last."""
    return _records(root / FOLDER / _HISTORY)


def undone(root: Path) -> tuple[Record, ...]:
    """The switches that were taken back and can be made again, the last one taken back at the end."""
    return _records(root / FOLDER / _UNDONE)


def _next(records: Sequence[Record]) -> int:
    return records[-1].number + 1 if records else 1


def _records(folder: Path) -> tuple[Record, ...]:
    numbers = (
        sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isascii() and entry.name.isdigit())
        if folder.is_dir()
        else []
    )
    return tuple(_record(folder / str(number)) for number in numbers)


def undo(root: Path) -> Record:
    """Bring back the state before the last switch.

    Raises:
        StackError: there is nothing to undo, or a file has changed since that switch and would be lost.

    """
    with _locked(root):
        _finish(root)
        records = history(root)
        if not records:
            raise StackError("nothing to undo", "no switch is recorded for this stack")
        last = records[-1]
        before = _replaced_by(root, last, root / FOLDER / _HISTORY, "undo")
        _announce(root, before, {"title": last.title, "number": _next(undone(root)), "undoes": last.number})
        _finish(root)
        return last


def redo(root: Path) -> Record:
    """Make the last switch again that `undo` took back.

    Raises:
        StackError: there is none, or a file has changed since it was taken back and would be lost.

    """
    with _locked(root):
        _finish(root)
        records = undone(root)
        if not records:
            raise StackError("nothing to redo", "no switch of this stack was taken back")
        last = records[-1]
        after = _replaced_by(root, last, root / FOLDER / _UNDONE, "redo")
        _announce(root, after, {"title": last.title, "number": _next(history(root)), "redoes": last.number})
        _finish(root)
        return last


def _replaced_by(root: Path, record: Record, folder: Path, verb: str) -> dict[str, bytes | None]:
    """The bytes that a recorded switch replaced.

    Raises:
        StackError: a file is no longer as the switch left it.

    """
    for path, written in record.changes.items():
        now = _read(root / path)
        if (None if now is None else hashlib.sha256(now).hexdigest()) != written:
            since = f"`{record.title}`" if verb == "undo" else f"the undo of `{record.title}`"
            raise StackError(f"{path} was changed since {since}", f"{verb} would lose that: restore the file first")
    place = folder / str(record.number)
    return {path: _read(place / f"{index}.old") for index, path in enumerate(record.changes)}


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    folder = root / FOLDER
    try:
        folder.mkdir(exist_ok=True)
        with (folder / "lock").open("w") as handle:
            _acquire(handle.fileno(), root)
            # Its own ignore file: the folder is nobody's business in the user's repository.
            if not (folder / ".gitignore").exists():
                _write(folder / "gitignore.part", b"*\n")
                (folder / "gitignore.part").rename(folder / ".gitignore")
            yield
    except OSError as failed:
        raise StackError(
            f"{root} cannot be written ({failed.strerror})", "free disk space or check the folder's rights"
        ) from failed


def _acquire(descriptor: int, root: Path) -> None:
    patience = time.monotonic() + _WAIT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as held:
            if time.monotonic() > patience:
                raise StackError(f"another stack command is at work on {root}", "wait until it has ended") from held
            time.sleep(0.05)
        else:
            return


def _announce(root: Path, files: Mapping[str, bytes | None], journal: dict[str, object]) -> None:
    """Write the switch out whole, then rename its journal into place; killed before that, only waste is left."""
    own = root / FOLDER
    pending = own / _PENDING
    shutil.rmtree(pending, ignore_errors=True)
    pending.mkdir()
    for index, (path, new) in enumerate(files.items()):
        old = _read(root / path)
        if old is not None:
            _write(pending / f"{index}.old", old)
        if new is not None:
            _write(pending / f"{index}.new", new)
            # Now, not when it is renamed: a folder needs disk space, too, and a file may stand where one has to be.
            (root / path).parent.mkdir(parents=True, exist_ok=True)
    (own / _HISTORY).mkdir(exist_ok=True)
    (own / _UNDONE).mkdir(exist_ok=True)
    journal["changes"] = {path: None if new is None else hashlib.sha256(new).hexdigest() for path, new in files.items()}
    text = json.dumps(journal, indent=1).encode()
    _write(pending / _JOURNAL, text)
    _sync_folder(pending)
    _write(own / f"{_JOURNAL}.part", text)
    (own / f"{_JOURNAL}.part").rename(own / _JOURNAL)
    _sync_folder(own)


def _finish(root: Path) -> None:
    """Carry out the announced switch, if there is one; a killed run is simply run again."""
    own = root / FOLDER
    if not (own / _JOURNAL).exists():
        return
    journal = _journal(root, own / _JOURNAL)
    pending = own / _PENDING
    if pending.is_dir():
        _check_bytes(pending, journal)
        for index, path in enumerate(journal["changes"]):
            if (pending / f"{index}.new").exists():
                _move(pending / f"{index}.new", root / path)
        # Last, since a folder that becomes empty goes, too: none of those that the new files need.
        for path, new in journal["changes"].items():
            if new is None:
                _remove(root, root / path)
        _file_away(root, pending, journal)
    (own / _JOURNAL).unlink()
    _sync_folder(own)


def _file_away(root: Path, pending: Path, journal: Mapping[str, Any]) -> None:
    """Keep what a switch replaced: in the history, or among what was taken back; nothing of a switch for good."""
    own = root / FOLDER
    if "undoes" in journal:
        _discard(root, own / _HISTORY / str(journal["undoes"]))
    if "redoes" in journal:
        _discard(root, own / _UNDONE / str(journal["redoes"]))
    if not journal["number"]:
        _discard(root, pending)
        return
    kept = own / (_UNDONE if "undoes" in journal else _HISTORY)
    pending.rename(kept / str(journal["number"]))
    for old in _records(kept)[:-KEPT]:
        _discard(root, kept / str(old.number))


def _discard(root: Path, folder: Path) -> None:
    """Remove a folder of ours: out of sight in one step, since removing it file by file can be interrupted."""
    waste = root / FOLDER / "waste"
    shutil.rmtree(waste, ignore_errors=True)
    if folder.exists():
        folder.rename(waste)
        shutil.rmtree(waste)


def _record(place: Path) -> Record:
    journal = _journal(place.parents[2], place / _JOURNAL)
    return Record(journal["number"], journal["title"], journal["changes"])


def _journal(root: Path, file: Path) -> dict[str, Any]:
    """A journal that is what this module writes. It comes from the stack's folder, which others may have filled.

    Raises:
        StackError: it is anything else, or names a file that is not the stack's.

    """
    strange = StackError(f"{file} is not what stack wrote", f"look what stands there, then remove {root / FOLDER}")
    try:
        journal = json.loads(file.read_text(encoding="utf-8"))
        numbers = [journal["number"], journal.get("undoes", 0), journal.get("redoes", 0)]
        sound = isinstance(journal["title"], str) and all(type(number) is int and number >= 0 for number in numbers)
        changes = journal["changes"].items()
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as bad:
        raise strange from bad
    if not sound or not all(new is None or (isinstance(new, str) and _SHA256.fullmatch(new)) for _, new in changes):
        raise strange
    inside = root.resolve()
    for path, _ in changes:
        parts = path.split("/")
        if (
            not {"", ".", "..", FOLDER, ".git"}.isdisjoint(parts)
            or "\0" in path
            or not (root / path).parent.resolve().is_relative_to(inside)
        ):
            raise strange
    if any(
        folder.is_symlink()
        for folder in (root / FOLDER, *(root / FOLDER / name for name in (_PENDING, _HISTORY, _UNDONE)), file.parent)
    ):
        raise strange
    return dict(journal)


def _check_bytes(pending: Path, journal: dict[str, Any]) -> None:
    """What waits to be renamed is what the journal announced."""
    for index, (path, new) in enumerate(journal["changes"].items()):
        waiting = _read(pending / f"{index}.new")
        if waiting is not None and hashlib.sha256(waiting).hexdigest() != new:
            raise StackError(f"what waits for {path} in {pending} is not what was announced", f"remove {pending.parent}")


def _move(source: Path, target: Path) -> None:
    # There already, unless someone has removed it since the announcement.
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    _sync_folder(target.parent)


def _remove(root: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    # Folders that have become empty go, too: git does not keep them either.
    with contextlib.suppress(OSError):
        for folder in target.parents:
            if folder == root:
                break
            folder.rmdir()


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
