# SPDX-License-Identifier: Apache-2.0
"""How well landed patches are recognised: recall and false alarms, beside what git offers, on any clone.

    python benchmarks/landing.py --repo CLONE --base v0.6.4 --onto v0.6.8 [--count 60] [--seeds 1 2 3] [--releases] [--next]

Fork patches are real commits of `base..onto`, taken back to `base`; negatives are commits from after `onto`, taken back alike.
Drawn by a printed seed from all first-parent non-merge commits that change code and carry back without a conflict. The
upstream's number is cut off the subject: a fork does not know it. What upstream has dropped again until `onto` has landed, too,
and is counted beside it: a rebase goes on carrying it, and asks.

`--releases` knows the two trees only, as the registry's archives give them. `--next` adds harder negatives: every commit of the
range, held against upstream as it was just before it. What is most like a change usually came shortly before.

`--own 30` changes landed patches so that a part of each is the fork's own, in five ways: a line of its own beside an added one,
another last word, added lines at another place of the file, added lines of Python with another indentation, and a group of lines
that a later commit takes back. A part is lost if nobody is told to look and the carried patch does not have it. Another
indentation that leaves the same syntax tree, as inside of brackets, is none: it is not drawn.
"""

import argparse
import ast
import contextlib
import random
import re
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import clones

from stack.base.errors import StackError
from stack.carry import engine, history, landing, unmerged_remainder
from stack.carry.apply import apply, files
from stack.carry.engine import Aids
from stack.carry.export import export
from stack.carry.history import Index
from stack.carry.ladder import Rung
from stack.carry.merge import merge
from stack.carry.outcome import Outcome
from stack.carry.unmerged_remainder import Group
from stack.model.diff import parse as diffs
from stack.model.ids import CommitId, TreeId
from stack.model.patch import Patch, parse
from stack.model.series import PatchRef
from stack.store import git
from stack.store.objects import Entry, Identity, Objects

_CODE = re.compile(r"\.(py|pyi|c|cc|cpp|cu|cuh|h|hpp|inl|jinja|rs|go|js|ts|java|sh|cmake)$|CMakeLists\.txt$")
Drawn = list[tuple[CommitId, Patch]]
_NUMBER = re.compile(r"\s*\(#\d+\)")
_PICKED = re.compile(r"cherry picked from commit ([0-9a-f]{40})")
_NOBODY = Identity("A Fork", "fork@localhost", "1700000000 +0000")
_LANDED, _TAKEN_BACK = "landed", "taken back"


def main() -> int:
    """Draw, measure and print a table a seed."""
    options = _options()
    with clones.bare(options.repo) as bare:
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
            index = history.index(objects, ends[0], [Rung(options.onto, ends[1])], bare.parent)
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
            if options.own:
                _report_own(measure, inside, options.own, options.seeds[0], options.show)
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
    parser.add_argument(
        "--own", type=int, default=0, help="so many landed patches of each kind get a part that is the fork's own"
    )
    parser.add_argument("--show", action="store_true", help="name every miss, false alarm and loss")
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


@dataclass(frozen=True)
class Own:
    """A landed patch with a part that is the fork's own: the lines that must not be lost, and the measure that judges it."""

    commit: CommitId
    patch: Patch
    lines: tuple[bytes, ...]
    measure: "Measure"


def _report_own(measure: "Measure", inside: Drawn, count: int, seed: int, show: bool) -> None:
    kinds: dict[str, Callable[[Measure, CommitId, Patch, random.Random], Own | None]] = {
        "own line": _own_line,
        "own value": _own_value,
        "other place": _other_place,
        "other indentation": _other_indentation,
        "partial revert": _partial_revert,
    }
    for name, change in kinds.items():
        chance = random.Random(f"{seed} {name}")
        outcomes: Counter[str] = Counter()
        lost: list[Own] = []
        made: set[tuple[CommitId, bytes]] = set()
        for _ in range(20 * count):
            if len(made) == count:
                break
            own = change(measure, *chance.choice(inside), chance)
            if own is None or (own.commit, own.patch.diff) in made:
                continue
            made.add((own.commit, own.patch.diff))
            outcome, is_lost = own.measure.loses(own)
            outcomes[outcome] += 1
            lost += [own] if is_lost else []
        told = ", ".join(f"{outcome} {number}" for outcome, number in sorted(outcomes.items()))
        print(f"  {name:18} lost {len(lost)}/{len(made)} ({told})")
        for own in lost if show else ():
            print(f"    lost: {own.commit[:12]} {own.patch.subject}: {own.lines[0].decode('utf-8', 'replace').strip()}")


@dataclass(frozen=True)
class Chosen:
    """A group that adds lines to a file of code, the other groups of that file, and its lines before the patch."""

    group: Group
    others: tuple[Group, ...]
    old: list[bytes]

    def file(self, added: list[bytes]) -> bytes:
        """The file after the patch, with other lines in place of those that the group adds."""
        hunk = self.group.hunk
        assert hunk is not None
        gone = [line for line in hunk.lines if line[:1] == b"-"]
        own = replace(hunk, lines=(*gone, *(b"+" + line.rstrip(b"\n") for line in added)))
        hunks = [own, *(one.hunk for one in self.others if one.hunk is not None)]
        return unmerged_remainder.patched(b"".join(self.old), sorted(hunks, key=lambda one: one.old_start))


def _added(measure: "Measure", patch: Patch, chance: random.Random, suffixes: tuple[str, ...] = ()) -> Chosen | None:
    """A group of a patch that adds lines, by chance."""
    every = unmerged_remainder.groups(measure.objects, *measure.change(patch))
    groups = [
        group
        for group in every
        if _CODE.search(group.path)
        and (not suffixes or group.path.endswith(suffixes))
        and any(_is_telling(line) for line in group.added)
    ]
    if not groups:
        return None
    group = chance.choice(groups)
    others = tuple(one for one in every if one.path == group.path and one != group)
    return Chosen(group, others, unmerged_remainder.split(measure.objects.read(group.old.id) if group.old is not None else b""))


def _is_telling(line: bytes) -> bool:
    return history.telling(b"+" + line) is not None


def _own_line(measure: "Measure", commit: CommitId, patch: Patch, chance: random.Random) -> Own | None:
    found = _added(measure, patch, chance)
    if found is None:
        return None
    added = found.group.added
    at = chance.choice([place for place, line in enumerate(added) if _is_telling(line)])
    own = added[at][: len(added[at]) - len(added[at].lstrip())] + b"own_line_of_the_fork()\n"
    return measure.own(commit, patch, found.group, found.file([*added[: at + 1], own, *added[at + 1 :]]), (own,))


def _own_value(measure: "Measure", commit: CommitId, patch: Patch, chance: random.Random) -> Own | None:
    found = _added(measure, patch, chance)
    if found is None:
        return None
    added = found.group.added
    at = chance.choice([place for place, line in enumerate(added) if _is_telling(line)])
    own = re.sub(rb"\w+(?=\W*$)", b"own_value_of_the_fork", added[at], count=1)
    return measure.own(commit, patch, found.group, found.file([*added[:at], own, *added[at + 1 :]]), (own,))


def _other_place(measure: "Measure", commit: CommitId, patch: Patch, chance: random.Random) -> Own | None:
    """The lines go to where the line above them stands once more, or else below any line of that indentation."""
    found = _added(measure, patch, chance)
    if found is None or found.group.hunk is None or found.group.hunk.old_count or not found.old:
        return None
    group, old = found.group, found.old
    assert group.hunk is not None
    start = group.hunk.old_start
    above = old[start - 1] if start else b""
    same = [place for place, line in enumerate(old, 1) if line == above and abs(place - start) > 9]
    width = len(above) - len(above.lstrip())
    alike = [place for place, line in enumerate(old, 1) if len(line) - len(line.lstrip()) == width and abs(place - start) > 9]
    if not (same or alike):
        return None
    at = chance.choice(same or alike)
    data = b"".join([*old[:at], *group.added, *old[at:]])
    own = measure.own(commit, patch, group, data, tuple(filter(_is_telling, group.added)))
    # The commit may have put the same lines there, too: then they are not the fork's own.
    return own if own is not None and not replace(measure, onto=commit).merge(own.patch) else None


def _other_indentation(measure: "Measure", commit: CommitId, patch: Patch, chance: random.Random) -> Own | None:
    found = _added(measure, patch, chance, (".py", ".pyi"))
    if found is None:
        return None
    own = [b"    " + line if line.strip() else line for line in found.group.added]
    if _is_layout(found.file(found.group.added), found.file(own)):
        return None
    return measure.own(commit, patch, found.group, found.file(own), tuple(filter(_is_telling, own)))


def _is_layout(one: bytes, other: bytes) -> bool:
    """Whether two texts are the same program: inside of brackets indentation means nothing."""
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except SyntaxError:
        return False


def _partial_revert(measure: "Measure", commit: CommitId, patch: Patch, chance: random.Random) -> Own | None:
    """A commit on the new base takes one group of several back."""
    objects = measure.objects
    before, after = measure.change(patch)
    groups = unmerged_remainder.groups(objects, before, after)
    found = _added(measure, patch, chance)
    if found is None or len(groups) < 2:
        return None
    rest = unmerged_remainder.only(objects, before, [group for group in groups if group != found.group])
    ours = objects.tree_of(measure.onto)
    reverted = merge(objects, {}, after, ours, rest)
    if reverted.conflicts or reverted.tree == ours:
        return None
    tip = objects.write_commit(reverted.tree, (measure.onto,), "Take a part back\n", _NOBODY)
    index = _extended(measure.index, objects, measure.onto, tip)
    return Own(commit, patch, tuple(filter(_is_telling, found.group.added)), replace(measure, index=index, onto=tip))


def _extended(index: Index, objects: Objects, onto: CommitId, tip: CommitId) -> Index:
    """The way with one more step."""
    more = _copied(index)
    base = more.database.execute("select max(number) from units").fetchone()[0] + 1
    more.database.execute("insert into steps values (?, ?, ?, null, null)", (index.steps, tip, "Take a part back"))
    for unit, file in enumerate(
        diffs(unmerged_remainder.difference(objects, objects.tree_of(onto), objects.tree_of(tip), context=0)), base
    ):
        ids = (file.old_id if file.old else None, file.new_id if file.new else None)
        row = (file.path, index.steps, *ids, file.new_mode if file.new else None)
        more.database.execute("insert into files values (?, ?, ?, ?, ?)", row)
        more.database.execute("insert into units values (?, ?, ?)", (unit, index.steps, file.path))
        counted = Counter(history.lines(file))
        rows = [(line, side, unit, times) for (side, line), times in counted.items()]
        more.database.executemany("insert into lines values (?, ?, ?, ?)", rows)
    return replace(more, steps=index.steps + 1)


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

    def change(self, patch: Patch) -> tuple[TreeId, TreeId]:
        """The trees before and after a patch on `base`."""
        before = self.objects.tree_of(self.base)
        after = apply(self.objects, before, patch)
        assert isinstance(after, str)
        return before, after

    def own(self, commit: CommitId, patch: Patch, group: Group, data: bytes, lines: tuple[bytes, ...]) -> Own | None:
        """A patch with another content of one file."""
        assert group.new is not None
        _, after = self.change(patch)
        others = unmerged_remainder.only(self.objects, *self._without(patch, group))
        entry = Entry(group.new.mode, self.objects.write_blob(data))
        tree = self.objects.replaced(others, {group.path: entry})
        if tree == after:
            return None
        fork = self.objects.write_commit(tree, (self.base,), f"{patch.subject}\n", _NOBODY)
        with contextlib.suppress(StackError):
            raw = export(self.objects, self.base, [fork])[0]
            return Own(commit, parse(raw, patch.ref, name=patch.subject), lines, self)
        return None

    def _without(self, patch: Patch, group: Group) -> tuple[TreeId, list[Group]]:
        """The groups of a patch in other files than the file of `group`, with the tree before it."""
        before, after = self.change(patch)
        return before, [one for one in unmerged_remainder.groups(self.objects, before, after) if one.path != group.path]

    def loses(self, own: Own) -> tuple[str, bool]:
        """The outcome of a patch, and whether the fork's own lines are gone without a word."""
        carried = engine.carry(self.objects, self.base, self.onto, [own.patch], aids=Aids(self.index))
        row = carried.rows[0]
        data = carried.exported.get(own.patch.ref.path, b"")
        kept = all(b"\n+" + line.rstrip(b"\n") in data for line in own.lines)
        return row.outcome.value, not row.needs_person and not kept

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
