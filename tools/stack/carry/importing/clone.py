# SPDX-License-Identifier: Apache-2.0
"""Read commits of somebody's clone through GitPython: no git process runs in it, so none of its settings and hooks count."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from stack.base.errors import StackError
from stack.carry.importing.candidate import storable
from stack.model.ids import CommitId, TreeId
from stack.model.patch import Author
from stack.store import git, plain_view
from stack.store.objects import Objects


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

    GitPython opens a view of the clone, see `store.plain_view`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.replaced = 0
        """The objects that the clone replaces by others (`git replace`, grafts). They are read as they are."""
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        from git import Repo  # noqa: PLC0415  (takes 0.2 s, and only this source needs it)

        with contextlib.ExitStack() as opened:
            seen = opened.enter_context(plain_view.view(self.folder))
            own, self.replaced = seen.repository, seen.replaced
            self._repo: Any = opened.enter_context(Repo(own))
            self._repo.git.update_environment(**git.environment(extra={"GIT_DIR": str(own)}))
            self.objects = opened.enter_context(Objects(own))
            self._exit = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

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


def _errors() -> tuple[type[Exception], ...]:
    """Return what GitPython raises for a name or an object that is not there, or that it cannot read."""
    from git.exc import GitError, ODBError  # noqa: PLC0415  (as above)

    return (GitError, ODBError, ValueError, LookupError, NotImplementedError)
