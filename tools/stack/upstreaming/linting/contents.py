# SPDX-License-Identifier: Apache-2.0
"""What a change has to bring: tests, documentation of what users see, licence headers; and lines that must not be added."""

import re
from collections.abc import Iterable, Iterator, Mapping

from stack.model.diff import Hunk
from stack.upstreaming.change import Change, added
from stack.upstreaming.linting.finding import Finding, error, warning
from stack.upstreaming.rules import Docs, Lines, Tests, Visible

_HEAD = 30
"""Lines at whose start a licence stands."""


def tests(rule: Tests | None, change: Change) -> Iterator[Finding]:
    """Whether a change of code has a change of tests with it."""
    if rule is None:
        return
    code = [file.path for file in change.files if rule.code.has(file.path) and not rule.files.has(file.path)]
    if code and not any(rule.files.has(path) and lines for path, lines in change.added.items()):
        yield error(
            "tests",
            code[0],
            "changes, and no test with it",
            f"add one ({', '.join(rule.files.patterns)}) that fails without the change",
        )


def docs(rule: Docs | None, change: Change) -> Iterator[Finding]:
    """Whether what users see for the first time is told them."""
    if rule is None:
        return
    told = "\n".join(line for path, lines in change.added.items() if rule.files.has(path) for line in lines.values())
    for file in change.files:
        before = (change.read(file.path, before=True) or b"").decode("utf-8", "replace")
        for visible in rule.visible:
            if file.new is None or not visible.files.has(file.path):
                continue
            for hunk in file.hunks:
                for name, line in _names(visible, hunk).items():
                    known = re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", before)
                    beside = _mentions(visible, name, change.added[file.new].values())
                    if not known and name not in told and not beside and not _explained(visible, hunk):
                        problem = f"{visible.what} {name} is documented nowhere"
                        yield error("docs", f"{file.path}:{line}", problem, f"describe it in {', '.join(rule.files.patterns)}")


def _names(visible: Visible, hunk: Hunk) -> Mapping[str, int]:
    """What users see of the lines that a hunk adds, each with its line."""
    found: dict[str, int] = {}
    for number, line in added(hunk):
        if name := visible.line.search(line):
            found.setdefault(name[1], number)
    return found


def _mentions(visible: Visible, name: str, added: Iterable[str]) -> bool:
    """Whether one of the lines that explain such things explains this one."""
    return visible.said is not None and any(name in line and visible.said.search(line) for line in added)


def _explained(visible: Visible, hunk: Hunk) -> bool:
    return visible.said is not None and any(visible.said.search(line) for _, line in added(hunk))


def headers(rule: Lines | None, change: Change) -> Iterator[Finding]:
    """Whether new files name their licence."""
    for path in change.new if rule is not None else ():
        if rule is not None and rule.files.has(path):
            data = change.read(path) or b""
            head = data.decode("utf-8", "replace").splitlines()[:_HEAD]
            if data.strip() and not any(rule.line.search(line) for line in head):
                yield error("header", f"{path}:1", "a new file without its licence", f"begin it with {rule.line.pattern}")


def forbidden(rules: tuple[Lines, ...], change: Change) -> Iterator[Finding]:
    """Lines that must not be added."""
    for rule in rules:
        for path, lines in change.added.items():
            if rule.files.has(path):
                for number, line in lines.items():
                    if rule.line.search(line):
                        yield error("forbidden", f"{path}:{number}", rule.why or "must not be added", "take it out")


def names(change: Change) -> Iterator[Finding]:
    """File names that are odd anywhere."""
    for path in change.new:
        if " " in path or not path.isascii():
            yield warning("names", path, "has a blank, or a letter that is not ASCII", "rename it")
