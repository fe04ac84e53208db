# SPDX-License-Identifier: Apache-2.0
"""Try patch files on another base of any git repository, and report each patch's outcome.

The repository is only read. New objects go into a temporary repository that borrows the objects of the first.
"""

import contextlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stack.base.errors import StackError
from stack.carry import apply, engine, history
from stack.carry.drift import blame
from stack.carry.engine import Aids, Carry
from stack.carry.ladder import AUTO, Rung
from stack.carry.outcome import Carried, Conflict, Outcome
from stack.model import document, mail, releases, series
from stack.model import patch as patches
from stack.model.ids import CommitId
from stack.model.patch import Author, Patch
from stack.model.releases import Releases
from stack.model.series import PatchRef
from stack.store import git, repository
from stack.store.objects import Objects

if TYPE_CHECKING:
    from stack.carry.resolutions import Resolutions

_COMMIT = re.compile(r"[0-9a-f]{40}")
_HEX = re.compile(r"[0-9a-f]{7,40}")
_NOBODY = Author("unknown", "unknown@localhost", "0 +0000")


@dataclass(frozen=True, slots=True)
class Row:
    """One patch's outcome, and its file as it would be on the new base (None if it is left out).

    `mail`: the patch's number (from 1) in a file with several patches.
    """

    file: Path
    carried: Carried
    exported: bytes | None
    mail: int | None = None

    @property
    def name(self) -> str:
        """Return the name of the patch for a table."""
        return self.file.name if self.mail is None else f"{self.file.name}#{self.mail} {self.carried.patch.subject}"


@dataclass(frozen=True, slots=True)
class Triage:
    """All outcomes, in the order of the patches; the last of `rungs` is the new base.

    `back`: the new base is an ancestor of the old one.
    """

    base: CommitId
    onto: CommitId
    rungs: tuple[Rung, ...]
    rows: tuple[Row, ...]
    back: bool = False


@dataclass(frozen=True, slots=True)
class Range:
    """The old and the new base; `through` are the names of the rungs in between, or `auto` alone."""

    base: str
    onto: str
    through: tuple[str, ...] = ()


def triage(
    repo: Path,
    span: Range,
    files: Sequence[Path],
    *,
    cache: Path,
    independent: bool = False,
    resolutions: "Resolutions | None" = None,
) -> Triage:
    """Try every patch on the new base: as one series in the given order, or each patch alone if `independent`.

    Raises:
        StackError: no such repository or revision, a file is not a patch, or a patch does not apply to the old base.

    """
    git.require()
    lent, base, onto = _ends(repo, span)
    twice = next((file for place, file in enumerate(files) if file in files[:place]), None)
    if twice is not None:
        raise StackError(f"{twice} is given twice", "name each patch once")
    read = {file: _read(file) for file in files}
    through = _rungs(repo, span) if span.through else ()
    way = (*through, Rung(span.onto, onto))
    chain = [patch for its in read.values() for patch in its]
    groups = [[patch] for patch in chain] if independent else [chain]
    back = base != onto and _contains(repo, Rung("", base), Rung("", onto))
    with _borrowing(lent) as objects, contextlib.closing(history.index(objects, base, way, cache)) as index:
        aids = Aids(index, resolutions)
        try:
            done = [_carried(objects, base, way, group, independent, aids) for group in groups]
        except StackError as failed:
            if not back:
                raise
            swapped = f"{span.base} comes after {span.onto} in the history: are --base and --onto swapped?"
            raise StackError(failed.problem, f"{swapped} Otherwise {failed.remedy}") from failed
    rows = [(row, carried.exported.get(row.patch.ref.path)) for carried in done for row in carried.rows]
    places = [(file, number if len(its) > 1 else None) for file, its in read.items() for number, _ in enumerate(its, 1)]
    found = tuple(Row(file, row, data, mail) for (file, mail), (row, data) in zip(places, rows, strict=True))
    return Triage(base, onto, way, found, back)


def require_empty(folder: Path) -> None:
    """Refuse a folder for carried patches that is not empty.

    Raises:
        StackError: the path exists and is not an empty folder.

    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StackError(f"{folder} is not an empty folder", "name one that does not exist yet")


def write(folder: Path, found: Triage) -> None:
    """Write the patches as they are on the new base, numbered in their order; skip those that are left out.

    Raises:
        OSError: the folder cannot be written.

    """
    folder.mkdir(parents=True, exist_ok=True)
    for number, row in enumerate(found.rows, 1):
        if row.exported is not None:
            name = row.file.name if row.mail is None else f"{series.slug(row.carried.patch.subject)}.patch"
            (folder / f"{number:04}-{name}").write_bytes(row.exported)


def _carried(
    objects: Objects, base: CommitId, way: Sequence[Rung], group: Sequence[Patch], independent: bool, aids: Aids
) -> Carry:
    """Carry one series.

    A patch that does not apply to the old base is a conflict if its place is not certain, or if the patches are independent.
    """
    onto = way[-1]
    left, conflicts = list(group), dict[str, Carried]()
    while True:
        try:
            carried = engine.carry(objects, base, onto.commit, left, name=onto.name, through=way[:-1], aids=aids)
        except apply.DoesNotApply as failed:
            if not (independent or failed.misfit.unsure):
                place = f"{failed.patch.ref.path} does not apply to the base ({failed.misfit})"
                raise StackError(place, "give the base of the series, its order, or --independent") from failed
            left.remove(failed.patch)
            conflicts[failed.patch.ref.path] = _not_applied(objects, base, onto, failed)
            continue
        judged = blame.judged(objects, carried, aids.index)
        rows = conflicts | {row.patch.ref.path: row for row in judged.rows}
        return replace(judged, rows=tuple(rows[patch.ref.path] for patch in group))


def _not_applied(objects: Objects, base: CommitId, onto: Rung, failed: apply.DoesNotApply) -> Carried:
    misfit = failed.misfit
    lines = (misfit.line, misfit.line) if misfit.line is not None else None
    conflict = Conflict(misfit.path, lines, misfit.reason)
    tree = objects.tree_of(onto.commit)
    reason = "its place on the base is not sure" if misfit.unsure else "does not apply to the base"
    return Carried(failed.patch, Outcome.CONFLICT, base, base, None, tree, conflicts=(conflict,), evidence=(reason,))


def _rungs(repo: Path, span: Range) -> tuple[Rung, ...]:
    """Return the rungs between both ends, without the ends.

    Raises:
        StackError: no such revision, or the rungs are not in order, or not between the ends.

    """
    names = list(span.through)
    if names == [AUTO]:
        return _releases(repo, span)
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise StackError(f"{twice} is given twice", "name each rung once, the oldest first")
    rungs = [Rung(name, _revision(repo, name)) for name in names if name not in (span.base, span.onto)]
    way = [*rungs, Rung(span.onto, _revision(repo, span.onto))]
    for place, rung in enumerate(way[:-1]):
        later = next(
            (above for above in way[place + 1 :] if above.commit != rung.commit and _contains(repo, rung, above)), None
        )
        if later is not None and later is way[-1]:
            raise StackError(f"{rung.name} comes after {later.name}", "name rungs between --base and --onto")
        if later is not None:
            raise StackError(f"{later.name} comes before {rung.name}", "name the oldest first")
    return tuple(rungs)


def _releases(repo: Path, span: Range) -> tuple[Rung, ...]:
    """Return the releases between both ends; for a release on its own branch, the commit where that branch began.

    Commits that only a release branch has are left out: upstream's next release may never have them.
    """
    rule = _rule(repo, span)
    names = rule.between(git.text(["tag", "--list"], cwd=repo).splitlines(), span.base, span.onto)
    base, onto = _revision(repo, span.base), _revision(repo, span.onto)
    if not names and None in (rule.version(span.base), rule.version(span.onto)):
        merged = ["tag", "--list", "--merged", onto, "--no-merged", base]
        names = rule.ordered(git.text(merged, cwd=repo).splitlines())
    rungs: dict[CommitId, Rung] = {}
    for name in names:
        commit = _revision(repo, name)
        begun = git.run(["merge-base", commit, onto], cwd=repo, accept=(0, 1)).stdout.decode("ascii").strip()
        rung = Rung(name, CommitId(begun) if begun else commit)
        if rung.commit not in (base, onto) and not (begun and _contains(repo, Rung("", base), rung)):
            rungs.setdefault(rung.commit, rung)
    return tuple(rungs.values())


def _rule(repo: Path, span: Range) -> Releases:
    """Return what counts as a release: tags like one of the ends, or else like the last tag before the new base."""
    for name in (span.base, span.onto):
        if not _HEX.fullmatch(name) and releases.of(None, name).version(name) is not None:
            return releases.of(None, name)
    found = git.run(["describe", "--tags", "--abbrev=0", _revision(repo, span.onto)], cwd=repo, accept=(0, 128))
    return releases.of(None, found.stdout.decode("utf-8", "replace").strip() or None)


def _contains(repo: Path, rung: Rung, other: Rung) -> bool:
    """Return whether `other` is an ancestor of `rung`."""
    asked = ["merge-base", "--is-ancestor", other.commit, rung.commit]
    return git.run(asked, cwd=repo, accept=(0, 1)).returncode == 0


def _ends(repo: Path, span: Range) -> tuple[Path, CommitId, CommitId]:
    """Return the objects folder of a repository and the commits of both ends, in one call of git unless it fails."""
    asked = [
        "rev-parse",
        "--path-format=absolute",
        "--git-path",
        "objects",
        *(f"{name}^{{commit}}" for name in (span.base, span.onto)),
    ]
    done = git.run(asked, cwd=repo, accept=(0, 128))
    lines = done.stdout.decode("utf-8", "surrogateescape").splitlines()
    if done.returncode == 0 and len(lines) == 3 and all(map(_COMMIT.fullmatch, lines[1:])):
        return Path(lines[0]), CommitId(lines[1]), CommitId(lines[2])
    return _objects_folder(repo), _revision(repo, span.base), _revision(repo, span.onto)


def _objects_folder(repo: Path) -> Path:
    inside = git.run(["rev-parse", "--path-format=absolute", "--git-path", "objects"], cwd=repo, accept=(0, 128))
    if inside.returncode:
        raise StackError(f"{repo} is not a git repository", "name a clone with --repo")
    return Path(inside.stdout.decode("utf-8", "surrogateescape").rstrip("\n"))


@contextlib.contextmanager
def _borrowing(lent: Path) -> Iterator[Objects]:
    """Make a temporary repository that borrows the objects in the folder `lent`."""
    with tempfile.TemporaryDirectory(prefix="stack-") as folder:
        own = Path(folder) / "git"
        repository.make_bare(own)
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


def _read(file: Path) -> tuple[Patch, ...]:
    """Read a patch file: one or more mails as `git format-patch` writes them, or a bare diff."""
    if file.is_dir():
        raise StackError(f"{file} is a folder", f"name the patch files in it: {file}/*.patch")
    raw = document.read_bytes(file, missing="check the path", largest=patches.LARGEST, piped=True)
    ref = PatchRef(str(file.parent), "", file.name)
    if mail.is_mail(raw):
        return patches.parse_all(raw, ref, name=str(file))
    start = raw.find(b"diff --git ")
    if start < 0:
        raise StackError(f"{file} has no git diff", "export it with `git format-patch` or `git diff`")
    return (Patch(ref, raw, _NOBODY, file.stem, f"{file.stem}\n", raw[start:]),)
