# SPDX-License-Identifier: Apache-2.0
"""The user's own repository: where its checkout came from, a copy of its default branch, and the branches of `stack watch` there."""

import hashlib
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.forge import repositories
from stack.forge.repositories import Repository
from stack.model.ids import CommitId
from stack.model.pins import MAIN
from stack.store import fork as forks
from stack.store import git
from stack.store.fork import Fork, Move
from stack.watch.plan import BranchTip

_PREFIX = "stack-watch/"
"""The beginning of the names of our branches."""
_OF_LANES = "stack-watch-lanes/"
"""The same for a lane. git cannot have both `stack-watch/up` and `stack-watch/up/lane`."""
_TRAILER = "Stack-Watch"
_NAME, _MAIL = "stack watch", "stack-watch@localhost"
_OURS = re.compile(rf"\A(?P<message>.*)\n{_TRAILER}: (?P<digest>[0-9a-f]{{64}})\n\Z", re.DOTALL)
_DATE = re.compile(r"^committer .*> (?P<date>[0-9]+ [+-][0-9]{4})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class OwnRepository:
    """The user's repository at the forge, and the stack's folder within it."""

    address: str
    repository: Repository
    folder: str

    @property
    def fork(self) -> Fork:
        """Return it as git's remote."""
        return Fork("", self.address)


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a branch in a folder of its own: `place` is the repository, `root` the stack in it, `base` the branch's commit."""

    own: OwnRepository
    place: Path
    root: Path
    branch: str
    base: CommitId

    @property
    def git_dir(self) -> Path:
        """Return the copy's `.git`."""
        return self.place / ".git"


def branch(upstream: str, lane: str) -> str:
    """Return the name of the branch with an upstream's carried stack."""
    return f"{_PREFIX}{upstream}" if lane == MAIN else f"{_OF_LANES}{upstream}/{lane}"


def locate(root: Path, remote: str) -> OwnRepository:
    """Find the repository that the stack's checkout came from. A password in the remote's address stays out of `repository`.

    Raises:
        StackError: the stack is not in a git repository, or the remote's address is not one of a forge.

    """
    shown = git.run(["rev-parse", "--show-prefix"], cwd=root, accept=(0, 128))
    if shown.returncode:
        raise StackError(f"{root} is not in a git repository", "clone your repository, and run it there")
    done = git.run(["remote", "get-url", "--push", "--", remote], cwd=root, user_config=True, accept=(0, 2, 128, 129))
    if done.returncode:
        raise StackError(f"the stack's git has no remote {remote!r}", "name one with --remote (see `git remote -v`)")
    address = forks.readable(done.stdout.decode("utf-8", "surrogateescape").partition("\n")[0])
    return OwnRepository(
        address, repositories.repository(address, nested=True), shown.stdout.decode("utf-8", "surrogateescape").rstrip("\n")
    )


@contextmanager
def copied_here(root: Path) -> Iterator[Copy]:
    """Yield a temporary copy of the commit that a stack's checkout stands on, without its history and without any connection.

    Raises:
        StackError: the stack is not in a git repository, has no commit, or the commit has no stack.

    """
    shown = git.run(["rev-parse", "--show-toplevel", "--show-prefix", "HEAD^{commit}"], cwd=root, accept=(0, 128))
    if shown.returncode:
        raise StackError(f"{root} is not in a git repository with a commit", "commit the stack, and run it there")
    top, folder, commit = shown.stdout.decode("utf-8", "surrogateescape").split("\n")[:3]
    own = OwnRepository(top, Repository("", "", Path(top).name), folder)
    with tempfile.TemporaryDirectory(prefix="stack-watch-") as name:
        place = Path(name, own.repository.name)
        git.run(["init", "--quiet", "--template=", str(place)])
        # A commit that the checkout has without its parents is taken as it is.
        source = ["--depth=1", "--update-shallow", Path(top).as_uri(), f"+{commit}:refs/watch/base"]
        git.run(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", *source], cwd=place)
        yield _checked_out(Copy(own, place, place / folder, "HEAD", CommitId(commit)))


@contextmanager
def copied(own: OwnRepository, branch: str) -> Iterator[Copy]:
    """Yield a temporary copy of a branch with its history.

    Raises:
        StackError: the repository cannot be read, or has no stack in that branch.

    """
    with tempfile.TemporaryDirectory(prefix="stack-watch-") as name:
        # Its last part becomes the stack's name in a report.
        place = Path(name, own.repository.name)
        git.run(["init", "--quiet", "--template=", str(place)])
        base = forks.look(place / ".git", own.fork, [branch]).get(f"refs/heads/{branch}")
        if base is None:
            raise StackError(f"{own.fork} has no branch {branch}", "push it there first")
        _fetch(place, own.fork, base, "refs/watch/base")
        yield _checked_out(Copy(own, place, place / own.folder, branch, base))


def _checked_out(copy: Copy) -> Copy:
    git.run(["checkout", "--quiet", "--detach", copy.base], cwd=copy.place)
    if not (copy.root / "pins.toml").is_file():
        own = copy.own
        place, then = (own.repository.shown, "and push ") if own.repository.host else (own.address, "")
        raise StackError(f"{copy.branch} of {place} has no {own.folder}pins.toml", f"commit {then}the stack first")
    return copy


def tip(copy: Copy, branch: str) -> BranchTip | None:
    """Return the commit that one of our branches has at the forge.

    Raises:
        StackError: the repository cannot be read.

    """
    commit = forks.look(copy.git_dir, copy.own.fork, [branch]).get(f"refs/heads/{branch}")
    if commit is None:
        return None
    _fetch(copy.place, copy.own.fork, commit, "refs/watch/tip")
    raw = git.run(["cat-file", "commit", commit], cwd=copy.place).stdout
    return BranchTip(commit, _is_ours(raw.decode("utf-8", "surrogateescape")))


def commit_all(copy: Copy, message: str) -> CommitId:
    """Commit all changed files of the stack onto the copy's base.

    The same files on the same base always give the same commit. A line at the end of its message proves that nobody changed it.
    """
    git.run(["add", "--all", "--", ".", ":(exclude,glob)**/.stack/**"], cwd=copy.place)
    tree = git.text(["write-tree"], cwd=copy.place).strip()
    date = _DATE.search(git.text(["cat-file", "commit", copy.base], cwd=copy.place))
    assert date is not None
    text = f"{message}\n{_TRAILER}: {_digest(tree, [copy.base], message)}\n"
    names = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _person(date["date"]).items()}
    commit = git.run(["commit-tree", "-p", copy.base, "-m", text.removesuffix("\n"), tree], cwd=copy.place, env=names).stdout
    return CommitId(commit.decode().strip())


def restore(copy: Copy) -> None:
    """Restore the copy's files as its base has them."""
    git.run(["reset", "--quiet", "--hard", copy.base], cwd=copy.place)
    git.run(["clean", "--quiet", "-d", "--force", "-x"], cwd=copy.place)


def push(copy: Copy, branch: str, commit: CommitId, expected: CommitId | None) -> str:
    """Point a branch at a commit if it is where it is expected; return why it is not, empty if it was done.

    Raises:
        StackError: the connection or git failed, and the result is unknown.

    """
    ref = f"refs/heads/{branch}"
    return forks.push(copy.git_dir, copy.own.fork, [Move(ref, commit, expected)]).get(ref, "")


def _person(date: str) -> dict[str, str]:
    return {"NAME": _NAME, "EMAIL": _MAIL, "DATE": date}


def _fetch(place: Path, fork: Fork, commit: CommitId, ref: str) -> None:
    forks.fetch(place / ".git", fork, [f"+{commit}:{ref}"])


def _is_ours(raw: str) -> bool:
    """Check the line that proves a commit: its tree, its parents and its message are as this program wrote them."""
    head, _, text = raw.partition("\n\n")
    match = _OURS.fullmatch(text)
    lines = [line.split(" ", 1) for line in head.splitlines() if line.startswith(("tree ", "parent "))]
    trees = [value for key, value in lines if key == "tree"]
    parents = [value for key, value in lines if key == "parent"]
    return match is not None and len(trees) == 1 and match["digest"] == _digest(trees[0], parents, match["message"])


def _digest(tree: str, parents: list[str], message: str) -> str:
    return hashlib.sha256("\0".join([tree, *parents, message]).encode("utf-8", "surrogateescape")).hexdigest()
