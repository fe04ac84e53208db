# SPDX-License-Identifier: Apache-2.0
"""Gates: whether verdicts are enough for a release. `gates.toml` names the cases that have to have passed."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from stack import __version__
from stack.base.errors import StackError
from stack.deploy import server_version_check
from stack.model import digest as stack_digest
from stack.model import document, verdict
from stack.model.document import Table
from stack.model.ids import Sha256
from stack.model.stack import Stack
from stack.model.verdict import Case, Outcome, Pinned, Verdict, Weights
from stack.validation import bound, definitions, machine, signing
from stack.validation.bound import Fallen
from stack.validation.definitions import Definitions

FILE = Path("validation/gates.toml")

_NEED = r"[a-z][a-z0-9_-]*"
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)
"""No verdict of this schema was made before."""
_ELSEWHERE = "elsewhere"
"""The need of cases that a server of another machine answered."""
_SLOW_CLOCK = timedelta(hours=1)
"""How far another machine's clock may be ahead."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Cases that a gate wants: their names (with * for any text), how many at least, and what has to have been loaded.

    `missed`: they are goals of speed. They have to have run; one that failed counts, and does not fail the gate.
    """

    names: str
    least: int
    needs: str | None = None
    weights: tuple[Weights, ...] = ()
    missed: bool = False

    def takes(self, one: Verdict, case: Case) -> bool:
        """Whether a case of a verdict is one of them."""
        fits = self.needs is None or self.needs in case.needs
        loaded = not self.weights or one.weights in self.weights
        return fits and loaded and fnmatchcase(case.name, self.names)


@dataclass(frozen=True, slots=True)
class Gate:
    """What a release needs on one kind of machine; `has` is what such a machine has."""

    name: str
    has: frozenset[str]
    wanted: tuple[Wanted, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """The stack that verdicts have to be of, with everything that a verdict can be compared with.

    `packages` maps the name of each upstream's package to its pinned version. `versions` are the tool's own and the validation's, and
    `cases` what it defines: None where verdicts of an earlier validation are judged again, which were judged by those then. `carried`
    is the stack itself, where verdicts of other stacks count as far as the inputs of their cases are the same.
    """

    stack: Sha256
    pins: Mapping[str, Pinned]
    packages: Mapping[str, str]
    versions: Mapping[str, str] | None
    cases: Definitions | None
    carried: Stack | None = None


def release(carried: Stack) -> Release:
    """Describe the release of a stack by the validation at hand.

    Raises:
        StackError: the validation's cases cannot be named here.

    """
    versions = MappingProxyType({"stack": __version__, "validation": machine.code()})
    return replace(released(carried), versions=versions, cases=definitions.of(carried), carried=carried)


def released(carried: Stack) -> Release:
    """Describe the release of a stack that may have been validated by an earlier validation."""
    pins = {pin.upstream: Pinned(pin.commit, pin.tag) for pin in carried.pins}
    packages = {pin.archive.package: pin.archive.version for pin in carried.pins if pin.archive is not None}
    return Release(stack_digest.of(carried), MappingProxyType(pins), MappingProxyType(packages), None, None)


@dataclass(frozen=True, slots=True)
class Count:
    """How many different cases have passed of those that a gate wants, and how many failed of goals that may be missed."""

    wanted: Wanted
    passed: int
    missed: int = 0

    @property
    def enough(self) -> bool:
        """Whether there are as many as the gate wants."""
        return self.passed + self.missed >= self.wanted.least


@dataclass(frozen=True, slots=True)
class Standing:
    """A verdict beside the stack at hand: the names of its cases that ran and count, and why the others fell out, by name."""

    file: Path
    stack: Sha256
    counts: tuple[str, ...]
    fallen: Mapping[str, Fallen]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether verdicts are enough: `problems` says in a sentence each why not. `signed`: signatures were asked for.

    `standing` says of each verdict that was admitted which of its cases count.
    """

    gate: Gate
    counts: tuple[Count, ...]
    problems: tuple[str, ...]
    signed: bool
    standing: tuple[Standing, ...] = ()


def load(file: Path, name: str) -> Gate:
    """The gate of that name.

    Raises:
        StackError: the file is not as it should be, or has no such gate.

    """
    gates = load_all(file)
    if name not in gates:
        raise StackError(f"unknown gate {name!r}", f"{file} has {', '.join(gates)}")
    return gates[name]


def load_all(file: Path) -> dict[str, Gate]:
    """All gates, by name.

    Raises:
        StackError: the file is not as it should be.

    """
    top = document.load(file)
    return {key: _gate(key, top.table(key)) for key in top}


def digest(gate: Gate) -> Sha256:
    """SHA-256 over what a gate asks for; comments and layout of its file do not count."""
    wanted = [[one.names, one.least, one.needs, list(one.weights), *(["missed"] if one.missed else [])] for one in gate.wanted]
    canonical = json.dumps([gate.name, sorted(gate.has), wanted], separators=(",", ":"), ensure_ascii=True)
    return Sha256(hashlib.sha256(canonical.encode("ascii")).hexdigest())


def digests(file: Path) -> Mapping[str, Sha256]:
    """The digests of all gates of a file, by name.

    Raises:
        StackError: the file is not as it should be.

    """
    return MappingProxyType({name: digest(gate) for name, gate in load_all(file).items()})


def judge(gate: Gate, release: Release, files: Sequence[Path], signers: Path | None = None) -> Judgement:
    """Judge whether the verdicts of `files`, together, are enough for a release.

    With `signers` (OpenSSH's allowed_signers) each has to be signed by one of them.
    """
    problems: list[str] = []
    verdicts: list[Verdict] = []
    standing: list[Standing] = []
    for file in files:
        try:
            whole = _admitted(file, signers)
            found, one = stand(release, whole, file)
        except StackError as refused:
            problems.append(str(refused))
        else:
            verdicts.append(one)
            standing.append(found)
            said = (*_strange(gate, release, one), *_contradictions(gate, release, one))
            problems += [f"{file}: {problem}" for problem in said]
    counts = tuple(_count(wanted, verdicts) for wanted in gate.wanted)
    problems += _missing(gate, verdicts)
    problems += [
        f"{_said(count.wanted)}: {count.passed + count.missed} {'ran' if count.wanted.missed else 'passed'}, "
        f"{count.wanted.least} are needed"
        for count in counts
        if not count.enough
    ]
    return Judgement(gate, counts, tuple(problems), signers is not None, tuple(standing))


def stand(release: Release, one: Verdict, file: Path) -> tuple[Standing, Verdict]:
    """Judge which cases of a verdict count for a release by their inputs; the others become cases that were not run.

    Raises:
        StackError: it is of another stack, and no case of it counts.

    """
    ran = [case for case in one.cases if case.outcome is not Outcome.NOT_RUN]
    falls: dict[str, Fallen] = {}
    if release.carried is not None:
        own = _is_own(release, one)
        judged = {case.name: bound.fallen(release.carried, case, one.inputs) for case in ran if case.inputs or not own}
        falls = {name: fall for name, fall in judged.items() if fall is not None}
    counts = tuple(case.name for case in ran if case.name not in falls)
    if one.stack != release.stack and (release.carried is None or one.image is not None or not counts):
        why = f", and no case of it counts here ({next(iter(falls.values()))})" if falls and one.inputs else ""
        raise StackError(f"{file} is of the stack {one.stack[:12]}, this one is {release.stack[:12]}{why}", "validate this one")
    left = (_without(case, falls, release) if case.name in falls else case for case in one.cases)
    cases = tuple(case for case in left if case is not None)
    return Standing(file, one.stack, counts, MappingProxyType(falls)), replace(one, cases=cases)


def passed(
    release: Release, files: Sequence[Path], start: str, fits: Callable[[Verdict, Case], bool] = lambda _, __: True
) -> frozenset[str]:
    """Name the cases that passed in verdicts and count for a release; files that are not verdicts, or do not count, are skipped.

    Only names that begin with `start` are looked at, and only cases that `fits` takes.
    """
    found: set[str] = set()
    for file in files:
        with suppress(StackError):
            _, one = stand(release, _admitted(file, None), file)
            found |= {
                case.name
                for case in one.cases
                if case.name.startswith(start)
                and fits(one, case)
                and case.outcome is Outcome.PASSED
                and (release.cases is None or not any(release.cases.problems(case)))
            }
    return frozenset(found)


def _without(case: Case, falls: Mapping[str, Fallen], release: Release) -> Case | None:
    """A case that fell out, as one that was not run; None where this validation does not define it any more."""
    if release.cases is not None and not release.cases.has(case.name):
        return None
    why = f"its verdict counts no more ({falls[case.name]})"
    return Case(case.name, Outcome.NOT_RUN, why, case.needs)


def _is_own(release: Release, one: Verdict) -> bool:
    """Whether a verdict is of this very stack, by this very validation."""
    versions = (release.versions or {}).items()
    return one.stack == release.stack and all(one.versions.get(name) == wanted for name, wanted in versions)


def _admitted(file: Path, signers: Path | None) -> Verdict:
    data = verdict.bytes_of(file)
    one = verdict.read(data, str(file))
    if not one.whole:
        raise StackError(f"{file} is of a run that did not come to its end", "finish it with --resume")
    if signers is not None:
        signing.verify(file, data, signers)
    return one


def _strange(gate: Gate, release: Release, one: Verdict) -> Iterator[str]:
    """Where a verdict's pins, versions, machine or date are not those of a validation of this release for this gate."""
    # Of a verdict of another stack, or by another validation, what counts is what each case depends on.
    is_carried = release.carried is not None and any(case.inputs for case in one.cases) and not _is_own(release, one)
    if not is_carried:
        yield from _other_pins(release, one)
        yield from _other_versions(release, one)
    yield from _other_packages(release, one, is_carried=is_carried)
    lacking = gate.has - _has(one)
    if lacking:
        yield f"its machine has no {' and no '.join(sorted(lacking))}, which the gate {gate.name} is for"
    if one.machine.cores < 1 or one.machine.memory < 1:
        yield f"its machine has {one.machine.cores} cores and {one.machine.memory} bytes of memory"
    made = datetime.fromisoformat(one.made)
    if not _FIRST <= made <= datetime.now(UTC) + _SLOW_CLOCK:
        yield f"it was made on {one.made}, which is {'before there were verdicts' if made < _FIRST else 'in the future'}"


def _other_pins(release: Release, one: Verdict) -> Iterator[str]:
    for name in sorted({*release.pins, *one.pins}):
        wanted, found = release.pins.get(name), one.pins.get(name)
        if wanted is None or found is None:
            yield f"it pins {name}, this stack does not" if wanted is None else f"it does not pin {name}, this stack does"
        elif wanted.tag != found.tag or not _same_commit(wanted.commit, found.commit):
            yield f"it pins {name} at {found.tag} ({found.commit[:12]}), this stack at {wanted.tag} ({wanted.commit[:12]})"


def _same_commit(one: str, other: str) -> bool:
    """Compare commits as far as both are known."""
    return one.startswith(other) or other.startswith(one)


def _other_versions(release: Release, one: Verdict) -> Iterator[str]:
    for name, wanted in (release.versions or {}).items():
        if one.versions.get(name) != wanted:
            yield f"it was made by {name} {one.versions.get(name, 'unknown')}, here is {wanted}: validate again"


def _other_packages(release: Release, one: Verdict, *, is_carried: bool) -> Iterator[str]:
    """Compare what was installed with the pins; of a verdict of another stack, with that stack's digest alone."""
    # A GPU's kernels come out of the installed packages. Elsewhere these are a release's, over which the stack is laid.
    installed = any(_gpus(case) for case in one.cases if case.suite == "kernels" and case.outcome is Outcome.PASSED)
    for package, version in release.packages.items():
        found = one.versions.get(package, "")
        label = server_version_check.label(found)
        if found and found.partition("+")[0] != version and not is_carried:
            yield f"{package} was {found}, this stack pins {version}"
        elif (installed or "+" in found) and (label is None or not one.stack.startswith(label)):
            yield f"{package} was {found or 'not named'}, which is not of this stack ({one.stack[:8]})"


def _has(one: Verdict) -> frozenset[str]:
    """List what a verdict's machine has, in the words of `needs`."""
    gpus = (f"sm{gpu.capability.replace('.', '')}" for gpu in one.machine.gpus)
    return frozenset({"cpu", *one.machine.flags, *gpus})


def _contradictions(gate: Gate, release: Release, one: Verdict) -> Iterator[str]:
    """Find cases that failed (but for goals that may be missed), and those that passed without what they need or against their numbers."""
    here = _has(one)
    for case in one.cases:
        if case.outcome is Outcome.FAILED and not any(each.missed and each.takes(one, case) for each in gate.wanted):
            yield f"{case.name} failed: {case.why.splitlines()[0]}"
        if case.outcome is not Outcome.PASSED:
            continue
        gpus = _gpus(case)
        if gpus and not gpus & here:
            yield f"{case.name} passed without the {' or '.join(sorted(gpus))} that it needs"
        if lacking := {*case.needs} - gpus - here - {_ELSEWHERE}:
            yield f"{case.name} passed without the {' and '.join(sorted(lacking))} that it needs"
        if release.cases is not None:
            yield from (f"{case.name} passed, but {problem}" for problem in release.cases.problems(case))
        if _by_margins(case) and min(case.margins.values(), default=0) < 1:
            yield f"{case.name} passed, but its margins do not say so: each has to be there, and at least 1"


def _count(wanted: Wanted, verdicts: Sequence[Verdict]) -> Count:
    taken = [case for one in verdicts for case in one.cases if wanted.takes(one, case)]
    passed = {case.name for case in taken if case.outcome is Outcome.PASSED}
    failed = {case.name for case in taken if case.outcome is Outcome.FAILED} - passed
    return Count(wanted, len(passed), len(failed) if wanted.missed else 0)


def _missing(gate: Gate, verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Cases that the gate's machine could have run and that ran nowhere."""
    wanted = [(one, case) for one in verdicts for case in one.cases if any(each.takes(one, case) for each in gate.wanted)]
    ran = {case.name for _, case in wanted if case.outcome is not Outcome.NOT_RUN}
    for case in {case.name: case for _, case in wanted if case.name not in ran and _can(gate, case)}.values():
        yield f"{case.name} was not run: {case.why.splitlines()[0]}"


def _can(gate: Gate, case: Case) -> bool:
    """Whether a gate's machine has what a case needs: all of it, but of several GPUs one."""
    gpus = _gpus(case)
    return gate.has.issuperset({*case.needs} - gpus) and (not gpus or bool(gpus & gate.has))


def _gpus(case: Case) -> set[str]:
    return {need for need in case.needs if re.fullmatch(r"sm\d+", need)}


def _by_margins(case: Case) -> bool:
    """Whether a case passes by how far the kernel, and the wrong outputs, are on their sides of a bar; what compiles has none."""
    return case.suite == "kernels" and not case.name.startswith("kernels/compile/")


def _said(wanted: Wanted) -> str:
    needs = f" that need {wanted.needs}" if wanted.needs else ""
    loaded = f" with {' or '.join(wanted.weights)} weights" if wanted.weights else ""
    return f"{wanted.names}{needs}{loaded}"


def _gate(name: str, table: Table) -> Gate:
    has = frozenset(table.texts("has"))
    wanted = tuple(_wanted(one) for one in table.tables("cases"))
    table.finish()
    if not wanted:
        raise table.error("cases", "is empty", "a gate without a case stops nothing")
    return Gate(name, has, wanted)


def _wanted(table: Table) -> Wanted:
    names = table.text("names")
    least = table.whole("least")
    needs = table.optional_text("needs", pattern=_NEED, meaning="what a machine has to have, such as sm121")
    weights = table.texts("weights")
    missed = table.given("missed") and table.flag("missed")
    table.finish()
    if least < 1:
        raise table.error("least", "is 0", "a gate that wants no case stops nothing")
    odd = [one for one in weights if one not in set(Weights)]
    if odd:
        raise table.error("weights", f"names {odd[0]!r}", f"known: {', '.join(Weights)}")
    return Wanted(names, least, needs, tuple(map(Weights, weights)), missed)
