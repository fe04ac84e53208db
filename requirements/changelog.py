# SPDX-License-Identifier: Apache-2.0
"""Check the form of CHANGELOG.md, that of Keep a Changelog with short entries; `make release` does before it builds."""

import re
from collections.abc import Iterator
from datetime import date
from itertools import pairwise

from packaging.version import Version

KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
WIDEST = 100
LONGEST = 2
"""Lines of an entry."""
_UNRELEASED = "[Unreleased]"
_RELEASE = re.compile(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})")


def problems(text: str) -> Iterator[str]:
    """Yield what is wrong with the form of a changelog, with line numbers."""
    lines = text.splitlines()
    if lines[:1] != ["# Changelog"]:
        yield "line 1: write `# Changelog`"
    yield from (f"line {number}: wider than {WIDEST} columns" for number, line in enumerate(lines, 1) if len(line) > WIDEST)
    titles = [line[3:] for line in lines if line.startswith("## ")]
    if titles[:1] != [_UNRELEASED]:
        yield f"the first version has to be `## {_UNRELEASED}`"
    yield from _releases(titles[1:])
    first = next((number for number, line in enumerate(lines) if line.startswith("## ")), len(lines))
    yield from _sections(lines, first)


def unfit(text: str, version: str) -> Iterator[str]:
    """Yield why a version cannot be released with this changelog."""
    yield from problems(text)
    if version not in [found[1] for found in _RELEASE.finditer(text)][:1]:
        yield f"the newest version is not {version}, which pyproject.toml names: write `## [{version}] - DATE`"
    waiting, _, _ = text.partition(f"## {_UNRELEASED}")[2].partition("\n## ")
    if "\n- " in waiting:
        yield f"{_UNRELEASED} has entries: put them under the version that is released, or name a new one"


def _releases(titles: list[str]) -> Iterator[str]:
    found = [match for title in titles if (match := _RELEASE.fullmatch(title))]
    yield from (f"`## {title}`: write `## [1.2.3] - 2026-01-31`" for title in titles if not _RELEASE.fullmatch(title))
    for newer, older in pairwise(found):
        if Version(newer[1]) <= Version(older[1]) or date.fromisoformat(newer[2]) < date.fromisoformat(older[2]):
            yield f"{newer[1]} of {newer[2]} stands above {older[1]} of {older[2]}: the newest version comes first"


def _sections(lines: list[str], first: int) -> Iterator[str]:
    """Yield what is wrong below the headings of versions."""
    kinds: list[str] = []
    entry = 0  # lines of the entry so far
    for number, line in enumerate(lines[first:], first + 1):
        if not line or line.startswith("#"):
            entry = 0
        if line.startswith("## "):
            kinds = []
        elif line.startswith("### "):
            kinds.append(line[4:])
            if kinds != [kind for kind in KINDS if kind in kinds]:
                yield f"line {number}: a version has {', '.join(KINDS)}, each once and in this order"
        elif line.startswith("- "):
            entry = 1
            if not kinds:
                yield f"line {number}: an entry stands below `### {KINDS[0]}` or another kind"
        elif line.startswith("  ") and entry:
            entry += 1
            if entry > LONGEST:
                yield f"line {number}: an entry has at most {LONGEST} lines"
        elif line and not (line.startswith("#### ") and kinds):
            yield f"line {number}: neither a heading nor an entry: {line[:40]}"
        if entry and not _goes_on(lines, number) and not line.endswith("."):
            yield f"line {number}: an entry ends with a full stop"


def _goes_on(lines: list[str], number: int) -> bool:
    """Return whether the line after a line's number continues its entry."""
    return number < len(lines) and lines[number].startswith("  ")
