# SPDX-License-Identifier: Apache-2.0
"""Running a proof: an ordinary pytest module that imports the upstream from a real source tree.

It passes on the tree with all patches, and with any one of its patches left out, one of the tests that it names for that
patch fails. So a proof that cannot fail is found out. Beside that, the upstream's own tests for those places still pass.

What upstream has merged needs no patch any more; its tests can stay as a check against a release that loses it. That they
can fail shows on an earlier release, without it. So do those of patches that a rebase has dropped since they had landed.
"""

import ast
import os
import re
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.carry import apply
from stack.carry.bases import Stores
from stack.carry.merge import merge
from stack.model import document
from stack.model.errors import StackError
from stack.model.ids import TreeId
from stack.model.series import PatchRef
from stack.model.stack import Stack
from stack.proof import trees

_LONGEST = 3600
"""Seconds of one run of a proof."""
_MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
MARK = "STACK_PROOF_TREE"
"""Set in the environment of a proof: the folder of the tree under test."""


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


@dataclass(frozen=True, slots=True)
class Run:
    """One run of pytest: test names by outcome, and what it printed."""

    passed: tuple[str, ...]
    failed: tuple[str, ...]
    skipped: tuple[str, ...]
    output: str
    returncode: int
    broken: str = ""
    """Why nothing can be said of it: pytest was killed, took too long, or did not run at all."""
    lacks: str = ""
    """A package that tests could not import, neither passed nor failed therefore: it is none of the upstream's own."""

    @property
    def good(self) -> bool:
        """Whether tests ran and all of them passed."""
        return self.returncode == 0 and bool(self.passed) and not self.failed


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
    commits = (base, *apply.chain(objects, base, patches))
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
        return objects.tree_of((base, *apply.chain(objects, base, before))[-1])


def run(proof: Proof, python: Path, stores: Stores, tree_id: TreeId, tests: Sequence[str] = ()) -> Run:
    """Run a proof (or only some of its tests, and those whose names begin or end with theirs) on a tree."""
    return run_in(proof, python, trees.folder(stores.objects(proof.upstream), tree_id, stores.place.cache), tests)


def run_in(proof: Proof, python: Path, folder: Path, tests: Sequence[str] = ()) -> Run:
    """The same on the tree whose files a folder has."""
    # By their names, not as node ids: of those, one that is missing lets pytest run none.
    where = [str(proof.path), *(["-k", " or ".join(tests)] if tests else [])]
    return _pytest(python, folder, proof.path.parent, where)


def run_upstream(proof: Proof, python: Path, stores: Stores, tree_id: TreeId) -> Run:
    """Run the upstream's own tests that the proof names, on a tree."""
    folder = trees.folder(stores.objects(proof.upstream), tree_id, stores.place.cache)
    args = [*proof.upstream_args, *(str(folder / test) for test in proof.upstream_tests)]
    return _pytest(python, folder, proof.path.parent, args, rootdir=folder)


def _pytest(python: Path, folder: Path, helpers: Path, args: Sequence[str], *, rootdir: Path | None = None) -> Run:
    with tempfile.TemporaryDirectory(prefix="stack-proof-") as work:
        report = Path(work) / "report.xml"
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command += [f"--rootdir={rootdir or helpers}", *args]
        env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
        env |= {"PYTHONPATH": os.pathsep.join([str(folder), str(helpers)]), MARK: str(folder)}
        try:
            done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, check=False, timeout=_LONGEST)
        except subprocess.TimeoutExpired:
            return Run((), (), (), "", -1, f"it took longer than {_LONGEST // 60} minutes")
        cases = _cases(report)
        outcomes = [(_name(case), _outcome(case, folder)) for case in cases]
        return Run(
            passed=tuple(name for name, outcome in outcomes if outcome == "passed"),
            failed=tuple(name for name, outcome in outcomes if outcome == "failed"),
            skipped=tuple(name for name, outcome in outcomes if outcome == "skipped"),
            output=done.stdout + done.stderr,
            returncode=done.returncode,
            broken=_broken(done.returncode, done.stderr, report.exists()),
            lacks=next((missing for case in cases if (missing := _missing(case, folder))), ""),
        )


def _broken(status: int, said: str, reported: bool) -> str:
    """What ended pytest itself (its exit codes: 3 an internal error, 4 wrong usage)."""
    if status < 0:
        return f"pytest was ended by signal {-status}"
    if status in (3, 4) or "No module named pytest" in said:
        return (said.strip().splitlines() or [f"pytest ended with {status}"])[-1][:200]
    return "" if reported else "there is no report"


def _cases(report: Path) -> list[ET.Element]:
    # Written by the pytest that was just started.
    return list(ET.parse(report).getroot().iter("testcase")) if report.exists() else []  # noqa: S314


def _name(case: ET.Element) -> str:
    """A test's name without its parameters, behind that of its class, if it is in one."""
    place = case.get("classname", "").rpartition(".")[2]
    name = case.get("name", "").partition("[")[0]
    return f"{place}::{name}" if place.startswith("Test") else name


def _outcome(case: ET.Element, folder: Path) -> str:
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        return "lacking" if _missing(case, folder) else "failed"
    return "skipped" if "skipped" in kinds else "passed"


def _missing(case: ET.Element, folder: Path) -> str:
    """The package that a test failed for since the environment has none; what the upstream's own tree lacks is a failure."""
    said = " ".join(child.text or "" for child in case if child.tag in ("failure", "error"))
    names = _MISSING.findall(said)
    return next((name for name in names if not any((folder / place).exists() for place in (name, f"{name}.py"))), "")


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
