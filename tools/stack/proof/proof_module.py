# SPDX-License-Identifier: Apache-2.0
"""A proof: an ordinary pytest module that imports the upstream from a real source tree.

It passes on the tree with all patches. With one patch left out, one of the tests named for that patch fails; this exposes a proof
that cannot fail. The upstream's own tests for these places still pass.

A change that the upstream has merged needs no patch; its tests can stay, so that a release that loses it is noticed. An earlier
release without the change shows that they can fail. The same holds for patches that a rebase dropped because they had landed.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.carry import links
from stack.carry.merge import merge
from stack.carry.upstream_stores import Stores
from stack.model import document
from stack.model.ids import TreeId
from stack.model.proof_command import ProofCommand
from stack.model.series import FILE, PatchRef, Series
from stack.model.stack import FOLDER, Stack
from stack.proof import brought_tests


@dataclass(frozen=True, slots=True)
class Merged:
    """A merged change: its address upstream, or the path of its former patch; its tests fail on the release `fails_on`."""

    address: str
    tests: tuple[str, ...]
    fails_on: str


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof module, or a command (`path` is then the series' file).

    `proves` maps a patch's file to its tests; `merged` lists merged changes; upstream tests run as well. A command is its own only
    test.
    """

    path: Path
    series: str
    upstream: str
    proves: Mapping[str, tuple[str, ...]]
    upstream_tests: tuple[str, ...]
    upstream_args: tuple[str, ...]
    merged: tuple[Merged, ...]
    command: ProofCommand | None = None

    @property
    def name(self) -> str:
        """The proof's name in messages."""
        return self.path.name if self.command is None else f"`{self.command.run}`"

    def refs(self) -> tuple[PatchRef, ...]:
        """Return the patches that the module proves."""
        return tuple(PatchRef(self.series, file.partition("/")[0], file) for file in self.proves)


def load(path: Path, stack: Stack) -> Proof:
    """Read a proof module's declarations without importing it.

    Raises:
        StackError: The module is not Python, its declarations are missing or malformed, it belongs to no series, or it names an
            unknown patch, an address of no upstream, or no release on which MERGED fails.

    """
    place = path.resolve().relative_to(stack.root.resolve()).as_posix()
    named = [series for series in stack.series if place in series.proves]
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
    landed = {landing.ref.file: landing for landing in named[0].landed if landing.ref.file not in known}
    for file in proves:
        if file not in known and file not in landed:
            raise StackError(
                f"{place} proves {file!r}, which is not a patch of {named[0].name}",
                f"it has {', '.join(sorted(known)) or 'none'}; of one that has landed, take the line out, or move it to MERGED",
            )
    for file, tests in proves.items():
        if file in known:
            brought_tests.check(stack.patches[PatchRef(named[0].name, file.partition("/")[0], file)], tests, place)
    return Proof(
        path=path.resolve(),  # tests run in another folder
        series=named[0].name,
        upstream=_upstream(place, proves, merged, stack),
        proves={file: tests for file, tests in proves.items() if file in known},
        upstream_tests=_texts(place, "UPSTREAM_TESTS", values),
        upstream_args=_texts(place, "UPSTREAM_ARGS", values),
        merged=(
            *(Merged(address, tests, fails_on) for address, tests in merged.items()),
            *(
                Merged(landed[file].ref.path, _kept(tests), landed[file].before)
                for file, tests in proves.items()
                if file in landed
            ),
        ),
    )


def _kept(tests: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tests of a landed patch that go on: those of the module, since upstream's tree may name its own otherwise."""
    return brought_tests.apart(tests)[0] or tests


def of_command(series: Series, command: ProofCommand, stack: Stack) -> Proof:
    """Return the proof that is a command of a series."""
    tests, known = (command.run,), {ref.file for ref in series.patches}
    landed = {one.ref.file: one for one in series.landed if one.ref.file not in known}
    return Proof(
        path=(stack.root / FOLDER / series.name / FILE).resolve(),
        series=series.name,
        upstream=command.upstream,
        proves={file: tests for file in command.patches if file in known},
        upstream_tests=(),
        upstream_args=(),
        merged=tuple(Merged(landed[file].ref.path, tests, landed[file].before) for file in command.patches if file in landed),
        command=command,
    )


def _tests(place: str, name: str, values: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """Read a declaration that maps a patch or address to its tests."""
    declared = values.get(name, {})
    if not isinstance(declared, dict) or not all(isinstance(key, str) for key in declared):
        raise StackError(f"{place}: {name} is not a table of tests", f'write {name} = {{"…": ["test_name", …]}}')
    tests = {key: _texts(place, f"{name}[{key!r}]", {f"{name}[{key!r}]": names}) for key, names in declared.items()}
    empty = [key for key, names in tests.items() if not names]
    if empty:
        raise StackError(f"{place}: {name}[{empty[0]!r}] names no test", "name one that fails without it")
    return tests


def _texts(place: str, name: str, values: Mapping[str, object]) -> tuple[str, ...]:
    declared = values.get(name, [])
    if not isinstance(declared, list) or not all(isinstance(entry, str) for entry in declared):
        raise StackError(f"{place}: {name} is not a list of strings", f'write {name} = ["…", …]')
    return tuple(declared)


def _upstream(place: str, proves: Iterable[str], merged: Iterable[str], stack: Stack) -> str:
    """Return the upstream whose tree the module imports; there must be exactly one."""
    upstreams = {file.partition("/")[0] for file in proves}
    for address in merged:
        owners = [pin.upstream for pin in stack.pins if address.startswith(f"{pin.git.removesuffix('.git')}/")]
        if not owners:
            raise StackError(f"{place} names {address!r}, which is of no upstream in pins.toml", "give its web address")
        upstreams |= {*owners}
    if len(upstreams) > 1:
        raise StackError(f"{place} is about {' and '.join(sorted(upstreams))}", "one module imports one upstream: split it")
    return upstreams.pop()


def tree(stores: Stores, upstream: str, *, without: PatchRef | None = None, tests: Sequence[str] = ()) -> TreeId:
    """Return the tree of an upstream with all patches, or with one of them taken out.

    Args:
        stores: The stores.
        upstream: The upstream.
        without: The patch to take out.
        tests: Its tests. Those of upstream's own test files stay in the tree.

    Raises:
        StackError: A patch does not apply, or cannot be taken out because a later one depends on it.

    """
    objects = stores.objects(upstream)
    base = stores.base(upstream)
    patches = stores.stack.order(upstream)
    commits = (base, *links.checked_chain(objects, base, patches))
    tip = objects.tree_of(commits[-1])
    if without is None:
        return tip
    place = [patch.ref for patch in patches].index(without)
    before, after = (objects.tree_of(commit) for commit in commits[place : place + 2])
    less = brought_tests.kept(objects, patches[place], tests, before, after)
    taken_out = merge(objects, {}, after, tip, less)
    if taken_out.conflicts:
        raise StackError(f"{without.path} cannot be left out alone", "a later patch stands on it")
    return taken_out.tree


def tree_without(stores: Stores, ref: PatchRef, tests: Sequence[str] = ()) -> TreeId:
    """Return the tree with all patches but one; if later ones depend on it, with only those before it.

    Of `tests`, those of upstream's own test files stay in the tree.

    Raises:
        StackError: A patch does not apply.

    """
    try:
        return tree(stores, ref.upstream, without=ref, tests=tests)
    except StackError:
        objects, base = stores.objects(ref.upstream), stores.base(ref.upstream)
        patches = stores.stack.order(ref.upstream)
        place = [patch.ref for patch in patches].index(ref)
        commits = (base, *links.checked_chain(objects, base, patches[: place + 1]))
        before, after = (objects.tree_of(commit) for commit in commits[-2:])
        return brought_tests.kept(objects, patches[place], tests, before, after)


def _constants(path: Path, place: str) -> dict[str, object]:
    """Return the module's top-level constants, which may refer to earlier ones."""
    try:
        module = ast.parse(document.read_text(path))
    except (SyntaxError, ValueError) as bad:  # older Pythons raise ValueError for a null byte
        line = f":{bad.lineno}" if isinstance(bad, SyntaxError) and bad.lineno else ""
        reason = bad.msg if isinstance(bad, SyntaxError) else str(bad)
        raise StackError(f"{place}{line} is not Python ({reason})", "mend the module") from bad
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
