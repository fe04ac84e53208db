# SPDX-License-Identifier: Apache-2.0
"""Resolving a rebase's conflicts by hand, one after the other, in a working tree.

What is kept between the calls is the request and the trees that a person has made so far. Going on means working the whole
rebase out again with those trees in place of the conflicts: the stack's own files are switched only when nothing is left.
"""

import json
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stack.carry.bases import Stores
from stack.carry.rebase import Rebase, Request, rebase
from stack.carry.worktree import seed
from stack.model.errors import StackError
from stack.model.ids import TreeId
from stack.store import git
from stack.store.sources import Source

_RECORD = "stack-rebase.json"
_ONTO, _PATCH = "refs/stack/onto", "refs/stack/patch"
_MARKERS = re.compile(rb"^(<{7} |\|{7} |>{7} )", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Session:
    """A rebase under way: whose, what was asked, and the patch whose conflict the working tree shows."""

    root: Path
    request: Request
    source: Source
    allow_mismatch: bool
    digest: str
    upstream: str
    patch: str


def start(folder: Path, stores: Stores, work: Rebase, *, allow_mismatch: bool, digest: str) -> Session:
    """Make the working tree and stop at the first conflict.

    Raises:
        StackError: the folder is not empty, there is no conflict, or the pins would be refused in the end: then nobody should
            resolve conflicts first.

    """
    if work.unmet and not allow_mismatch:
        raise StackError(
            work.unmet[0].sentence(work.pins().get(work.unmet[0].needs)),
            "add --with-required (or --allow-mismatch) before you resolve conflicts",
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StackError(f"{folder} is not an empty folder", "name one that does not exist yet")
    place = (stores.stack.root.resolve(), work.request, stores.place.source, allow_mismatch, digest)
    return _stop(folder, stores, work, Session(*place, upstream="", patch=""))


def load(folder: Path) -> Session:
    """The rebase that a working tree belongs to.

    Raises:
        StackError: it belongs to none.

    """
    file = folder / ".git" / _RECORD
    if not file.is_file():
        raise StackError(f"{folder} is not the working tree of a rebase", "start one: stack rebase … --workspace DIR")
    record: dict[str, Any] = json.loads(file.read_text())
    resolved = {path: TreeId(tree) for path, tree in record["resolved"].items()}
    return Session(
        root=Path(record["root"]),
        request=Request(record["upstream"], record["tag"], record["with_required"], resolved),
        source=record["source"],
        allow_mismatch=record["allow_mismatch"],
        digest=record["digest"],
        upstream=record["at"]["upstream"],
        patch=record["at"]["patch"],
    )


def proceed(
    folder: Path, stores: Stores, session: Session, *, digest: str, skip: bool = False
) -> tuple[Rebase, Session | None]:
    """Take the resolution in the working tree and go on; the session is None when no conflict is left.

    Raises:
        StackError: the conflict is not resolved yet, or the stack has changed since the rebase began.

    """
    if digest != session.digest:
        raise StackError(f"{session.root} has changed since this rebase began", "restore it, or --abort and start again")
    tree = _left_out(folder) if skip else _resolution(folder)
    objects = stores.objects(session.upstream)
    # The objects of the resolution go into the store, so that the working tree can be thrown away.
    git.run(["fetch", "--quiet", "--no-tags", str(folder.resolve()), "HEAD"], env={"GIT_DIR": str(objects.repository)})
    resolved = {**session.request.resolved, session.patch: tree}
    work = rebase(stores, replace(session.request, resolved=resolved))
    if work.first_conflict() is None:
        return work, None
    return work, _stop(folder, stores, work, replace(session, request=work.request))


def finish(folder: Path) -> None:
    """Throw the working tree away.

    Raises:
        StackError: it is not the working tree of a rebase.

    """
    load(folder)
    shutil.rmtree(folder.resolve())


def _stop(folder: Path, stores: Stores, work: Rebase, session: Session) -> Session:
    """Show the next conflict: the new base with the patches so far, and the patch picked onto it with diff3 markers."""
    found = work.first_conflict()
    if found is None:
        raise StackError("no patch is in conflict", "run the rebase without --workspace")
    leg, row, tip = found
    objects = stores.objects(leg.upstream)
    source = row.source
    if not (folder / ".git").exists():
        seed(folder, objects, {_ONTO: tip, _PATCH: source}, partial=True)
        # Above all other attributes: the conflict was found without them, and has to be shown.
        (folder / ".git/info").mkdir(exist_ok=True)
        (folder / ".git/info/attributes").write_text("* !merge\n")
    else:
        (folder / ".git/objects/info/alternates").write_text(f"{objects.repository / 'objects'}\n")
        git.run(["update-ref", _ONTO, tip], cwd=folder)
        git.run(["update-ref", _PATCH, source], cwd=folder)
    now = replace(session, upstream=leg.upstream, patch=row.patch.ref.path)
    _write_record(folder, now)
    git.run(["checkout", "--quiet", "--force", "--detach", tip], cwd=folder)
    # The same three-way merge that found the conflict; 1: it stopped there.
    identity = ["-c", "user.name=stack", "-c", "user.email=stack@localhost"]
    git.run([*identity, "-c", "merge.conflictStyle=diff3", "cherry-pick", source], cwd=folder, accept=(0, 1))
    return now


def _write_record(folder: Path, session: Session) -> None:
    record = {
        "root": str(session.root),
        "upstream": session.request.upstream,
        "tag": session.request.tag,
        "with_required": session.request.with_required,
        "resolved": dict(session.request.resolved),
        "source": session.source,
        "allow_mismatch": session.allow_mismatch,
        "digest": session.digest,
        "at": {"upstream": session.upstream, "patch": session.patch},
    }
    part = folder / ".git" / f"{_RECORD}.part"
    part.write_text(json.dumps(record, indent=1))
    part.rename(folder / ".git" / _RECORD)


def _left_out(folder: Path) -> TreeId:
    """The tree without the patch."""
    git.run(["checkout", "--quiet", "--force", "--detach", _ONTO], cwd=folder)
    return TreeId(git.text(["rev-parse", "HEAD^{tree}"], cwd=folder))


def _resolution(folder: Path) -> TreeId:
    """The tree that a person has made: what is in the index or, when it was committed already, in HEAD.

    Raises:
        StackError: a path is still unmerged, has markers, or is changed and not added; or nothing of the patch is left.

    """
    if git.run(["merge-base", "--is-ancestor", _ONTO, "HEAD"], cwd=folder, accept=(0, 1, 128)).returncode:
        raise StackError(
            f"HEAD of {folder} does not stand on the new base", f"git checkout --detach {_ONTO}, and resolve there"
        )
    unmerged = git.text(["diff", "--name-only", "-z", "--diff-filter=U"], cwd=folder).split("\0")[:-1]
    if unmerged:
        raise StackError(f"{unmerged[0]} in {folder} is not resolved", "edit it, `git add` it, then run --continue again")
    left = git.text(["ls-files", "-z", "--modified", "--others", "--exclude-standard"], cwd=folder).split("\0")[:-1]
    if left:
        raise StackError(
            f"{left[0]} in {folder} is changed but not added", "`git add` it (or restore it), then run --continue again"
        )
    # Against the new base, not HEAD: the person may have committed already.
    changed = git.text(["diff", "--cached", "--name-only", "-z", "--diff-filter=d", _ONTO], cwd=folder).split("\0")[:-1]
    for path in changed:
        if (folder / path).is_file() and _MARKERS.search((folder / path).read_bytes()):
            raise StackError(f"{path} in {folder} still has conflict markers", "take them out and `git add` it")
    tree = git.text(["write-tree"], cwd=folder)
    if tree == git.text(["rev-parse", f"{_ONTO}^{{tree}}"], cwd=folder):
        raise StackError(
            f"nothing of the patch is left in {folder}", f"resolve it, or leave the patch out: stack rebase --skip {folder}"
        )
    # A commit for the resolution, so that it can be fetched; its message is never used.
    identity = ["-c", "user.name=stack", "-c", "user.email=stack@localhost"]
    commit = git.text([*identity, "commit-tree", "-p", "HEAD", "-m", "resolution", tree], cwd=folder)
    git.run(["checkout", "--quiet", "--force", "--detach", commit], cwd=folder)
    return TreeId(tree)
