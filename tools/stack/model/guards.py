# SPDX-License-Identifier: Apache-2.0
"""`guards.toml`: what code beside the patches relies on upstream. It is read strictly; edits keep its comments."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from stack.base import pattern as patterns
from stack.base.errors import StackError
from stack.model import document, paths
from stack.model.document import Table
from stack.model.ids import OBJECT, PATH

FILE = "guards.toml"
PLACE = f"stacks/{FILE}"
MOST = 1000
"""Guards of one file."""
LARGEST = 512 * 2**10
"""Bytes of the largest file: the editor's time grows with its length."""
NAME = r"[a-z0-9](?:[a-z0-9._-]{0,78}[a-z0-9])?"
"""The pattern of a guard's name."""
QUALIFIED = r"[^\W\d]\w*(?:\.[^\W\d]\w*){0,15}"
"""The pattern of a Python name with dots."""
_LONGEST = 4000
"""Characters of the longest text, signature or reason."""
_HEAD = """\
# What code beside the patches relies on upstream. `stack guard` writes this file, and `stack check` reads it.
"""


class Kind(StrEnum):
    """The kinds of targets. The value is the key that names the target in the file."""

    DEFINITION = "definition"
    """A class or function of a Python file, or the only line of another file with a text."""
    TEXT = "text"
    """A literal text in a file."""
    PATTERN = "pattern"
    """A line in a file that fits a pattern."""
    COPIED = "copied"
    """A file or a definition that the user's repository has copied."""
    PATCHED = "patched"
    """An attribute that the user's code replaces at run time."""


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard. Which of the fields from `text` on have a value depends on the kind.

    `target`: `path`, `path::name` or `module:name`. `at`: the upstream commit at which it held last, empty if unknown. `text`: the
    text or pattern. `file`: the copy in the user's repository. `hash`: git's blob id of the copied text. `signature`: that of the
    replaced attribute. `defined`: the file that defines it.
    """

    name: str
    upstream: str
    kind: Kind
    target: str
    reason: str
    at: str = ""
    text: str = ""
    file: str = ""
    hash: str = ""
    signature: str = ""
    defined: str = ""

    @property
    def path(self) -> str:
        """Return the upstream file that has the target."""
        return self.defined if self.kind is Kind.PATCHED else self.target.partition("::")[0]

    @property
    def member(self) -> str:
        """Return the name in the file or module; empty for a whole file."""
        return self.target.partition(":" if self.kind is Kind.PATCHED else "::")[2]

    @property
    def shown(self) -> str:
        """Return the target for people."""
        return f"{self.target}: {self.text.strip()}" if self.text else self.target

    def values(self) -> dict[str, str]:
        """Return the table that stands for it in the file."""
        table = {"upstream": self.upstream}
        if self.kind in (Kind.TEXT, Kind.PATTERN):
            table |= {"path": self.target, self.kind.value: self.text}
        else:
            table[self.kind.value] = self.target
        own = {"file": self.file, "hash": self.hash, "signature": self.signature, "defined": self.defined}
        rest = {"reason": self.reason, "at": self.at}
        return table | {key: value for key, value in (own | rest).items() if value}


def read(table: Table) -> tuple[Guard, ...]:
    """Read all guards of a file, in its order.

    Raises:
        StackError: a guard is not valid; the error names the file and the key.

    """
    names = list(table)
    if len(names) > MOST:
        raise StackError(f"{table.file} has {len(names)} guards", f"at most {MOST} are read")
    guards = []
    for name in names:
        if not re.fullmatch(NAME, name):
            raise table.error(name[:100], "is not a name of a guard", "use lower-case letters, digits, dots and dashes")
        # A lane leaves out a common guard with an empty list in its own file.
        if not table.is_empty_list(name):
            guards.append(_guard(name, table.table(name)))
    table.finish()
    return tuple(guards)


def _guard(name: str, table: Table) -> Guard:
    kinds = [kind for kind in Kind if table.given(kind.value)]
    if len(kinds) != 1:
        known = ", ".join(kind.value for kind in Kind)
        raise table.error("kind", f"is not clear: it names {len(kinds)} targets", f"give exactly one of {known}")
    kind = kinds[0]
    upstream = table.text("upstream")
    made = _made(kind, table, name, upstream)
    table.finish()
    return made


def _made(kind: Kind, table: Table, name: str, upstream: str) -> Guard:
    reason = _short(table, "reason")
    at = table.optional_text("at", pattern=r"[0-9a-f]{7,40}", meaning="a commit id") or ""
    match kind:
        case Kind.TEXT:
            return Guard(name, upstream, kind, _path(table, "path"), reason, at, text=_short(table, "text"))
        case Kind.PATTERN:
            path, text = _path(table, "path"), _short(table, "pattern")
            if fault := pattern_fault(text):
                raise table.error("pattern", fault, "see docs/guards.md")
            return Guard(name, upstream, kind, path, reason, at, text=text)
        case Kind.DEFINITION:
            target = _target(table, "definition", needs_member=True)
            return Guard(name, upstream, kind, target, reason, at)
        case Kind.COPIED:
            target = _target(table, "copied", needs_member=False)
            file, blob = _path(table, "file"), table.text("hash", pattern=OBJECT, meaning="a git blob id")
            return Guard(name, upstream, kind, target, reason, at, file=file, hash=blob)
        case Kind.PATCHED:
            target = table.text("patched", pattern=rf"{QUALIFIED}:{QUALIFIED}", meaning="package.module:Class.method")
            signature, defined = _short(table, "signature"), _path(table, "defined")
            return Guard(name, upstream, kind, target, reason, at, signature=signature, defined=defined)


def pattern_fault(text: str) -> str:
    """Return why a text cannot be a pattern; empty if it can."""
    try:
        patterns.parse(text)
    except ValueError as bad:
        return str(bad)
    return ""


def target_fault(target: str, *, needs_member: bool) -> str:
    """Return why a text cannot name a file or a definition in it; empty if it can."""
    path, mark, member = target.partition("::")
    if fault := path_fault(path):
        return f"names a file that {fault}"
    if needs_member and not member:
        return "names no definition"
    if mark and path.endswith((".py", ".pyi")):
        return "" if re.fullmatch(QUALIFIED, member) else "has a name that is not one of Python"
    if mark and (len(member) < 4 or len(member) > patterns.LONGEST or not member.isprintable()):
        return f"has a text that is not one line of 4 to {patterns.LONGEST} characters"
    return ""


def path_fault(path: str) -> str:
    """Return why a text cannot be a path below a folder; empty if it can."""
    if not re.fullmatch(PATH, path):
        return "is not a path below the folder"
    if fault := text_fault(path):
        return fault
    return paths.fault(path.encode("utf-8", "surrogatepass"))


def text_fault(text: str) -> str:
    """Return why a text cannot stand in the file, or in a command of git; empty if it can."""
    if len(text) > _LONGEST:
        return f"has {len(text)} characters, more than {_LONGEST}"
    if "\0" in text:
        return "has a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "is not UTF-8"
    return ""


def _target(table: Table, key: str, *, needs_member: bool) -> str:
    target = table.text(key)
    if fault := target_fault(target, needs_member=needs_member):
        raise table.error(key, fault, "write path/of/file.py::Class.method")
    return target


def _path(table: Table, key: str) -> str:
    path = table.text(key)
    if fault := path_fault(path):
        raise table.error(key, fault, "write a path below the folder, with / between its parts")
    return path


def _short(table: Table, key: str) -> str:
    text = table.text(key)
    if fault := text_fault(text):
        raise table.error(key, fault, f"write at most {_LONGEST} characters of text")
    return text


def edited(text: str | None, changes: Mapping[str, Guard | None]) -> str:
    """Return the text of a file with some guards added, replaced or (None) removed; everything else stays as it is.

    Raises:
        StackError: the file cannot be edited as it is written, or would be too large.

    """
    import tomlkit  # noqa: PLC0415  (takes 0.02 s and only editing needs it)
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    wanted = document.parse(text or "")
    try:
        toml = tomlkit.parse(_HEAD if text is None else text)
        for name, guard in changes.items():
            _change(toml, name, guard)
            wanted = _with(wanted, name, guard)
        result: str = tomlkit.dumps(toml)
        holds = document.parse(result) == wanted
    except (TOMLKitError, ValueError, TypeError, KeyError):
        holds = False
    if not holds:
        raise StackError(f"{PLACE} cannot be edited as it is written", "write each guard as a table [name] of its own")
    if len(result.encode()) > LARGEST:
        raise StackError(f"{PLACE} would be larger than {LARGEST // 2**10} KiB", "drop guards that are no longer needed")
    return result


def _with(values: dict[str, Any], name: str, guard: Guard | None) -> dict[str, Any]:
    rest = {key: value for key, value in values.items() if key != name or guard is not None}
    return rest | {name: guard.values()} if guard is not None else rest


def _change(toml: Any, name: str, guard: Guard | None) -> None:
    import tomlkit  # noqa: PLC0415  (takes 0.02 s and only editing needs it)

    if guard is None:
        toml.remove(name)
        return
    values = guard.values()
    if name in toml:
        table = toml[name]
        for key in [key for key in table if key not in values]:
            table.remove(key)
        for key, value in values.items():
            if table.get(key) != value:
                table[key] = value
        return
    table = tomlkit.table()
    for key, value in values.items():
        table.add(key, value)
    if len(toml.body):
        toml.add(tomlkit.nl())
    toml.add(name, table)


def by_upstream(guards: Sequence[Guard], upstream: str) -> Iterator[Guard]:
    """Yield the guards of one upstream."""
    return (guard for guard in guards if guard.upstream == upstream)
