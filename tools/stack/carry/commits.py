# SPDX-License-Identifier: Apache-2.0
"""Read the commits of a working tree, and export them as patch files that have the same bytes whenever they are exported."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.carry.export import export
from stack.carry.trailers import PATCH, SERIES, without_trailers
from stack.model import mail
from stack.model.ids import CommitId, TreeId
from stack.model.patch import Patch, ends_message, parse
from stack.model.series import PatchRef
from stack.store import git
from stack.store.objects import Identity, Objects

BASE_TAG = "stack-base"
_IDENTITY = re.compile(r"^(?P<name>.*?) ?<(?P<mail>[^>]*)> (?P<date>\d+ [+-]\d{4})$")
_ATTEMPTS = 4
"""How often a message is read back from its patch file until it stays as it is."""


@dataclass(frozen=True, slots=True)
class WorktreeCommit:
    """A commit of a working tree; the message ends with one line end."""

    id: CommitId
    tree: TreeId
    author: Identity
    message: str

    @property
    def subject(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]


def read_commits(objects: Objects, folder: Path, base: CommitId) -> list[WorktreeCommit]:
    """Read the commits of a working tree's HEAD on `base`, the oldest first.

    Raises:
        StackError: HEAD does not stand on the base, or one of the commits is a merge or has no readable author or message.

    """
    if git.run(["merge-base", "--is-ancestor", base, "HEAD"], cwd=folder, accept=(0, 1, 128)).returncode:
        raise StackError(f"HEAD of {folder} does not stand on the pin", f"rebase your commits onto {BASE_TAG}")
    listed = git.text(["rev-list", "--reverse", "--topo-order", "--parents", f"{base}..HEAD"], cwd=folder).splitlines()
    commits = []
    for line in listed:
        commit, *parents = line.split()
        if len(parents) != 1:
            raise StackError(f"{commit[:12]} is a merge", "a series is a line of commits: rebase instead of merging")
        commits.append(read_commit(objects, CommitId(commit)))
    return commits


def read_commit(objects: Objects, commit: CommitId) -> WorktreeCommit:
    """Read one commit.

    Raises:
        StackError: it has no readable author, or no message.

    """
    head, _, message = objects.read(commit).partition(b"\n\n")
    fields = dict(line.split(b" ", 1) for line in reversed(head.splitlines()) if not line.startswith(b" "))
    charset = fields.get(b"encoding", b"utf-8").decode("ascii", "replace")  # of i18n.commitEncoding
    author = _IDENTITY.match(mail.decoded(fields[b"author"], charset))
    text = mail.decoded(message, charset)
    if author is None or not text.strip():
        raise StackError(f"{commit[:12]} has no readable author or no message", "amend it: git rebase -i")
    return WorktreeCommit(
        commit, objects.tree_of(commit), Identity(author["name"], author["mail"], author["date"]), text.strip("\n") + "\n"
    )


def exported(
    store: Objects, objects: Objects, base: CommitId, commits: Sequence[WorktreeCommit], refs: Sequence[PatchRef]
) -> dict[PatchRef, bytes]:
    """Return the patch files of commits, without the trailers that name series and patch file.

    A mail cannot hold every message: git joins the blanks of a subject, for example. The files hold what is read from them again,
    so that another export gives the same bytes.

    Args:
        store: the upstream's store; it exports, since settings and attributes of the working tree could change the bytes.
        objects: the working tree's repository.
        base: the commit below the first one.
        commits: the commits, the oldest first.
        refs: the patch of each.

    Raises:
        StackError: a commit changes nothing, or a part of its message would be lost.

    """
    _check_changes(objects, base, commits)
    wanted = [Content(without_trailers(commit.message, (SERIES, PATCH)), commit.author) for commit in commits]

    def export_all(contents: Sequence[Content]) -> Sequence[bytes]:
        return export(store, base, _written(objects, base, commits, contents), borrowed=objects.repository / "objects")

    def read(number: int, raw: bytes) -> Patch:
        return _readable(commits[number], refs[number], raw)

    names = [f"commit {commit.id[:12]}" for commit in commits]
    return dict(zip(refs, stable(export_all, wanted, read, names), strict=True))


@dataclass(frozen=True, slots=True)
class Content:
    """Message and author, as a patch file holds them beside the diff."""

    message: str
    author: Identity


def stable(
    export_all: Callable[[Sequence[Content]], Sequence[bytes]],
    wanted: Sequence[Content],
    read: Callable[[int, bytes], Patch],
    names: Sequence[str],
) -> Sequence[bytes]:
    """Return patch files whose messages and authors are what is read from them, so that another export gives the same bytes.

    Args:
        export_all: exports the whole chain of commits with these messages and authors.
        wanted: the messages and authors to begin with.
        read: parses a patch file by its place in the chain.
        names: what the commits are called in the error.

    Raises:
        StackError: a message changes each time that it is read.

    """
    for _ in range(_ATTEMPTS):
        raws = export_all(wanted)
        found = [_content(read(number, raw)) for number, raw in enumerate(raws)]
        if found == list(wanted):
            return raws
        before, wanted = wanted, found
    strange = next(name for name, old, new in zip(names, before, wanted, strict=True) if old != new)
    raise StackError(f"{strange} has a message that no patch file can hold", "reword it: git rebase -i")


def _content(patch: Patch) -> Content:
    return Content(patch.message, Identity(patch.author.name, patch.author.mail, patch.author.date))


def _check_changes(objects: Objects, base: CommitId, commits: Sequence[WorktreeCommit]) -> None:
    before = objects.tree_of(base)
    for commit in commits:
        if commit.tree == before:
            raise StackError(f"commit {commit.id[:12]} changes nothing", "drop it: git rebase -i")
        before = commit.tree


def _written(
    objects: Objects, base: CommitId, commits: Sequence[WorktreeCommit], contents: Sequence[Content]
) -> list[CommitId]:
    chain = [base]
    for commit, content in zip(commits, contents, strict=True):
        chain.append(objects.write_commit(commit.tree, (chain[-1],), content.message, content.author))
    return chain[1:]


def _readable(commit: WorktreeCommit, ref: PatchRef, raw: bytes) -> Patch:
    """Parse the patch file of a commit, and check that it has the commit's whole message."""
    patch = parse(raw, ref, name=f"commit {commit.id[:12]} ({commit.subject})")
    if patch.message.split() != without_trailers(commit.message, (SERIES, PATCH)).split():
        raise StackError(
            f"commit {commit.id[:12]} would lose a part of its message: {_lost(commit.message)}",
            "indent that line: git rebase -i",
        )
    return patch


def _lost(message: str) -> str:
    """Describe the part of a message that a patch file cannot hold."""
    line = next((line for line in message.split("\n") if ends_message(line)), None)
    return f"in a patch file its line {line!r:.60} ends the message" if line else "a patch file cannot hold its first lines"
