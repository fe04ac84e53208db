# SPDX-License-Identifier: Apache-2.0
"""Find a patch's lines upstream although a formatter has joined or split them."""

from collections.abc import Collection, Sequence

from stack.carry import history
from stack.carry.history import Index, Line, Step
from stack.model.diff import FileDiff
from stack.store.objects import Objects

SHORT = 8
"""A line with fewer characters is too short to be recognised inside another line."""
_NO_QUOTES = bytes.maketrans(b"'", b'"')
# The characters that a formatter adds when it splits a line, apart from whitespace.
_ADDED = ((b"\\\n", b""), (b"\n", b""), (b",)", b")"), (b",]", b"]"), (b",}", b"}"))


def there(
    objects: Objects, index: Index, step: Step, files: Sequence[FileDiff], missing: Collection[tuple[str, Line]]
) -> set[tuple[str, Line]]:
    """Return those of a patch's missing lines that a step added (or removed) in the same file with other line breaks."""
    reflowed: set[tuple[str, Line]] = set()
    for file in files:
        touch = next((change for change in index.touching(file.path) if change.step == step), None)
        if touch is None or all(path != file.path for path, _ in missing):
            continue
        before, after = (joined(objects.read(blob)) if blob is not None else b"" for blob in (touch.was, touch.blob))
        for line in (line for hunk in file.hunks for line in hunk.lines):
            wanted = history.telling(line)
            if wanted is None or (file.path, wanted) not in missing:
                continue
            text = joined(line[1:]).rstrip(b",")
            was, now = (before, after) if wanted[0] > 0 else (after, before)
            if len(text) >= SHORT and text in now and text not in was:
                reflowed.add((file.path, wanted))
    return reflowed


def joined(data: bytes) -> bytes:
    """Join text to one line without whitespace, and drop characters that only belong to line breaks."""
    data = data.translate(_NO_QUOTES, b" \t\r\f\v")
    for old, new in _ADDED:
        data = data.replace(old, new)
    return data
