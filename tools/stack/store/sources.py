# SPDX-License-Identifier: Apache-2.0
"""Provide an upstream's source tree as a commit in its store, from the source archive or the git remote."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.model.ids import CommitId, Sha256, TreeId
from stack.model.pins import Archive, Pin, Source
from stack.store import archive as archives
from stack.store import cache as places
from stack.store import git, listed_tags, remote, repository
from stack.store.objects import FILES, FOLDER, Objects


@dataclass(frozen=True, slots=True)
class SourceTree:
    """An upstream's source tree in its store."""

    upstream: str
    tag: str
    commit: CommitId
    tree: TreeId
    names_commit: str | None
    version: str
    archive: Archive | None
    source: Source


# Where releases record the upstream commit that they were made from: a file in a top-level folder of the tree, and the pattern
# of the record. Tried in this order.
_STATED_COMMIT = (
    # setuptools-scm: `__commit_id__ = commit_id = 'g5df63a720'`
    ("_version.py", re.compile(rb"""^(?:__commit_id__|commit_id)\b[^'"\n]*['"]g?([0-9a-f]{7,40})['"]""", re.MULTILINE)),
    # FlashInfer: `__git_commit__ = "946200de…"`; in older releases `__git_version__`
    ("_build_meta.py", re.compile(rb"""^__git_(?:commit|version)__\b[^'"\n]*['"]g?([0-9a-f]{7,40})['"]""", re.MULTILINE)),
)


def obtain(
    upstream: Pin,
    tag: str | None = None,
    *,
    cache: Path,
    source: Source | None = None,
    progress: Progress | None = None,
    vendored: Sequence[Pin] = (),
    reference: Path | None = None,
) -> SourceTree:
    """Return the source tree of `tag` (default: the pinned one); fetch it only if the store lacks it.

    Args:
        upstream: The pin; for the pinned tag, the pin's archive hash, tree and commit must match.
        tag: A release tag, or with the git source a commit.
        cache: The cache folder, see `cache.root`.
        source: Where a missing tree is fetched from; by default the pin's own source.
        progress: Called during long work.
        vendored: All pins; with the git source, those within this upstream replace its submodule entries.
        reference: A clone whose objects are copied instead of downloaded, with the git source.

    Raises:
        StackError: There is no such release, it cannot be fetched, or it does not match the pin.

    """
    name = upstream.upstream
    if tag is None and upstream.within is not None:
        raise StackError(f"{name} has no release", f"fetch {upstream.within.upstream}: it is vendored there")
    source = source or upstream.source
    wanted = upstream.revision if tag is None else tag
    if source == "archive":
        _check_archive_tag(upstream, wanted)
    inside = [pin for pin in vendored if pin.within is not None and pin.within.upstream == name]
    store = repository.open(cache, name)

    def stored() -> SourceTree | None:
        return _stored_archive(store, upstream, wanted) if source == "archive" else _stored_git(store, upstream, wanted, inside)

    tree = stored()
    if tree is None:
        with places.lock(store, lambda: _tell(progress, "waiting for another process")):
            repository.sweep(store)
            tree = stored()  # the other process may have fetched it
            if tree is None:
                if source == "archive":
                    _import(store, upstream, wanted, cache, progress)
                else:
                    _fetch(store, upstream, wanted, inside, progress, reference)
                tree = stored()
    if tree is None:
        raise repository.damaged(store, f"it does not keep {wanted}")
    _demand_pinned(upstream, tree)
    return tree


def known_tags(upstream: Pin, *, cache: Path, source: Source | None = None, stable: bool = True) -> list[str]:
    """List the release tags: those with a source archive in the registry, oldest first, or those of the git remote.

    Raises:
        StackError: The upstream has no archives, or the index or remote cannot be reached.

    """
    if (source or upstream.source) == "git":
        return remote.tags(repository.open(cache, upstream.upstream), upstream.git)
    from stack.store import registry  # noqa: PLC0415 - takes a third of a second and only queries of an index need it

    versions = registry.versions(_package(upstream), stable=stable)
    tags = [tag for version in versions if (tag := upstream.releases.tag_of(str(version))) is not None]
    listed_tags.keep_names(places.upstream_store(cache, upstream.upstream), tags)
    return tags


def newest(upstream: Pin, *, cache: Path, source: Source | None = None) -> str:
    """Return the commit of the remote's default branch, or the tag of the newest archive, including pre-releases.

    Raises:
        StackError: The index or remote cannot be reached, or has no release.

    """
    if (source or upstream.source) == "git":
        return remote.branch(repository.open(cache, upstream.upstream), upstream.git, "HEAD")
    tags = known_tags(upstream, cache=cache, source="archive", stable=False)
    if not tags:
        raise StackError(f"the registry has no source archive of {upstream.upstream}", "use --source git")
    return tags[-1]


def resolve(upstream: Pin, revision: str, *, cache: Path, source: Source | None = None) -> str:
    """Resolve a branch of the remote to its current commit; return a tag or commit unchanged, as `obtain` accepts it.

    A tag that the store has is not looked up again.

    Raises:
        StackError: The remote cannot be reached.

    """
    if (source or upstream.source) == "archive":
        return revision
    store = repository.open(cache, upstream.upstream)
    if _stored_git(store, upstream, revision, ()) is not None:
        return revision
    return remote.branch(store, upstream.git, revision)


def tag_commits(upstream: Pin, *, cache: Path) -> dict[str, str]:
    """Return the commit of each tag of the git remote.

    Raises:
        StackError: The remote cannot be reached.

    """
    return remote.tag_commits(repository.open(cache, upstream.upstream), upstream.git)


def version_of(upstream: Pin, tag: str) -> str:
    """Return the version of a release tag: `v0.7.2.post1` gives `0.7.2.post1`.

    Raises:
        StackError: The tag names no version, by the upstream's rule for release tags.

    """
    found = upstream.releases.version(tag)
    if found is None:
        raise StackError(
            f"the tag {tag!r} names no version of {upstream.upstream}",
            f"name a release tag such as {upstream.tag or 'v0.7.2.post1'}, or use --source git",
        )
    before, after = upstream.releases.star or ("", "")
    plain = tag.removeprefix(before).removesuffix(after)
    return plain if upstream.releases.tag_of(plain) == tag else str(found)


def _version(upstream: Pin, tag: str) -> str:
    """Return the version of a tag of the git remote, or the tag itself if it names no version."""
    return version_of(upstream, tag) if upstream.releases.version(tag) is not None else tag


def _check_archive_tag(upstream: Pin, wanted: str) -> None:
    """Refuse a version instead of a tag.

    An archive has a version and no tag: any spelling of the version would find it, and would be written into the pins.
    """
    tag = upstream.tag
    if tag is not None and not tag[:1].isdigit() and wanted[:1].isdigit():
        raise StackError(f"{upstream.upstream} has no tag {wanted}", f"its tags look like {tag}")


def _import(store: Path, upstream: Pin, tag: str, cache: Path, progress: Progress | None) -> None:
    package, version, expected = _package(upstream), "", None
    if upstream.archive is not None and tag == upstream.revision:
        version, expected = upstream.archive.version, upstream.archive.sha256
    version = version or version_of(upstream, tag)
    path = _downloaded(places.archives(cache, package), package, version, expected)
    if path is None:
        from stack.store import registry  # noqa: PLC0415 - takes a third of a second and only a download needs it

        candidate = registry.find(package, version, sha256=expected)
        step = f"downloading {candidate.filename}"
        _tell(progress, step)
        folder = places.archive(cache, package, candidate.filename).parent
        path = registry.download(candidate, folder, lambda done, total: _tell(progress, step, done, total), expected)
    step = f"importing {path.name}"
    with repository.incoming(store) as place:
        ref = _ref("archive", tag)
        imported = archives.import_archive(
            path,
            place,
            ref,
            archives.Release(package, version, path.name),
            expected_sha256=expected,
            progress=lambda done, total: _tell(progress, step, done, total),
        )
        repository.adopt(store, place / "objects/pack", {ref: imported.commit})


def _downloaded(folder: Path, package: str, version: str, sha256: Sha256 | None) -> Path | None:
    """Return the archive that an earlier run downloaded; without a hash to verify it, none is trusted."""
    if sha256 is None:
        return None
    for path in sorted(folder.glob("*.tar.gz")):
        try:
            if parse_sdist_filename(path.name) != (canonicalize_name(package), Version(version)):
                continue
        except (InvalidSdistFilename, InvalidVersion):
            continue
        if places.hash_of(path) == sha256:
            return path
    return None


def _fetch(
    store: Path, upstream: Pin, tag: str, vendored: Sequence[Pin], progress: Progress | None, reference: Path | None
) -> None:
    _tell(progress, f"fetching {tag} of {upstream.upstream}" + (f", with objects of {reference}" if reference else ""))
    commit = remote.fetch(store, upstream.git, tag, reference=reference)
    if tag == upstream.revision and not commit.startswith(upstream.commit):
        raise _moved(upstream, commit)
    refs = {_ref("git", tag): commit}
    if vendored:
        _tell(progress, f"fetching what {upstream.upstream} {tag} vendors")
        refs[_ref("grafted", tag)] = remote.graft(store, commit, vendored, pinned=tag == upstream.revision)
    repository.set_refs(store, refs)


def _stored_archive(store: Path, upstream: Pin, tag: str) -> SourceTree | None:
    found = _commit(store, _ref("archive", tag))
    if found is None:
        return None
    commit, tree, message = found
    trailers = dict(re.findall(r"^([A-Z][A-Za-z0-9]*): (.*)$", message, re.MULTILINE))
    sha256 = Sha256(trailers["Sha256"])
    if tag == upstream.revision and upstream.archive is not None and upstream.archive.sha256 not in (None, sha256):
        return None  # the pin names another archive by now
    if upstream.archive is not None and canonicalize_name(upstream.archive.package) != canonicalize_name(trailers["Package"]):
        return None  # another project of the same name
    archive = Archive(trailers["Package"], trailers["Version"], sha256)
    stated = _stated_commit(store, upstream.upstream, tree)
    return SourceTree(upstream.upstream, tag, commit, tree, stated, archive.version, archive, "archive")


def _stored_git(store: Path, upstream: Pin, tag: str, vendored: Sequence[Pin]) -> SourceTree | None:
    ref = _ref("git", tag)
    if remote.address(store) != upstream.git:
        return None  # another project of the same name, or its address has changed
    real = _commit(store, ref)
    found = _commit(store, _ref("grafted", tag)) if vendored else real
    if real is None or found is None or not remote.is_grafted(store, found[0], vendored, pinned=tag == upstream.revision):
        return None
    if tag == upstream.revision and not real[0].startswith(upstream.commit):
        return None  # the pin names another commit by now
    return SourceTree(upstream.upstream, tag, found[0], found[1], real[0], _version(upstream, tag), None, "git")


def _demand_pinned(upstream: Pin, found: SourceTree) -> None:
    """Check the pinned release against the pin."""
    if found.tag != upstream.revision:
        return
    stated = found.names_commit
    if stated is not None and not (stated.startswith(upstream.commit) or upstream.commit.startswith(stated)):
        raise _moved(upstream, stated)
    if found.source == "archive" and upstream.tree not in (None, found.tree):
        raise StackError(
            f"the source archive of {upstream.upstream} {found.tag} has the tree {found.tree}, pins.toml says {upstream.tree}",
            f"correct the tree of {upstream.upstream}",
        )


def _moved(upstream: Pin, commit: str) -> StackError:
    return StackError(
        f"{upstream.upstream} {upstream.revision} is commit {commit}, pins.toml says {upstream.commit}",
        f"correct the commit of {upstream.upstream}, or find out why its tag moved",
    )


def _commit(store: Path, ref: str) -> tuple[CommitId, TreeId, str] | None:
    """Return commit, tree and message of a ref of the store, or None."""
    fields = git.text(["for-each-ref", "--format=%(objectname)%00%(tree)%00%(contents)%00", ref], env={"GIT_DIR": str(store)})
    if not fields:
        return None
    commit, tree, message, _ = fields.split("\0", 3)
    return CommitId(commit), TreeId(tree), message


def _stated_commit(store: Path, upstream: str, tree: TreeId) -> str | None:
    """Return the upstream commit that the tree's own files name as its origin."""
    with Objects(store) as objects:
        top = objects.entries(tree)
        names = sorted((name for name, entry in top.items() if entry.mode == FOLDER), key=lambda name: (name != upstream, name))
        objects.request(top[name].id for name in names)
        for file, pattern in _STATED_COMMIT:
            for name in names:
                entry = objects.entries(top[name].id).get(file)
                match = pattern.search(objects.read(entry.id)) if entry is not None and entry.mode in FILES else None
                if match is not None:
                    return match[1].decode()
    return None


def _package(upstream: Pin) -> str:
    if upstream.archive is None:
        raise StackError(f"pins.toml names no source archive for {upstream.upstream}", "use --source git")
    return upstream.archive.package


def _ref(kind: Literal["archive", "git", "grafted"], tag: str) -> str:
    # Stricter than git's rules for ref names, which exclude everything else that could do harm here.
    if (
        not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*(/[A-Za-z0-9][A-Za-z0-9._+-]*)*", tag)
        or ".." in tag
        or tag.endswith((".", ".lock"))
    ):
        raise StackError(f"{tag!r} is not a release tag", "name a tag such as v0.32.0")
    return f"refs/stack/{kind}/{tag}"


def _tell(progress: Progress | None, step: str, done: int = 0, total: int | None = None) -> None:
    if progress is not None:
        progress(step, done, total)
