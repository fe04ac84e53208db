# SPDX-License-Identifier: Apache-2.0
"""Read a pull request template and its sections; without a template, use the headings from the rules."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from stack.model.ids import TreeId
from stack.store.objects import FILES, Objects
from stack.upstreaming.rules import Template

LARGEST = 64 << 10
"""Maximal bytes of a template; GitHub allows 65,536 characters of description."""
_HEADING = re.compile(r"^#{1,6} +(\S.*?)\s*$")
_FENCE = re.compile(r"^\s{0,3}(```+|~~~+)")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
BOX = re.compile(r"^(\s*[-*] )\[[ xX]\]( .*)$")


@dataclass(frozen=True, slots=True)
class Section:
    """A heading (the line, and its words) with the text up to the next heading; the first section may have no heading."""

    line: str
    words: str
    text: str

    @property
    def is_empty(self) -> bool:
        """Return whether a reader sees nothing in it except checkboxes."""
        lines = _COMMENT.sub("", self.text).splitlines()
        return not any(line.strip() and not BOX.match(line) for line in lines)


def read(objects: Objects, tree: TreeId, rule: Template) -> str | None:
    """Read the template of a tree; None if there is none, or it is too large."""
    for path in rule.files:
        entry = objects.entry(tree, path)
        if entry is not None and entry.mode in FILES:
            data = objects.read(entry.id)
            if len(data) <= LARGEST:
                return data.decode("utf-8", "replace").replace("\r\n", "\n")
    return None


def made(rule: Template) -> str:
    """Return the headings that the rules name, for a tree without a template."""
    return "".join(f"{heading}\n\n" for heading in rule.headings) or "## Description\n\n"


def sections(text: str) -> tuple[Section, ...]:
    """Split a text into sections; a line in a code block or comment is never a heading."""
    lines = text.split("\n")
    starts = [0, *(number for number, line in _headings(lines) if number)]
    result = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        heading = _HEADING.match(lines[start])
        body = "\n".join(lines[start + 1 if heading else start : end])
        result.append(Section(lines[start].rstrip() if heading else "", heading[1] if heading else "", body))
    return tuple(result)


def _headings(lines: list[str]) -> Iterator[tuple[int, str]]:
    fence, comment = "", False
    for number, line in enumerate(lines):
        mark = _FENCE.match(line)
        if not comment and mark and (not fence or (mark[1][0] == fence[0] and len(mark[1]) >= len(fence))):
            fence = "" if fence else mark[1]
        elif not fence:
            if not comment and _HEADING.match(line):
                yield number, line
            last = max(line.rfind("<!--"), -1), max(line.rfind("-->"), -1)
            comment = last[0] > last[1] or (comment and last == (-1, -1))


def boxes(text: str) -> tuple[str, ...]:
    """Return the lines with checkboxes, all unticked."""
    matches = (BOX.match(line) for line in text.splitlines())
    return tuple(f"{box[1]}[ ]{box[2]}".rstrip() for box in matches if box)
