# SPDX-License-Identifier: Apache-2.0
"""How well landed patches are recognised: recall and false alarms, beside what git offers, on any clone.

    python benchmarks/landing.py --repo CLONE --base v0.6.4 --onto v0.6.8 [--count 60] [--seeds 1 2 3] [--releases] [--next]

Fork patches are real commits of `base..onto`, taken back to `base`; negatives are commits from after `onto`, taken back alike.
Drawn by a printed seed from all first-parent non-merge commits that change code and carry back without a conflict. The
upstream's number is cut off the subject: a fork does not know it. What upstream has dropped again until `onto` has landed, too,
and is counted beside it: a rebase goes on carrying it, and asks.

`--releases` knows the two trees only, as the registry's archives give them. `--next` adds harder negatives: every commit of the
range, held against upstream as it was just before it. What is most like a change usually came shortly before.
"""

import argparse
import contextlib
import random
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stack.carry import engine, history, landing
from stack.carry.apply import files
from stack.carry.engine import Aids
from stack.carry.export import export
from stack.carry.history import Index
from stack.carry.ladder import Rung
from stack.carry.merge import merge
from stack.carry.outcome import Outcome
from stack.model.errors import StackError
from stack.model.ids import CommitId
from stack.model.patch import Patch, parse
from stack.model.series import PatchRef
from stack.store import git
from stack.store.objects import Identity, Objects

_CODE = re.compile(r"\.(py|pyi|c|cc|cpp|cu|cuh|h|hpp|inl|jinja|rs|go|js|ts|java|sh|cmake)$|CMakeLists\.txt$")
Drawn = list[tuple[CommitId, Patch]]
_NUMBER = re.compile(r"\s*\(#\d+\)")
_PICKED = re.compile(r"cherry picked from commit ([0-9a-f]{40})")
_NOBODY = Identity("A Fork", "fork@localhost", "1700000000 +0000")
_LANDED, _TAKEN_BACK = "landed", "taken back"


def main() -> int:
    """Draw, measure and print a table a seed."""
    options = _options()
    repo = Path(git.text(["rev-parse", "--absolute-git-dir"], cwd=options.repo))
    with tempfile.TemporaryDirectory(prefix="stack-bench-") as folder:
        bare = Path(folder) / "bare.git"
        git.run(["clone", "--quiet", "--bare", "--shared", str(repo), str(bare)])
        base, onto, tip = (
            CommitId(git.text(["rev-parse", f"{name}^{{commit}}"], cwd=bare))
            for name in (options.base, options.onto, options.tip)
        )
        with Objects(bare) as objects:
            print(f"{options.repo} {options.base} ({base[:12]}) -> {options.onto} ({onto[:12]}), negatives up to {tip[:12]}")
            inside = list(_carried_back(objects, base, f"{base}..{onto}"))
            after = list(_carried_back(objects, base, f"{onto}..{tip}"))
            ends = [_release(objects, one) for one in (base, onto)] if options.releases else [base, onto]
            start = time.perf_counter()
            index = history.index(objects, ends[0], [Rung(options.onto, ends[1])], Path(folder))
            print(f"index built in {time.perf_counter() - start:.1f} s")
            # A release branch takes commits from the main line: such a commit comes after the target and is in it all the same.
            measure = Measure(objects, index, ends[0], ends[1])
            picked = _picked(objects, f"{base}..{onto}")
            negatives = [(commit, patch) for commit, patch in after if commit not in picked and not measure.merge(patch)]
            taken = len(after) - len(negatives)
            print(f"{len(inside)} commits of the range carry back, {len(after)} after it, {taken} of them are in the target")
            for seed in options.seeds:
                drawn = (_draw(inside, options.count, seed), _draw(negatives, options.count, seed))
                _report(measure, *drawn, seed, options.show)
            if options.next:
                _report_next(measure, inside, options.show)
    return 0


def _picked(objects: Objects, span: str) -> frozenset[str]:
    """The commits that those of a range name as what they were picked from."""
    return frozenset(_PICKED.findall(git.text(["log", "--format=%B", span], cwd=objects.repository)))


def _release(objects: Objects, commit: CommitId) -> CommitId:
    """A commit's tree without its history."""
    return objects.write_commit(objects.tree_of(commit), (), "release\n", _NOBODY)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repo", type=Path, required=True, help="a clone, bare or not")
    parser.add_argument("--base", required=True)
    parser.add_argument("--onto", required=True)
    parser.add_argument("--tip", default="HEAD", help="how far after --onto negatives are taken from")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--releases", action="store_true", help="carry with the trees of --base and --onto only")
    parser.add_argument(
        "--next", action="store_true", help="hold every commit of the range against what was just before it, too"
    )
    parser.add_argument("--show", action="store_true", help="name every miss and false alarm")
    return parser.parse_args()


def _draw(patches: Drawn, count: int, seed: int) -> Drawn:
    return random.Random(seed).sample(patches, min(count, len(patches)))


def _carried_back(objects: Objects, base: CommitId, span: str) -> Iterator[tuple[CommitId, Patch]]:
    """(upstream commit, fork patch on `base`) of every code commit of a range that carries back without a conflict."""
    listed = git.text(["rev-list", "--first-parent", "--no-merges", "--reverse", "--parents", span], cwd=objects.repository)
    ours = objects.tree_of(base)
    for line in listed.splitlines():
        commit, parent = map(CommitId, line.split()[:2])
        before, after = objects.tree_of(parent), objects.tree_of(commit)
        if not any(_CODE.search(path) for path, _, _ in objects.difference(before, after)):
            continue
        back = merge(objects, {}, before, ours, after)
        if back.conflicts or back.tree == ours:
            continue
        subject = _NUMBER.sub("", git.text(["log", "-1", "--format=%s", commit], cwd=objects.repository)) or "change"
        fork = objects.write_commit(back.tree, (base,), subject + "\n", _NOBODY)
        # What cannot be a patch file (its lines end in CRLF) is no fork's patch.
        with contextlib.suppress(StackError):
            yield commit, parse(export(objects, base, [fork])[0], PatchRef("bench", "any", f"{commit}.patch"), name=commit)


def _report(measure: "Measure", positives: Drawn, negatives: Drawn, seed: int, show: bool) -> None:
    ways: dict[str, Callable[[Patch], str]] = {
        "this engine": measure.engine,
        "git cherry": lambda patch: _LANDED if measure.cherry(patch) else "",
        "reverse apply": lambda patch: _LANDED if measure.reverse(patch) else "",
        "three-way merge": lambda patch: _LANDED if measure.merge(patch) else "",
    }
    if measure.index.releases:
        del ways["git cherry"]  # there are no commits to compare
    print(f"seed {seed}: {len(positives)} landed, {len(negatives)} not")
    for name, judge in ways.items():
        start = time.perf_counter()
        hits = [judge(patch) for _, patch in positives]
        alarms = [judge(patch) for _, patch in negatives]
        took = 1000 * (time.perf_counter() - start) / max(1, len(hits) + len(alarms))
        landed, wrong = (sum(one in (_LANDED, _TAKEN_BACK) for one in some) for some in (hits, alarms))
        back = f" (of them dropped again: {hits.count(_TAKEN_BACK)})" if _TAKEN_BACK in hits else ""
        recall = f"recall {landed}/{len(hits)} = {landed / max(1, len(hits)):.3f}{back}"
        known = f" (of them dropped again: {alarms.count(_TAKEN_BACK)})" if _TAKEN_BACK in alarms else ""
        print(f"  {name:16} {recall}, false alarms {wrong}/{len(alarms)}{known}, {took:.0f} ms a patch")
        if show and name == "this engine":
            _show(measure, [(one, hit or "missed") for one, hit in zip(positives, hits, strict=True) if hit != _LANDED])
            _show(measure, [(one, "false alarm") for one, alarm in zip(negatives, alarms, strict=True) if alarm == _LANDED])
    start = time.perf_counter()
    for _, patch in (*positives, *negatives):
        landing.search(measure.index, files(patch), objects=measure.objects)
    print(f"  of it searching  {1000 * (time.perf_counter() - start) / max(1, len(positives) + len(negatives)):.1f} ms a patch")


def _report_next(measure: "Measure", inside: Drawn, show: bool) -> None:
    """False alarms among the commits of the range, each against upstream just before it."""
    alarms: Drawn = []
    tried = 0
    with contextlib.closing(_copied(measure.index)) as index:
        for commit, patch in reversed(inside):
            before = CommitId(git.text(["rev-parse", f"{commit}^"], cwd=measure.objects.repository))
            _cut(index, commit)
            tried += 1
            if Measure(measure.objects, index, measure.base, before).engine(patch) == _LANDED:
                alarms.append((commit, patch))
    print(f"each against upstream just before it: false alarms {len(alarms)}/{tried}")
    if show:
        _show(measure, [(one, "false alarm") for one in alarms])


def _copied(index: Index) -> Index:
    database = sqlite3.connect(":memory:")
    index.database.backup(database)
    return replace(index, database=database)


def _cut(index: Index, commit: CommitId) -> None:
    """Forget a step and all after it."""
    ask = "(select number from steps where id = ?)"
    index.database.execute(f"delete from lines where unit in (select number from units where step >= {ask})", (commit,))
    for table, column in (("units", "step"), ("files", "step"), ("steps", "number")):
        index.database.execute(f"delete from {table} where {column} >= {ask}", (commit,))


def _show(measure: "Measure", judged: Sequence[tuple[tuple[CommitId, Patch], str]]) -> None:
    for (commit, patch), what in judged:
        found = landing.search(measure.index, files(patch), objects=measure.objects)
        most = (
            f"{found.score:.0%} in {found.steps[0].commit[:12]} {found.steps[0].subject}" if found else "nothing like it found"
        )
        print(f"    {what}: {commit[:12]} {patch.subject}: {most}")


@dataclass
class Measure:
    """The ways to tell that a fork patch on `base` has landed in `onto`."""

    objects: Objects
    index: Index
    base: CommitId
    onto: CommitId
    known: set[bytes] | None = None

    def engine(self, patch: Patch) -> str:
        """Carry it alone and judge it, as `stack triage --independent` does."""
        row = engine.carry(self.objects, self.base, self.onto, [patch], aids=Aids(self.index)).rows[0]
        return _TAKEN_BACK if row.outcome is Outcome.DROPPED_UPSTREAM else _LANDED if row.outcome is Outcome.LANDED else ""

    def cherry(self, patch: Patch) -> bool:
        """Its patch id among those of the range, as `git cherry` compares them."""
        if self.known is None:
            log = ["log", "-p", "--no-merges", "--first-parent", "--format=commit %H", f"{self.base}..{self.onto}"]
            self.known = {line.split()[0] for line in self._ids(git.run(log, cwd=self.objects.repository).stdout)}
        return any(line.split()[0] in self.known for line in self._ids(patch.diff))

    def _ids(self, diffs: bytes) -> list[bytes]:
        return git.run(["patch-id", "--stable"], stdin=diffs, cwd=self.objects.repository).stdout.splitlines()

    def reverse(self, patch: Patch) -> bool:
        """It can be taken back from the new base by `git apply -R`."""
        with tempfile.TemporaryDirectory() as folder:
            env = {"GIT_DIR": str(self.objects.repository), "GIT_INDEX_FILE": f"{folder}/index"}
            git.run(["read-tree", self.onto], env=env)
            check = ["apply", "--cached", "--check", "-R", "-"]
            return git.run(check, stdin=patch.diff, env=env, accept=(0, 1, 128)).returncode == 0

    def merge(self, patch: Patch) -> bool:
        """A plain three-way merge onto the new base changes nothing."""
        return engine.carry(self.objects, self.base, self.onto, [patch]).rows[0].outcome is Outcome.LANDED


if __name__ == "__main__":
    sys.exit(main())
