# SPDX-License-Identifier: Apache-2.0
"""Begin a stack, or add an upstream to one: find the release and its commit, then write the pin.

`find` asks the remote what there is, so that the user can choose. `begin` fetches the chosen tree and writes the files.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from stack.base.errors import StackError
from stack.carry import beginning_files, fitting_plugins, upstream_stores
from stack.carry.upstream_stores import Place, Stores
from stack.model import new_stack, releases
from stack.model import stack as stacks
from stack.model.ids import CommitId
from stack.model.pins import Archive, Pin, Pins, Within
from stack.model.releases import Releases
from stack.store import address, reference_clone, remote, repository, sources
from stack.store.objects import SUBMODULE

if TYPE_CHECKING:
    from packaging.version import Version


@dataclass(frozen=True, slots=True)
class Wish:
    """A request for a pin. `tag` or `commit` may be missing; `commit` may name a branch, which stands for its commit."""

    upstream: str
    git: str
    tag: str | None = None
    commit: str | None = None
    package: str | None = None
    tags: str | None = None
    within: Within | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Answers of the remote and the registry: the release tags, oldest first, and the commit of every tag."""

    releases: tuple[str, ...] = ()
    rule: Releases = field(default_factory=lambda: releases.of(None))
    commits: dict[str, str] = field(default_factory=dict)

    @property
    def newest(self) -> str | None:
        """Return the newest release tag."""
        return self.releases[-1] if self.releases else None


@dataclass(frozen=True, slots=True)
class Begun:
    """The new pin, the files that were written, and the newest release of the upstream."""

    pin: Pin
    root: Path
    written: tuple[str, ...]
    added: bool
    """Whether the stack had been there before."""
    newest: str | None
    plugins: tuple[str, ...] = ()
    """The plug-ins that know the upstream, and are named in `stack.toml` from now on."""


def wish(
    given: str | None,
    git: str,
    *,
    here: Path,
    tag: str | None = None,
    commit: str | None = None,
    package: str | None = None,
    tags: str | None = None,
    within: str | None = None,
) -> Wish:
    """Check what a user asks for; the upstream's name follows from the address if none is given.

    Raises:
        StackError: Two of the values exclude each other, or one has another form than it needs.

    """
    if tag is not None and commit is not None:
        raise StackError("--tag and --commit exclude each other", "a pin with a tag gets the commit of the tag")
    stored = address.stored(git, here=here)
    name = given or new_stack.name_from(stored)
    if not name:
        raise StackError(f"no name follows from {git}", "name the upstream: stack init UPSTREAM --git …")
    new_stack.check_name(name)
    if tags is not None:
        releases.of(tags)
    if within is not None and (package is not None or tags is not None):
        raise StackError("--within excludes --package and --tags", "an upstream is released or vendored")
    if package is not None and commit is not None:
        raise StackError("--package and --commit exclude each other", "a source archive is made from a release: name its --tag")
    return Wish(name, stored, tag, commit, package, tags, _within(within) if within is not None else None)


def _within(text: str) -> Within:
    upstream, colon, path = text.partition(":")
    if not colon or not path.strip("/"):
        raise StackError(
            f"{text!r} names no upstream and path", "write it as UPSTREAM:PATH, such as flashinfer:3rdparty/cutlass"
        )
    return Within(upstream, path.strip("/"))


def find(wanted: Wish, place: Place) -> Found:
    """Ask the remote, or with a package the registry, which releases there are.

    Raises:
        StackError: The remote or the registry cannot be reached.

    """
    try:
        commits = remote.tag_commits(repository.open(place.cache, wanted.upstream), wanted.git)
    except StackError:
        if wanted.package is None:
            raise
        commits = {}  # the archive may do without the remote
    rule = _rule(wanted, commits)
    tags = rule.ordered(commits)
    if wanted.package is not None:
        of_archives = [tag for version in _versions(wanted.package) if (tag := rule.tag_of(str(version))) is not None]
        tags = [tag for tag in of_archives if not commits or tag in commits]
    return Found(tuple(tags), rule, commits)


def _rule(wanted: Wish, commits: Iterable[str]) -> Releases:
    """Return what counts as a release: as stated, else what follows from the wanted tag, else from all tags."""
    if wanted.tags is not None:
        return releases.of(wanted.tags)
    stated = releases.of(None, wanted.tag) if wanted.tag is not None else None
    if stated is not None and stated.version(wanted.tag or "") is not None:
        return stated
    return releases.likely(commits) or releases.of(None)


def package_of(wanted: Wish, found: Found, tag: str) -> str | None:
    """Return the name of the registry's package that has a source archive of a tag's version; None if there is none."""
    version = found.rule.version(tag)
    try:
        return wanted.upstream if version is not None and version in _versions(wanted.upstream) else None
    except StackError:
        return None


def _versions(package: str) -> "list[Version]":
    from stack.store import registry  # noqa: PLC0415 - takes a third of a second and only queries of an index need it

    return registry.versions(package)


def begin(root: Path, wanted: Wish, found: Found, place: Place, *, reference: Path | None = None) -> Begun:
    """Fetch the wanted revision, or the newest release, and pin it: in a new stack, or in the one that `root` has.

    Raises:
        StackError: The upstream has a pin already, there is no such revision, or it cannot be fetched.

    """
    stack = beginning_files.existing(root, wanted.upstream)
    if reference is not None:
        reference_clone.check(reference)
    if wanted.within is not None:
        pin = _vendored(stack, wanted, found, place)
    elif wanted.package is not None:
        pin = _from_archive(wanted, found, place)
    else:
        pin = _from_git(wanted, found, place, reference)
    plugins = _plugins(stack, root, pin, place)
    written = beginning_files.write(root, stack, pin, plugins)
    return Begun(pin, root, written, stack is not None, found.newest, plugins)


def _plugins(stack: stacks.Stack | None, root: Path, pin: Pin, place: Place) -> tuple[str, ...]:
    """Return the plug-ins that know the new upstream and that the stack does not name yet."""
    if stack is None:
        grown = stacks.Stack(root, Pins((pin,), None), (), MappingProxyType({}))
    else:
        grown = replace(stack, pins=Pins((*stack.pins, pin), stack.pins.base))
    with Stores(grown, place) as stores:
        return fitting_plugins.unnamed(stores, pin.upstream)


def _from_git(wanted: Wish, found: Found, place: Place, reference: Path | None) -> Pin:
    draft = Pin(wanted.upstream, wanted.git, commit="", tags=wanted.tags)
    if wanted.commit in found.commits:
        raise StackError(f"{wanted.commit} is a tag", "name it with --tag")
    tag = None if wanted.commit is not None else wanted.tag or _newest(wanted, found)
    revision = tag or sources.resolve(draft, wanted.commit or "", cache=place.cache, source="git")
    tree = sources.obtain(draft, revision, cache=place.cache, source="git", progress=place.progress, reference=reference)
    assert tree.names_commit is not None
    # A commit says nothing of how release tags look.
    tags = wanted.tags if tag is not None or found.rule == releases.of(None) else found.rule.pattern
    return replace(draft, commit=tree.names_commit, tag=tag, tags=tags)


def _newest(wanted: Wish, found: Found) -> str:
    if found.newest is None:
        some = ", ".join(sorted(found.commits)[-3:])
        raise StackError(
            f"{wanted.git} has no release tag" + (f" like {wanted.tags}" if wanted.tags else ""),
            "name a --tag or a --commit" + (f"; it has the tags {some}" if some else ""),
        )
    return found.newest


def _from_archive(wanted: Wish, found: Found, place: Place) -> Pin:
    assert wanted.package is not None
    tag = wanted.tag or _newest(wanted, found)
    rule = wanted.tags or (None if releases.of(None, tag) == found.rule else found.rule.pattern)
    # The version is found by the rule for tags, which `obtain` takes from the draft.
    draft = Pin(wanted.upstream, wanted.git, commit="", tags=found.rule.pattern, archive=Archive(wanted.package, "", None))
    tree = sources.obtain(draft, tag, cache=place.cache, source="archive", progress=place.progress)
    stated, tagged = tree.names_commit, found.commits.get(tag)
    if stated is not None and tagged is not None and not tagged.startswith(stated):
        raise StackError(
            f"the source archive of {wanted.package} {tree.version} was made from commit {stated}, {wanted.git} has {tagged} at {tag}",
            "check --package and --git: they may be different projects",
        )
    if stated is None and tagged is None:
        raise StackError(
            f"neither the source archive of {wanted.package} nor {wanted.git} names the commit of {tag}",
            "check --git and --tag, or leave --package out",
        )
    commit = tagged or stated or ""
    return replace(draft, commit=commit, tag=tag, tags=rule, archive=tree.archive, tree=tree.tree)


def _vendored(stack: stacks.Stack | None, wanted: Wish, found: Found, place: Place) -> Pin:
    assert wanted.within is not None
    if stack is None:
        raise StackError(f"there is no upstream {wanted.within.upstream!r} yet", "pin it first, by a stack init of its own")
    holder = stack.pins.get(wanted.within.upstream)
    if holder.within is not None:
        raise StackError(f"{holder.upstream} is vendored itself", f"give the path in {holder.within.upstream}")
    if wanted.tag is not None and wanted.tag not in found.commits:
        raise StackError(f"{wanted.git} has no tag {wanted.tag}", "check --tag")
    given = found.commits[wanted.tag] if wanted.tag is not None else wanted.commit
    with Stores(stack, place) as stores:
        named = _submodule(stores, holder, wanted.within.path)
    if given is None and named is None:
        raise StackError(
            f"the sources of {holder.upstream} do not name the commit of {wanted.within.path}", "add --tag or --commit"
        )
    if given is not None and named is not None and not named.startswith(given):
        raise StackError(
            f"{holder.upstream} {holder.shown} has commit {named} at {wanted.within.path}, not {given}", "leave it out"
        )
    pin = Pin(wanted.upstream, wanted.git, commit=named or given or "", tag=wanted.tag, within=wanted.within)
    grown = replace(stack, pins=Pins((*stack.pins, pin), stack.pins.base))
    with Stores(grown, place) as stores:  # fetches the vendored sources
        upstream_stores.vendored_base(stores.objects(pin.upstream), pin, stores.obtain(holder.upstream).commit)
    return pin


def _submodule(stores: Stores, holder: Pin, path: str) -> str | None:
    """Return the commit that the holder's tree has at a path as a submodule; None for a folder or an archive."""
    tree = stores.obtain(holder.upstream)
    objects = stores.objects(holder.upstream)
    if tree.source != "git" or tree.names_commit is None:
        return None
    entry = objects.entry(objects.tree_of(CommitId(tree.names_commit)), path)
    if entry is None:
        raise StackError(f"{holder.upstream} {holder.shown} has no {path}", "check --within")
    return entry.id if entry.mode == SUBMODULE else None
