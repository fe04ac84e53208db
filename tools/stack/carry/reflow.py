# SPDX-License-Identifier: Apache-2.0
"""Lines that upstream has with other line breaks: a formatter has joined or split them."""

from collections.abc import Collection, Sequence

from stack.carry import history
from stack.carry.history import Index, Line, Step
from stack.model.diff import FileDiff
from stack.store.objects import Objects

SHORT = 8
"""A line with fewer letters says nothing without its line breaks."""
_NO_QUOTES = bytes.maketrans(b"'", b'"')
# What a formatter adds where it splits, after blanks are gone.
_ADDED = ((b"\\\n", b""), (b"\n", b""), (b",)", b")"), (b",]", b"]"), (b",}", b"}"))


def there(
    objects: Objects, index: Index, step: Step, files: Sequence[FileDiff], missing: Collection[tuple[str, Line]]
) -> set[tuple[str, Line]]:
    """Which of a patch's missing lines a step brought (or removed) all the same, in the same file but broken elsewhere."""
    found: set[tuple[str, Line]] = set()
    for file in files:
        touch = next((one for one in index.touching(file.path) if one.step == step), None)
        if touch is None or all(path != file.path for path, _ in missing):
            continue
        before, after = (joined(objects.read(blob)) if blob is not None else b"" for blob in (touch.was, touch.blob))
        for line in (line for hunk in file.hunks for line in hunk.lines):
            told = history.telling(line)
            if told is None or (file.path, told) not in missing:
                continue
            text = joined(line[1:]).rstrip(b",")
            was, now = (before, after) if told[0] > 0 else (after, before)
            if len(text) >= SHORT and text in now and text not in was:
                found.add((file.path, told))
    return found


def joined(data: bytes) -> bytes:
    """Text on one line, without blanks and what only goes with line breaks."""
    data = data.translate(_NO_QUOTES, b" \t\r\f\v")
    for old, new in _ADDED:
        data = data.replace(old, new)
    return data
