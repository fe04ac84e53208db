# SPDX-License-Identifier: Apache-2.0
"""An upstream's own git: its history without file contents (git fetches those when they are needed), one tag at a time.

What comes lands in the store at once (see `repository`). A submodule that is an upstream of its own is grafted: the
release's tree with the submodule's tree in place of its entry, as one commit on top of the real one.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from stack.base.addresses import redacted
from stack.base.errors import StackError
from stack.model.ids import CommitId, TreeId
from stack.model.pins import Pin
from stack.store import git, repository
from stack.store.objects import FOLDER, SUBMODULE, Entry, Identity, Objects

_SUBJECT = "Vendored sources in place of submodules"
_NOBODY = "stack@localhost"

REMOTE = "upstream"
HEAD = "refs/remotes/upstream/HEAD"
"""The upstream's default branch, as it was when it was last asked."""
OWN = ("refs/remotes/upstream", "refs/stack/git")
"""Below these stand commits of the upstream's own history, and nothing else."""
_SHOWN = 5
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_FULL = 40
# A server that sends less than 1 kB/s for a minute is gone.
_PATIENCE = ("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60")
_QUIET = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules")


def fetch(store: Path, url: str, wanted: str) -> CommitId:
    """Bring a tag (or a commit, or `HEAD` alone) and the default branch into the store, with full history but without file contents.

    Raises:
        StackError: the remote cannot be reached, or has no such tag or commit.

    """
    with repository.incoming(store, borrowing=True) as place:
        register(place, url)
        refs = _advertised(place, url)
        register(store, url)  # an address that answers: what is missing later comes from there
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
        repository.adopt(store, place / "objects/pack", _refs(place))
    return CommitId(commit)


def fetch_contents(store: Path, base: CommitId, onto: CommitId) -> None:
    """Bring what the first-parent commits of a range changed into a store without file contents, in one request.

    Git would fetch them by itself, with a request for each commit.

    Raises:
        StackError: the remote cannot be reached.

    """
    if not any((store / "objects/pack").glob("*.promisor")):
        return
    show = ["--first-parent", "--no-merges", "--raw", "--no-abbrev", "--no-renames", "--format=", f"{base}..{onto}"]
    sides = (line.split(" ")[:4] for line in _text(store, ["log", *show]).splitlines())
    wanted = {one for modes in sides for mode, one in zip(modes[:2], modes[2:], strict=True) if _holds_a_blob(mode)}
    here = _text(store, ["cat-file", "--batch-all-objects", "--batch-check=%(objectname)", "--unordered"]).split()
    missing = sorted(wanted - set(here))
    if missing:
        command = ["-c", "fetch.negotiationAlgorithm=noop", "fetch", *_QUIET, "--filter=blob:none", "--stdin", REMOTE]
        try:
            git.run([*_PATIENCE, *command], env={"GIT_DIR": str(store)}, stdin="".join(f"{one}\n" for one in missing).encode())
        except git.GitError as error:
            raise _unreachable(address(store), error) from error


def _holds_a_blob(mode: str) -> bool:
    """Whether the entry of a raw diff line is a file: not nothing, and no submodule."""
    return mode.lstrip(":") not in ("000000", f"{SUBMODULE:o}")


def tags(store: Path, url: str) -> list[str]:
    """The tags of the remote.

    Raises:
        StackError: it cannot be reached.

    """
    names = (name for name in _advertised(store, url) if not name.endswith("^{}"))
    return [name.removeprefix("refs/tags/") for name in names if name.startswith("refs/tags/")]


def branch(store: Path, url: str, name: str) -> str:
    """The commit that a branch (or HEAD) is now; what is no branch of the remote stays as it is: a tag or a commit.

    Raises:
        StackError: the remote cannot be reached.

    """
    try:
        said = _text(store, ["ls-remote", "--quiet", url, "HEAD", f"refs/heads/{name}"])
    except git.GitError as error:
        raise _unreachable(url, error) from error
    refs = {ref: target for target, _, ref in (line.partition("\t") for line in said.splitlines())}
    return refs.get(name if name == "HEAD" else f"refs/heads/{name}", name)


def graft(store: Path, commit: CommitId, vendored: Sequence[Pin], *, pinned: bool) -> CommitId:
    """The commit with the trees of its vendored upstreams in place of its submodule entries; itself where it has none.

    Args:
        store: the repository that has the commit.
        commit: the upstream's real commit; it becomes the parent.
        vendored: the pins within this upstream.
        pinned: the entries must name the commits of these pins.

    Raises:
        StackError: a vendored commit cannot be fetched or is not the pinned one.

    """
    with Objects(store) as objects:
        tree = objects.tree_of(commit)
        committer = re.search(rb"^committer .*> ([0-9]+ [+-][0-9]{4})$", objects.read(commit), re.MULTILINE)
        entries = [(pin, path, objects.entry(tree, path)) for pin, path in _places(vendored)]
    found = {path: (pin, entry.id) for pin, path, entry in entries if entry is not None and entry.mode == SUBMODULE}
    if not found:
        return commit
    for path, (pin, named) in found.items():
        if pinned and not named.startswith(pin.commit):
            raise StackError(
                f"the pinned release has commit {named} of {pin.upstream} at {path}, pins.toml says {pin.commit}",
                f"correct the commit of {pin.upstream}",
            )
    changes = {path: Entry(FOLDER, _vendored_tree(store, pin.git, named)) for path, (pin, named) in found.items()}
    lines = [_trailer(path, named) for path, (_, named) in sorted(found.items())]
    who = Identity("stack", _NOBODY, committer[1].decode() if committer else "0 +0000")
    with Objects(store) as objects:
        grafted = objects.replaced(tree, changes)
        return objects.write_commit(grafted, (commit,), "\n".join([_SUBJECT, "", *lines, ""]), who)


def ungrafted(objects: Objects, commit: CommitId) -> CommitId:
    """The commit that `graft` made another one of; itself where it did not."""
    head, _, message = objects.read(commit).partition(b"\n\n")
    parents = re.findall(rb"^parent ([0-9a-f]{40})$", head, re.MULTILINE)
    if len(parents) != 1 or not message.startswith(_SUBJECT.encode() + b"\n\nGrafted: ") or _NOBODY.encode() not in head:
        return commit
    return CommitId(parents[0].decode())


def is_own(store: Path, commit: CommitId) -> bool:
    """Whether a commit is of the upstream's own history, as far as that was fetched: others have it, too."""
    return bool(_text(store, ["for-each-ref", "--count=1", f"--contains={commit}", *OWN]))


def behind(store: Path, url: str, commit: CommitId) -> int:
    """How many commits the upstream's default branch has now that `commit` does not stand on. Call it under the store's lock.

    Raises:
        StackError: the remote cannot be reached.

    """
    tip = branch(store, url, "HEAD")
    if tip != _text(store, ["for-each-ref", "--format=%(objectname)", HEAD]):
        tip = fetch(store, url, "HEAD")
    return int(_text(store, ["rev-list", "--count", f"{commit}..{tip}"]))


def is_grafted(store: Path, commit: CommitId, vendored: Sequence[Pin], *, pinned: bool) -> bool:
    """Whether `commit` is what `graft` would make for these pins."""
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
    """Bring the whole tree of a commit of another project into the store, without that commit and its history."""
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
    """Tell git where objects come from that the repository lacks."""
    settings = {
        "core.repositoryFormatVersion": "1",
        f"remote.{REMOTE}.url": url,
        f"remote.{REMOTE}.promisor": "true",
        f"remote.{REMOTE}.partialclonefilter": "blob:none",
    }
    for key, value in settings.items():
        known = git.run(["config", "--local", "--get-all", key], env={"GIT_DIR": str(repo)}, accept=(0, 1)).stdout.decode()
        if known != f"{value}\n":
            git.run(["config", "--local", "--replace-all", key, value], env={"GIT_DIR": str(repo)})


def _advertised(place: Path, url: str) -> Mapping[str, str]:
    """The refs of the remote: also the question whether it can be reached."""
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
    said = error.problem.replace(url, redacted(url))
    return StackError(
        f"{redacted(url)} cannot be fetched: {said}", "check the network and git's proxy; or use --source archive"
    )


def _no_commit(url: str, wanted: str) -> StackError:
    return StackError(
        f"{redacted(url)} has no commit {wanted}", "give the full 40 digits of a commit that is on a branch or tag"
    )


def _no_tag(url: str, wanted: str, refs: Mapping[str, str]) -> StackError:
    tags = [name.removeprefix("refs/tags/") for name in refs if name.startswith("refs/tags/") and not name.endswith("^{}")]
    near = difflib.get_close_matches(wanted, tags, n=_SHOWN) or sorted(tags, key=_age, reverse=True)[:_SHOWN]
    return StackError(
        f"{redacted(url)} has no tag {wanted}", f"nearest: {', '.join(near)}" if near else "it has no tags at all"
    )


def _age(tag: str) -> tuple[bool, Version]:
    try:
        return True, Version(tag)
    except InvalidVersion:
        return False, Version("0")


def address(store: Path) -> str:
    """The address that the store was last filled from by git; empty where it never was."""
    said = git.run(["config", "--local", f"remote.{REMOTE}.url"], env={"GIT_DIR": str(store)}, accept=(0, 1))
    return said.stdout.decode("utf-8", "surrogateescape").rstrip("\n")
