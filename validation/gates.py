# SPDX-License-Identifier: Apache-2.0
"""Gates: whether verdicts are enough for a release. `gates.toml` names the cases that have to have passed."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from stack.model import document, verdict
from stack.model.document import Table
from stack.model.errors import StackError
from stack.model.ids import Sha256
from stack.model.verdict import Case, Outcome, Verdict, Weights
from validation import signing

FILE = Path("validation/gates.toml")

_NEED = r"[a-z][a-z0-9_-]*"


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
class Judgement:
    """Whether verdicts are enough: `problems` says in a sentence each why not."""

    gate: Gate
    counts: tuple[Count, ...]
    problems: tuple[str, ...]


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


def judge(gate: Gate, stack: Sha256, files: Sequence[Path], signers: Path | None = None) -> Judgement:
    """Whether the verdicts of `files`, together, are enough for a release of the stack with that digest.

    With `signers` (OpenSSH's allowed_signers) each has to be signed by one of them.
    """
    problems: list[str] = []
    verdicts: list[Verdict] = []
    for file in files:
        try:
            one = _admitted(file, stack, signers)
        except StackError as refused:
            problems.append(str(refused))
        else:
            verdicts.append(one)
            problems += [f"{file}: {problem}" for problem in _contradictions(gate, one)]
    counts = tuple(_count(wanted, verdicts) for wanted in gate.wanted)
    problems += _missing(gate, verdicts)
    problems += [
        f"{_said(count.wanted)}: {count.passed + count.missed} {'ran' if count.wanted.missed else 'passed'}, "
        f"{count.wanted.least} are needed"
        for count in counts
        if not count.enough
    ]
    return Judgement(gate, counts, tuple(problems))


def _admitted(file: Path, stack: Sha256, signers: Path | None) -> Verdict:
    data = verdict.bytes_of(file)
    one = verdict.read(data, str(file))
    if one.stack != stack:
        raise StackError(f"{file} is of the stack {one.stack[:12]}, this one is {stack[:12]}", "validate this one")
    if not one.whole:
        raise StackError(f"{file} is of a run that did not come to its end", "finish it with --resume")
    if signers is not None:
        signing.verify(file, data, signers)
    return one


def _contradictions(gate: Gate, one: Verdict) -> Iterator[str]:
    """What failed but for goals that may be missed; what passed on a GPU that the machine does not have, or by numbers that say no."""
    here = {f"sm{gpu.capability.replace('.', '')}" for gpu in one.machine.gpus}
    for case in one.cases:
        if case.outcome is Outcome.FAILED and not any(each.missed and each.takes(one, case) for each in gate.wanted):
            yield f"{case.name} failed: {case.why.splitlines()[0]}"
        gpus = _gpus(case)
        if case.outcome is Outcome.PASSED and gpus and not gpus & here:
            yield f"{case.name} passed without the {' or '.join(sorted(gpus))} that it needs"
        if case.outcome is Outcome.PASSED and _by_margins(case) and min(case.margins.values(), default=0) < 1:
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
