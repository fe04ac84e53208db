# SPDX-License-Identifier: Apache-2.0
"""Tests that a patch adds to upstream's own test files. A proof names them as `tests/…/test_file.py::test_name`.

They run in upstream's tree, with upstream's own conftest. In the tree without the patch its test files stay, so that they can fail.
"""

from collections.abc import Iterable, Mapping, Sequence

from stack.base.errors import StackError
from stack.carry import links
from stack.carry.merge import merge
from stack.carry.upstream_stores import Stores
from stack.model.ids import TreeId
from stack.model.patch import Patch
from stack.model.patch import files as files_of
from stack.model.series import PatchRef
from stack.store.objects import Objects

_FOLDERS = ("test", "tests")


def is_brought(test: str) -> bool:
    """Return whether the name of a test names a file of upstream's tree."""
    file, separator, name = test.partition("::")
    return file.endswith(".py") and bool(separator and name)


def apart(tests: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split names into those of the proof module's own tests and those of upstream's tree."""
    every = tuple(tests)
    return tuple(test for test in every if not is_brought(test)), tuple(test for test in every if is_brought(test))


def files(tests: Iterable[str]) -> tuple[str, ...]:
    """Return the files that tests of upstream's tree are in, each once."""
    return tuple(dict.fromkeys(test.partition("::")[0] for test in tests if is_brought(test)))


def expression(tests: Iterable[str]) -> str:
    """Return the expression for pytest's -k that selects these tests."""
    return " or ".join(dict.fromkeys(test.rpartition("::")[2] for test in tests))


def check(patch: Patch, tests: Iterable[str], place: str) -> None:
    """Check that a patch adds or changes the test files that a proof names for it.

    Raises:
        StackError: It leaves one of them alone.

    """
    changed = [file.new for file in files_of(patch) if file.new is not None]
    for file in files(tests):
        if file not in changed:
            raise StackError(
                f"{place} names a test in {file}, which {patch.ref.path} does not change",
                "name a file that the patch adds tests to, or a test of the module",
            )


def unnamed(patch: Patch, tests: Iterable[str]) -> tuple[str, ...]:
    """Return the test files that a patch changes and that no named test is in."""
    known = files(tests)
    changed = (file.new for file in files_of(patch) if file.new is not None)
    return tuple(path for path in changed if _is_test_file(path) and path not in known)


def with_tests(stores: Stores, tests: Mapping[PatchRef, Sequence[str]], tree: TreeId) -> TreeId:
    """Return a tree of one upstream with the test files of patches merged into it, and nothing else of them.

    Where a merge is in conflict, the file is the one of the patched tree.

    Raises:
        StackError: A patch does not apply at the pins.

    """
    wanted = {ref: named for ref, named in tests.items() if files(named)}
    if not wanted:
        return tree
    upstream = next(iter(wanted)).upstream
    objects, base = stores.objects(upstream), stores.base(upstream)
    patches = stores.stack.order(upstream)
    commits = (base, *links.checked_chain(objects, base, patches))
    for place, patch in enumerate(patches):
        if patch.ref in wanted:
            before, after = (objects.tree_of(commit) for commit in commits[place : place + 2])
            tree = _merged(objects, before, kept(objects, patch, wanted[patch.ref], before, after), tree)
    return tree


def kept(objects: Objects, patch: Patch, tests: Iterable[str], before: TreeId, after: TreeId) -> TreeId:
    """Return the tree before a patch, with the test files that the patch brings.

    These are the named files, and what else the patch changes in their folder `test` or `tests`.
    """
    folders = tuple(_folder(file) for file in files(tests))
    if not folders:
        return before
    changed = {path for file in files_of(patch) for path in (file.old, file.new) if path is not None}
    return objects.replaced(before, {path: objects.entry(after, path) for path in changed if path.startswith(folders)})


def _merged(objects: Objects, before: TreeId, brought: TreeId, tree: TreeId) -> TreeId:
    merged = merge(objects, {}, before, tree, brought)
    conflicts = {conflict.path for conflict in merged.conflicts}
    if not conflicts:
        return merged.tree
    changed = {path: new for path, _, new in objects.difference(before, brought)}
    return objects.replaced(tree, changed)


def _folder(file: str) -> str:
    """Return the path of the outermost test folder of a file; the file's own path if it is in none."""
    parts = file.split("/")
    depth = next((depth for depth, part in enumerate(parts[:-1], 1) if part in _FOLDERS), None)
    return file if depth is None else "/".join(parts[:depth]) + "/"


def _is_test_file(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith("_test.py") or (name.startswith("test_") and name.endswith(".py"))
