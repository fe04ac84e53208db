# SPDX-License-Identifier: Apache-2.0
"""What an upstream asks of a pull request, as data: one file an upstream beside this one, or in a stack's own `stacks/rules/`.

A stack's file takes the place of the one that is here as a whole: upstreams change their rules between two releases of this tool.
In globs `*` stands for any text, with slashes in it.
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
    """Some of a tree's files."""

    patterns: tuple[str, ...] = ()

    def has(self, path: str) -> bool:
        """Whether a path is one of them."""
        return any(fnmatchcase(path, pattern) for pattern in self.patterns)


@dataclass(frozen=True, slots=True)
class Title:
    """`pattern` is what a title matches as a whole, `form` says it in words; `fixes` and `speeds` are tags that promise something."""

    pattern: re.Pattern[str]
    form: str
    tags: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    speeds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assistance:
    """How AI assistance is told: trailers of a commit, and `said` in the description."""

    trailers: tuple[str, ...]
    said: str


@dataclass(frozen=True, slots=True)
class Template:
    """Where the description's template stands in the tree, its headings, and the section (by its heading's words) for each matter."""

    files: tuple[str, ...] = ()
    headings: tuple[str, ...] = ()
    summary: str | None = None
    claims: str | None = None
    validation: str | None = None
    details: str | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """Changed lines outside of `uncounted` files: below `low` is small, above `high` is large; a bug fix has `fixes` at most."""

    low: int
    high: int
    uncounted: Globs
    fixes: int | None = None


@dataclass(frozen=True, slots=True)
class Rfc:
    """With more than so many changed lines outside of `uncounted` files an issue has to come first."""

    lines: int
    uncounted: Globs


@dataclass(frozen=True, slots=True)
class Tests:
    """A change of `code` brings a change of these `files`."""

    code: Globs
    files: Globs


@dataclass(frozen=True, slots=True)
class Visible:
    """Something that users see: its name is the group of `line`; an added line that matches `said` explains it on the spot."""

    what: str
    files: Globs
    line: re.Pattern[str]
    said: re.Pattern[str] | None


@dataclass(frozen=True, slots=True)
class Docs:
    """Where the documentation stands, and what has to be in it."""

    files: Globs
    visible: tuple[Visible, ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of some files: those that new files have to have, or that must not be added, and why."""

    files: Globs
    line: re.Pattern[str]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Style:
    """Where the tree names its checks, the versions of tools where it does not, and which of its own checks are run."""

    config: str | None = None
    versions: tuple[tuple[str, str], ...] = ()
    hooks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one upstream. What is None or empty is not asked for; `file` is where they stand."""

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
"""Tools of the package index that check lines."""


def load(upstream: str, root: Path) -> Rules:
    """The rules of an upstream: the stack's own, those known here, or the general ones.

    Raises:
        StackError: a file has something unknown, missing or of another form, with file and key.

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
        assistance=_inner(table, "assistance", lambda one: Assistance(one.texts("trailers"), one.text("said"))),
        template=_inner(table, "template", _template) or Template(),
        most_open=limit.whole("most") if limit is not None else None,
        size=_inner(table, "size", _size),
        rfc=_inner(table, "rfc", lambda one: Rfc(one.whole("lines"), _globs(one, "uncounted"))),
        tests=_inner(table, "tests", lambda one: Tests(_globs(one, "code"), _globs(one, "files"))),
        docs=_inner(table, "docs", _docs),
        header=_inner(table, "header", _lines),
        forbidden=tuple(_lines(one) for one in table.tables("forbidden")),
        style=_inner(table, "style", _style) or Style(),
    )
    for one in (commits, limit):
        if one is not None:
            one.finish()
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
    return Docs(_globs(table, "files"), tuple(_visible(one) for one in table.tables("visible")))


def _visible(table: Table) -> Visible:
    said = _pattern(table, "said") if table.given("said") else None
    visible = Visible(table.text("what"), _globs(table, "files"), _pattern(table, "line"), said)
    table.finish()
    if visible.line.groups != 1:
        raise table.error("line", f"has {visible.line.groups} groups", "its one group is the name that users see")
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
        raise table.error("config", "is missing", "hooks stand in a pre-commit configuration")
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
        raise StackError(str(table.error(key, f"is no regular expression ({bad})", "mend it"))) from bad
