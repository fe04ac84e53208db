# SPDX-License-Identifier: Apache-2.0
"""`pins.toml`: the exact upstream commits that the stack stands on. It is read strictly; edits keep its comments."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import tomlkit

from stack.base.did_you_mean import unknown_name
from stack.base.errors import StackError
from stack.model import document, releases
from stack.model.document import Table, find_cycle
from stack.model.ids import LANE, OBJECT, PATH, UPSTREAM, Sha256, TreeId
from stack.model.releases import Releases

FILE = "pins.toml"
LARGEST = 64 * 2**10
"""Bytes of the largest `pins.toml`, about a hundred upstreams; the editor's time grows with the square of the keys."""
BASE = "base"
"""Name of the base image's table, which no upstream may have."""
LANES = "lane"
"""Name of the table with the pins of the lanes, which no upstream may have."""
MAIN = "main"
"""How users name the pins that stand in no lane; no lane may have this name."""
MOST_LANES = 100
"""Lanes that a `pins.toml` may have: commands that read all lanes read the whole file for each of them."""

_SHARED = ("git", "within", "source", "tags")
"""The keys of a pin that a lane takes from the main pin unless it names them: they say what the upstream is, not where it stands."""

Source = Literal["archive", "git"]
"""Where an upstream's trees come from: the registry's source archives, or the git remote."""
SOURCES: tuple[Source, ...] = ("archive", "git")

_COMMIT = r"[0-9a-f]{7,40}"
_SHA256 = r"[0-9a-f]{64}"
# Not a git option, no blanks, only characters that a ref name may contain.
_TAG = r"[A-Za-z0-9][A-Za-z0-9._+/-]*"


@dataclass(frozen=True, slots=True)
class Archive:
    """The registry's source archive of a release."""

    package: str
    version: str
    sha256: Sha256 | None


@dataclass(frozen=True, slots=True)
class Within:
    """The place of a vendored upstream: `path` in the tree of another upstream."""

    upstream: str
    path: str


@dataclass(frozen=True, slots=True)
class Pin:
    """The pin of one upstream.

    `commit` may be a prefix if the release itself states only a prefix. `tree` is the git tree of the imported archive. `subtrees`
    maps folders below it to tree ids; these folders are known to equal those of the commit. `tags` is the pattern of release tags,
    see `model.releases`; None if it follows from `tag`. `stated_source` is the source that `pins.toml` names.
    """

    upstream: str
    git: str
    commit: str
    tag: str | None = None
    archive: Archive | None = None
    tree: TreeId | None = None
    subtrees: Mapping[str, TreeId] = field(default_factory=lambda: MappingProxyType({}))
    within: Within | None = None
    stated_source: Source | None = None
    tags: str | None = None

    @property
    def source(self) -> Source:
        """Where trees come from unless a command says otherwise: as stated, else the archive if there is one, else git."""
        return self.stated_source or ("git" if self.archive is None else "archive")

    @property
    def revision(self) -> str:
        """The pin's tag, or its commit if it has no tag."""
        return self.tag or self.commit

    @property
    def shown(self) -> str:
        """The pin's revision for people: its tag, or the first digits of its commit."""
        return self.tag or self.commit[:12]

    @property
    def releases(self) -> Releases:
        """The rule for release tags of this upstream, and for their order."""
        return releases.of(self.tags, self.tag)


@dataclass(frozen=True, slots=True)
class Base:
    """The base image; `digest` is None until it has been resolved."""

    image: str
    tag: str
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Pins:
    """All pins, in the file's order; `lanes` are the names of all lanes, whichever one these pins are of."""

    upstreams: tuple[Pin, ...]
    base: Base | None = None
    lanes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Pin]:
        return iter(self.upstreams)

    def names(self) -> tuple[str, ...]:
        """Return the upstreams' names, in the file's order."""
        return tuple(pin.upstream for pin in self.upstreams)

    def get(self, upstream: str) -> Pin:
        """Return the pin of an upstream.

        Raises:
            StackError: No upstream has that name.

        """
        for pin in self.upstreams:
            if pin.upstream == upstream:
                return pin
        raise unknown_name("upstream", upstream, self.names(), holder=FILE)

    def vendored_in(self, upstream: str) -> tuple[Pin, ...]:
        """Return the pins vendored in the tree of `upstream`."""
        return tuple(pin for pin in self.upstreams if pin.within is not None and pin.within.upstream == upstream)

    def replaced(self, *changed: Pin) -> "Pins":
        """Return the pins with some of them replaced."""
        by_name = {pin.upstream: pin for pin in changed}
        return replace(self, upstreams=tuple(by_name.get(pin.upstream, pin) for pin in self.upstreams))

    def based(self, base: Base) -> "Pins":
        """Return the pins with another base image."""
        return replace(self, base=base)


def load(path: Path, lane: str | None = None) -> Pins:
    """Read `pins.toml`; return the pins of a lane, None for those that stand in no lane.

    Raises:
        StackError: A key is unknown, missing or malformed, in any lane; the error names file and key. Or no lane has that name.

    """
    return read(document.load(path, largest=LARGEST), path, lane)


def read(top: Table, path: Path, lane: str | None = None) -> Pins:
    """Read the table of a whole `pins.toml`, as `load` does; `path` is named in errors."""
    lanes = top.optional_table(LANES)
    main = _all(top, [name for name in top if name != LANES], path)
    top.finish()
    names = tuple(lanes or ())
    _check_lanes(names, path)
    by_lane = {name: _lane(name, lanes.table(name), main, top, path) for name in lanes or ()} if lanes is not None else {}
    if lane is not None and lane not in by_lane:
        known = f"{FILE} has {', '.join((MAIN, *names))}" if names else f"{FILE} has no lane"
        raise StackError(f"unknown lane {lane[:80]!r}", f"{known}; `stack lane add` begins one")
    return replace(main if lane is None else by_lane[lane], lanes=names)


def _all(top: Table, names: list[str], path: Path) -> Pins:
    base = _base(top.optional_table(BASE))
    pins = Pins(tuple(_pin(name, top.table(name), path) for name in names if name != BASE), base)
    _check_vendoring(pins, path)
    return pins


def check_lane(name: str, others: Iterable[str] = ()) -> None:
    """Refuse a name that no lane may have beside the others.

    Raises:
        StackError: It could not be the name of a folder, names the main pins, or differs from another name only in case: on a file
            system that ignores case, both lanes would have one folder.

    """
    folded = name.casefold()
    same = next((other for other in others if other != name and other.casefold() == folded), None)
    if same is not None:
        raise StackError(f"lanes {same!r} and {name!r} differ only in case", "give one of them another name")
    if folded == MAIN or not re.fullmatch(LANE, name):
        raise StackError(
            f"{name[:80]!r} is not a valid name of a lane",
            f"use letters, digits, dots, dashes and underscores, at most 64, without a dot at an end; {MAIN!r} means no lane",
        )


def _check_lanes(names: tuple[str, ...], path: Path) -> None:
    if len(names) > MOST_LANES:
        raise StackError(f"{path}: has {len(names)} lanes, more than {MOST_LANES}", f"remove the [{LANES}] tables of some")
    seen: dict[str, str] = {}
    for name in names:
        try:
            check_lane(name, filter(None, [seen.get(name.casefold())]))
        except StackError as bad:
            raise StackError(f"{path}: {LANES}: {bad.problem}", bad.remedy) from bad
        seen[name.casefold()] = name


def _lane(lane: str, table: Table, main: Pins, top: Table, path: Path) -> Pins:
    """Read a lane: the upstreams that it names over the main ones."""
    unknown = next((name for name in table if name not in (BASE, *main.names())), None)
    if unknown is not None:
        known = f"pinned: {', '.join(main.names())}"
        dotted = f'write the name of the lane in quotes: [{LANES}."{lane}.{unknown}".UPSTREAM]'
        raise table.error(unknown, "has no pin outside of the lane", dotted if unknown.isdigit() else known)
    own = {name: _pin(name, table.table(name).over(top.table(name), _SHARED), path) for name in main.names() if name in table}
    base = _base(table.optional_table(BASE))
    table.finish()
    pins = Pins(tuple(own.get(pin.upstream, pin) for pin in main), base or main.base)
    _check_vendoring(pins, path)
    return pins


def edited(text: str, pins: Pins) -> str:
    """Return the text of `pins.toml` with the values of `pins`; comments, order and layout stay.

    The text has to name the same upstreams: only the user adds or removes one, by hand. The base image may be new.

    Raises:
        StackError: An upstream's keys are spread over the file in a way that tomlkit cannot edit.

    """
    toml = tomlkit.parse(text)
    for pin in pins:
        put_pin(toml[pin.upstream], pin, pin.tags)
    if pins.base is not None:
        put_base(toml, pins.base)
    return tomlkit.dumps(toml)


def put_pin(table: tomlkit.items.AbstractTable, pin: Pin, tags: str | None) -> None:
    """Write where a pin stands into its table, and its rule for release tags if `tags` is not None.

    Raises:
        StackError: The keys are spread over the file in a way that tomlkit cannot edit.

    """
    _check_editable(table, pin.upstream)
    _put(table, "tag", pin.tag)
    _put(table, "commit", pin.commit)
    _put(table, "tree", pin.tree)
    _put(table, "tags", tags)
    archive = pin.archive
    fields = {"package": archive.package, "version": archive.version, "sha256": archive.sha256} if archive else {}
    _put_inline(table, f"{pin.upstream}.archive", fields)
    _put_inline(table, f"{pin.upstream}.subtrees", dict(pin.subtrees))


def put_base(holder: tomlkit.TOMLDocument | tomlkit.items.AbstractTable, base: Base) -> None:
    """Write the base image's table into the file or into a lane's table; append it if it is missing."""
    if BASE not in holder:
        if isinstance(holder, tomlkit.TOMLDocument) and holder.body:
            holder.add(tomlkit.nl())
        holder.add(BASE, tomlkit.table())
    table = holder[BASE]
    _check_editable(table, BASE)
    _put(table, "image", base.image)
    _put(table, "tag", base.tag)
    _put(table, "digest", base.digest)


def _check_editable(table: object, name: str) -> None:
    if not isinstance(table, tomlkit.items.Table | tomlkit.items.InlineTable):
        raise StackError(f"{FILE}: {name} is written in several places, which cannot be edited", "write it as one table")


def _put(table: tomlkit.items.AbstractTable, key: str, value: str | None) -> None:
    if value is None:
        table.pop(key, None)
    elif key not in table:
        _add(table, key, value)
    elif table[key] != value:
        table[key] = value


def _add(table: tomlkit.items.AbstractTable, key: str, value: object) -> None:
    """Add a key directly below the last one."""
    below = _cut_below(table)
    table.append(key, value)
    table.value.body.extend(below)


def _cut_below(table: tomlkit.items.AbstractTable) -> list[tuple[tomlkit.items.Key | None, tomlkit.items.Item]]:
    """Remove and return everything below the last key: a comment at a table's end mostly concerns the next table."""
    body = table.value.body
    keys = len(body)
    while keys and body[keys - 1][0] is None and isinstance(table, tomlkit.items.Table):
        keys -= 1
    below = body[keys:]
    del body[keys:]
    return below


def _put_inline(table: tomlkit.items.AbstractTable, name: str, fields: Mapping[str, str | None]) -> None:
    key = name.rpartition(".")[2]
    present = {field_: value for field_, value in fields.items() if value is not None}
    if key in table and dict(table[key]) != present:
        _check_editable(table[key], name)
    if not present:
        inline = table.pop(key, None)
        if isinstance(inline, tomlkit.items.Table):
            table.value.body.extend(_cut_below(inline))
    elif key not in table:
        inline = tomlkit.inline_table()
        inline.update(present)
        _add(table, key, inline)
    elif dict(table[key]) != present:
        inline = table[key]
        for field_ in [field_ for field_ in inline if field_ not in present]:
            del inline[field_]
        for field_, value in present.items():
            if inline.get(field_) != value:
                inline[field_] = value


def _pin(name: str, table: Table, path: Path) -> Pin:
    if not re.fullmatch(UPSTREAM, name):
        raise StackError(f"{path}: {name!r} is not a valid name of an upstream", "lower-case letters, digits and dashes")
    archive, within, subtrees = (
        table.optional_table("archive"),
        table.optional_table("within"),
        table.optional_table("subtrees"),
    )
    tree = table.optional_text("tree", pattern=OBJECT, meaning="a git tree id, 40 hexadecimal digits")
    pin = Pin(
        upstream=name,
        git=table.text("git", pattern=r"(https://|ssh://|file://|/|\w[\w.-]*@)\S+", meaning="the address of a git repository"),
        commit=table.text("commit", pattern=_COMMIT, meaning="a commit id, 7 to 40 hexadecimal digits"),
        tag=table.optional_text("tag", pattern=_TAG, meaning="a tag"),
        archive=_archive(archive) if archive else None,
        tree=TreeId(tree) if tree else None,
        subtrees=MappingProxyType({key: TreeId(value) for key, value in _subtrees(subtrees)}),
        within=_within(within) if within else None,
        stated_source=_source(table),
        tags=table.optional_text("tags"),
    )
    table.finish()
    if pin.within is not None:
        for key in ("archive", "source", "tags"):
            if key in table:
                raise table.error(key, "and `within` exclude each other", "an upstream is released or vendored")
    if pin.source == "archive" and pin.within is None:
        for key, found in (("archive", pin.archive), ("tag", pin.tag)):
            if found is None:
                raise table.error(key, "is missing", 'add it, or write source = "git"')
    try:
        _ = pin.releases
    except StackError as bad:
        raise table.error("tags", bad.problem, bad.remedy) from bad
    return pin


def _source(table: Table) -> Source | None:
    stated = table.optional_text("source", pattern="archive|git", meaning='"archive" or "git"')
    return None if stated is None else "git" if stated == "git" else "archive"


def _archive(table: Table) -> Archive:
    sha256 = table.optional_text("sha256", pattern=_SHA256, meaning="a SHA-256, 64 hexadecimal digits")
    archive = Archive(
        package=table.text("package", pattern=r"[A-Za-z0-9][A-Za-z0-9._-]*", meaning="the name of a package"),
        version=table.text("version", pattern=r"[A-Za-z0-9][A-Za-z0-9.!+_-]*", meaning="a version"),
        sha256=Sha256(sha256) if sha256 else None,
    )
    table.finish()
    return archive


def _within(table: Table) -> Within:
    within = Within(
        upstream=table.text("upstream", pattern=UPSTREAM, meaning="the name of another upstream"),
        path=table.text("path", pattern=PATH, meaning="a path in that upstream's tree"),
    )
    table.finish()
    return within


def _subtrees(table: Table | None) -> Iterator[tuple[str, str]]:
    if table is None:
        return
    for key in table:
        if not re.fullmatch(PATH, key):
            raise table.error(key, "is not a path in the upstream's tree", "no .., no / at its ends")
        yield key, table.text(key, pattern=OBJECT, meaning="a git tree id, 40 hexadecimal digits")


def _base(table: Table | None) -> Base | None:
    if table is None:
        return None
    base = Base(
        image=table.text("image"),
        tag=table.text("tag", pattern=_TAG, meaning="a tag"),
        digest=table.optional_text("digest", pattern=f"sha256:{_SHA256}", meaning="sha256: and 64 hexadecimal digits"),
    )
    table.finish()
    return base


def _check_vendoring(pins: Pins, path: Path) -> None:
    for pin in pins:
        if pin.within is not None and pin.within.upstream not in pins.names():
            raise StackError(
                f"{path}: {pin.upstream}.within.upstream names {pin.within.upstream!r}, which has no pin",
                f"known: {', '.join(pins.names())}",
            )
    cycle = find_cycle({pin.upstream: (pin.within.upstream,) for pin in pins if pin.within is not None})
    if cycle:
        raise StackError(f"{path}: `within` is a cycle: {' -> '.join(cycle)}", "break it")
    nested = [pin.upstream for pin in pins if pin.within and pins.get(pin.within.upstream).within]
    if nested:
        raise StackError(
            f"{path}: {nested[0]} is vendored in an upstream that is vendored itself", "give its path in the outer one"
        )
