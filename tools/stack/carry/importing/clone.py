# SPDX-License-Identifier: Apache-2.0
"""Read commits of somebody's clone through GitPython: no git process runs in it, so none of its settings and hooks count."""

import contextlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from stack.base.errors import StackError
from stack.carry.importing.candidate import storable
from stack.model import document
from stack.model.ids import CommitId, TreeId
from stack.model.patch import Author
from stack.store import git, repository
from stack.store.objects import Objects

_LARGEST = 16 * 2**20
_REPLACED = "refs/replace/"
_ODD = re.compile("[\ud800-\udfff]")
"""The characters that stand for bytes outside of UTF-8."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of the clone."""

    id: CommitId
    parents: tuple[CommitId, ...]
    tree: TreeId
    author: Author
    message: str

    @property
    def name(self) -> str:
        """The commit's short id and subject, for people."""
        return f"{self.id[:12]} {self.message.partition(chr(10))[0]}"


class Clone:
    """Reads the objects and references of a git clone, and nothing else. Use it as a context manager.

    GitPython opens a temporary repository that borrows the clone's objects and has a copy of its references.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.replaced = 0
        """The objects that the clone replaces by others (`git replace`, grafts). They are read as they are."""
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        from git import Repo  # noqa: PLC0415  (takes 0.2 s, and only this source needs it)

        with contextlib.ExitStack() as opened:
            own = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="stack-"))) / "git"
            self._borrow(own)
            self._repo: Any = opened.enter_context(Repo(own))
            self._repo.git.update_environment(**git.environment(extra={"GIT_DIR": str(own)}))
            self.objects = opened.enter_context(Objects(own))
            self._exit = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def _borrow(self, own: Path) -> None:
        """Make a repository with the clone's objects and references, and with no setting of the clone."""
        names = ("objects", "shallow", "info/grafts")
        asked = ["rev-parse", "--path-format=absolute", *(word for name in names for word in ("--git-path", name))]
        found = git.run(asked, cwd=self.folder, accept=(0, 128))
        if found.returncode:
            raise StackError(f"{self.folder} is not a git repository", "name a clone, and a branch of it")
        objects, shallow, grafts = (Path(line) for line in found.stdout.decode("utf-8", "surrogateescape").splitlines())
        repository.make_bare(own)
        (own / "objects/info/alternates").write_bytes(os.fsencode(objects) + b"\n")
        if shallow.is_file():
            (own / "shallow").write_bytes(shallow.read_bytes())
        listed = git.text(["for-each-ref", "--format=%(objectname) %(refname)"], cwd=self.folder).splitlines()
        refs = {name: commit for commit, _, name in (line.partition(" ") for line in listed)}
        head = git.run(["rev-parse", "--quiet", "--verify", "HEAD"], cwd=self.folder, accept=(0, 1, 128))
        if head.returncode == 0:
            refs["HEAD"] = head.stdout.decode("ascii").strip()
        self.replaced = sum(name.startswith(_REPLACED) for name in refs) + _grafts(grafts)
        (own / "packed-refs").write_text(
            "".join(
                f"{commit} {name}\n"
                for name, commit in sorted(refs.items())
                # GitPython reads names in UTF-8 only: it would find none of the branches beside one in another encoding.
                if name.startswith("refs/") and not name.startswith(_REPLACED) and not _ODD.search(name)
            ),
            encoding="utf-8",
        )
        if "HEAD" in refs:
            (own / "HEAD").write_text(f"{refs['HEAD']}\n")

    def find(self, revision: str) -> CommitId | None:
        """Return the commit that a branch, tag or id names, None if there is none."""
        if not revision or revision.startswith("-"):
            return None
        for name in (revision, f"origin/{revision}"):
            with contextlib.suppress(*_errors()):
                return CommitId(self._repo.commit(name).hexsha)
        return None

    def commit(self, revision: str) -> CommitId:
        """Return the commit that a branch, tag or id names.

        Raises:
            StackError: There is none.

        """
        found = self.find(revision)
        if found is None:
            heads = ", ".join(sorted(str(head) for head in self._repo.heads)[:5])
            raise StackError(f"{self.folder} has no branch, tag or commit {revision!r}", f"its branches: {heads or 'none'}")
        return found

    def read(self, commit: CommitId) -> Commit:
        """Read a commit.

        Raises:
            StackError: Its object is missing.

        """
        try:
            found = self._repo.commit(commit)
            author, offset = found.author, -found.author_tz_offset
            message = found.message if isinstance(found.message, str) else found.message.decode("utf-8", "replace")
            parents = tuple(CommitId(parent.hexsha) for parent in found.parents)
            tree, when = TreeId(found.tree.hexsha), found.authored_date
        except _errors() as bad:
            raise StackError(
                f"{self.folder} lacks the commit {commit[:12]}", "fetch it there first (git fetch --unshallow)"
            ) from bad
        sign = "-" if offset < 0 else "+"
        zone = f"{sign}{abs(offset) // 3600:02}{abs(offset) % 3600 // 60:02}"
        who = Author(author.name or author.email or "unknown", author.email or "unknown@localhost", f"{when} {zone}")
        return Commit(commit, parents, tree, who, storable(message) if message.strip() else f"Commit {commit[:12]}\n")


def _grafts(file: Path) -> int:
    """Return the number of commits whose parents a clone replaces in its grafts file."""
    if not file.is_file():
        return 0
    data = document.read_bytes(file, missing="run it again", largest=_LARGEST)
    return sum(bool(line.strip()) and not line.startswith(b"#") for line in data.splitlines())


def _errors() -> tuple[type[Exception], ...]:
    """Return what GitPython raises for a name or an object that is not there, or that it cannot read."""
    from git.exc import GitError, ODBError  # noqa: PLC0415  (as above)

    return (GitError, ODBError, ValueError, LookupError, NotImplementedError)
