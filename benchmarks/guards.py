# SPDX-License-Identifier: Apache-2.0
"""Whether guards name the right commit: attributes of a real project, judged between two of its revisions.

    python benchmarks/guards.py --repo CLONE --from REV --to REV [--count 100] [--seed 1] [--below src/package] [--show]

Functions, methods and classes are drawn by a seed from the first revision. Each gets a guard (kind `patched`), which is judged at
the second revision. For every one that does not hold, all first-parent commits in between are read one after the other, without
bisection and with a signature of this script's own; the first one since which the definition differs has to be the commit that the
guard names. Where both differ, the attribute may still be there, inherited or imported, which that signature does not see; then
all commits are judged one after the other.
"""

import argparse
import ast
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import clones

from stack.carry.guards import code
from stack.carry.guards.judgement import Guarded, State
from stack.carry.guards.judging import judge
from stack.carry.guards.own import Own
from stack.carry.guards.standing import Judge, Point
from stack.carry.guards.view import Cache, View
from stack.model.guards import Guard, Kind
from stack.model.ids import CommitId
from stack.store import git
from stack.store.objects import FILES, Objects


def main() -> int:
    """Draw, judge, compare and print a table."""
    options = _options()
    with clones.bare(options.repo) as bare:
        ends = [CommitId(_text(bare, "rev-parse", f"{rev}^{{commit}}")) for rev in (options.start, options.end)]
        way = _text(bare, "rev-list", "--first-parent", "--reverse", f"{ends[0]}..{ends[1]}").split()
        with Objects(bare) as objects:
            points = [Point(rev, end, end, end) for rev, end in zip((options.start, options.end), ends, strict=True)]
            guards = list(_drawn(objects, ends[0], options.below, options.count, options.seed))
            start = time.perf_counter()
            judging = Judge(objects, points[1], Own(bare.parent), points[0])
            found = [judging.judged(guard) for guard in guards]
            seconds = time.perf_counter() - start
            right = _compared(objects, ends[0], way, found, show=options.show)
    states = Counter(each.state.value for each in found)
    print(f"{options.repo}: {options.start}..{options.end}, {len(way)} first-parent commits, seed {options.seed}")
    print(f"{len(guards)} guards: {', '.join(f'{states[state.value]} {state.value}' for state in State)}; {seconds:.1f} s")
    print(
        f"same commit: {right['same']} of {right['same'] + right['other']}, {right['judged']} of them by judging every commit"
    )
    return 1 if right["other"] else 0


def _compared(objects: Objects, base: CommitId, way: list[str], found: list[Guarded], *, show: bool) -> Counter[str]:
    """Compare the named commits with those that a scan of all commits finds."""
    counts: Counter[str] = Counter()
    known: dict[tuple[str, str], str | None] = {}
    for each in found:
        if each.state is State.HELD:
            continue
        truth = _scanned(objects, base, way, each.guard, known)
        named = each.cause.commit if each.cause is not None else None
        if truth != named:
            counts["judged"] += 1
            truth = _judged(objects, way, each)
        counts["same" if truth == named else "other"] += 1
        if show or truth != named:
            print(f"{'' if truth == named else 'OTHER '}{each.sentence}; read: {truth}")
    return counts


def _scanned(
    objects: Objects, base: CommitId, way: list[str], guard: Guard, known: dict[tuple[str, str], str | None]
) -> str | None:
    """Return the first commit since which the definition in its file differs, by reading it at every commit."""
    wanted = _own_signature(objects, base, guard, known)
    since = None
    for commit in way:
        if _own_signature(objects, CommitId(commit), guard, known) == wanted:
            since = None
        elif since is None:
            since = commit
    return since


def _judged(objects: Objects, way: list[str], found: Guarded) -> str | None:
    """Return the first commit since which the guard does not hold, by judging it at every commit."""
    cache, since = Cache(), None
    fine = (State.HELD,) if found.state is State.MOVED else (State.HELD, State.MOVED)
    for commit in way:
        if judge(found.guard, View(objects, objects.tree_of(CommitId(commit)), cache), shares=False).state in fine:
            since = None
        elif since is None:
            since = commit
    return since


def _own_signature(objects: Objects, commit: CommitId, guard: Guard, known: dict[tuple[str, str], str | None]) -> str | None:
    """Return a definition's parameters and decorators as a dump of their syntax; None if there is none."""
    entry = objects.entry(objects.tree_of(commit), guard.defined)
    if entry is None or entry.mode not in FILES:
        return None
    key = entry.id, guard.member
    if key not in known:
        known[key] = _dumped(objects.read(entry.id), guard.member)
    return known[key]


def _dumped(data: bytes, member: str) -> str | None:
    try:
        holders: list[ast.AST] = [ast.parse(data)]
    except SyntaxError:
        return None
    for name in member.split("."):
        holders = [node for holder in holders for node in _inside(holder) if getattr(node, "name", None) == name]
    return "".join(map(_shape, holders)) or None


def _inside(holder: ast.AST) -> Iterator[ast.AST]:
    """Yield the definitions in a module or class, also those below conditions, but not those in functions."""
    for node in ast.iter_child_nodes(holder):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node
        elif not isinstance(node, ast.expr):
            yield from _inside(node)


def _shape(node: ast.AST) -> str:
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    decorators = "".join(ast.dump(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list)
    if isinstance(node, ast.ClassDef):
        starts = (each for each in _inside(node) if getattr(each, "name", None) == "__init__")
        return f"{decorators} class {[ast.dump(base) for base in node.bases]} {''.join(map(_shape, starts))};"
    for each in ast.walk(node.args):
        if isinstance(each, ast.arg):
            each.annotation = None
    return f"{decorators} {type(node).__name__} {ast.dump(node.args)};"


def _drawn(objects: Objects, commit: CommitId, below: str, count: int, seed: int) -> Iterator[Guard]:
    """Draw functions, methods and classes that the tree defines where they are named."""
    tree = objects.tree_of(commit)
    view = View(objects, tree, Cache())
    every = [(path, name) for path in view.files.walk(below) if path.endswith(".py") for name in _names(objects, tree, path)]
    draw = random.Random(seed)
    draw.shuffle(every)
    made = 0
    for path, name in every:
        module = path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        bare = Guard(f"g{made}", "it", Kind.PATCHED, f"{module}:{name}", "drawn", commit, defined=path)
        found = view.attribute(module, name)
        if found is not None and found.path == path and made < count:
            made += 1
            yield replace(bare, signature=code.signature(found.found))


def _names(objects: Objects, tree: str, path: str) -> Iterator[str]:
    entry = objects.entry(tree, path)
    assert entry is not None
    try:
        top = ast.parse(objects.read(entry.id))
    except SyntaxError:
        return
    for node in _inside(top):
        name = str(getattr(node, "name", ""))
        yield name
        if isinstance(node, ast.ClassDef):
            yield from (f"{name}.{inner}" for each in _inside(node) if (inner := getattr(each, "name", "")))


def _text(bare: Path, *args: str) -> str:
    return git.text(args, env={"GIT_DIR": str(bare)}).strip()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repo", type=Path, required=True)
    parser.add_argument("--from", dest="start", required=True)
    parser.add_argument("--to", dest="end", required=True)
    parser.add_argument("--below", default="")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
