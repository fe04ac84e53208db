# SPDX-License-Identifier: Apache-2.0
"""Resolving a rebase's conflicts by hand, one after the other, in a working tree.

A resolution is written to the stack when it is made, and stays there whatever becomes of the rebase. Between the calls, the
working tree keeps the request and the trees that a person has made so far. Going on means working the whole rebase out again
with those trees in place of the conflicts: pins and patches are switched only when nothing is left.
"""

import json
import re
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.carry import apply, worktree_state
from stack.carry.engine import step_name
from stack.carry.export import NO_ATTRIBUTES
from stack.carry.merge import merge
from stack.carry.outcome import Landed
from stack.carry.rebase import Rebase, Request, rebase
from stack.carry.resolutions import Beside, NotRecorded, Resolution, changes, hunks, keep, record
from stack.carry.upstream_stores import Stores
from stack.carry.worktree import check_empty, seed
from stack.model.document import Table
from stack.model.ids import OBJECT, UPSTREAM, CommitId, TreeId
from stack.store import git
from stack.store.objects import FILES, Objects
from stack.store.sources import Source

_RECORD = "stack-rebase.json"
_ONTO, _PATCH = "refs/stack/onto", "refs/stack/patch"
_ANY = r"(?s).*"
_IDENTITY = ("-c", "user.name=stack", "-c", "user.email=stack@localhost")
_MARKERS = re.compile(rb"^(<{7} |\|{7} |>{7} )", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Session:
    """A rebase under way: whose, what was asked, and the patch whose conflict the working tree shows."""

    root: Path
    request: Request
    source: Source
    allow_mismatch: bool
    allow_drift: bool
    digest: str
    upstream: str
    patch: str
    rung: str
    not_recorded: tuple[str, ...] = ()
    """Why the last resolution, or a part of it, is not kept for the next carry."""


def start(
    folder: Path,
    stores: Stores,
    work: Rebase,
    *,
    allow_mismatch: bool,
    allow_drift: bool,
    digest: str,
    clone: Path | None = None,
) -> Session:
    """Make the working tree and stop at the first conflict; it shares what git's rerere records with `clone`.

    Raises:
        StackError: the folder is not empty, there is no conflict, or the pins would be refused in the end: then nobody should
            resolve conflicts first. Or the clone has no rerere.

    """
    shared = _rerere_of(clone) if clone is not None else None
    if work.unmet and not allow_mismatch:
        raise StackError(
            work.unmet[0].sentence(work.pins().get(work.unmet[0].needs)),
            "add --with-required (or --allow-mismatch) before you resolve conflicts",
        )
    check_empty(folder)
    place = (stores.stack.root.resolve(), work.request, stores.place.source, allow_mismatch, allow_drift, digest)
    return _stop(folder, stores, work, Session(*place, upstream="", patch="", rung=""), shared)


def load(folder: Path) -> Session:
    """The rebase that a working tree belongs to.

    Raises:
        StackError: it belongs to none, or the record of it is damaged.

    """
    return worktree_state.read(_record_file(folder), _taken, remedy=f"give it up: stack rebase --abort {folder}")


def _record_file(folder: Path) -> Path:
    file = folder / ".git" / _RECORD
    if not file.is_file():
        raise StackError(f"{folder} is not the working tree of a rebase", "start one: stack rebase … --workspace DIR")
    return file


def _taken(table: Table) -> Session:
    resolved, behaviour, at = table.table("resolved"), table.table("behaviour"), table.table("at")
    return Session(
        root=Path(table.text("root", pattern=r"/[^\0]*")),
        request=Request(
            table.text("upstream", pattern=UPSTREAM),
            table.text("tag"),
            table.flag("with_required"),
            table.texts("through", unique=False),
            {step: TreeId(resolved.text(step, pattern=OBJECT)) for step in resolved},
            {path: _taken_landing(behaviour.table(path)) for path in behaviour},
        ),
        source=worktree_state.source(table),
        allow_mismatch=table.flag("allow_mismatch"),
        allow_drift=table.flag("allow_drift"),
        digest=table.text("digest"),
        upstream=at.text("upstream", pattern=UPSTREAM),
        patch=at.text("patch"),
        rung=at.text("rung"),
    )


def _taken_landing(table: Table) -> Landed:
    return Landed(
        commit=CommitId(table.text("commit", pattern=OBJECT)),
        subject=table.text("subject", pattern=_ANY),
        score=table.number("score"),
        rung=table.text("rung"),
        behaviour=table.flag("behaviour"),
    )


def proceed(folder: Path, stores: Stores, session: Session, *, digest: str, skip: bool = False) -> tuple[Rebase, Session]:
    """Take the resolution in the working tree and go on; with nothing left to resolve, the rebase has nothing open.

    Raises:
        StackError: the conflict is not resolved yet, or the stack has changed since the rebase began.

    """
    if digest != session.digest:
        raise StackError(f"{session.root} has changed since this rebase began", "restore it, or --abort and start again")
    tree = _left_out(folder) if skip else _resolution(folder)
    objects = stores.objects(session.upstream)
    # The objects of the resolution go into the store, so that the working tree can be thrown away.
    git.run(["fetch", "--quiet", "--no-tags", str(folder.resolve()), "HEAD"], env={"GIT_DIR": str(objects.repository)})
    resolved = {**session.request.resolved, step_name(session.patch, session.rung): tree}
    recorded, failed = ((), ()) if skip else _recorded(folder, objects, session, tree)
    if recorded:
        keep(session.root, recorded)
    work = rebase(stores, replace(session.request, resolved=resolved))
    now = replace(session, request=work.request, not_recorded=failed)
    return work, _stop(folder, stores, work, now) if work.open else now


def finish(folder: Path) -> None:
    """Throw the working tree away; what its record says is not needed for that.

    Raises:
        StackError: it is not the working tree of a rebase.

    """
    _record_file(folder)
    shutil.rmtree(folder.resolve())


def _stop(folder: Path, stores: Stores, work: Rebase, session: Session, shared: Path | None = None) -> Session:
    """Show the next conflict: the new base with the patches so far, and the patch picked onto it with diff3 markers."""
    if not work.open:
        raise StackError("no patch needs a person", "run the rebase without --workspace")
    leg, row = work.open[0]
    objects = stores.objects(leg.upstream)
    tip, source = row.tip, row.source
    if row.left is not None:
        # Of a partly landed patch only the rest is picked: what upstream changed again since is upstream's.
        before = CommitId(git.text(["rev-parse", f"{source}^"], env={"GIT_DIR": str(objects.repository)}))
        source = apply.commit(objects, row.left, before, row.patch)
    if not (folder / ".git").exists():
        seed(folder, objects, {_ONTO: tip, _PATCH: source}, partial=True)
    else:
        (folder / ".git/objects/info/alternates").write_text(f"{objects.repository / 'objects'}\n")
        git.run(["update-ref", _ONTO, tip], cwd=folder)
        git.run(["update-ref", _PATCH, source], cwd=folder)
    now = replace(session, upstream=leg.upstream, patch=row.patch.ref.path, rung=row.rung)
    _write_record(folder, now)
    git.run(["checkout", "--quiet", "--force", "--detach", tip], cwd=folder)
    # The same three-way merge that found the conflict; 1: it stopped there.
    _share_rerere(folder, objects.repository, shared)
    settings = [*_IDENTITY, *NO_ATTRIBUTES, *_own_settings(folder)]
    git.run([*settings, "cherry-pick", source], cwd=folder, accept=(0, 1))
    return now


def _share_rerere(folder: Path, store: Path, shared: Path | None) -> None:
    """Where the user has rerere, let it know what it recorded in earlier working trees, and keep what it records in this one.

    `shared` is the folder of records of the user's own clone.
    """
    place = folder / ".git/rr-cache"
    if shared is not None:
        git.run(["config", "rerere.enabled", "true"], cwd=folder)
        place.symlink_to(shared)
    elif _has_rerere(folder) and not place.exists():
        (store / "rr-cache").mkdir(exist_ok=True)
        place.symlink_to((store / "rr-cache").resolve())


def _has_rerere(folder: Path) -> bool:
    asked = ["config", "--type=bool", "--get", "rerere.enabled"]
    return git.run(asked, cwd=folder, user_config=True, accept=(0, 1, 128)).stdout.strip() == b"true"


def _rerere_of(clone: Path) -> Path:
    """The folder in which a clone keeps what rerere has recorded.

    Raises:
        StackError: it is not a repository, or rerere is off there.

    """
    asked = ["rev-parse", "--path-format=absolute", "--git-path", "rr-cache"]
    found = git.run(asked, cwd=clone, accept=(0, 128)) if clone.is_dir() else None
    if found is None or found.returncode:
        raise StackError(f"{clone} is not a git repository", "name your clone of the upstream")
    place = Path(found.stdout.decode("utf-8", "surrogateescape").rstrip("\n"))
    if not place.is_dir() and not _has_rerere(clone):
        raise StackError(f"{clone} has no rerere", f"turn it on: git -C {clone} config rerere.enabled true")
    place.mkdir(exist_ok=True)
    return place.resolve()


def _own_settings(folder: Path) -> list[str]:
    """The user's settings about how conflicts are shown and remembered; without one, a conflict is shown with its base."""
    asked = ["config", "--get-regexp", "^(merge\\.conflictstyle|rerere\\..*)$"]
    said = git.run(asked, cwd=folder, user_config=True, accept=(0, 1)).stdout.decode("utf-8", "replace")
    given = dict(line.partition(" ")[::2] for line in said.splitlines())
    return [word for key, value in ({"merge.conflictstyle": "diff3"} | given).items() for word in ("-c", f"{key}={value}")]


def _write_record(folder: Path, session: Session) -> None:
    record = {
        "root": str(session.root),
        "upstream": session.request.upstream,
        "tag": session.request.tag,
        "with_required": session.request.with_required,
        "through": list(session.request.through),
        "resolved": dict(session.request.resolved),
        "behaviour": {path: asdict(one) for path, one in session.request.behaviour.items()},
        "source": session.source,
        "allow_mismatch": session.allow_mismatch,
        "allow_drift": session.allow_drift,
        "digest": session.digest,
        "at": {"upstream": session.upstream, "patch": session.patch, "rung": session.rung},
    }
    part = folder / ".git" / f"{_RECORD}.part"
    part.write_text(json.dumps(record, indent=1))
    part.rename(folder / ".git" / _RECORD)


def _recorded(folder: Path, objects: Objects, session: Session, tree: TreeId) -> tuple[tuple[Resolution, ...], tuple[str, ...]]:
    """The resolutions of the hunks that were in conflict, and for the files where they cannot be told apart, why."""
    names = (f"{_PATCH}^", _ONTO, _PATCH)
    trees = [TreeId(git.text(["rev-parse", f"{name}^{{tree}}"], cwd=folder)) for name in names]
    merged = merge(objects, {}, trees[0], trees[1], trees[2])
    found: list[Resolution] = []
    failed: list[str] = []
    conflicts = dict.fromkeys(conflict.path for conflict in merged.conflicts)
    for path in conflicts:
        entries = [objects.entry(one, path) for one in (*trees, tree)]
        there = [entry for entry in entries if entry is not None and entry.mode in FILES]
        if len(there) < len(entries):
            failed.append(f"{path}: not every version of it is a file")
            continue
        versions = [objects.read(entry.id) for entry in there]
        place = {"upstream": session.upstream, "patch": session.patch, "rung": session.rung}
        try:
            found += record(path, versions[0], versions[1], versions[2], versions[3], **place)
        except NotRecorded as why:
            failed.append(f"{path}: {why.reason}")
    beside: list[Beside] = []
    for path in [path for path, _, _ in objects.difference(merged.tree, tree) if path not in conflicts]:
        places = _beside(objects, path, merged.tree, tree)
        if places is None:
            failed.append(f"{path}: it was not in conflict, and what was changed there cannot be told by its lines")
        beside += places or ()
    if found and beside:
        found[0] = replace(found[0], beside=tuple(beside))
    return tuple(found), tuple(failed)


def _beside(objects: Objects, path: str, merged: TreeId, resolved: TreeId) -> tuple[Beside, ...] | None:
    """What a person changed in a file without a conflict; None where it is not text on both sides, or cannot be told."""
    texts = []
    for tree in (merged, resolved):
        entry = objects.entry(tree, path)
        text = hunks.text(objects.read(entry.id)) if entry is not None and entry.mode in FILES else None
        if text is None:
            return None
        texts.append(text)
    return changes(path, *texts)


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
    # The user may not have committed, which is when git would do this.
    git.run([*_own_settings(folder), "rerere"], cwd=folder)
    # A commit for the resolution, so that it can be fetched; its message is never used.
    commit = git.text([*_IDENTITY, "commit-tree", "-p", "HEAD", "-m", "resolution", tree], cwd=folder)
    git.run(["checkout", "--quiet", "--force", "--detach", commit], cwd=folder)
    return TreeId(tree)
