# SPDX-License-Identifier: Apache-2.0
"""How fast a series is carried: this engine beside `git rebase` and `git am -3`, in one run, on any clone.

    python benchmarks/carry.py --repo CLONE --base v0.6.16 --onto v0.6.17 [--count 40] [--runs 5]

The series is made of real commits: first-parent commits after `--onto` that carry, one on the other, back onto `--base` and
from there onto `--onto` without a conflict. Every way starts from that chain (`git am` from its patch files), ends with the
commits written, and this engine is checked to end in the tree of `git rebase`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from stack.carry import apply, drifting, engine, history
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
    repo = Path(git.text(["rev-parse", "--absolute-git-dir"], cwd=options.repo))
    with tempfile.TemporaryDirectory(prefix="stack-bench-") as folder:
        bare = Path(folder) / "bare.git"
        git.run(["clone", "--quiet", "--bare", "--shared", str(repo), str(bare)])
        base, onto = (
            CommitId(git.text(["rev-parse", f"{name}^{{commit}}"], cwd=bare)) for name in (options.base, options.onto)
        )
        with Objects(bare) as objects:
            patches = _series(objects, base, onto, options.tip, options.count, options.lines)
        if len(patches) < options.count:
            print(f"only {len(patches)} commits after {options.onto} carry back to {options.base}", file=sys.stderr)
            return 1
        size = sum(len(patch.raw) for patch in patches) // 1024
        print(
            f"{len(patches)} patches ({size} KiB) from {options.repo}, {options.base} -> {options.onto}, {options.runs} runs in turn"
        )
        _table(_measure(bare, Path(folder), base, onto, patches, options.runs))
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


def _measure(
    bare: Path, folder: Path, base: CommitId, onto: CommitId, patches: Sequence[Patch], runs: int
) -> dict[str, list[float]]:
    """Seconds of every run, by way. One warm-up each; all ways have to end in the same tree."""
    work = folder / "work"
    git.run(["clone", "--quiet", "--shared", "--no-checkout", str(bare), str(work)])
    for key, value in (("user.name", "A Fork"), ("user.email", "fork@localhost"), ("gc.auto", "0")):
        git.run(["config", key, value], cwd=work)
    git.run(["config", "rerere.enabled", "false"], cwd=work)
    mailbox = folder / "series.mbox"
    mailbox.write_bytes(b"".join(patch.raw for patch in patches))
    with Objects(bare) as objects:
        tip = apply.chain(objects, base, patches)[-1]
    git.run(["fetch", "--quiet", str(bare), f"+{tip}:refs/heads/series"], cwd=work)

    def rebase() -> str:
        git.run(["checkout", "--quiet", "--force", "-B", "moving", "refs/heads/series"], cwd=work)
        return _timed(lambda: git.run(["rebase", "--quiet", "--onto", onto, base, "moving"], cwd=work))

    def am() -> str:
        git.run(["checkout", "--quiet", "--force", "-B", "moving", onto], cwd=work)
        return _timed(lambda: git.run(["am", "--quiet", "-3", str(mailbox)], cwd=work))

    def _timed(step: Callable[[], object]) -> str:
        start = time.perf_counter()
        step()
        spent.append(time.perf_counter() - start)
        return git.text(["rev-parse", "HEAD^{tree}"], cwd=work)

    def ours() -> str:
        start = time.perf_counter()
        with Objects(bare) as objects:
            carried = engine.carry(objects, base, onto, patches)
            spent.append(time.perf_counter() - start)
            assert all(row.outcome in (Outcome.CLEAN, Outcome.MOVED) for row in carried.rows)
            return objects.tree_of(carried.tip)

    cache = folder / "cache"
    rungs = [Rung(str(onto), onto)]
    start = time.perf_counter()
    with Objects(bare) as objects:
        history.index(objects, base, rungs, cache).close()
    print(f"what the range changed, indexed once: {time.perf_counter() - start:.1f} s")

    def evidence() -> str:
        start = time.perf_counter()
        with Objects(bare) as objects, closing(history.index(objects, base, rungs, cache)) as index:
            aids = engine.Aids(index, Resolutions({}))
            carried = drifting.judged(objects, engine.carry(objects, base, onto, patches, aids=aids), index)
            spent.append(time.perf_counter() - start)
            return objects.tree_of(carried.tip)

    names = [folder / f"{number:04}.patch" for number in range(len(patches))]
    for name, patch in zip(names, patches, strict=True):
        name.write_bytes(patch.raw)
    command = [
        Path(sys.executable).with_name("stack"),
        "--cache",
        cache,
        "triage",
        "--repo",
        bare,
        "--base",
        base,
        "--onto",
        onto,
    ]

    def triage() -> str:
        start = time.perf_counter()
        done = subprocess.run([*command, "--json", *names], stdout=subprocess.PIPE, check=False)
        spent.append(time.perf_counter() - start)
        return str(json.loads(done.stdout)["patches"][-1]["tree"])

    ways: dict[str, Callable[[], str]] = {
        "stack": ours,
        "+ evidence": evidence,
        "stack triage": triage,
        "git rebase": rebase,
        "git am -3": am,
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for run in range(runs + 1):
        spent: list[float] = []
        trees: dict[str, str] = {}
        for name, way in ways.items():
            apply.files.cache_clear()  # every way reads its patches anew
            trees[name] = way()
        if len({trees[name] for name in ("stack", "+ evidence", "stack triage", "git rebase")}) > 1:
            raise SystemExit(f"stack and git rebase end in different trees: {trees}")
        if trees["git am -3"] != trees["stack"] and not run:
            print("note: git am -3 ends in another tree than the other two")
        if run:
            for name, took in zip(ways, spent, strict=True):
                seconds[name].append(took)
    return seconds


def _table(seconds: dict[str, list[float]]) -> None:
    print(f"{'':12} {'median s':>9} {'min':>7} {'max':>7}   as fast as git rebase (by run: min, median, max)")
    for name, runs in seconds.items():
        ratios = sorted(theirs / own for theirs, own in zip(seconds["git rebase"], runs, strict=True))
        spread = f"{ratios[0]:.1f} {statistics.median(ratios):.1f} {ratios[-1]:.1f}"
        print(f"{name:12} {statistics.median(runs):9.2f} {min(runs):7.2f} {max(runs):7.2f}   {spread}")


if __name__ == "__main__":
    sys.exit(main())
