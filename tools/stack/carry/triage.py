# SPDX-License-Identifier: Apache-2.0
"""The engine on any repository and any patch files: what would become of each patch on another base.

The repository is only read: what a carry writes goes into a throw-away repository beside it, which borrows its objects.
"""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stack.carry import apply, engine, landing
from stack.carry.landing import Index, Landing
from stack.carry.outcome import Carried, Conflict, Outcome
from stack.model import patch as patches
from stack.model.errors import StackError
from stack.model.ids import CommitId
from stack.model.patch import Author, Patch
from stack.model.series import PatchRef
from stack.store import git
from stack.store.objects import Objects

_NOBODY = Author("unknown", "unknown@localhost", "0 +0000")
_STILL_THERE = 0.5
"""Where less than this share of a landed change is left in the new base, the evidence says so: perhaps it was taken back."""


@dataclass(frozen=True, slots=True)
class Row:
    """One patch's outcome; `landed` is the commit that brought it upstream, where one is found."""

    file: Path
    carried: Carried
    landed: Landing | None


@dataclass(frozen=True, slots=True)
class Triage:
    """All outcomes, in the order of the patches."""

    base: CommitId
    onto: CommitId
    rows: tuple[Row, ...]


def triage(repo: Path, base: str, onto: str, files: Sequence[Path], *, cache: Path, independent: bool = False) -> Triage:
    """Try every patch on `onto`: as a series on `base` in the order given, or each alone on it.

    Raises:
        StackError: no such repository or revision, a file that is no patch, or a patch that does not apply to `base`.

    """
    git.require()
    lent = _objects_folder(repo)
    read = [_read(file) for file in files]
    ends = _revision(repo, base), _revision(repo, onto)
    groups = [[patch] for patch in read] if independent else [read]
    with _borrowing(lent) as objects, contextlib.closing(landing.index(objects, *ends, cache)) as index:
        rows = [row for group in groups for row in _carried(objects, ends, group, independent)]
        judged = [judge(objects, index, ends[1], row) for row in rows]
    return Triage(*ends, tuple(Row(file, row, landed) for file, (row, landed) in zip(files, judged, strict=True)))


def _carried(objects: Objects, ends: tuple[CommitId, CommitId], group: Sequence[Patch], independent: bool) -> Sequence[Carried]:
    """The outcomes of one series. A patch that stands alone and does not fit its base is a conflict like another."""
    try:
        return engine.carry(objects, *ends, group).rows
    except apply.DoesNotApply as failed:
        place = f"{failed.patch.ref.path} does not apply to the base ({failed.misfit})"
        if not independent:
            raise StackError(place, "give the base of the series, its order, or --independent") from failed
        misfit = failed.misfit
        lines = (misfit.line, misfit.line) if misfit.line is not None else None
        conflict = Conflict(misfit.path, lines, misfit.reason)
        tree = objects.tree_of(ends[1])
        return [Carried(group[0], Outcome.CONFLICT, ends[0], None, tree, (conflict,), "does not apply to the base")]


def judge(objects: Objects, index: Index, onto: CommitId, row: Carried) -> tuple[Carried, Landing | None]:
    """An outcome with what the history of the range knows: the commit that brought the change, whole or in part."""
    files = apply.files(row.patch)
    found = index.search(files)
    if found is None:
        return row, None
    where = f"{found.commit[:12]} {found.subject}"
    if row.outcome is Outcome.LANDED:
        return replace(row, evidence=where), found
    if found.landed:
        gone = landing.present(objects, objects.tree_of(onto), files) < _STILL_THERE
        evidence = f"{found.score:.0%} in {where}" + ("; most of it was changed again since" if gone else "")
        return replace(row, outcome=Outcome.LANDED, commit=None, conflicts=(), evidence=evidence), found
    missing = f"; missing in {', '.join(found.missing)}" if found.missing else ""
    return replace(row, outcome=Outcome.PARTLY_LANDED, evidence=f"{found.score:.0%} in {where}{missing}"), found


def _objects_folder(repo: Path) -> Path:
    inside = git.run(["rev-parse", "--path-format=absolute", "--git-path", "objects"], cwd=repo, accept=(0, 128))
    if inside.returncode:
        raise StackError(f"{repo} is no git repository", "name a clone with --repo")
    return Path(inside.stdout.decode("utf-8", "surrogateescape").rstrip("\n"))


@contextlib.contextmanager
def _borrowing(lent: Path) -> Iterator[Objects]:
    """A throw-away repository that sees the objects of another."""
    with tempfile.TemporaryDirectory(prefix="stack-") as folder:
        own = Path(folder) / "git"
        git.run(["init", "--quiet", "--bare", "--template=", str(own)])
        (own / "objects/info").mkdir(exist_ok=True)
        (own / "objects/info/alternates").write_text(f"{lent}\n")
        with Objects(own) as objects:
            yield objects


def _revision(repo: Path, name: str) -> CommitId:
    found = git.run(
        ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"], cwd=repo, accept=(0, 1, 128)
    )
    if found.returncode:
        raise StackError(f"{repo} has no commit {name!r}", "name a tag, branch or commit that it has")
    return CommitId(found.stdout.decode("ascii").strip())


def _read(file: Path) -> Patch:
    """A patch file of any kind: what `git format-patch` writes, or a bare diff."""
    try:
        raw = file.read_bytes()
    except OSError as failed:
        raise StackError(f"{file} cannot be read ({failed.strerror})", "check the path") from failed
    ref = PatchRef(str(file.parent), "", file.name)
    if raw.startswith(b"From "):
        return patches.parse(raw, ref, name=str(file))
    start = raw.find(b"diff --git ")
    if start < 0:
        raise StackError(f"{file} holds no diff of git's", "export it with `git format-patch` or `git diff`")
    return Patch(ref, raw, _NOBODY, file.stem, f"{file.stem}\n", raw[start:])
