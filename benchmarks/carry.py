# SPDX-License-Identifier: Apache-2.0
"""How fast a series is carried: this engine beside `git rebase` and `git am -3`, in one run, on any clone.

    python benchmarks/carry.py --repo CLONE --base v0.6.16 --onto v0.6.17 [--count 40] [--runs 5]

The series is made of real commits: first-parent commits after `--onto` that carry, one on the other, back onto `--base` and
from there onto `--onto` without a conflict. Every way starts from that chain (`git am` from its patch files), ends with the
commits written, and this engine is checked to end in the tree of `git rebase`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import clones

from stack.carry import apply, engine, history
from stack.carry.drift import blame
from stack.carry.export import export
from stack.carry.ladder import Rung
from stack.carry.merge import merge
from stack.carry.outcome import Outcome
from stack.carry.resolutions import Resolutions
from stack.model.ids import CommitId
from stack.model.patch import Patch, parse
from stack.model.series import PatchRef
from stack.store import git
from stack.store.objects import Identity, Objects


def main() -> int:
    """Draw the series, time every way in turn, print the table."""
    options = _options()
    with clones.bare(options.repo) as bare:
        base, onto = (
            CommitId(git.text(["rev-parse", f"{name}^{{commit}}"], cwd=bare)) for name in (options.base, options.onto)
        )
        with Objects(bare) as objects:
            patches = _series(objects, base, onto, options.tip, options.count, options.lines)
        if len(patches) < options.count:
            print(f"only {len(patches)} commits after {options.onto} carry back to {options.base}", file=sys.stderr)
            return 1
        # Drawing the series wrote some 300 packs, which a clone does not have, and which each process of git would open.
        git.run(["repack", "--quiet", "-a", "-d", "-l"], cwd=bare)
        size = sum(len(patch.raw) for patch in patches) // 1024
        print(
            f"{len(patches)} patches ({size} KiB) from {options.repo}, {options.base} -> {options.onto}, {options.runs} runs in turn"
        )
        seconds, cpu = _measure(bare, bare.parent, base, onto, patches, options.runs)
        _table(seconds)
        print("the same in seconds of the CPU, for a machine that others use, too:")
        _table(cpu)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repo", type=Path, required=True, help="a clone, bare or not")
    parser.add_argument("--base", required=True, help="the older release: where the fork's patches stand")
    parser.add_argument("--onto", required=True, help="the newer release")
    parser.add_argument("--tip", default="HEAD", help="where the commits after --onto are taken from")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--lines", type=int, default=1000, help="larger commits are passed over: a fork's patches are small")
    parser.add_argument("--runs", type=int, default=5)
    return parser.parse_args()


def _series(objects: Objects, base: CommitId, onto: CommitId, tip: str, count: int, lines: int) -> list[Patch]:
    """The patch files of the drawn commits, as a chain on `base`."""
    commits = git.text(
        ["rev-list", "--first-parent", "--reverse", "--no-merges", f"{onto}..{tip}"], cwd=objects.repository
    ).split()
    nobody = Identity("A Fork", "fork@localhost", "1700000000 +0000")
    chain: list[CommitId] = []
    old, new = base, onto
    for commit in map(CommitId, commits):
        if len(chain) == count:
            break
        parent = CommitId(git.text(["rev-parse", f"{commit}^"], cwd=objects.repository))
        trees = objects.tree_of(parent), objects.tree_of(commit)
        back = merge(objects, {}, trees[0], objects.tree_of(old), trees[1])
        if back.conflicts or back.tree == objects.tree_of(old) or _lines(objects, trees) > lines:
            continue
        forth = merge(objects, {}, objects.tree_of(old), objects.tree_of(new), back.tree)
        subject = git.text(["log", "-1", "--format=%s", commit], cwd=objects.repository)
        if forth.conflicts or forth.tree == objects.tree_of(new):
            continue
        old = objects.write_commit(back.tree, (old,), subject + "\n", nobody)
        new = objects.write_commit(forth.tree, (new,), subject + "\n", nobody)
        chain.append(old)
    files = export(objects, base, chain)
    return [parse(data, PatchRef("bench", "any", f"{place}.patch"), name=str(place)) for place, data in enumerate(files)]


def _lines(objects: Objects, trees: tuple[str, str]) -> float:
    """The lines that a commit changes; a binary file counts as too many."""
    shown = git.text(["diff-tree", "-r", "--numstat", *trees], cwd=objects.repository).splitlines()
    counts = [line.split("\t")[:2] for line in shown]
    return float("inf") if ["-", "-"] in counts else sum(int(added) + int(removed) for added, removed in counts)


class Ways:
    """The ways to carry a series: each returns the tree that it ends in, and how long it took."""

    def __init__(self, bare: Path, folder: Path, base: CommitId, onto: CommitId, patches: Sequence[Patch]) -> None:
        self.bare, self.base, self.onto, self.patches = bare, base, onto, patches
        self.cache, self.work, self.mailbox = folder / "cache", folder / "work", folder / "series.mbox"
        self.rungs = [Rung(str(onto), onto)]
        self.files = [folder / f"{number:04}.patch" for number in range(len(patches))]
        for file, patch in zip(self.files, patches, strict=True):
            file.write_bytes(patch.raw)
        self.mailbox.write_bytes(b"".join(patch.raw for patch in patches))
        git.run(["clone", "--quiet", "--shared", "--no-checkout", str(bare), str(self.work)])
        for key, value in (
            ("user.name", "A Fork"),
            ("user.email", "fork@localhost"),
            ("gc.auto", "0"),
            ("rerere.enabled", "no"),
        ):
            git.run(["config", key, value], cwd=self.work)
        with Objects(bare) as objects:
            tip = apply.chain(objects, base, patches)[-1]
        git.run(["fetch", "--quiet", str(bare), f"+{tip}:refs/heads/series"], cwd=self.work)

    def index(self) -> float:
        """Build the index, and tell how long it took."""
        start = time.perf_counter()
        with Objects(self.bare) as objects:
            history.index(objects, self.base, self.rungs, self.cache).close()
        return time.perf_counter() - start

    def engine(self) -> tuple[str, float]:
        """The engine alone."""
        start = time.perf_counter()
        with Objects(self.bare) as objects:
            carried = engine.carry(objects, self.base, self.onto, self.patches)
            took = time.perf_counter() - start
            assert all(row.outcome in (Outcome.CLEAN, Outcome.MOVED) for row in carried.rows)
            return objects.tree_of(carried.tip), took

    def evidence(self) -> tuple[str, float]:
        """The engine with everything on."""
        start = time.perf_counter()
        with Objects(self.bare) as objects, closing(history.index(objects, self.base, self.rungs, self.cache)) as index:
            aids = engine.Aids(index, Resolutions({}))
            carried = engine.carry(objects, self.base, self.onto, self.patches, aids=aids)
            carried = blame.judged(objects, carried, index)
            return objects.tree_of(carried.tip), time.perf_counter() - start

    def triage(self) -> tuple[str, float]:
        """The whole command."""
        stack = Path(sys.executable).with_name("stack")
        span = ["--repo", self.bare, "--base", self.base, "--onto", self.onto]
        # An installed command has its bytecode; the warm-up writes it here.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        start = time.perf_counter()
        done = subprocess.run(
            [stack, "--cache", self.cache, "triage", *map(str, span), "--json", *self.files],
            stdout=subprocess.PIPE,
            check=False,
            env=env,
        )
        took = time.perf_counter() - start
        return str(json.loads(done.stdout)["patches"][-1]["tree"]), took

    def rebase(self) -> tuple[str, float]:
        """`git rebase`."""
        self._checkout("refs/heads/series")
        return self._timed(["rebase", "--quiet", "--onto", self.onto, self.base, "moving"])

    def am(self) -> tuple[str, float]:
        """`git am -3`."""
        self._checkout(self.onto)
        return self._timed(["am", "--quiet", "-3", str(self.mailbox)])

    def _checkout(self, commit: str) -> None:
        git.run(["checkout", "--quiet", "--force", "-B", "moving", commit], cwd=self.work)

    def _timed(self, command: Sequence[str]) -> tuple[str, float]:
        start = time.perf_counter()
        git.run(command, cwd=self.work)
        took = time.perf_counter() - start
        return git.text(["rev-parse", "HEAD^{tree}"], cwd=self.work), took


def _measure(
    bare: Path, folder: Path, base: CommitId, onto: CommitId, patches: Sequence[Patch], runs: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of every run by the clock, and of the CPU with all processes, by way. One warm-up each; all ways have to end in the same tree."""
    ways = Ways(bare, folder, base, onto, patches)
    print(f"what the range changed, indexed once: {ways.index():.1f} s")
    named: dict[str, Callable[[], tuple[str, float]]] = {
        "stack": ways.engine,
        "+ evidence": ways.evidence,
        "stack triage": ways.triage,
        "git rebase": ways.rebase,
        "git am -3": ways.am,
    }
    seconds: dict[str, list[float]] = {name: [] for name in named}
    cpu: dict[str, list[float]] = {name: [] for name in named}
    for run in range(runs + 1):
        trees: dict[str, str] = {}
        for name, way in named.items():
            apply.files.cache_clear()  # every way reads its patches anew
            before = os.times()
            trees[name], took = way()
            if run:
                seconds[name].append(took)
                cpu[name].append(sum(os.times()[:4]) - sum(before[:4]))
        if len({tree for name, tree in trees.items() if name != "git am -3"}) > 1:
            raise SystemExit(f"stack and git rebase end in different trees: {trees}")
        if trees["git am -3"] != trees["stack"] and not run:
            print("note: git am -3 ends in another tree than the others")
    return seconds, cpu


def _table(seconds: dict[str, list[float]]) -> None:
    print(f"{'':12} {'median s':>9} {'min':>7} {'max':>7}   as fast as git rebase (by run: min, median, max)")
    for name, runs in seconds.items():
        ratios = sorted(theirs / own for theirs, own in zip(seconds["git rebase"], runs, strict=True))
        spread = f"{ratios[0]:.1f} {statistics.median(ratios):.1f} {ratios[-1]:.1f}"
        print(f"{name:12} {statistics.median(runs):9.2f} {min(runs):7.2f} {max(runs):7.2f}   {spread}")


if __name__ == "__main__":
    sys.exit(main())
