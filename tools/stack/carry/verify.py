# SPDX-License-Identifier: Apache-2.0
"""Check the pins against the sources that they name."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from stack.carry import upstream_stores
from stack.carry.upstream_stores import Place, Stores
from stack.model.ids import CommitId
from stack.model.pins import Pin
from stack.model.stack import Stack
from stack.store import archive as archives
from stack.store import cache as places
from stack.store.sources import SourceTree


@dataclass(frozen=True, slots=True)
class Check:
    """One field of one pin: its value in pins.toml, and its value in the source, or None if the source does not state it."""

    upstream: str
    field: str
    expected: str
    found: str | None

    @property
    def holds(self) -> bool:
        """Return whether both values are the same; either commit may be a prefix of the other."""
        if self.found is None:
            return False
        if self.field in ("commit", "tag"):
            return self.found.startswith(self.expected) or self.expected.startswith(self.found)
        return self.found == self.expected


def verify(stack: Stack, place: Place) -> tuple[Check, ...]:
    """Check every pin: the archive's hash, the tree, the commit that the release names, and the folders of a vendored pin.

    Records of earlier fetches are not trusted: the archive is hashed again, and its tree is computed again without git. With
    the git source, the remote is asked for the tag's commit, and archive and git have to have the same contents in the files
    that both have.

    Raises:
        StackError: a source cannot be obtained.

    """
    with Stores(stack, place) as stores:
        checks: list[Check] = []
        for pin in stack.pins:
            if pin.within is None:
                checks += _released(stores, pin)
            else:
                checks += _vendored(stores, pin)
        return tuple(checks)


def _released(stores: Stores, pin: Pin) -> Iterator[Check]:
    found = _unvouched(stores, pin)
    yield Check(pin.upstream, "commit", pin.commit, found.names_commit)
    if found.source == "git" and pin.tag is not None and found.names_commit is not None:
        yield Check(pin.upstream, "tag", found.names_commit, stores.tag_commits(pin.upstream).get(pin.tag))
    if found.source == "archive":
        yield from _archive(stores, pin, found)
    elif pin.archive is not None:
        yield from _same_files(stores, pin, found)


def _unvouched(stores: Stores, pin: Pin) -> SourceTree:
    """Return the pinned release from the source, without checking it against the pin."""
    from stack.store import sources  # noqa: PLC0415  (the registry client behind it is slow to import)

    stranger = replace(pin, tag=None, tree=None, tags=pin.tags or pin.releases.pattern)
    place, source = stores.place, stores.source(pin.upstream)
    vendored = stores.stack.pins.upstreams
    return sources.obtain(stranger, pin.revision, cache=place.cache, source=source, progress=place.progress, vendored=vendored)


def _archive(stores: Stores, pin: Pin, found: SourceTree) -> Iterator[Check]:
    from stack.store import registry  # noqa: PLC0415  (slow to import)

    assert pin.archive is not None
    candidate = registry.find(pin.archive.package, pin.archive.version)
    path = registry.download(candidate, places.archives(stores.place.cache, pin.archive.package))
    if pin.archive.sha256 is not None:
        yield Check(pin.upstream, "archive.sha256", pin.archive.sha256, places.hash_of(path))
    tree = archives.tree_id(path)
    if pin.tree is not None:
        yield Check(pin.upstream, "tree", pin.tree, tree)
    yield Check(pin.upstream, "store", tree, found.tree)
    yield Check(pin.upstream, "archive.version", pin.archive.version, found.version)


def _same_files(stores: Stores, pin: Pin, found: SourceTree) -> Iterator[Check]:
    """Check that the files that both archive and git have are the same."""
    place = replace(stores.place, source="archive")
    with Stores(stores.stack, place) as archived:
        other = _unvouched(archived, pin)
        objects = archived.objects(pin.upstream)
        both = [(path, old, new) for path, old, new in objects.difference(other.tree, found.tree) if old and new]
        for path, old, new in both:
            yield Check(pin.upstream, f"file {path}", old.id, new.id)
        if not both:
            yield Check(pin.upstream, "files of both", "the same", "the same")


def _vendored(stores: Stores, pin: Pin) -> Iterator[Check]:
    assert pin.within is not None
    holder = _unvouched(stores, stores.stack.pins.get(pin.within.upstream))
    objects = stores.objects(pin.upstream)
    if holder.source == "git" and holder.names_commit is not None:
        entry = objects.entry(objects.tree_of(CommitId(holder.names_commit)), pin.within.path)
        yield Check(pin.upstream, "commit", pin.commit, entry.id if entry is not None else None)
    tree = objects.tree_of(upstream_stores.vendored_base(objects, pin, holder.commit))
    for path, wanted, found in upstream_stores.subtrees(objects, pin, tree):
        yield Check(pin.upstream, f"subtrees.{path}", wanted, found)
