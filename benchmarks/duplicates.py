# SPDX-License-Identifier: Apache-2.0
"""How the score of duplicates ends on real changes: those that are the same, and those that only touch the same files.

    python benchmarks/duplicates.py picked --repo CLONE [--count 150] [--seed 2]
    python benchmarks/duplicates.py pulls --repo CLONE [--count 120] [--seed 3]

`picked`: commits that say `cherry picked from commit …`, against the commit that they name. `pulls`: pull requests that were never
merged (the clone has `refs/pull/*/head`), against what was merged and touches one of their files; what is alike there is shown, for
a person to say whether it is the same.
"""

import argparse
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from stack.model.diff import DiffError, parse
from stack.model.ids import CommitId
from stack.store import git
from stack.store.objects import Objects
from stack.upstreaming.duplicates import BAR, Overlap, overlaps

_PICKED = re.compile(r"cherry picked from commit ([0-9a-f]{40})")
_MERGED = re.compile(r"\(#(\d+)\)")
_LARGEST = 200_000
"""Bytes of a pull request that is drawn."""
_RECENT = 1500
"""First-parent commits of HEAD that pull requests are held against."""
_NEAR = 40
_SHOWN = 0.2
_BOUNDS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 0.9)


def main() -> int:
    """Draw, measure and print."""
    options = _options()
    with Objects(Path(git.text(["rev-parse", "--absolute-git-dir"], cwd=options.repo))) as objects:
        measured = list((_picked if options.what == "picked" else _pulls)(_Clone(objects), options.count, options.seed))
    print(f"{len(measured)} pairs")
    for bound in _BOUNDS:
        print(f"{bound:.1f} and more: {sum(overlap.score >= bound for overlap, _ in measured)}")
    shown = sorted(measured, key=lambda pair: pair[0].score, reverse=options.what == "pulls")
    for overlap, title in shown[:40] if options.what == "picked" else [pair for pair in shown if pair[0].score >= _SHOWN]:
        mark = "*" if overlap.is_duplicate else " "
        print(
            f"{mark} {overlap.score:.2f} (ours {overlap.ours:.2f}, theirs {overlap.theirs:.2f}, {len(overlap.lines)} lines) {title}"
        )
    print(f"* is at the bar, {BAR}")
    return 0


class _Clone:
    """A repository with its history."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.env = {"GIT_DIR": str(objects.repository)}

    def text(self, *arguments: str, accept: Sequence[int] = (0,)) -> str:
        return git.run(list(arguments), env=self.env, accept=accept).stdout.decode("utf-8", "replace").strip()

    def diff(self, before: str, after: str) -> bytes:
        show = ["diff", "-p", "--full-index", "--no-renames", "--no-ext-diff", before, after]
        return git.run(show, env=self.env, accept=(0, 128)).stdout

    def overlaps(self, base: str, ours: bytes, others: Sequence[bytes]) -> tuple[Overlap, ...]:
        return overlaps(self.objects, self.objects.tree_of(CommitId(base)), parse(ours), others)


def _picked(clone: _Clone, count: int, seed: int) -> Iterator[tuple[Overlap, str]]:
    log = clone.text("log", "--all", "--no-merges", "--format=%H%x00%s%x00%b%x01", "--grep=cherry picked from commit")
    pairs = []
    for entry in log.split("\x01"):
        commit, _, rest = entry.strip().partition("\0")
        subject, _, message = rest.partition("\0")
        pairs += [(commit, source, subject) for source in _PICKED.findall(message)[-1:]]
    random.Random(seed).shuffle(pairs)
    for commit, source, subject in pairs[:count]:
        picked, own = clone.diff(f"{commit}^", commit), clone.diff(f"{source}^", source)
        if picked and own:
            (overlap,) = clone.overlaps(clone.text("rev-parse", f"{commit}^"), own, [picked])
            yield overlap, subject


def _pulls(clone: _Clone, count: int, seed: int) -> Iterator[tuple[Overlap, str]]:
    log = [line.split("\0") for line in clone.text("log", "--first-parent", "--format=%H%x00%s", "HEAD").splitlines()]
    merged = {number for _, subject in log for number in _MERGED.findall(subject)}
    recent = [(commit, subject, _touched(clone, f"{commit}^", commit)) for commit, subject in log[:_RECENT]]
    heads = [
        line.split()
        for line in clone.text("for-each-ref", "--format=%(refname) %(objectname)", "refs/pull/*/head").splitlines()
    ]
    drawn = [(name.split("/")[2], commit) for name, commit in heads if name.split("/")[2] not in merged]
    random.Random(seed).shuffle(drawn)
    tried = 0
    for number, head in drawn:
        base = clone.text("merge-base", "HEAD", head, accept=(0, 1))
        own = clone.diff(base, head) if base and base != head else b""
        paths = _paths(own)
        near = [one for one in recent if one[2] & paths][:_NEAR]
        if not near or len(own) > _LARGEST:
            continue
        found = clone.overlaps(base, own, [clone.diff(f"{commit}^", commit) for commit, _, _ in near])
        title = clone.text("log", "-1", "--format=%s", head)
        yield from ((overlap, f"#{number} {title} | {subject}") for overlap, (_, subject, _) in zip(found, near, strict=True))
        tried += 1
        if tried == count:
            return


def _touched(clone: _Clone, before: str, after: str) -> frozenset[str]:
    return frozenset(clone.text("diff-tree", "-r", "--name-only", before, after, accept=(0, 128)).splitlines())


def _paths(diff: bytes) -> frozenset[str]:
    try:
        return frozenset(file.path for file in parse(diff))
    except DiffError:
        return frozenset()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("picked", "pulls"))
    parser.add_argument("--repo", type=Path, required=True)
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--seed", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
