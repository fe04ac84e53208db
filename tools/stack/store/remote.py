# SPDX-License-Identifier: Apache-2.0
"""Fetch from an upstream's own git remote: one tag at a time, its history without file contents.

Git fetches file contents when they are needed. Fetched objects enter the store at once (see `repository`). A submodule that is
a pinned upstream itself is grafted: a commit on top of the real one has the submodule's tree in place of its entry.
"""

import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from packaging.version import InvalidVersion, Version

from stack.base.addresses import redacted
from stack.base.did_you_mean import similar, suggestion
from stack.base.errors import StackError
from stack.model.ids import CommitId, TreeId
from stack.model.pins import Pin
from stack.store import git, listed_tags, reference_clone, repository
from stack.store.objects import FOLDER, SUBMODULE, Entry, Identity, Objects

_SUBJECT = "Vendored sources in place of submodules"
_NOBODY = "stack@localhost"

REMOTE = "upstream"
HEAD = "refs/remotes/upstream/HEAD"
"""The upstream's default branch when it was last fetched."""
OWN = ("refs/remotes/upstream", "refs/stack/git")
"""Refs below these point only at commits of the upstream's own history."""
_SHOWN = 5
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_FULL = 40
# Give up on a server that sends less than 1 kB/s for a minute.
_PATIENCE = ("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60")
_QUIET = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules")


def fetch(store: Path, url: str, wanted: str, *, reference: Path | None = None) -> CommitId:
    """Fetch a tag (or a commit, or just `HEAD`) and the default branch, with full history but without file contents.

    Objects that the clone `reference` has are copied from there, with file contents, and are not downloaded.

    Raises:
        StackError: The remote cannot be reached, or has no such tag or commit; or `reference` lends no objects.

    """
    with repository.incoming(store, borrowing=True) as place:
        register(place, url)
        refs = _advertised(place, url)
        register(store, url)  # the address works, so missing objects can be fetched from it later
        if reference is not None:
            reference_clone.copy_objects(place, reference)
        ref = f"refs/tags/{wanted}"
        specs = [f"+HEAD:{HEAD}"] if "HEAD" in refs else []
        if wanted == "HEAD" and wanted in refs:
            ref = HEAD
        elif ref in refs:
            specs.append(f"+{ref}:{ref}")
        elif _COMMIT.fullmatch(wanted):
            ref = wanted
            specs += [f"+{wanted}:refs/stack/commits/{wanted}"] if len(wanted) == _FULL else []
        else:
            raise _no_tag(url, wanted, refs)
        try:
            _git(place, ["fetch", *_QUIET, REMOTE, *specs])
        except git.GitError as error:
            raise _not_fetched(url, wanted, error) from error
        try:
            commit = _text(place, ["rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}"])
        except git.GitError as error:
            raise _no_commit(url, wanted) from error
        kept = {ref: target for ref, target in _refs(place).items() if not ref.startswith(reference_clone.REFS)}
        repository.adopt(store, place / "objects/pack", kept)
    listed_tags.keep(store, _tagged(refs))
    return CommitId(commit)


def fetch_contents(store: Path, base: CommitId, onto: CommitId) -> None:
    """Fetch the file contents that the first-parent commits of a range changed, in one request.

    Git alone would fetch them with one request per commit.

    Raises:
        StackError: The remote cannot be reached.

    """
    if not _is_partial(store):
        return
    show = ["--first-parent", "--no-merges", "--raw", "--no-abbrev", "--no-renames", "--format=", f"{base}..{onto}"]
    sides = (line.split(" ")[:4] for line in _text(store, ["log", *show]).splitlines())
    fetch_blobs(
        store, {blob for modes in sides for mode, blob in zip(modes[:2], modes[2:], strict=True) if _holds_a_blob(mode)}
    )


def fetch_blobs(store: Path, wanted: Set[str]) -> None:
    """Fetch file contents that a partial clone lacks, in one request.

    Raises:
        StackError: The remote cannot be reached.

    """
    if not wanted or not _is_partial(store):
        return
    here = _text(store, ["cat-file", "--batch-all-objects", "--batch-check=%(objectname)", "--unordered"]).split()
    missing = sorted(wanted - set(here))
    if missing:
        command = ["-c", "fetch.negotiationAlgorithm=noop", "fetch", *_QUIET, "--filter=blob:none", "--stdin", REMOTE]
        try:
            git.run(
                [*_PATIENCE, *command], env={"GIT_DIR": str(store)}, stdin="".join(f"{blob}\n" for blob in missing).encode()
            )
        except git.GitError as error:
            raise _unreachable(address(store), error) from error


def _is_partial(store: Path) -> bool:
    return any((store / "objects/pack").glob("*.promisor"))


def _holds_a_blob(mode: str) -> bool:
    """Tell whether an entry of a raw diff line is a file, not absent or a submodule."""
    return mode.lstrip(":") not in ("000000", f"{SUBMODULE:o}")


def tags(store: Path, url: str) -> list[str]:
    """List the tags of the remote.

    Raises:
        StackError: The remote cannot be reached.

    """
    return list(tag_commits(store, url))


def tag_commits(store: Path, url: str) -> dict[str, str]:
    """Return the commit of each tag of the remote, by the tag's name.

    Raises:
        StackError: The remote cannot be reached.

    """
    tags = _tagged(_advertised(store, url))
    listed_tags.keep(store, tags)
    return tags


def _tagged(refs: Mapping[str, str]) -> dict[str, str]:
    """Return the commit of each tag among advertised references."""
    tagged = {name: target for name, target in refs.items() if name.startswith("refs/tags/") and not name.endswith("^{}")}
    return {name.removeprefix("refs/tags/"): refs.get(f"{name}^{{}}", target) for name, target in tagged.items()}


def branch(store: Path, url: str, name: str) -> str:
    """Return the current commit of a branch (or HEAD); return any other name, such as a tag or commit, unchanged.

    If a tag has the branch's name, the tag counts.

    Raises:
        StackError: The remote cannot be reached.

    """
    try:
        listing = _text(store, ["ls-remote", "--quiet", url, "HEAD", f"refs/heads/{name}", f"refs/tags/{name}"])
    except git.GitError as error:
        raise _unreachable(url, error) from error
    refs = {ref: target for target, _, ref in (line.partition("\t") for line in listing.splitlines())}
    return name if f"refs/tags/{name}" in refs else refs.get(name if name == "HEAD" else f"refs/heads/{name}", name)


def graft(store: Path, commit: CommitId, vendored: Sequence[Pin], *, pinned: bool) -> CommitId:
    """Replace the submodule entries of vendored upstreams by their trees; return the new commit, or `commit` if there are none.

    Args:
        store: The repository that has the commit.
        commit: The upstream's real commit; it becomes the parent.
        vendored: The pins within this upstream.
        pinned: Require that the entries name the commits of these pins.

    Raises:
        StackError: A vendored commit cannot be fetched or is not the pinned one.

    """
    with Objects(store) as objects:
        tree = objects.tree_of(commit)
        committer = re.search(rb"^committer .*> ([0-9]+ [+-][0-9]{4})$", objects.read(commit), re.MULTILINE)
        entries = [(pin, path, objects.entry(tree, path)) for pin, path in _places(vendored)]
    submodules = {path: (pin, entry.id) for pin, path, entry in entries if entry is not None and entry.mode == SUBMODULE}
    if not submodules:
        return commit
    for path, (pin, named) in submodules.items():
        if pinned and not named.startswith(pin.commit):
            raise StackError(
                f"the pinned release has commit {named} of {pin.upstream} at {path}, pins.toml says {pin.commit}",
                f"correct the commit of {pin.upstream}",
            )
    changes = {path: Entry(FOLDER, _vendored_tree(store, pin.git, named)) for path, (pin, named) in submodules.items()}
    lines = [_trailer(path, named) for path, (_, named) in sorted(submodules.items())]
    who = Identity("stack", _NOBODY, committer[1].decode() if committer else "0 +0000")
    with Objects(store) as objects:
        grafted = objects.replaced(tree, changes)
        return objects.write_commit(grafted, (commit,), "\n".join([_SUBJECT, "", *lines, ""]), who)


def ungrafted(objects: Objects, commit: CommitId) -> CommitId:
    """Return the real commit below a commit that `graft` made, or the commit itself."""
    head, _, message = objects.read(commit).partition(b"\n\n")
    parents = re.findall(rb"^parent ([0-9a-f]{40})$", head, re.MULTILINE)
    if len(parents) != 1 or not message.startswith(_SUBJECT.encode() + b"\n\nGrafted: ") or _NOBODY.encode() not in head:
        return commit
    return CommitId(parents[0].decode())


def is_own(store: Path, commit: CommitId) -> bool:
    """Tell whether a commit belongs to the upstream's own fetched history, so that others have it, too."""
    return bool(_text(store, ["for-each-ref", "--count=1", f"--contains={commit}", *OWN]))


def behind(store: Path, url: str, commit: CommitId) -> int:
    """Count the commits of the upstream's current default branch that `commit` lacks. Call it under the store's lock.

    Raises:
        StackError: The remote cannot be reached.

    """
    tip = branch(store, url, "HEAD")
    if tip != _text(store, ["for-each-ref", "--format=%(objectname)", HEAD]):
        tip = fetch(store, url, "HEAD")
    return int(_text(store, ["rev-list", "--count", f"{commit}..{tip}"]))


def is_grafted(store: Path, commit: CommitId, vendored: Sequence[Pin], *, pinned: bool) -> bool:
    """Tell whether `commit` is what `graft` would make for these pins."""
    with Objects(store) as objects:
        tree = objects.tree_of(commit)
        if any(entry.mode == SUBMODULE for _, path in _places(vendored) if (entry := objects.entry(tree, path))):
            return False
        message = objects.read(commit).decode("utf-8", "replace")
    grafted = dict(re.findall(r"^Grafted: (.+) ([0-9a-f]{40})$", message, re.MULTILINE))
    return not pinned or all(grafted.get(path, pin.commit).startswith(pin.commit) for pin, path in _places(vendored))


def _places(vendored: Sequence[Pin]) -> list[tuple[Pin, str]]:
    return [(pin, pin.within.path) for pin in vendored if pin.within is not None]


def _trailer(path: str, commit: str) -> str:
    return f"Grafted: {path} {commit}"


def _vendored_tree(store: Path, url: str, commit: str) -> TreeId:
    """Fetch the whole tree of another project's commit into the store, without that commit and its history."""
    ref = f"refs/stack/vendored/{commit}"
    known = (
        git.run(["rev-parse", "--verify", "--quiet", ref], env={"GIT_DIR": str(store)}, accept=(0, 1)).stdout.decode().strip()
    )
    if known:
        return TreeId(known)
    with repository.incoming(store) as place:
        _advertised(place, url)
        try:
            _git(place, ["fetch", *_QUIET, "--depth=1", url, commit])
        except git.GitError as error:
            raise _not_fetched(url, commit, error) from error
        tree = _text(place, ["rev-parse", f"{commit}^{{tree}}"])
        packs = place / "adopted"
        packs.mkdir()
        git.run(
            ["pack-objects", "--quiet", "--revs", str(packs / "pack")],
            stdin=f"{tree}\n".encode(),
            env={"GIT_DIR": str(place)},
        )
        repository.adopt(store, packs, {ref: tree})
    return TreeId(tree)


def register(repo: Path, url: str) -> None:
    """Configure the remote from which git fetches missing objects."""
    settings = {
        "core.repositoryformatversion": "1",
        f"remote.{REMOTE}.url": url,
        f"remote.{REMOTE}.promisor": "true",
        f"remote.{REMOTE}.partialclonefilter": "blob:none",
    }
    known = git.settings(repo)
    for key, value in settings.items():
        if known.get(key) != [value]:
            git.run(["config", "--local", "--replace-all", key, value], env={"GIT_DIR": str(repo)})


def _advertised(place: Path, url: str) -> Mapping[str, str]:
    """List the refs of the remote, which also shows whether it can be reached."""
    try:
        lines = _text(place, ["ls-remote", "--quiet", url, "HEAD", "refs/tags/*"]).splitlines()
    except git.GitError as error:
        raise _unreachable(url, error) from error
    return {name: target for target, _, name in (line.partition("\t") for line in lines)}


def _refs(repo: Path) -> dict[str, str]:
    lines = _text(repo, ["for-each-ref", "--format=%(objectname) %(refname)"]).splitlines()
    return {name: target for target, name in (line.split(" ", 1) for line in lines)}


def _git(repo: Path, args: Sequence[str]) -> bytes:
    return git.run([*_PATIENCE, *args], env={"GIT_DIR": str(repo)}).stdout


def _text(repo: Path, args: Sequence[str]) -> str:
    return _git(repo, args).decode("utf-8", "surrogateescape").rstrip("\n")


def _not_fetched(url: str, wanted: str, error: git.GitError) -> StackError:
    if re.search(r"not our ref|unadvertised object|couldn't find remote ref", error.stderr):
        return _no_commit(url, wanted)
    return error if error.remedy else _unreachable(url, error)


def _unreachable(url: str, error: git.GitError) -> StackError:
    reason = error.problem.replace(url, redacted(url))
    what = "the path" if url.startswith("file://") else "the network and git's proxy"
    remedy = f"check {what}; or take sources from archives: `stack init --package`, elsewhere --source archive"
    return StackError(f"{redacted(url)} cannot be fetched: {reason}", remedy)


def _no_commit(url: str, wanted: str) -> StackError:
    return StackError(
        f"{redacted(url)} has no commit {wanted}", "give the full 40 digits of a commit that is on a branch or tag"
    )


def _no_tag(url: str, wanted: str, refs: Mapping[str, str]) -> StackError:
    tags = [name.removeprefix("refs/tags/") for name in refs if name.startswith("refs/tags/") and not name.endswith("^{}")]
    newest = sorted(tags, key=lambda tag: (not _is_early(tag), _age(tag)), reverse=True)
    near = [] if _is_early(wanted) else similar(wanted, [tag for tag in newest if not _is_early(tag)])
    near = near or similar(wanted, newest)
    newest = newest[:_SHOWN]
    others = f"the newest are {', '.join(newest)}" if newest else "it has no tags at all"
    return StackError(f"{redacted(url)} has no tag {wanted}", suggestion(near) if near else others)


def _is_early(tag: str) -> bool:
    """Return whether a tag names a pre-release; letters in front of the version do not count."""
    try:
        return Version(re.sub(r"^\D+", "", tag)).is_prerelease
    except InvalidVersion:
        return False


def _age(tag: str) -> tuple[bool, Version]:
    try:
        return True, Version(tag)
    except InvalidVersion:
        return False, Version("0")


def address(store: Path) -> str:
    """Return the address of the git remote that last filled the store; empty if none did."""
    setting = git.run(["config", "--local", f"remote.{REMOTE}.url"], env={"GIT_DIR": str(store)}, accept=(0, 1))
    return setting.stdout.decode("utf-8", "surrogateescape").rstrip("\n")
