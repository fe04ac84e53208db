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
from stack.model import document, proof_command
from stack.model.document import Table
from stack.model.ids import UPSTREAM
from stack.model.proof_command import ProofCommand

FILE = "series.toml"
NAME = r"[a-z0-9][a-z0-9-]*"
_HEADER = re.compile(r"[ \t]*\[\[[ \t]*(?:patch|\"patch\"|'patch')[ \t]*\]\]")
SASS = r"[A-Z][A-Z0-9]*(\.[A-Za-z0-9_]+)*"
"""The pattern of a SASS instruction's name: the operation and its modifiers."""
SOURCES = r"(kernels/src|sources)(/[A-Za-z0-9][A-Za-z0-9._-]*)+"
"""The pattern of a folder with a patch's new files. Commands write there, so only these folders are allowed."""
_ADDRESS = r"https?://\S+"
_TAG = r"[^\s\[\]](?:[^\[\]\x00-\x1f\x7f]*[^\s\[\]])?"
_PATCH_FILE = r"[a-z][a-z0-9-]*/[A-Za-z0-9][A-Za-z0-9._-]*\.patch"


class State(StrEnum):
    """The status of a series upstream."""

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
    """Identifies a patch; `file` is its path below the series' folder."""

    series: str
    upstream: str
    file: str

    @property
    def path(self) -> str:
        """The path below `stacks/`, which names the patch everywhere."""
        return f"{self.series}/{self.file}"


@dataclass(frozen=True, slots=True)
class Compiles:
    """A unit that a patch compiles, and the instructions that it must contain for SM121.

    `unit` is a pattern of `<module>/<source file>`. `instantiation` holds words that select one template instantiation.
    `makes` is the Python expression that makes the upstream generate the module, if its ahead-of-time build does not list it.
    `patch` is None for a unit that the user asks for and no series names.
    """

    patch: PatchRef | None
    unit: str
    instantiation: str | None = None
    makes: str | None = None
    sass: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Landed:
    """A patch that is no longer carried: `release` is the first known to contain it, `before` one without it."""

    ref: PatchRef
    release: str
    before: str


@dataclass(frozen=True, slots=True)
class Pulled:
    """A pull request that takes all or part of a patch upstream; `address` is its web address."""

    ref: PatchRef
    address: str


@dataclass(frozen=True, slots=True)
class Series:
    """One series as described in its `series.toml`.

    `pull` is a pull request with the whole series; `pulls` are those of single patches, several if a patch was split. `tags` are
    written in brackets before a patch's subject in the title of its pull request, if the upstream wants that. `sources` maps a
    patch to the folder, below the stack's root, with the files that the patch adds. `proves` names proofs by their files below the
    stack's root, `commands` are those that are no files.
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
    commands: tuple[ProofCommand, ...] = ()
    patches: tuple[PatchRef, ...] = ()
    compiles: tuple[Compiles, ...] = ()
    landed: tuple[Landed, ...] = ()
    pulls: tuple[Pulled, ...] = ()
    tags: Mapping[PatchRef, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    sources: Mapping[PatchRef, str] = field(default_factory=lambda: MappingProxyType({}))


def load(folder: Path) -> Series:
    """Read the `series.toml` of a folder; the folder's name is the series' name.

    Raises:
        StackError: A key is unknown, missing or malformed; the error names file and key.

    """
    table = document.load(folder / FILE)
    state = State(table.text("state", pattern="|".join(State), meaning="one of " + ", ".join(State)))
    patches = [_patch(folder.name, patch) for patch in table.tables("patch")]
    landed = tuple(_landed(folder.name, patch) for patch in table.tables("landed"))
    files = tuple(dict.fromkeys(ref.file for ref in (*(patch.ref for patch in patches), *(patch.ref for patch in landed))))
    proves, commands = table.texts_and_tables("proves")
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
        proves=proves,
        commands=tuple(proof_command.read(command, files) for command in commands),
        patches=tuple(patch.ref for patch in patches),
        compiles=tuple(unit for patch in patches for unit in patch.compiles),
        landed=landed,
        pulls=tuple(pull for patch in patches for pull in patch.pulls),
        tags=MappingProxyType({patch.ref: patch.tags for patch in patches if patch.tags}),
        sources=MappingProxyType({patch.ref: patch.source for patch in patches if patch.source is not None}),
    )
    table.finish()
    if state in NEEDS_PULL and series.pull is None and not series.pulls:
        raise table.error("pull", f"is missing: the state is {state}", "add the pull request's address")
    if state in NEEDS_REASON and series.reason is None:
        raise table.error("reason", f"is missing: the state is {state}", "add the reason")
    return series


def edited(text: str, patches: tuple[PatchRef, ...]) -> str:
    """Return the text of a `series.toml` with another list of patches; everything else stays as it is.

    A `[[patch]]` table that is kept keeps its comments.

    Raises:
        StackError: Other content stands below a removed table.

    """
    import tomlkit  # noqa: PLC0415  (takes 0.02 s and only editing needs it)

    listed = [(str(table["upstream"]), str(table["file"])) for table in tomllib.loads(text).get("patch", [])]
    if listed == [(patch.upstream, patch.file) for patch in patches]:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    head, tables, tail = _cut(text)
    if len(tables) != len(listed):
        # The patches are not written as [[patch]] tables but, say, as `patch = [{…}]`.
        toml = tomlkit.parse(text)
        toml.pop("patch", None)
        head, tail = tomlkit.dumps(toml), ""
        tables = [tomlkit.dumps({"patch": [table]}) + "\n" for table in tomllib.loads(text).get("patch", [])]
    if head and not head.endswith("\n"):
        head += newline
    # The blank lines between tables keep their positions while tables move.
    gaps = [table[len(table.rstrip()) :].partition("\n")[2] for table in tables]
    between, last = gaps[:-1] or [newline], gaps[-1] if gaps else ""
    old = {key: table.rstrip() + newline for key, table in zip(listed, tables, strict=False)}
    parts = [head]
    if patches and not tables and head.strip() and not head.endswith(newline * 2):
        parts.append(newline)
    for place, patch in enumerate(patches):
        new = newline.join(("[[patch]]", f'upstream = "{patch.upstream}"', f'file     = "{patch.file}"', ""))
        parts.append(old.get((patch.upstream, patch.file), new))
        parts.append(between[min(place, len(between) - 1)] if place + 1 < len(patches) else last)
    result = "".join((*parts, tail))
    if tomllib.loads(result).get("landed") != tomllib.loads(text).get("landed"):
        raise StackError(f"{FILE} has `landed` below a [[patch]] that goes", "put it above the first [[patch]]")
    return result


def with_landed(text: str, landed: Iterable[Landed]) -> str:
    """Return the text of a `series.toml` with more landed patches; everything else stays as it is.

    Raises:
        StackError: The list stands where nothing can be added to it.

    """
    import tomlkit  # noqa: PLC0415  (takes 0.02 s and only editing needs it)

    added = [{"file": patch.ref.file, "release": patch.release, "before": patch.before} for patch in landed]
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
    """Return the text of a `series.toml` with its patches' pull requests and another state; everything else stays as it is.

    The pull requests of a patch in `pulled` replace its earlier ones; other patches keep theirs.

    Raises:
        StackError: The file cannot be edited as it is written, or does not list the patch.

    """
    addresses: dict[str, list[str]] = {}
    for pull in pulled:
        addresses.setdefault(pull.ref.file, []).append(pull.address)
    newline = "\r\n" if "\r\n" in text else "\n"
    head, tables, tail = _cut(text.replace("\r\n", "\n"))
    result = newline.join("".join((_stated(head, state), *(_pulled(table, addresses) for table in tables), tail)).split("\n"))
    if not _is_toml(result) or tomllib.loads(result) != _expected(tomllib.loads(text), addresses, state):
        by_hand = "; ".join(f"{file}: pull = {_pull_value(urls)!r}" for file, urls in addresses.items())
        raise StackError(f"{FILE} cannot be edited as it is written", f"write it there by hand: {by_hand}" if by_hand else "")
    return result


def with_needs(text: str, needs: Iterable[str]) -> str:
    """Return the text of a `series.toml` that needs further series; everything else stays as it is."""
    import tomlkit  # noqa: PLC0415  (takes 0.02 s and only editing needs it)

    head, tables, tail = _cut(text)
    toml = tomlkit.parse(head)
    listed = list(dict.fromkeys([*toml.unwrap().get("needs", ()), *needs]))
    if listed == list(toml.unwrap().get("needs", ())):
        return text
    if "needs" in toml:
        toml["needs"] = listed
        return "".join((tomlkit.dumps(toml), *tables, tail))
    line = tomlkit.dumps({"needs": listed})
    return "".join((re.sub(r"(?m)^([ \t]*state[ \t]*=.*\n)", lambda state: state[0] + line, head, count=1), *tables, tail))


def _stated(head: str, state: State | None) -> str:
    """Return the part above the patches with another state."""
    import tomlkit  # noqa: PLC0415  (takes 0.02 s and only editing needs it)

    toml = tomlkit.parse(head)
    if state is None or toml.get("state") == state:
        return head
    toml["state"] = str(state)
    return tomlkit.dumps(toml)


def _pulled(text: str, addresses: Mapping[str, Sequence[str]]) -> str:
    """Return one [[patch]] table with its comments, and its pull requests directly below `file`."""
    import tomlkit  # noqa: PLC0415  (takes 0.02 s and only editing needs it)

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
    """Return the `file` line with the `pull` line below it, their `=` aligned."""
    gap = file[2] or " "
    return f"{file[0].rstrip()}\n{file[1]}{line.replace('pull =', f'pull{gap}=', 1)}"


def _pull_value(addresses: Sequence[str]) -> str | list[str]:
    return addresses[0] if len(addresses) == 1 else list(addresses)


def _expected(values: dict[str, Any], addresses: Mapping[str, Sequence[str]], state: State | None) -> dict[str, Any]:
    """Return the values that the edited file must have. The caller compares all of them: a text edit can hit the wrong place."""
    for table in values.get("patch", []):
        if table.get("file") in addresses:
            table["pull"] = _pull_value(addresses[table["file"]])
    listed = {table.get("file") for table in values.get("patch", [])}
    if not addresses.keys() <= listed:
        return {}
    return values | ({"state": str(state)} if state is not None else {})


def _cut(text: str) -> tuple[str, list[str], str]:
    """Split a `series.toml` into the part above the [[patch]] tables, each table with its comments, and the comments below.

    A comment belongs to the table below it. If a blank line follows the table above, the lines before that blank line belong to
    the upper table. This works on text: tomlkit attaches every comment to the table above it.
    """
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    # A line within a string or a list may look like a header; the text above it is then incomplete TOML.
    headers = [place for place, line in enumerate(lines) if _HEADER.match(line) and _is_toml("".join(lines[:place]))]
    cuts = []
    for number, end in enumerate((*headers, len(lines))):
        start = end
        while start and not _is_content(lines[start - 1]):
            start -= 1
        blanks = [place for place in range(start, end) if not lines[place].strip()]
        if blanks:
            # Above the first table, only the comment directly on it belongs to it; the rest is about the file.
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
    """Return a file name, without its ending, for a patch's subject: `[Tag] Do it, now` gives `do-it-now`."""
    bare = re.sub(r"^(\s*\[[^\]]*\])+", "", subject)
    words = re.findall(r"[a-z0-9]+", bare.lower())
    name = "-".join(words)
    # `4 bit caches` gives `4bit-caches`: with a separate number in front, the file would look numbered.
    name = re.sub(r"^([0-9-]+)-", lambda number: number[1].replace("-", ""), name)
    # A file name may have 255 bytes; a shorter one is readable. Cut at whole words.
    while len(name) > 72 and "-" in name:
        name = name.rpartition("-")[0]
    return name[:72] or "patch"


class _Listed(NamedTuple):
    """The values of a [[patch]] table."""

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
    """Return the pull requests of a patch: usually one, a list if the patch was split."""
    if not table.given("pull") or table.is_text("pull"):
        address = table.optional_text("pull", pattern=_ADDRESS, meaning="the address of the pull request")
        return (address,) if address is not None else ()
    listed = table.texts("pull")
    odd = next((address for address in listed if not re.fullmatch(_ADDRESS, address)), None)
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
