# SPDX-License-Identifier: Apache-2.0
"""Run all drift checks on a tree with carried patches."""

import contextlib
from collections.abc import Iterator, Mapping

from stack.base.garbage import uncollected
from stack.carry.drift import cpp, naming, python, variables
from stack.carry.drift.finding import Drift
from stack.carry.drift.modules import Modules
from stack.carry.drift.outline import Known, parse
from stack.carry.drift.tree import Files
from stack.model.ids import TreeId
from stack.store.objects import Objects


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
    base: TreeId | None = None,
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
        base: the tree of the old base without the patches. With `upstream`, it says which environment variables upstream lost.
        known: parsed files; share it between checks of similar trees.
        hints: whether to search for the names that may be meant instead.
        hasty: whether to accept the result of a quick look, which may find too much; enough to look for a known problem.
        environment: whether to check environment variables, too, which searches the whole tree.

    Raises:
        StackError: the repository cannot be read.

    """
    # Git reads the files while the first of them are checked.
    objects.expect([each for each in (tree, before) if each is not None], (path for path, lines in added.items() if lines))
    files = Files(objects, tree)
    known = known if known is not None else Known()
    modules = Modules(files, known, hints=hints)
    old = Files(objects, before) if before is not None else None
    own = Files(objects, upstream) if upstream is not None else None
    old_modules = Modules(old, known) if old is not None else None
    includes, old_includes = cpp.Includes(files), cpp.Includes(old) if old is not None else None
    named = naming.Variables()
    found: list[Drift] = []
    for path, lines in sorted(added.items()):
        if not lines or not files.is_file(path):
            continue
        if path.endswith((".py", ".pyi")):
            with contextlib.suppress(RecursionError):  # Nested too deeply to be parsed: report nothing.
                found += python.check(path, lines, modules, old_modules, named, own, hasty=hasty)
        elif cpp.is_source(path):
            found += cpp.check(path, lines, includes, old_includes)
        elif variables.sets(path):
            text = files.text(path).split("\n")
            for name, line in variables.in_settings({number: text[number - 1] for number in lines if number <= len(text)}):
                named.use(name, path, line)
    if environment:
        bases = (Files(objects, base), own) if base is not None and own is not None else None
        found += _variables(files, named, added, old, bases)
    return tuple(sorted(set(found), key=lambda drift: (drift.path, drift.line or 0, drift.problem)))


def _variables(
    files: Files,
    named: naming.Variables,
    added: Mapping[str, frozenset[int]],
    before: Files | None,
    bases: tuple[Files, Files] | None,
) -> Iterator[Drift]:
    """Find environment variables that the tree does not know; ignore those that only hidden files, such as workflows, name."""
    used = {name: [each for each in places if not each[0].startswith(".")] for name, places in named.used.items()}
    used = {name: places for name, places in used.items() if places}
    return variables.check(files, used, named.declared, added, before, bases)
