# SPDX-License-Identifier: Apache-2.0
"""What is recorded of a pull request's validation: verdicts of this very stack, and how its proofs ended on upstream's tree."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from stack.base.errors import StackError
from stack.model import digest, verdict
from stack.model.stack import Stack
from stack.model.switch import FOLDER
from stack.model.verdict import Case, Outcome, Verdict
from stack.proof.series_proofs import State
from stack.store import cache as places
from stack.upstreaming.proposal import Proposal
from stack.validation.suite import ValidatedSubject, begun

PLACES = (f"{FOLDER}/verdicts", "validation/verdicts")
"""Where verdicts stand, below the stack's folder."""
RECORD = f"{FOLDER}/verdicts/export-pr.json"
"""How proofs ended on upstream's trees, with a pull request and what it needs and nothing else of the stack."""
_OUTCOMES = {State.PASSES: Outcome.PASSED, State.FAILS: Outcome.FAILED, State.NOT_RUN: Outcome.NOT_RUN}


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the validation's table: what was run where, and how it ended. `own`: it is about this pull request or its series."""

    command: str
    where: str
    outcome: str
    own: bool
    passed: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """A measurement: what of, the numbers as they were recorded, and where."""

    name: str
    numbers: Mapping[str, float | str]
    where: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is recorded and may be said of a pull request."""

    rows: tuple[Row, ...] = ()
    measured: tuple[Measured, ...] = ()

    @property
    def proves(self) -> bool:
        """Whether something that is about the pull request itself passed."""
        return any(row.own and row.passed for row in self.rows)


def verdicts(carried: Stack) -> tuple[Verdict, ...]:
    """The recorded verdicts of the stack at hand, the oldest first.

    Raises:
        StackError: a file there is no verdict, or not as it was written.

    """
    files = [file for place in PLACES for file in sorted((carried.root / place).glob("*.json"))]
    mine = digest.of(carried)
    return tuple(sorted((one for one in map(verdict.load, files) if one.stack == mine), key=lambda one: one.made))


def evidence(proposal: Proposal, recorded: Iterable[Verdict]) -> Evidence:
    """What verdicts say of a pull request: its proof and its series case by case, everything else of the stack in sums."""
    rows: list[Row] = []
    measured: list[Measured] = []
    for one in recorded:
        where = _where(one)
        rows += _proof_rows(proposal, one)
        rows += _series_rows(proposal, one, where)
        rows += _sums(one, where)
        measured += [Measured(case.name, case.measured, where) for case in one.cases if _is_measurement(case)]
    # What is about the pull request itself comes first.
    return Evidence(tuple(sorted(rows, key=lambda row: not row.own)), tuple(measured))


def _proof_rows(proposal: Proposal, one: Verdict) -> list[Row]:
    name = f"proof/{proposal.name}"
    found = [case for case in one.cases if case.name == name and case.measured.get("change") == _change(proposal)]
    command = f"stack export-pr {proposal.series} --upstream {proposal.upstream} --onto {proposal.onto}"
    return [
        Row(
            command,
            _machine(one),
            f"its tests {_ended(case)} on {proposal.onto} with this change alone",
            own=True,
            passed=_passed(case),
        )
        for case in found
    ]


def _series_rows(proposal: Proposal, one: Verdict, where: str) -> list[Row]:
    start = f"serve/series/{proposal.series}/"
    return [
        Row(
            _command(one, "serve"),
            where,
            f"{case.name.removeprefix('serve/series/')}: {_ended(case)}",
            own=True,
            passed=_passed(case),
        )
        for case in one.cases
        if case.name.startswith(start)
    ]


def _sums(one: Verdict, where: str) -> list[Row]:
    counts: dict[str, Counter[Outcome]] = {}
    for case in one.cases:
        if case.suite != "proof":
            counts.setdefault(case.suite, Counter())[case.outcome] += 1
    return [
        Row(
            _command(one, suite),
            where,
            f"{suite}, all of the stack: {_summed(count)}",
            own=False,
            passed=not count[Outcome.FAILED],
        )
        for suite, count in counts.items()
    ]


def _summed(count: Mapping[Outcome, int]) -> str:
    words = {Outcome.PASSED: "passed", Outcome.FAILED: "failed", Outcome.NOT_RUN: "not run"}
    return ", ".join(f"{count[outcome]} {word}" for outcome, word in words.items() if count.get(outcome))


def _command(one: Verdict, suite: str) -> str:
    """What was run, as the verdict says it; several suites in one verdict are those of a pack."""
    if len({case.suite for case in one.cases}) > 1 and one.recipe is None:
        return "stack validate pack"
    return f"stack validate {suite}" + (f" --recipe {one.recipe}" if one.recipe else "")


def _where(one: Verdict) -> str:
    pins = ", ".join(f"{name} {pin.tag or pin.commit[:12]}" for name, pin in one.pins.items() if pin.tag)
    weights = f"; {one.weights} weights" if one.weights else ""
    return f"{_machine(one)}; {pins}{weights}"


def _machine(one: Verdict) -> str:
    gpus = ", ".join(dict.fromkeys(gpu.name for gpu in one.machine.gpus))
    return f"{gpus or one.machine.cpu}, {one.made[:10]}"


def _ended(case: Case) -> str:
    words = {Outcome.PASSED: "passed", Outcome.FAILED: "failed", Outcome.NOT_RUN: "were not run"}
    return words[case.outcome] + (f" ({case.why.splitlines()[0][:120]})" if case.why.strip() else "")


def _passed(case: Case) -> bool:
    return case.outcome is Outcome.PASSED


def _is_measurement(case: Case) -> bool:
    """Whether a case measured a speed: what was not run or failed has no number."""
    return case.suite == "bench" and case.outcome is Outcome.PASSED and ("tok/s" in case.measured or "ratio" in case.measured)


def _change(proposal: Proposal) -> str:
    """Twelve digits that change with what a pull request changes, or where it stands."""
    text = b"\0".join([proposal.base.encode(), *(part.patch.diff for part in proposal.parts), *map(str.encode, proposal.needs)])
    return hashlib.sha256(text).hexdigest()[:12]


def record(carried: Stack, proposals: Sequence[Proposal]) -> None:
    """Write down how proofs ended that planning has run; those of other pull requests of the same stack stay.

    Raises:
        StackError: what was recorded before is not as it was written, or it cannot be written.

    """
    cases = {one.name: one for one in map(_case, proposals) if one is not None}
    if not cases:
        return
    file = carried.root / RECORD
    mine = digest.of(carried)
    before = verdict.load(file) if file.is_file() else None
    kept = {one.name: one for one in before.cases} if before is not None and before.stack == mine else {}
    data = verdict.write(replace(begun(carried, ValidatedSubject()), cases=tuple((kept | cases).values()), whole=True))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        places.put(file, data)
    except OSError as failed:
        raise StackError(f"{file} cannot be written ({failed.strerror})", "check the folder's rights") from failed


def _case(proposal: Proposal) -> Case | None:
    if proposal.proof is None:
        return None
    outcome = _OUTCOMES[proposal.proof.state]
    why = "" if outcome is Outcome.PASSED else proposal.proof.reason or "a test failed"
    measured = {"onto": proposal.onto, "commit": proposal.base, "change": _change(proposal)}
    return Case(f"proof/{proposal.name}", outcome, why, measured=MappingProxyType(measured))
