# SPDX-License-Identifier: Apache-2.0
"""Check that a change brings tests, documentation and licence headers, and adds no forbidden lines."""

import re
from collections.abc import Iterable, Iterator, Mapping

from stack.model.diff import Hunk
from stack.upstreaming.change import Change, added
from stack.upstreaming.linting.finding import LintFinding, error, warning
from stack.upstreaming.rules import Docs, Lines, Tests, Visible

_HEAD = 30
"""Number of first lines in which a licence header must stand."""


def tests(rule: Tests | None, change: Change) -> Iterator[LintFinding]:
    """Check that a change of code comes with a change of tests."""
    if rule is None:
        return
    code = [file.path for file in change.files if rule.code.has(file.path) and not rule.files.has(file.path)]
    if code and not any(rule.files.has(path) and lines for path, lines in change.added.items()):
        yield error(
            "tests",
            code[0],
            "changes, but no test changes with it",
            f"add one ({', '.join(rule.files.patterns)}) that fails without the change",
        )


def docs(rule: Docs | None, change: Change) -> Iterator[LintFinding]:
    """Check that new options and settings that users see are documented."""
    if rule is None:
        return
    documented = "\n".join(line for path, lines in change.added.items() if rule.files.has(path) for line in lines.values())
    for file in change.files:
        before = (change.read(file.path, before=True) or b"").decode("utf-8", "replace")
        for visible in rule.visible:
            if file.new is None or not visible.files.has(file.path):
                continue
            for hunk in file.hunks:
                for name, line in _names(visible, hunk).items():
                    known = re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", before)
                    mentioned = _mentions(visible, name, change.added[file.new].values())
                    if not known and name not in documented and not mentioned and not _explained(visible, hunk):
                        problem = f"{visible.what} {name} is documented nowhere"
                        yield error("docs", f"{file.path}:{line}", problem, f"describe it in {', '.join(rule.files.patterns)}")


def _names(visible: Visible, hunk: Hunk) -> Mapping[str, int]:
    """Return the user-visible names that a hunk adds, each with its line number."""
    lines: dict[str, int] = {}
    for number, line in added(hunk):
        if name := visible.line.search(line):
            lines.setdefault(name[1], number)
    return lines


def _mentions(visible: Visible, name: str, added: Iterable[str]) -> bool:
    """Return whether an added line that documents such names contains this one."""
    return visible.said is not None and any(name in line and visible.said.search(line) for line in added)


def _explained(visible: Visible, hunk: Hunk) -> bool:
    return visible.said is not None and any(visible.said.search(line) for _, line in added(hunk))


def headers(rule: Lines | None, change: Change) -> Iterator[LintFinding]:
    """Check that new files contain the licence header."""
    for path in change.new if rule is not None else ():
        if rule is not None and rule.files.has(path):
            data = change.read(path) or b""
            head = data.decode("utf-8", "replace").splitlines()[:_HEAD]
            if data.strip() and not any(rule.line.search(line) for line in head):
                yield error("header", f"{path}:1", "a new file without its licence", f"begin it with {rule.line.pattern}")


def forbidden(rules: tuple[Lines, ...], change: Change) -> Iterator[LintFinding]:
    """Report added lines that match a forbidden pattern."""
    for rule in rules:
        for path, lines in change.added.items():
            if rule.files.has(path):
                for number, line in lines.items():
                    if rule.line.search(line):
                        yield error("forbidden", f"{path}:{number}", rule.why or "must not be added", "take it out")


def names(change: Change) -> Iterator[LintFinding]:
    """Report file names that cause trouble on some systems."""
    for path in change.new:
        if " " in path or not path.isascii():
            yield warning("names", path, "has a blank or a non-ASCII character", "rename it")
