# SPDX-License-Identifier: Apache-2.0
"""A proof: an ordinary pytest module that imports the upstream from a real source tree.

It passes on the tree with all patches, and with any one of its patches left out, one of the tests that it names for that
patch fails. So a proof that cannot fail is found out. Beside that, the upstream's own tests for those places still pass.

What upstream has merged needs no patch any more; its tests can stay as a check against a release that loses it. That they
can fail shows on an earlier release, without it. So do those of patches that a rebase has dropped since they had landed.
"""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.carry import links
from stack.carry.merge import merge
from stack.carry.upstream_stores import Stores
from stack.model import document
from stack.model.ids import TreeId
from stack.model.series import PatchRef
from stack.model.stack import Stack


@dataclass(frozen=True, slots=True)
class Merged:
    """What upstream has: its address there, or the path of the patch that was carried until it landed; its tests fail on `fails_on`."""

    address: str
    tests: tuple[str, ...]
    fails_on: str


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof module: the tests that prove each patch (by its file in the series), those of what upstream has, and its own to run."""

    path: Path
    series: str
    upstream: str
    proves: Mapping[str, tuple[str, ...]]
    upstream_tests: tuple[str, ...]
    upstream_args: tuple[str, ...]
    merged: tuple[Merged, ...]

    def refs(self) -> tuple[PatchRef, ...]:
        """The patches that it proves."""
        return tuple(PatchRef(self.series, file.partition("/")[0], file) for file in self.proves)


def load(path: Path, stack: Stack) -> Proof:
    """Read a proof module's declarations without importing it.

    Raises:
        StackError: it is no Python, has neither PROVES nor MERGED or not in their form, belongs to no series, names a patch that
            the series does not have or an address of no upstream, or names no release on which MERGED fails.

    """
    place = path.resolve().relative_to(stack.root.resolve()).as_posix()
    named = [one for one in stack.series if place in one.proves]
    if not named:
        raise StackError(f"no series names {place} in proves", "add it to the series.toml that it proves")
    values = _constants(path, place)
    proves, merged = _tests(place, "PROVES", values), _tests(place, "MERGED", values)
    fails_on = values.get("FAILS_ON", "")
    if not proves and not merged:
        raise StackError(f"{place} has no PROVES", 'add PROVES = {"<upstream>/<file>.patch": ["test_name", …]}')
    if not isinstance(fails_on, str) or bool(merged) != bool(fails_on):
        raise StackError(
            f"{place} has only one of MERGED and FAILS_ON", "FAILS_ON names a release on which the tests of MERGED fail"
        )
    known = {ref.file for ref in named[0].patches}
    landed = {one.ref.file: one for one in named[0].landed if one.ref.file not in known}
    for file in proves:
        if file not in known and file not in landed:
            raise StackError(
                f"{place} proves {file!r}, which is no patch of {named[0].name}",
                f"it has {', '.join(sorted(known)) or 'none'}; of one that has landed, take the line out, or move it to MERGED",
            )
    return Proof(
        path=path.resolve(),  # tests run in a folder of their own
        series=named[0].name,
        upstream=_upstream(place, proves, merged, stack),
        proves={file: tests for file, tests in proves.items() if file in known},
        upstream_tests=_texts(place, "UPSTREAM_TESTS", values),
        upstream_args=_texts(place, "UPSTREAM_ARGS", values),
        merged=(
            *(Merged(address, tests, fails_on) for address, tests in merged.items()),
            *(Merged(landed[file].ref.path, tests, landed[file].before) for file, tests in proves.items() if file in landed),
        ),
    )


def _tests(place: str, name: str, values: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """A declaration of tests by what they are about."""
    declared = values.get(name, {})
    if not isinstance(declared, dict) or not all(isinstance(key, str) for key in declared):
        raise StackError(f"{place}: {name} is no table of tests", f'write {name} = {{"…": ["test_name", …]}}')
    tests = {key: _texts(place, f"{name}[{key!r}]", {f"{name}[{key!r}]": one}) for key, one in declared.items()}
    empty = [key for key, one in tests.items() if not one]
    if empty:
        raise StackError(f"{place}: {name}[{empty[0]!r}] names no test", "name one that fails without it")
    return tests


def _texts(place: str, name: str, values: Mapping[str, object]) -> tuple[str, ...]:
    declared = values.get(name, [])
    if not isinstance(declared, list) or not all(isinstance(one, str) for one in declared):
        raise StackError(f"{place}: {name} is no list of texts", f'write {name} = ["…", …]')
    return tuple(declared)


def _upstream(place: str, proves: Iterable[str], merged: Iterable[str], stack: Stack) -> str:
    """The one upstream whose tree is imported."""
    found = {file.partition("/")[0] for file in proves}
    for address in merged:
        owners = [pin.upstream for pin in stack.pins if address.startswith(f"{pin.git.removesuffix('.git')}/")]
        if not owners:
            raise StackError(f"{place} names {address!r}, which is of no upstream in pins.toml", "give its web address")
        found |= {*owners}
    if len(found) > 1:
        raise StackError(f"{place} is about {' and '.join(sorted(found))}", "one module imports one upstream: split it")
    return found.pop()


def tree(stores: Stores, upstream: str, *, without: PatchRef | None = None) -> TreeId:
    """The tree of an upstream with all patches, or with one taken out again.

    Raises:
        StackError: a patch does not fit, or cannot be taken out because a later one stands on it.

    """
    objects = stores.objects(upstream)
    base = stores.base(upstream)
    patches = stores.stack.order(upstream)
    commits = (base, *links.checked_chain(objects, base, patches))
    tip = objects.tree_of(commits[-1])
    if without is None:
        return tip
    place = [patch.ref for patch in patches].index(without)
    taken_out = merge(objects, {}, objects.tree_of(commits[place + 1]), tip, objects.tree_of(commits[place]))
    if taken_out.conflicts:
        raise StackError(f"{without.path} cannot be left out alone", "a later patch stands on it")
    return taken_out.tree


def tree_without(stores: Stores, ref: PatchRef) -> TreeId:
    """The tree with all patches but one; where later ones stand on it, with those before it only.

    Raises:
        StackError: a patch does not fit.

    """
    try:
        return tree(stores, ref.upstream, without=ref)
    except StackError:
        objects, base = stores.objects(ref.upstream), stores.base(ref.upstream)
        patches = stores.stack.order(ref.upstream)
        before = patches[: [patch.ref for patch in patches].index(ref)]
        return objects.tree_of((base, *links.checked_chain(objects, base, before))[-1])


def _constants(path: Path, place: str) -> dict[str, object]:
    """The module's top-level constants; names of earlier ones may stand in them."""
    try:
        module = ast.parse(document.read_text(path))
    except (SyntaxError, ValueError) as bad:  # ValueError: a byte that no source may have, in older Pythons
        line = f":{bad.lineno}" if isinstance(bad, SyntaxError) and bad.lineno else ""
        said = bad.msg if isinstance(bad, SyntaxError) else str(bad)
        raise StackError(f"{place}{line} is not Python ({said})", "mend the module") from bad
    values: dict[str, object] = {}

    def value(node: ast.expr) -> object:
        if isinstance(node, ast.Name):
            return values[node.id]
        if isinstance(node, ast.Dict):
            return {value(key): value(item) for key, item in zip(node.keys, node.values, strict=True) if key is not None}
        if isinstance(node, ast.List | ast.Tuple):
            return [value(item) for item in node.elts]
        return ast.literal_eval(node)

    for statement in module.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:
                values[statement.targets[0].id] = value(statement.value)
            except (KeyError, ValueError, TypeError):
                continue
    return values
