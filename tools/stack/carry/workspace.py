# SPDX-License-Identifier: Apache-2.0
"""Resolve a rebase's conflicts by hand, one after the other, in a working tree.

Each resolution is written to the stack at once, and stays there even if the rebase is aborted. Between the calls, the working
tree keeps the request and the trees that a person has made so far. To continue, the whole rebase is planned again with these
trees in place of the conflicts. Pins and patches are switched only when no conflict is left.
"""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.carry import apply, worktree_state
from stack.carry.engine import step_name
from stack.carry.export import NO_ATTRIBUTES
from stack.carry.merge import merge
from stack.carry.new_folder import check_empty
from stack.carry.outcome import Landed, fingerprint
from stack.carry.rebase import Rebase, Request, rebase
from stack.carry.resolutions import Beside, NotRecorded, Resolution, changes, hunks, keep, record
from stack.carry.tried import RECORD
from stack.carry.upstream_stores import Stores
from stack.carry.worktree import seed
from stack.model.document import Table
from stack.model.ids import LANE, OBJECT, UPSTREAM, CommitId, TreeId
from stack.model.pins import Source
from stack.store import git
from stack.store.objects import FILES, Objects

_ONTO, _PATCH = "refs/stack/onto", "refs/stack/patch"
_ANY = r"(?s).*"
_IDENTITY = ("-c", "user.name=stack", "-c", "user.email=stack@localhost")
_MARKERS = re.compile(rb"^(<{7} |\|{7} |>{7} )", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Session:
    """A rebase in progress: its stack, its request and options, and the patch whose conflict the working tree shows."""

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
    """Reasons why the last resolution, or a part of it, is not recorded for later carries."""
    shown: Mapping[str, str] = field(default_factory=dict)
    """The fingerprint of each patch's outcome when it was last shown, by the patch's path."""
    lane: str | None = None
    """The lane that is rebased."""


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
    """Make the working tree and stop at the first conflict; it shares git's rerere records with `clone`.

    Raises:
        StackError: the folder is not empty, there is no conflict, or `clone` has no rerere. Or the pins do not meet the
            upstreams' requirements: the rebase would be refused after all conflicts were resolved.

    """
    shared = _rerere_of(clone) if clone is not None else None
    if work.unmet and not allow_mismatch:
        raise StackError(
            work.unmet[0].sentence(work.pins().get(work.unmet[0].needs)),
            "add --with-required (or --allow-mismatch) before you resolve conflicts",
        )
    check_empty(folder)
    place = (
        stores.stack.root.resolve(),
        work.request,
        stores.source(work.request.upstream),
        allow_mismatch,
        allow_drift,
        digest,
    )
    session = Session(*place, upstream="", patch="", rung="", lane=stores.stack.lane)
    return _stop(folder, stores, work, session, shared)


def load(folder: Path) -> Session:
    """Load the rebase that a working tree belongs to.

    Raises:
        StackError: it does not belong to a rebase, or the rebase's record is damaged.

    """
    return worktree_state.read(_record_file(folder), _taken, remedy=f"give it up: stack rebase --abort {folder}")


def _record_file(folder: Path) -> Path:
    file = folder / ".git" / RECORD
    if not file.is_file():
        raise StackError(f"{folder} is not the working tree of a rebase", "start one: stack rebase … --workspace DIR")
    return file


def _taken(table: Table) -> Session:
    resolved, behaviour, at = table.table("resolved"), table.table("behaviour"), table.table("at")
    shown = table.table("shown")
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
        shown={path: shown.text(path) for path in shown},
        lane=table.optional_text("lane", pattern=LANE) if table.given("lane") else None,
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
    """Take the resolution from the working tree and stop at the next conflict; if none is left, the rebase has no open patches.

    Raises:
        StackError: the conflict is not resolved yet, or the stack has changed since the rebase began.

    """
    if digest != session.digest:
        raise StackError(f"{session.root} has changed since this rebase began", "restore it, or --abort and start again")
    tree = _left_out(folder) if skip else _resolution(folder)
    objects = stores.objects(session.upstream)
    # Copy the resolution's objects into the store, so that the working tree can be deleted.
    git.run(["fetch", "--quiet", "--no-tags", str(folder.resolve()), "HEAD"], env={"GIT_DIR": str(objects.repository)})
    resolved = {**session.request.resolved, step_name(session.patch, session.rung): tree}
    recorded, failed = ((), ()) if skip else _recorded(folder, objects, session, tree)
    if recorded:
        keep(session.root, recorded)
    work = rebase(stores, replace(session.request, resolved=resolved))
    now = replace(session, request=work.request, not_recorded=failed)
    return work, _stop(folder, stores, work, now) if work.open else now


def finish(folder: Path) -> bool:
    """Delete the working tree, even if its record is damaged; return whether it is gone.

    If the caller's shell stands in it, only the record is deleted: the shell could not go on in a folder that is gone.

    Raises:
        StackError: it is not the working tree of a rebase.

    """
    record = _record_file(folder)
    place = folder.resolve()
    if Path.cwd().is_relative_to(place):
        record.unlink()
        return False
    shutil.rmtree(place)
    return True


def _stop(folder: Path, stores: Stores, work: Rebase, session: Session, shared: Path | None = None) -> Session:
    """Show the next conflict: check out the new base with the patches so far, and cherry-pick the patch with diff3 markers."""
    if not work.open:
        raise StackError("no patch needs a person", "run the rebase without --workspace")
    leg, row = work.open[0]
    objects = stores.objects(leg.upstream)
    tip, source = row.tip, row.source
    if row.left is not None:
        # Pick only the remainder of a partly landed patch: the landed lines are upstream's, even if it has changed them since.
        before = CommitId(git.text(["rev-parse", f"{source}^"], env={"GIT_DIR": str(objects.repository)}))
        source = apply.commit(objects, row.left, before, row.patch)
    if not (folder / ".git").exists():
        seed(folder, objects, {_ONTO: tip, _PATCH: source}, partial=True)
    else:
        (folder / ".git/objects/info/alternates").write_text(f"{objects.repository / 'objects'}\n")
        git.run(["update-ref", _ONTO, tip], cwd=folder)
        git.run(["update-ref", _PATCH, source], cwd=folder)
    shown = {each.patch.ref.path: fingerprint(each) for each in work.rows()}
    now = replace(session, upstream=leg.upstream, patch=row.patch.ref.path, rung=row.rung, shown=shown)
    _write_record(folder, now)
    git.run(["checkout", "--quiet", "--force", "--detach", tip], cwd=folder)
    _share_rerere(folder, objects.repository, shared)
    settings = [*_IDENTITY, *NO_ATTRIBUTES, *_own_settings(folder)]
    # The same three-way merge that found the conflict; exit status 1: it stopped there.
    git.run([*settings, "cherry-pick", source], cwd=folder, accept=(0, 1))
    return now


def _share_rerere(folder: Path, store: Path, shared: Path | None) -> None:
    """If the user has enabled rerere, share its records among all such working trees, or with the clone.

    `shared` is the folder with the rerere records of the user's own clone; with it, rerere is turned on.
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
    """Return the folder of a clone's rerere records.

    Raises:
        StackError: it is not a repository, or rerere is off there.

    """
    query = ["rev-parse", "--path-format=absolute", "--git-path", "rr-cache"]
    done = git.run(query, cwd=clone, accept=(0, 128)) if clone.is_dir() else None
    if done is None or done.returncode:
        raise StackError(f"{clone} is not a git repository", "name your clone of the upstream")
    place = Path(done.stdout.decode("utf-8", "surrogateescape").rstrip("\n"))
    if not place.is_dir() and not _has_rerere(clone):
        raise StackError(f"{clone} has no rerere", f"turn it on: git -C {clone} config rerere.enabled true")
    place.mkdir(exist_ok=True)
    return place.resolve()


def _own_settings(folder: Path) -> list[str]:
    """Return git options with the user's conflict style (diff3 by default) and rerere settings."""
    query = ["config", "--get-regexp", "^(merge\\.conflictstyle|rerere\\..*)$"]
    listing = git.run(query, cwd=folder, user_config=True, accept=(0, 1)).stdout.decode("utf-8", "replace")
    given = dict(line.partition(" ")[::2] for line in listing.splitlines())
    return [word for key, value in ({"merge.conflictstyle": "diff3"} | given).items() for word in ("-c", f"{key}={value}")]


def _write_record(folder: Path, session: Session) -> None:
    record = {
        "root": str(session.root),
        "upstream": session.request.upstream,
        "tag": session.request.tag,
        "with_required": session.request.with_required,
        "through": list(session.request.through),
        "resolved": dict(session.request.resolved),
        "behaviour": {path: asdict(landed) for path, landed in session.request.behaviour.items()},
        "lane": session.lane,
        "source": session.source,
        "allow_mismatch": session.allow_mismatch,
        "allow_drift": session.allow_drift,
        "digest": session.digest,
        "shown": dict(session.shown),
        "at": {"upstream": session.upstream, "patch": session.patch, "rung": session.rung},
    }
    part = folder / ".git" / f"{RECORD}.part"
    part.write_text(json.dumps(record, indent=1))
    part.rename(folder / ".git" / RECORD)


def _recorded(folder: Path, objects: Objects, session: Session, tree: TreeId) -> tuple[tuple[Resolution, ...], tuple[str, ...]]:
    """Return the resolutions of the conflict hunks, and the reasons for those files that cannot be recorded."""
    names = (f"{_PATCH}^", _ONTO, _PATCH)
    trees = [TreeId(tree) for tree in git.text(["rev-parse", *(f"{name}^{{tree}}" for name in names)], cwd=folder).split()]
    merged = merge(objects, {}, trees[0], trees[1], trees[2])
    resolutions: list[Resolution] = []
    failed: list[str] = []
    conflicts = dict.fromkeys(conflict.path for conflict in merged.conflicts)
    for path in conflicts:
        entries = [objects.entry(version, path) for version in (*trees, tree)]
        files = [entry for entry in entries if entry is not None and entry.mode in FILES]
        if len(files) < len(entries):
            failed.append(f"{path}: not every version of it is a file")
            continue
        versions = [objects.read(entry.id) for entry in files]
        place = {"upstream": session.upstream, "patch": session.patch, "rung": session.rung}
        try:
            resolutions += record(path, versions[0], versions[1], versions[2], versions[3], **place)
        except NotRecorded as why:
            failed.append(f"{path}: {why.reason}")
    beside: list[Beside] = []
    for path in [path for path, _, _ in objects.difference(merged.tree, tree) if path not in conflicts]:
        places = _beside(objects, path, merged.tree, tree)
        if places is None:
            failed.append(f"{path}: it was not in conflict, and what was changed there cannot be told by its lines")
        beside += places or ()
    if resolutions and beside:
        resolutions[0] = replace(resolutions[0], beside=tuple(beside))
    return tuple(resolutions), tuple(failed)


def _beside(objects: Objects, path: str, merged: TreeId, resolved: TreeId) -> tuple[Beside, ...] | None:
    """Return a person's changes to a file without conflicts; None if it is not text on both sides, or the lines are ambiguous."""
    texts = []
    for tree in (merged, resolved):
        entry = objects.entry(tree, path)
        text = hunks.text(objects.read(entry.id)) if entry is not None and entry.mode in FILES else None
        if text is None:
            return None
        texts.append(text)
    return changes(path, *texts)


def _left_out(folder: Path) -> TreeId:
    """Check out the new base without the patch, and return its tree."""
    git.run(["checkout", "--quiet", "--force", "--detach", _ONTO], cwd=folder)
    return TreeId(git.text(["rev-parse", "HEAD^{tree}"], cwd=folder))


def _resolution(folder: Path) -> TreeId:
    """Return the tree that a person has made, from the index; the person may have committed it already.

    Raises:
        StackError: a path is still unmerged, has conflict markers, or is changed and not added; or nothing of the patch is left.

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
    # Compare with the new base, not with HEAD: the person may have committed already.
    changed = git.text(["diff", "--cached", "--name-only", "-z", "--diff-filter=d", _ONTO], cwd=folder).split("\0")[:-1]
    for path in changed:
        if (folder / path).is_file() and _MARKERS.search((folder / path).read_bytes()):
            raise StackError(f"{path} in {folder} still has conflict markers", "take them out and `git add` it")
    tree = git.text(["write-tree"], cwd=folder)
    if tree == git.text(["rev-parse", f"{_ONTO}^{{tree}}"], cwd=folder):
        raise StackError(
            f"nothing of the patch is left in {folder}", f"resolve it, or leave the patch out: stack rebase --skip {folder}"
        )
    # Record the resolution for rerere: git does so at a commit, but the user may not have committed.
    git.run([*_own_settings(folder), "rerere"], cwd=folder)
    # Commit the resolution so that it can be fetched; the message is never used.
    commit = git.text([*_IDENTITY, "commit-tree", "-p", "HEAD", "-m", "resolution", tree], cwd=folder)
    git.run(["checkout", "--quiet", "--force", "--detach", commit], cwd=folder)
    return TreeId(tree)
