# SPDX-License-Identifier: Apache-2.0
"""Decide which series each imported patch belongs to."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from stack.base.errors import StackError
from stack.carry.importing import plain
from stack.carry.importing.candidate import Candidate
from stack.model.patch import trailers
from stack.model.series import NAME
from stack.model.stack import RESOLUTIONS

FOLDER, PREFIX, TRAILER = "folder", "prefix", "trailer:"
_TAG = re.compile(r"^\s*\[([^\]]+)\]")


@dataclass(frozen=True, slots=True)
class Assignment:
    """How to choose series: the first rule that gives a name; without one, a patch's own trailer; else `default`.

    A rule is `folder`, `prefix`, `trailer:KEY` or `NAME=GLOB`; the glob is compared with the subject and with each changed path.
    """

    default: str
    rules: tuple[str, ...] = ()

    def series(self, candidate: Candidate) -> str:
        """Return the name of the series of one patch."""
        return next(filter(None, (_ruled(rule, candidate) for rule in self.rules)), candidate.series or self.default)


def check(rules: Sequence[str]) -> None:
    """Refuse a rule that cannot be read.

    Raises:
        StackError: It is none of the forms.

    """
    for rule in rules:
        name, equals, glob = rule.partition("=")
        if rule not in (FOLDER, PREFIX) and not (rule.startswith(TRAILER) and rule != TRAILER) and not (equals and glob):
            raise StackError(f"--by {rule!r} is not a rule", "write 'NAME=GLOB', folder, prefix or trailer:KEY")
        if equals and not rule.startswith(TRAILER):
            checked(name)


def checked(name: str) -> str:
    """Return the name of a series if it is valid.

    Raises:
        StackError: It is not.

    """
    if not re.fullmatch(NAME, name) or name == RESOLUTIONS:
        raise StackError(f"{name!r} cannot name a series", "use lower-case letters, digits and dashes")
    return name


def name_of(text: str) -> str:
    """Make the name of a series from a branch, a folder or a file."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60].strip("-")
    return f"{name}-series" if name == RESOLUTIONS else name or "imported"


def _ruled(rule: str, candidate: Candidate) -> str:
    if rule == FOLDER:
        return name_of(candidate.folder) if candidate.folder else ""
    if rule == PREFIX:
        tag = _TAG.match(candidate.subject)
        return name_of(tag[1]) if tag else ""
    if rule.startswith(TRAILER):
        key = rule.removeprefix(TRAILER).lower()
        value = next((value for name, value in trailers(candidate.message) if name.lower() == key), "")
        return name_of(value) if value else ""
    name, _, glob = rule.partition("=")
    texts = [candidate.subject.lower(), candidate.subject, candidate.name, *paths(candidate)]
    return name if any(fnmatchcase(text, glob) for text in texts) else ""


def paths(candidate: Candidate) -> list[str]:
    """Return the paths that a patch changes, as its diff names them and without their first folder."""
    try:
        found = plain.sections(candidate.diff)
    except plain.Unreadable:
        return []
    names = {name for section in found for name in (section.old, section.new) if name}
    return sorted(names | {name.partition("/")[2] for name in names if "/" in name})


def edited(candidates: Sequence[Candidate], assignment: Assignment, edit: Callable[[str], str | None]) -> dict[str, str]:
    """Let a person assign series in an editor; return the series by the candidate's key, in the new order.

    A deleted line leaves its patch out.

    Raises:
        StackError: The editor was left without saving, or a line cannot be read.

    """
    width = max((len(assignment.series(one)) for one in candidates), default=0)
    lines = [f"{assignment.series(one):{width}}  {one.key}  {one.subject}" for one in candidates]
    told = (
        "# Change the first word of a line: the series of that patch. A deleted line leaves its patch out.\n"
        "# The patches of a series get the order of their lines, as far as they commute.\n"
    )
    text = edit(told + "\n".join(lines) + "\n")
    if text is None:
        raise StackError("the list was not saved", "nothing was imported")
    known = {one.key for one in candidates}
    chosen: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) < 2 or words[1] not in known:
            raise StackError(f"the line {line[:60]!r} names no patch", "keep the second word of each line")
        chosen[words[1]] = checked(words[0])
    return chosen
