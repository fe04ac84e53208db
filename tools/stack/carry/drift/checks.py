# SPDX-License-Identifier: Apache-2.0
"""Run all drift checks on a tree with carried patches."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from stack.base import halves
from stack.base.garbage import uncollected
from stack.carry.drift import cpp, naming, python, variables
from stack.carry.drift.finding import Drift
from stack.carry.drift.modules import Modules
from stack.carry.drift.outline import Known, parse
from stack.carry.drift.tree import Files
from stack.model.ids import TreeId
from stack.store.objects import Objects

_MANY = 12
"""Files from which on a second process is worth its start."""

_Found = tuple[list[Drift], naming.Variables]
"""The drift in a file, and the environment variables in its added lines."""


@uncollected()  # Syntax trees are 100,000 new objects without garbage, and would take twice as long.
def is_readable(objects: Objects, tree: TreeId, path: str) -> bool:
    """Return whether upstream's own file can be parsed or does not exist; otherwise upstream broke it, not a patch."""
    data = Files(objects, tree).read(path)
    if data is None or not path.endswith((".py", ".pyi")):
        return True
    try:
        parse(data)
    except SyntaxError:
        return False
    return True


@uncollected()
def check(
    objects: Objects,
    tree: TreeId,
    added: Mapping[str, frozenset[int]],
    *,
    before: TreeId | None = None,
    upstream: TreeId | None = None,
    known: Known | None = None,
    hints: bool = True,
    hasty: bool = False,
    environment: bool = True,
) -> tuple[Drift, ...]:
    """Find drift in the lines that patches added to a tree; report only what is certain.

    Args:
        objects: the repository that has the trees.
        tree: the tree with the patches.
        added: the numbers of the added lines, by path (see `added_lines`).
        before: the tree of the old base with the same patches.
        upstream: the tree without the patches; its unchanged statements need not be parsed again.
        known: parsed files; share it between checks of similar trees.
        hints: whether to search for the names that may be meant instead.
        hasty: whether to accept the result of a quick look, which may find too much; enough to look for a known problem.
        environment: whether to check environment variables, too, which searches the whole tree.

    Raises:
        StackError: the repository cannot be read.

    """
    known = known if known is not None else Known()
    tree_files = Files(objects, tree)
    each = _Each(
        objects,
        Modules(tree_files, known, hints=hints),
        Modules(Files(objects, before), known) if before is not None else None,
        Files(objects, upstream) if upstream is not None else None,
        added,
        hasty,
    )
    paths = [path for path, lines in sorted(added.items()) if lines and tree_files.is_file(path)]
    named = naming.Variables()
    found: list[Drift] = []
    for drifts, variables_there in each.all(paths):
        found += drifts
        named.learn(variables_there)
    if environment:
        found += _variables(tree_files, named, added, each.before.files if each.before is not None else None)
    return tuple(sorted(set(found), key=lambda drift: (drift.path, drift.line or 0, drift.problem)))


class _Each:
    """Checks one file after the other; many large ones are shared with a second process."""

    def __init__(
        self,
        objects: Objects,
        modules: Modules,
        before: Modules | None,
        upstream: Files | None,
        added: Mapping[str, frozenset[int]],
        hasty: bool,
    ) -> None:
        self.objects, self.modules, self.before, self.upstream = objects, modules, before, upstream
        self.added, self.hasty = added, hasty
        self.includes = cpp.Includes(modules.files)
        self.old_includes = cpp.Includes(before.files) if before is not None else None

    def all(self, paths: Sequence[str]) -> list[_Found]:
        """Return what is found in each file."""
        if len(paths) < _MANY or not halves.is_possible():
            return self.part(paths)
        # Writing in both processes would be wrong.
        self.objects.flush()
        return halves.shared(self.part, paths, self.objects.detach)

    def part(self, paths: Sequence[str]) -> list[_Found]:
        # Git reads the files while the first of them are checked.
        trees = [self.modules.files.tree, *([self.before.files.tree] if self.before is not None else [])]
        self.objects.expect(trees, paths)
        return [self.file(path) for path in paths]

    def file(self, path: str) -> _Found:
        lines, named = self.added[path], naming.Variables()
        found: list[Drift] = []
        if path.endswith((".py", ".pyi")):
            with contextlib.suppress(RecursionError):  # Nested too deeply to be parsed: report nothing.
                found += python.check(path, lines, self.modules, self.before, named, self.upstream, hasty=self.hasty)
        elif cpp.is_source(path):
            found += cpp.check(path, lines, self.includes, self.old_includes)
        elif variables.sets(path):
            text = self.modules.files.text(path).split("\n")
            for name, line in variables.in_settings({number: text[number - 1] for number in lines if number <= len(text)}):
                named.use(name, path, line)
        return found, named


def _variables(
    files: Files, named: naming.Variables, added: Mapping[str, frozenset[int]], before: Files | None
) -> Iterator[Drift]:
    """Find environment variables that the tree does not know; ignore those that only hidden files, such as workflows, name."""
    used = {name: [each for each in places if not each[0].startswith(".")] for name, places in named.used.items()}
    return variables.check(files, {name: places for name, places in used.items() if places}, named.declared, added, before)
