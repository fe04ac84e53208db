# SPDX-License-Identifier: Apache-2.0
"""Load an upstream's rules for pull requests: one TOML file for each upstream, in this folder or in a stack's `stacks/rules/`.

A stack's file replaces the file in this folder completely, because an upstream may change its rules between two releases of
this tool. In globs `*` matches any text, including slashes.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from stack.base.errors import StackError
from stack.model import document
from stack.model.document import Table
from stack.model.stack import FOLDER

_Value = TypeVar("_Value")
_HERE = Path(__file__).parent
_GENERAL = "general"
_VERSION = r"[0-9]+(\.[0-9]+)*"
_HOOK = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_PATH = r"(?!/)(?!.*\.\./)[^\x00-\x1f\x7f]+"


@dataclass(frozen=True, slots=True)
class Globs:
    """Patterns for paths of a tree."""

    patterns: tuple[str, ...] = ()

    def has(self, path: str) -> bool:
        """Return whether a path matches one of the patterns."""
        return any(fnmatchcase(path, pattern) for pattern in self.patterns)


@dataclass(frozen=True, slots=True)
class Title:
    """The form of a title: `pattern` must match all of it, and `form` describes it.

    `fixes` and `speeds` are the tags of bug fixes and of speedups, for which more is checked.
    """

    pattern: re.Pattern[str]
    form: str
    tags: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    speeds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assistance:
    """The ways to declare AI assistance: trailers of a commit, and the words `said` in the description."""

    trailers: tuple[str, ...]
    said: str


@dataclass(frozen=True, slots=True)
class Template:
    """The paths of the template in the tree, its headings, and the words of the heading of each section."""

    files: tuple[str, ...] = ()
    headings: tuple[str, ...] = ()
    summary: str | None = None
    claims: str | None = None
    validation: str | None = None
    details: str | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """Limits for changed lines outside of `uncounted` files: small below `low`, large above `high`, at most `fixes` for a bug fix."""

    low: int
    high: int
    uncounted: Globs
    fixes: int | None = None


@dataclass(frozen=True, slots=True)
class Rfc:
    """A change with more than `lines` changed lines outside of `uncounted` files needs an RFC issue."""

    lines: int
    uncounted: Globs


@dataclass(frozen=True, slots=True)
class Tests:
    """A change of `code` has to come with a change of `files`."""

    code: Globs
    files: Globs


@dataclass(frozen=True, slots=True)
class Visible:
    """A kind of name that users see, found by the group of `line`; an added line that matches `said` documents it in place."""

    what: str
    files: Globs
    line: re.Pattern[str]
    said: re.Pattern[str] | None


@dataclass(frozen=True, slots=True)
class Docs:
    """The documentation files, and the names that they have to contain."""

    files: Globs
    visible: tuple[Visible, ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of some files: required in new files, or forbidden, with the reason."""

    files: Globs
    line: re.Pattern[str]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Style:
    """The file with the tree's checks, versions of tools if that file has none, and the tree's own checks that are run."""

    config: str | None = None
    versions: tuple[tuple[str, str], ...] = ()
    hooks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one upstream, read from `file`; a rule that is None or empty is not checked."""

    upstream: str
    file: Path
    title: Title | None = None
    signed_off: bool = False
    assistance: Assistance | None = None
    template: Template = Template()
    most_open: int | None = None
    size: Size | None = None
    rfc: Rfc | None = None
    tests: Tests | None = None
    docs: Docs | None = None
    header: Lines | None = None
    forbidden: tuple[Lines, ...] = ()
    style: Style = Style()


TOOLS = ("ruff", "clang-format", "typos")
"""Tools of the package index that check single lines."""


def load(upstream: str, root: Path) -> Rules:
    """Load the rules of an upstream: the stack's own, those in this folder, or the general ones.

    Raises:
        StackError: a key is unknown, missing or of another form; the message names file and key.

    """
    places = (root / FOLDER / "rules" / f"{upstream}.toml", _HERE / f"{upstream}.toml", _HERE / f"{_GENERAL}.toml")
    file = next(place for place in places if place.exists())
    return _read(upstream, file, document.load(file))


def _read(upstream: str, file: Path, table: Table) -> Rules:
    commits = table.optional_table("commits")
    limit = table.optional_table("open")
    rules = Rules(
        upstream=upstream,
        file=file,
        title=_inner(table, "title", _title),
        signed_off=commits.flag("signed_off") if commits is not None else False,
        assistance=_inner(table, "assistance", lambda inner: Assistance(inner.texts("trailers"), inner.text("said"))),
        template=_inner(table, "template", _template) or Template(),
        most_open=limit.whole("most") if limit is not None else None,
        size=_inner(table, "size", _size),
        rfc=_inner(table, "rfc", lambda inner: Rfc(inner.whole("lines"), _globs(inner, "uncounted"))),
        tests=_inner(table, "tests", lambda inner: Tests(_globs(inner, "code"), _globs(inner, "files"))),
        docs=_inner(table, "docs", _docs),
        header=_inner(table, "header", _lines),
        forbidden=tuple(_lines(inner) for inner in table.tables("forbidden")),
        style=_inner(table, "style", _style) or Style(),
    )
    for section in (commits, limit):
        if section is not None:
            section.finish()
    table.finish()
    return rules


def _inner(table: Table, key: str, read: Callable[[Table], _Value]) -> _Value | None:
    inner = table.optional_table(key)
    if inner is None:
        return None
    value = read(inner)
    inner.finish()
    return value


def _title(table: Table) -> Title:
    return Title(
        _pattern(table, "pattern"), table.text("form"), table.texts("tags"), table.texts("fixes"), table.texts("speeds")
    )


def _template(table: Table) -> Template:
    headings = table.texts("headings")
    words = [heading.lstrip("#").strip() for heading in headings]
    roles = [table.optional_text(role) for role in ("summary", "claims", "validation", "details")]
    odd = next((role for role in roles if role is not None and headings and role not in words), None)
    if odd is not None:
        raise table.error("headings", f"have no {odd!r}", "name a section by the words of its heading")
    return Template(_paths(table, "files"), headings, *roles)


def _size(table: Table) -> Size:
    fixes = table.whole("fixes") if table.given("fixes") else None
    return Size(table.whole("low"), table.whole("high"), _globs(table, "uncounted"), fixes)


def _docs(table: Table) -> Docs:
    return Docs(_globs(table, "files"), tuple(_visible(inner) for inner in table.tables("visible")))


def _visible(table: Table) -> Visible:
    said = _pattern(table, "said") if table.given("said") else None
    visible = Visible(table.text("what"), _globs(table, "files"), _pattern(table, "line"), said)
    table.finish()
    if visible.line.groups != 1:
        raise table.error("line", f"has {visible.line.groups} groups", "give it one group: the name that users see")
    return visible


def _lines(table: Table) -> Lines:
    lines = Lines(_globs(table, "files"), _pattern(table, "line"), table.optional_text("why") or "")
    table.finish()
    return lines


def _style(table: Table) -> Style:
    versions = {tool: table.optional_text(tool, pattern=_VERSION, meaning="a version") for tool in TOOLS}
    hooks = table.texts("hooks")
    odd = next((hook for hook in hooks if not re.fullmatch(_HOOK, hook)), None)
    if odd is not None:
        raise table.error("hooks", f"names {odd!r}", "write the id of a hook of the pre-commit configuration")
    config = table.optional_text("config", pattern=_PATH, meaning="a path in the tree")
    if hooks and config is None:
        raise table.error("config", "is missing", "hooks are read from a pre-commit configuration")
    return Style(config, tuple((tool, version) for tool, version in versions.items() if version is not None), hooks)


def _globs(table: Table, key: str) -> Globs:
    return Globs(table.texts(key))


def _paths(table: Table, key: str) -> tuple[str, ...]:
    paths = table.texts(key)
    odd = next((path for path in paths if not re.fullmatch(_PATH, path)), None)
    if odd is not None:
        raise table.error(key, f"has {odd!r}", "write a path in the tree")
    return paths


def _pattern(table: Table, key: str) -> re.Pattern[str]:
    text = table.text(key)
    try:
        return re.compile(text)
    except re.error as bad:
        raise StackError(str(table.error(key, f"is not a regular expression ({bad})", "correct it"))) from bad
