# SPDX-License-Identifier: Apache-2.0
"""Release gates: judge whether verdicts suffice for a release. `gates.toml` names the cases that must have passed."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from stack import __version__
from stack.base.did_you_mean import unknown_name
from stack.base.errors import StackError
from stack.deploy import server_version_check
from stack.model import digest as stack_digest
from stack.model import document, verdict
from stack.model.document import Table
from stack.model.ids import Sha256
from stack.model.stack import Stack
from stack.model.verdict import Case, Outcome, Pinned, Verdict, VerdictFile, Weights
from stack.validation import bound, definitions, machine, signing
from stack.validation.bound import Fallen
from stack.validation.definitions import Definitions

FILE = Path("validation/gates.toml")

_NEED = r"[a-z][a-z0-9_-]*"
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)
"""Earliest date of a verdict of this schema."""
_ELSEWHERE = "elsewhere"
"""The need of a case that a server on another machine answered."""
_SLOW_CLOCK = timedelta(hours=1)
"""Tolerated lead of another machine's clock."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Cases that a gate wants: names (* matches any text), the least number, a need, and the weights that were loaded.

    If `missed`, they are goals of speed: they must have run, and a failed one does not fail the gate.
    """

    names: str
    least: int
    needs: str | None = None
    weights: tuple[Weights, ...] = ()
    missed: bool = False

    def takes(self, of: Verdict, case: Case) -> bool:
        """Return whether a case of a verdict is one of them."""
        fits = self.needs is None or self.needs in case.needs
        loaded = not self.weights or of.weights in self.weights
        return fits and loaded and fnmatchcase(case.name, self.names)


@dataclass(frozen=True, slots=True)
class Gate:
    """The requirements of a release for one kind of machine; `has` lists the features of such a machine."""

    name: str
    has: frozenset[str]
    wanted: tuple[Wanted, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """The stack that verdicts must be of, and the values that a verdict is compared with.

    `packages` maps the name of each upstream's package to its pinned version. `versions` are those of the tool and of the validation.
    `cases` are the cases that the validation defines. `versions` and `cases` are None when verdicts of an earlier validation are
    judged again: they were checked against that one. If `carried` (the stack itself) is given, a verdict of another stack counts
    for each case whose inputs are the same in this stack.
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
        StackError: the validation's cases cannot be listed on this machine.

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
    """How many different wanted cases passed, and how many failed that may be missed."""

    wanted: Wanted
    passed: int
    missed: int = 0

    @property
    def enough(self) -> bool:
        """Whether they are as many as the gate wants."""
        return self.passed + self.missed >= self.wanted.least


@dataclass(frozen=True, slots=True)
class Standing:
    """A verdict as judged for the stack at hand: which of its cases count, and why each other case fell out, by name."""

    file: Path
    stack: Sha256
    counts: tuple[str, ...]
    fallen: Mapping[str, Fallen]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether verdicts suffice for a gate. Each of `problems` is a sentence that says why not.

    `signed` is true if signatures were required. `standing` says for each admitted verdict which of its cases count.
    """

    gate: Gate
    counts: tuple[Count, ...]
    problems: tuple[str, ...]
    signed: bool
    standing: tuple[Standing, ...] = ()


def load(file: Path, name: str) -> Gate:
    """Load the gate of that name.

    Raises:
        StackError: the file is invalid, or has no such gate.

    """
    gates = load_all(file)
    if name not in gates:
        raise unknown_name("gate", name, gates, holder=str(file))
    return gates[name]


def load_all(file: Path) -> dict[str, Gate]:
    """Load all gates, by name.

    Raises:
        StackError: the file is invalid.

    """
    top = document.load(file)
    return {key: _gate(key, top.table(key)) for key in top}


def digest(gate: Gate) -> Sha256:
    """Compute the SHA-256 of a gate's requirements; comments and layout of its file do not count."""
    wanted = [
        [each.names, each.least, each.needs, list(each.weights), *(["missed"] if each.missed else [])] for each in gate.wanted
    ]
    canonical = json.dumps([gate.name, sorted(gate.has), wanted], separators=(",", ":"), ensure_ascii=True)
    return Sha256(hashlib.sha256(canonical.encode("ascii")).hexdigest())


def digests(file: Path) -> Mapping[str, Sha256]:
    """Compute the digests of all gates of a file, by name.

    Raises:
        StackError: the file is invalid.

    """
    return MappingProxyType({name: digest(gate) for name, gate in load_all(file).items()})


def judge_files(gate: Gate, release: Release, files: Sequence[Path], signers: Path | None = None) -> Judgement:
    """Judge the verdicts of `files` as `judge` does; a file that is not a verdict is a problem, too."""
    loaded, unreadable = verdict.load_files(files)
    judgement = judge(gate, release, loaded, signers)
    return replace(judgement, problems=(*unreadable, *judgement.problems))


def judge(gate: Gate, release: Release, given: Sequence[VerdictFile], signers: Path | None = None) -> Judgement:
    """Judge whether verdicts, together, are enough for a release.

    With `signers` (a file of OpenSSH's allowed_signers format) one of them must have signed each verdict.
    """
    problems: list[str] = []
    verdicts: list[Verdict] = []
    standing: list[Standing] = []
    for loaded in given:
        try:
            _admit(loaded, signers)
            judged, counting = stand(release, loaded)
        except StackError as refused:
            problems.append(str(refused))
        else:
            verdicts.append(counting)
            standing.append(judged)
            odd = (*_strange(gate, release, counting), *_contradictions(gate, release, counting))
            problems += [f"{loaded.file}: {problem}" for problem in odd]
    counts = tuple(_count(wanted, verdicts) for wanted in gate.wanted)
    problems += _missing(gate, verdicts)
    problems += [
        f"{_described(count.wanted)}: {count.passed + count.missed} {'ran' if count.wanted.missed else 'passed'}, "
        f"{count.wanted.least} are needed"
        for count in counts
        if not count.enough
    ]
    return Judgement(gate, counts, tuple(problems), signers is not None, tuple(standing))


def stand(release: Release, loaded: VerdictFile) -> tuple[Standing, Verdict]:
    """Judge by their inputs which cases of a verdict count for a release; the others become cases that were not run.

    Raises:
        StackError: the verdict is of another stack, and no case of it counts.

    """
    recorded, file = loaded.verdict, loaded.file
    ran = [case for case in recorded.cases if case.outcome is not Outcome.NOT_RUN]
    falls: dict[str, Fallen] = {}
    if release.carried is not None:
        own = _is_own(release, recorded)
        judged = {case.name: bound.fallen(release.carried, case, recorded.inputs) for case in ran if case.inputs or not own}
        falls = {name: fall for name, fall in judged.items() if fall is not None}
    counts = tuple(case.name for case in ran if case.name not in falls)
    if recorded.stack != release.stack and (release.carried is None or recorded.image is not None or not counts):
        why = f", and no case of it counts here ({next(iter(falls.values()))})" if falls and recorded.inputs else ""
        raise StackError(
            f"{file} is of the stack {recorded.stack[:12]}, this one is {release.stack[:12]}{why}", "validate this one"
        )
    left = (_without(case, falls, release) if case.name in falls else case for case in recorded.cases)
    cases = tuple(case for case in left if case is not None)
    return Standing(file, recorded.stack, counts, MappingProxyType(falls)), replace(recorded, cases=cases)


def passed(
    release: Release, given: Iterable[VerdictFile], start: str, fits: Callable[[Verdict, Case], bool] = lambda _, __: True
) -> frozenset[str]:
    """Name the cases that passed and count for a release, whose names begin with `start`, and which `fits` accepts.

    Verdicts that do not count are skipped.
    """
    names: set[str] = set()
    for loaded in given:
        with suppress(StackError):
            _admit(loaded, None)
            _, counting = stand(release, loaded)
            names |= {
                case.name
                for case in counting.cases
                if case.name.startswith(start)
                and fits(counting, case)
                and case.outcome is Outcome.PASSED
                and (release.cases is None or not any(release.cases.problems(case)))
            }
    return frozenset(names)


def _without(case: Case, falls: Mapping[str, Fallen], release: Release) -> Case | None:
    """Turn a case that fell out into one that was not run; None if this validation does not define it."""
    if release.cases is not None and not release.cases.has(case.name):
        return None
    why = f"its verdict no longer counts ({falls[case.name]})"
    return Case(case.name, Outcome.NOT_RUN, why, case.needs)


def _is_own(release: Release, recorded: Verdict) -> bool:
    """Return whether a verdict is of exactly this stack, by exactly this validation."""
    versions = (release.versions or {}).items()
    return recorded.stack == release.stack and all(recorded.versions.get(name) == wanted for name, wanted in versions)


def _admit(loaded: VerdictFile, signers: Path | None) -> None:
    """Refuse a verdict that is not finished, or not signed by one of `signers`."""
    if not loaded.verdict.whole:
        raise StackError(f"{loaded.file} is of a run that did not finish", "finish it with --resume")
    if signers is not None:
        signing.verify(loaded.file, loaded.data, signers)


def _strange(gate: Gate, release: Release, recorded: Verdict) -> Iterator[str]:
    """Find pins, versions, machine or date of a verdict that do not belong to a validation of this release for this gate."""
    # A verdict of another stack, or by another validation, counts by its cases' inputs: its pins and versions need not be equal.
    is_carried = release.carried is not None and any(case.inputs for case in recorded.cases) and not _is_own(release, recorded)
    if not is_carried:
        yield from _other_pins(release, recorded)
        yield from _other_versions(release, recorded)
    yield from _other_packages(release, recorded, is_carried=is_carried)
    lacking = gate.has - _has(recorded)
    if lacking:
        yield f"its machine has no {' and no '.join(sorted(lacking))}, which the gate {gate.name} requires"
    if recorded.machine.cores < 1 or recorded.machine.memory < 1:
        yield f"its machine has {recorded.machine.cores} cores and {recorded.machine.memory} bytes of memory"
    made = datetime.fromisoformat(recorded.made)
    if not _FIRST <= made <= datetime.now(UTC) + _SLOW_CLOCK:
        yield f"it was made on {recorded.made}, which is {'before there were verdicts' if made < _FIRST else 'in the future'}"


def _other_pins(release: Release, recorded: Verdict) -> Iterator[str]:
    for name in sorted({*release.pins, *recorded.pins}):
        wanted, found = release.pins.get(name), recorded.pins.get(name)
        if wanted is None or found is None:
            yield f"it pins {name}, this stack does not" if wanted is None else f"it does not pin {name}, this stack does"
        elif wanted.tag != found.tag or not _same_commit(wanted.commit, found.commit):
            yield f"it pins {name} at {found.tag} ({found.commit[:12]}), this stack at {wanted.tag} ({wanted.commit[:12]})"


def _same_commit(one: str, other: str) -> bool:
    """Return whether two commit ids agree as far as both are known: either may be a prefix of the other."""
    return one.startswith(other) or other.startswith(one)


def _other_versions(release: Release, recorded: Verdict) -> Iterator[str]:
    for name, wanted in (release.versions or {}).items():
        if recorded.versions.get(name) != wanted:
            yield f"it was made by {name} {recorded.versions.get(name, 'unknown')}, here is {wanted}: validate again"


def _other_packages(release: Release, recorded: Verdict, *, is_carried: bool) -> Iterator[str]:
    """Compare installed packages with the pins; for a verdict of another stack, with that stack's digest only."""
    # A GPU's kernels come from the installed packages. In other runs these are a plain release with the stack's files over it.
    installed = any(_gpus(case) for case in recorded.cases if case.suite == "kernels" and case.outcome is Outcome.PASSED)
    for package, version in release.packages.items():
        found = recorded.versions.get(package, "")
        label = server_version_check.label(found)
        if found and found.partition("+")[0] != version and not is_carried:
            yield f"{package} was {found}, this stack pins {version}"
        elif (installed or "+" in found) and (label is None or not recorded.stack.startswith(label)):
            yield f"{package} was {found or 'not named'}, which is not of this stack ({recorded.stack[:8]})"


def _has(recorded: Verdict) -> frozenset[str]:
    """List the features of a verdict's machine, in the words of `needs`."""
    gpus = (f"sm{gpu.capability.replace('.', '')}" for gpu in recorded.machine.gpus)
    return frozenset({"cpu", *recorded.machine.flags, *gpus})


def _contradictions(gate: Gate, release: Release, recorded: Verdict) -> Iterator[str]:
    """Find cases that failed, except for goals that may be missed, and cases whose own record contradicts that they passed."""
    here = _has(recorded)
    for case in recorded.cases:
        if case.outcome is Outcome.FAILED and not any(each.missed and each.takes(recorded, case) for each in gate.wanted):
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
            yield f"{case.name} passed, but its margins do not show it: each must be recorded, and be at least 1"


def _count(wanted: Wanted, verdicts: Sequence[Verdict]) -> Count:
    taken = [case for each in verdicts for case in each.cases if wanted.takes(each, case)]
    passed = {case.name for case in taken if case.outcome is Outcome.PASSED}
    failed = {case.name for case in taken if case.outcome is Outcome.FAILED} - passed
    return Count(wanted, len(passed), len(failed) if wanted.missed else 0)


def _missing(gate: Gate, verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Report cases that the gate's machine could have run and that no verdict ran."""
    wanted = [(each, case) for each in verdicts for case in each.cases if any(want.takes(each, case) for want in gate.wanted)]
    ran = {case.name for _, case in wanted if case.outcome is not Outcome.NOT_RUN}
    for case in {case.name: case for _, case in wanted if case.name not in ran and _can(gate, case)}.values():
        yield f"{case.name} was not run: {case.why.splitlines()[0]}"


def _can(gate: Gate, case: Case) -> bool:
    """Return whether a gate's machine has all that a case needs; if it needs several GPUs, one of them suffices."""
    gpus = _gpus(case)
    return gate.has.issuperset({*case.needs} - gpus) and (not gpus or bool(gpus & gate.has))


def _gpus(case: Case) -> set[str]:
    return {need for need in case.needs if re.fullmatch(r"sm\d+", need)}


def _by_margins(case: Case) -> bool:
    """Return whether a case passes by margins: a case of the kernels other than a compile check."""
    return case.suite == "kernels" and not case.name.startswith("kernels/compile/")


def _described(wanted: Wanted) -> str:
    needs = f" that need {wanted.needs}" if wanted.needs else ""
    loaded = f" with {' or '.join(wanted.weights)} weights" if wanted.weights else ""
    return f"{wanted.names}{needs}{loaded}"


def _gate(name: str, table: Table) -> Gate:
    has = frozenset(table.texts("has"))
    wanted = tuple(_wanted(each) for each in table.tables("cases"))
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
    odd = [each for each in weights if each not in set(Weights)]
    if odd:
        raise table.error("weights", f"names {odd[0]!r}", f"known: {', '.join(Weights)}")
    return Wanted(names, least, needs, tuple(map(Weights, weights)), missed)
