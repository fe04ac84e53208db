# SPDX-License-Identifier: Apache-2.0
"""A change that somebody wants to import, before it is known whether it applies."""

import re
from dataclasses import dataclass, field, replace

from stack.carry.trailers import PATCH, SERIES, marks
from stack.model.patch import Author, ends_message
from stack.model.series import slug

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_NUMBERED = re.compile(r"^(?:\d+[-_.]+)+(?=[A-Za-z0-9])")


@dataclass(frozen=True, slots=True)
class Upstreamed:
    """The state upstream that a patch's header states.

    `pull`: the address where it was proposed. `applied`: the release or commit that has it. `not_needed`: it is not meant for
    upstream.
    """

    pull: str | None = None
    applied: str | None = None
    not_needed: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """One change: its description, and its diff as it was found.

    `key` names it in the editor, `name` in messages. `raw` is its file as it was. `file` is the file name to keep, None to
    derive one from the subject. `strip` is the number of leading path components to remove, None to find it by trying.
    `by_lines`: apply at the stated lines, as `patch` does, and ignore blob ids in the diff. `folder` is the subfolder in which
    it was found. `series` is the series that its trailers name, as in a working tree of `stack checkout`.
    """

    key: str
    name: str
    raw: bytes
    author: Author
    message: str
    diff: bytes
    file: str | None = None
    strip: int | None = None
    reverse: bool = False
    by_lines: bool = True
    folder: str = ""
    series: str = ""
    upstreamed: Upstreamed = field(default_factory=Upstreamed)

    @property
    def subject(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]

    def named(self) -> str:
        """Return the file name of its patch in the stack, with its ending."""
        return file_name(self.file) if self.file is not None else f"{slug(self.subject)}.patch"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A candidate that is not imported, and why; `known` names the patch of the stack that is the same."""

    candidate: Candidate
    reason: str
    known: str = ""
    landed: bool = False


def file_name(given: str) -> str:
    """Return a file name that the stack accepts: `0003-fix it.diff` gives `fix-it.patch`."""
    bare = given.rpartition("/")[2]
    bare = re.sub(r"\.(patch|diff|dpatch|mbox|eml|mail|txt)$", "", bare, flags=re.IGNORECASE)
    bare = re.sub(r"[^A-Za-z0-9._-]+", "-", bare).strip("-._")
    return f"{_NUMBERED.sub('', bare)[:100] or 'patch'}.patch"


def storable(message: str) -> str:
    """Return a message that a patch file can hold: a line that would end the message there is indented by a blank.

    A message that a stack exported was in a patch file before, and stays as it is. Trailers alone do not prove that: a line that
    would end the message does the opposite.
    """
    if marks(message).keys() >= {SERIES, PATCH} and not any(map(ends_message, message.split("\n")[1:])):
        return message
    lines = [_CONTROL.sub("", line).rstrip() for line in message.strip("\n").split("\n")]
    lines = [f" {line}" if place and ends_message(line) else line for place, line in enumerate(lines)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n") + "\n"


def titled(candidate: Candidate, subject: str) -> Candidate:
    """Return the candidate with another subject."""
    return replace(candidate, message=subject + candidate.message[len(candidate.subject) :])
