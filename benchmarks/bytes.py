# SPDX-License-Identifier: Apache-2.0
"""Whether patch files lose nothing: the trees and bytes of this project beside those of git, on commits of any clone.

    python benchmarks/bytes.py --repo CLONE [--count 200] [--seed 1] [--rev HEAD] [--back 5] [--show]

The commits are drawn by a seed from all non-merge commits of the history. A quarter of them each have a rename, another mode,
or a binary file, as far as the history has so many. Each becomes a patch file. For each of them:

- this project applies the file to the commit's parent, and has to get the commit's tree; so does git, from the mail;
- written again from there, the diff has to be the same to the byte;
- carried to an older commit, it has to get the tree of git's own merge or a conflict where git has one, and git has to get that
  tree from the file that this project writes.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import clones

from stack.base.errors import StackError
from stack.carry import engine
from stack.carry.apply import apply, commit
from stack.carry.export import export
from stack.carry.mergetree import merge_trees
from stack.model.ids import CommitId
from stack.model.patch import Patch, parse
from stack.model.series import PatchRef
from stack.store import git
from stack.store.objects import Objects

_KINDS: dict[str, Callable[[Sequence[str]], bool]] = {
    "rename": lambda fields: fields[4].startswith("R"),
    "mode": lambda fields: "000000" not in (fields[0].lstrip(":"), fields[1]) and fields[0].lstrip(":") != fields[1],
    "binary": lambda fields: fields[-1].lower().endswith((".png", ".gif", ".jpg", ".so", ".bin", ".pdf", ".ico", ".gz")),
}
"""How a raw line of `git log` (modes, ids, status, paths) shows what a commit does."""


def main() -> int:
    """Draw, check and print a table."""
    options = _options()
    with clones.bare(options.repo) as bare:
        drawn = _drawn(bare, options.rev, options.count, options.seed)
        kinds = Counter(kind for kinds in drawn.values() for kind in kinds)
        told = ", ".join(
            f"{kinds[kind]} with {name}" for kind, name in (("rename", "renames"), ("mode", "modes"), ("binary", "binaries"))
        )
        print(f"{len(drawn)} commits of {options.repo}, seed {options.seed}: {told}")
        start = time.perf_counter()
        with Objects(bare) as objects:
            results = [_checked(objects, CommitId(one), options.back) for one in drawn]
        outcomes = Counter(outcome for outcome, _ in results)
        print(f"{'':34} {'commits':>7}")
        for outcome, number in sorted(outcomes.items()):
            print(f"{outcome:34} {number:7}")
        print(f"{time.perf_counter() - start:.0f} s")
        for one, (outcome, said) in zip(drawn, results, strict=True) if options.show else ():
            if outcome not in _GOOD:
                print(f"  {one[:12]} {outcome}: {said}")
    return 0 if outcomes.keys() <= _GOOD else 1


_SAME = "same trees and bytes"
_CONFLICT = "same, in conflict where it is carried to"
_GOOD = {_SAME, _CONFLICT}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repo", type=Path, required=True, help="a clone, bare or not")
    parser.add_argument("--rev", default="HEAD", help="the history that commits are drawn from")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--back", type=int, default=5, help="carry each to the commit so many before it")
    parser.add_argument("--show", action="store_true", help="name every commit that does not come out the same")
    return parser.parse_args()


def _drawn(bare: Path, rev: str, count: int, seed: int) -> dict[str, set[str]]:
    """Some commits, each with what kinds of change it has."""
    raw = ["log", "--no-merges", "--min-parents=1", "--raw", "-M", "--no-abbrev", "--format=commit %H", "-z", rev]
    found: dict[str, set[str]] = {}
    kinds: set[str] = set()
    fields: list[str] = []
    for part in git.text([*raw], cwd=bare).split("\0"):
        if part.startswith("commit "):
            kinds = found.setdefault(part.split()[1], set())
        elif part.lstrip("\n").startswith(":"):
            fields = part.split()
        elif fields:
            kinds |= {kind for kind, shows in _KINDS.items() if shows([*fields, part])}
    chance = random.Random(seed)
    chosen: dict[str, set[str]] = {}
    for kind in _KINDS:
        some = [one for one, own in found.items() if kind in own and one not in chosen]
        chosen |= {one: found[one] for one in chance.sample(some, min(count // 4, len(some)))}
    rest = [one for one in found if one not in chosen]
    return chosen | {one: found[one] for one in chance.sample(rest, min(count - len(chosen), len(rest)))}


def _checked(objects: Objects, one: CommitId, back: int) -> tuple[str, str]:
    """The outcome for a commit, and what is wrong."""
    parent, onto = (CommitId(git.text(["rev-parse", name], cwd=objects.repository)) for name in (f"{one}^", f"{one}~{back}"))
    tree = objects.tree_of(one)
    if tree == objects.tree_of(parent):
        return _SAME, ""
    try:
        raw = export(objects, parent, [one])[0]
        patch = parse(raw, PatchRef("bench", "any", f"{one}.patch"), name=one)
        applied = apply(objects, objects.tree_of(parent), patch)
        if applied != tree:
            return "this project gets another tree", str(applied)
        again = export(objects, parent, [commit(objects, tree, parent, patch)])[0]
        if parse(again, patch.ref, name=one).diff != patch.diff:
            return "this project writes other bytes", f"{len(raw)}, then {len(again)}"
        if (said := _by_git(objects, parent, raw)) != tree:
            return "git gets another tree", said
        return _carried(objects, parent, onto, patch)
    except StackError as refused:
        return "this project refuses it", str(refused)


def _carried(objects: Objects, parent: CommitId, onto: CommitId, patch: Patch) -> tuple[str, str]:
    carried = engine.carry(objects, parent, onto, [patch])
    row = carried.rows[0]
    base, ours, patched = (objects.tree_of(name) for name in (parent, onto, carried.source_tip))
    theirs = merge_trees(objects, base, ours, patched)
    if theirs.clean != (not row.conflicts):
        return "carried: a conflict of one only", f"{row.outcome}"
    if row.conflicts:
        return _CONFLICT, ""
    if row.tree != theirs.tree:
        return "carried: another tree than git merges", row.tree
    data = carried.exported.get(patch.ref.path)
    said = _by_git(objects, onto, data) if data is not None else objects.tree_of(onto)
    return (_SAME, "") if said == row.tree else ("carried: git gets another tree", said)


def _by_git(objects: Objects, onto: CommitId, raw: bytes) -> str:
    """The tree that git makes of a mail, or what it says against it."""
    with tempfile.TemporaryDirectory() as folder:
        env = {"GIT_DIR": str(objects.repository), "GIT_INDEX_FILE": f"{folder}/index"}
        objects.flush()
        git.run(["read-tree", onto], env=env)
        git.run(["mailinfo", "--encoding=UTF-8", f"{folder}/message", f"{folder}/patch"], stdin=raw, env=env)
        done = git.run(["apply", "--cached", "--whitespace=nowarn", f"{folder}/patch"], env=env, accept=(0, 1, 128))
        if done.returncode:
            return done.stderr.decode("utf-8", "replace")
        return git.text(["write-tree"], env=env)


if __name__ == "__main__":
    sys.exit(main())
