# SPDX-License-Identifier: Apache-2.0
"""`series.toml`: a named, ordered set of patches that carry one feature, over one or more upstreams."""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple

from stack.base.errors import StackError
from stack.model import document
from stack.model.document import Table
from stack.model.ids import UPSTREAM

FILE = "series.toml"
NAME = r"[a-z0-9][a-z0-9-]*"
_HEADER = re.compile(r"[ \t]*\[\[[ \t]*(?:patch|\"patch\"|'patch')[ \t]*\]\]")
SASS = r"[A-Z][A-Z0-9]*(\.[A-Za-z0-9_]+)*"
"""The form of an instruction's name: the operation and its modifiers."""
SOURCES = r"(kernels/src|sources)(/[A-Za-z0-9][A-Za-z0-9._-]*)+"
"""The pattern of a folder that holds the new files of a patch: commands write there, so that it may not be any folder."""
_ADDRESS = r"https?://\S+"
_TAG = r"[^\s\[\]](?:[^\[\]\x00-\x1f\x7f]*[^\s\[\]])?"
_PATCH_FILE = r"[a-z][a-z0-9-]*/[A-Za-z0-9][A-Za-z0-9._-]*\.patch"


class State(StrEnum):
    """Where a series stands upstream."""

    DRAFT = "draft"
    PENDING = "pending"
    SUBMITTED = "submitted"
    MERGED = "merged"
    DECLINED = "declined"
    INAPPROPRIATE = "inappropriate"


NEEDS_PULL = frozenset({State.SUBMITTED, State.MERGED})
NEEDS_REASON = frozenset({State.DECLINED, State.INAPPROPRIATE})


@dataclass(frozen=True, slots=True)
class PatchRef:
    """A patch's place: `file` is its path below the series' folder."""

    series: str
    upstream: str
    file: str

    @property
    def path(self) -> str:
        """The path below `stacks/`, which names the patch everywhere."""
        return f"{self.series}/{self.file}"


@dataclass(frozen=True, slots=True)
class Compiles:
    """A unit that a patch has compiled: which instructions have to come of it for SM121.

    `unit` is a pattern of `<module>/<source file>`. `instantiation`: words of the one template instantiation that is meant.
    `makes`: the Python expression that has the upstream make the module, where its ahead-of-time build does not list it.
    `patch` is None where somebody asks for a unit that no series names.
    """

    patch: PatchRef | None
    unit: str
    instantiation: str | None = None
    makes: str | None = None
    sass: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Landed:
    """A patch that was carried until a release had it: `release` is the first that is known to, `before` had not."""

    ref: PatchRef
    release: str
    before: str


@dataclass(frozen=True, slots=True)
class Pulled:
    """A pull request that takes a patch upstream, or a part of it: `address` is where people see it."""

    ref: PatchRef
    address: str


@dataclass(frozen=True, slots=True)
class Series:
    """One series as its `series.toml` says.

    `pull` is a pull request with all of the series; `pulls` are those of single patches, of which a cut one may have several.
    `tags` of a patch stand in brackets before its subject in the title of its pull request, where upstream wants such.
    `sources` of a patch is the folder of the stack, below its root, that holds the files that the patch adds.
    """

    name: str
    title: str
    why: str
    state: State
    needs: tuple[str, ...] = ()
    pull: str | None = None
    reason: str | None = None
    drop_when: str | None = None
    acts_on: tuple[str, ...] = ()
    proves: tuple[str, ...] = ()
    patches: tuple[PatchRef, ...] = ()
    compiles: tuple[Compiles, ...] = ()
    landed: tuple[Landed, ...] = ()
    pulls: tuple[Pulled, ...] = ()
    tags: Mapping[PatchRef, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    sources: Mapping[PatchRef, str] = field(default_factory=lambda: MappingProxyType({}))


def load(folder: Path) -> Series:
    """Read the `series.toml` of one folder; the folder's name is the series' name.

    Raises:
        StackError: anything unknown, missing or of the wrong form, with file and key.

    """
    table = document.load(folder / FILE)
    state = State(table.text("state", pattern="|".join(State), meaning="one of " + ", ".join(State)))
    patches = [_patch(folder.name, patch) for patch in table.tables("patch")]
    series = Series(
        name=folder.name,
        title=table.text("title"),
        why=table.text("why"),
        state=state,
        needs=table.texts("needs"),
        pull=table.optional_text("pull", pattern=_ADDRESS, meaning="the address of the pull request"),
        reason=table.optional_text("reason"),
        drop_when=table.optional_text("drop_when"),
        acts_on=table.texts("acts_on"),
        proves=table.texts("proves"),
        patches=tuple(one.ref for one in patches),
        compiles=tuple(unit for one in patches for unit in one.compiles),
        landed=tuple(_landed(folder.name, one) for one in table.tables("landed")),
        pulls=tuple(pull for one in patches for pull in one.pulls),
        tags=MappingProxyType({one.ref: one.tags for one in patches if one.tags}),
        sources=MappingProxyType({one.ref: one.source for one in patches if one.source is not None}),
    )
    table.finish()
    if state in NEEDS_PULL and series.pull is None and not series.pulls:
        raise table.error("pull", f"is missing: the state is {state}", "add the pull request's address")
    if state in NEEDS_REASON and series.reason is None:
        raise table.error("reason", f"is missing: the state is {state}", "add the reason")
    return series


def edited(text: str, patches: tuple[PatchRef, ...]) -> str:
    """The text of a `series.toml` with another list of patches; everything else stays as it is.

    A `[[patch]]` table that stays keeps its comments.

    Raises:
        StackError: something else stands below a table that goes.

    """
    import tomlkit  # noqa: PLC0415  (a fiftieth of a second that only editing needs)

    listed = [(str(table["upstream"]), str(table["file"])) for table in tomllib.loads(text).get("patch", [])]
    if listed == [(patch.upstream, patch.file) for patch in patches]:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    head, tables, tail = _cut(text)
    if len(tables) != len(listed):
        # Written in another way than with [[patch]], such as `patch = [{…}]`.
        toml = tomlkit.parse(text)
        toml.pop("patch", None)
        head, tail = tomlkit.dumps(toml), ""
        tables = [tomlkit.dumps({"patch": [table]}) + "\n" for table in tomllib.loads(text).get("patch", [])]
    if head and not head.endswith("\n"):
        head += newline
    # The blank lines between tables keep their places while tables move.
    gaps = [table[len(table.rstrip()) :].partition("\n")[2] for table in tables]
    between, last = gaps[:-1] or [newline], gaps[-1] if gaps else ""
    old = {key: table.rstrip() + newline for key, table in zip(listed, tables, strict=False)}
    parts = [head]
    for place, patch in enumerate(patches):
        new = newline.join(("[[patch]]", f'upstream = "{patch.upstream}"', f'file     = "{patch.file}"', ""))
        parts.append(old.get((patch.upstream, patch.file), new))
        parts.append(between[min(place, len(between) - 1)] if place + 1 < len(patches) else last)
    result = "".join((*parts, tail))
    if tomllib.loads(result).get("landed") != tomllib.loads(text).get("landed"):
        raise StackError(f"{FILE} has `landed` below a [[patch]] that goes", "put it above the first [[patch]]")
    return result


def with_landed(text: str, landed: Iterable[Landed]) -> str:
    """The text of a `series.toml` with more patches that have landed; everything else stays as it is.

    Raises:
        StackError: the list of those stands where it cannot be added to.

    """
    import tomlkit  # noqa: PLC0415  (a fiftieth of a second that only editing needs)

    added = [{"file": one.ref.file, "release": one.release, "before": one.before} for one in landed]
    if not added:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    head, tables, tail = _cut(text)
    toml = tomlkit.parse(head)
    listed = tomlkit.array().multiline(True)
    for values in (*toml.unwrap().get("landed", ()), *added):
        entry = tomlkit.inline_table()
        entry.update(values)
        listed.append(entry)
    toml.pop("landed", None)
    toml.append("landed", listed)
    gap = head[len(head.rstrip()) :] if tables else newline
    result = "".join((newline.join(tomlkit.dumps(toml).splitlines()).rstrip(), gap, *tables, tail))
    if not _is_toml(result) or len(tomllib.loads(result)["landed"]) != len(tomllib.loads(text).get("landed", ())) + len(added):
        raise StackError(f"{FILE} has `landed` below a [[patch]]", "put it above the first [[patch]]")
    return result


def with_pulls(text: str, pulled: Iterable[Pulled], state: State | None = None) -> str:
    """The text of a `series.toml` with the pull requests of its patches, and another state; everything else stays as it is.

    What `pulled` names replaces what these patches had; other patches keep theirs.

    Raises:
        StackError: the file is written in a way that cannot be edited, or does not list the patch.

    """
    addresses: dict[str, list[str]] = {}
    for one in pulled:
        addresses.setdefault(one.ref.file, []).append(one.address)
    newline = "\r\n" if "\r\n" in text else "\n"
    head, tables, tail = _cut(text.replace("\r\n", "\n"))
    result = newline.join("".join((_stated(head, state), *(_pulled(one, addresses) for one in tables), tail)).split("\n"))
    if not _is_toml(result) or tomllib.loads(result) != _expected(tomllib.loads(text), addresses, state):
        said = "; ".join(f"{file}: pull = {_pull_value(urls)!r}" for file, urls in addresses.items())
        raise StackError(f"{FILE} cannot be edited as it is written", f"write it there by hand: {said}" if said else "")
    return result


def _stated(head: str, state: State | None) -> str:
    """What stands above the patches, with another state."""
    import tomlkit  # noqa: PLC0415  (a fiftieth of a second that only editing needs)

    toml = tomlkit.parse(head)
    if state is None or toml.get("state") == state:
        return head
    toml["state"] = str(state)
    return tomlkit.dumps(toml)


def _pulled(text: str, addresses: Mapping[str, Sequence[str]]) -> str:
    """One [[patch]] with its comments, and with its pull requests right below its file."""
    import tomlkit  # noqa: PLC0415  (a fiftieth of a second that only editing needs)

    toml = tomlkit.parse(text)
    table = toml["patch"][0]
    value = _pull_value(addresses.get(str(table.get("file")), ()))
    if not value or table.get("pull") == value:
        return text
    if "pull" in table:
        table["pull"] = value
        return tomlkit.dumps(toml)
    line = tomlkit.dumps({"pull": value})
    return re.sub(r"(?m)^([ \t]*)file([ \t]*)=.*(?:\n|\Z)", lambda old: _below(old, line), text, count=1)


def _below(file: re.Match[str], line: str) -> str:
    """A line with a file, and one with a pull request below it, whose `=` stands where that one's does."""
    gap = file[2] or " "
    return f"{file[0].rstrip()}\n{file[1]}{line.replace('pull =', f'pull{gap}=', 1)}"


def _pull_value(addresses: Sequence[str]) -> str | list[str]:
    return addresses[0] if len(addresses) == 1 else list(addresses)


def _expected(values: dict[str, Any], addresses: Mapping[str, Sequence[str]], state: State | None) -> dict[str, Any]:
    """What the edited file has to say: the whole of it is compared, since an edit of text can hit the wrong place."""
    for table in values.get("patch", []):
        if table.get("file") in addresses:
            table["pull"] = _pull_value(addresses[table["file"]])
    listed = {table.get("file") for table in values.get("patch", [])}
    if not addresses.keys() <= listed:
        return {}
    return values | ({"state": str(state)} if state is not None else {})


def _cut(text: str) -> tuple[str, list[str], str]:
    """A `series.toml` in pieces: what is above the [[patch]] tables, each of them with its comments, comments below them.

    A comment belongs to the table below it; where a blank line follows the table above, what comes before that line is
    the upper one's. In text, since tomlkit takes every comment above a table for a part of the one before.
    """
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    # What only looks like a header, within a string or a list, has something open above it.
    headers = [place for place, line in enumerate(lines) if _HEADER.match(line) and _is_toml("".join(lines[:place]))]
    cuts = []
    for number, end in enumerate((*headers, len(lines))):
        start = end
        while start and not _is_content(lines[start - 1]):
            start -= 1
        blanks = [place for place in range(start, end) if not lines[place].strip()]
        if blanks:
            # Above the first table, only what stands right on it is its own; the rest is about the file.
            start = blanks[-1] + 1 if number == 0 else blanks[0] + 1
        elif number == len(headers):
            start = end
        cuts.append(next((place for place in range(start, end) if lines[place].strip()), end))
    pieces = ["".join(lines[start:end]) for start, end in pairwise([0, *cuts, len(lines)])]
    return (pieces[0], pieces[1:-1], pieces[-1]) if headers else (text, [], "")


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _is_toml(text: str) -> bool:
    try:
        document.parse(text)
    except ValueError:
        return False
    return True


def slug(subject: str) -> str:
    """The file name, without ending, of a patch with this subject: `[Tag] Do it, now` gives `do-it-now`."""
    bare = re.sub(r"^(\s*\[[^\]]*\])+", "", subject)
    words = re.findall(r"[a-z0-9]+", bare.lower())
    name = "-".join(words)
    # `4 bit caches` gives `4bit-caches`: with a number of its own in front, a file would look numbered.
    name = re.sub(r"^([0-9-]+)-", lambda number: number[1].replace("-", ""), name)
    # A file name has 255 bytes at most; readable is shorter. Whole words only.
    while len(name) > 72 and "-" in name:
        name = name.rpartition("-")[0]
    return name[:72] or "patch"


class _Listed(NamedTuple):
    """A [[patch]] table."""

    ref: PatchRef
    compiles: tuple[Compiles, ...]
    pulls: tuple[Pulled, ...]
    tags: tuple[str, ...]
    source: str | None


def _patch(series: str, table: Table) -> _Listed:
    upstream = table.text("upstream", pattern=UPSTREAM, meaning="the name of an upstream")
    file = table.text("file", pattern=_PATCH_FILE, meaning="<upstream>/<name>.patch")
    listed, tags = table.tables("compiles"), table.texts("tags")
    addresses = _addresses(table)
    source = table.optional_text("from", pattern=SOURCES, meaning="a folder below kernels/src/ or sources/")
    table.finish()
    odd = [tag for tag in tags if not re.fullmatch(_TAG, tag)]
    if odd:
        raise table.error("tags", f"names {odd[0]!r}", "write them without their brackets: Bugfix, Kernel")
    if PurePosixPath(file).parts[0] != upstream:
        raise table.error("file", f"is {file!r}", f"a patch of {upstream} stands in {upstream}/")
    if re.match(r"\d+[-_]", PurePosixPath(file).name):
        raise table.error("file", f"is {file!r}", "a patch is named after its subject, never numbered")
    ref = PatchRef(series, upstream, file)
    return _Listed(
        ref, tuple(_compiles(ref, one) for one in listed), tuple(Pulled(ref, one) for one in addresses), tags, source
    )


def _addresses(table: Table) -> tuple[str, ...]:
    """The pull requests of a patch: mostly one, a list where it was cut."""
    if not table.given("pull") or table.is_text("pull"):
        one = table.optional_text("pull", pattern=_ADDRESS, meaning="the address of the pull request")
        return (one,) if one is not None else ()
    listed = table.texts("pull")
    odd = next((one for one in listed if not re.fullmatch(_ADDRESS, one)), None)
    if odd is not None:
        raise table.error("pull", f"has {odd!r}", "it has to be the address of a pull request")
    return listed


def _landed(series: str, table: Table) -> Landed:
    file = table.text("file", pattern=_PATCH_FILE, meaning="<upstream>/<name>.patch")
    landed = Landed(PatchRef(series, file.partition("/")[0], file), table.text("release"), table.text("before"))
    table.finish()
    return landed


def _compiles(ref: PatchRef, table: Table) -> Compiles:
    compiles = Compiles(
        ref,
        unit=table.text("unit", pattern=r"[^/\s]+/[^/\s]+", meaning="<module>/<source file>, with * for any text"),
        instantiation=table.optional_text("instantiation"),
        makes=table.optional_text("makes"),
        sass=table.texts("sass"),
    )
    table.finish()
    odd = [name for name in compiles.sass if not re.fullmatch(SASS, name)]
    if odd:
        raise table.error("sass", f"names {odd[0]!r}", "an instruction is named as the disassembler does: QMMA.SF, LDG.128")
    return compiles
