# SPDX-License-Identifier: Apache-2.0
"""Collect the recorded results for a pull request: verdicts of this stack, and the outcome of its proofs on upstream's tree."""

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
from stack.proof.series_proofs import ProofState
from stack.store import cache as places
from stack.upstreaming.proposal import Proposal
from stack.validation.suite import ValidatedSubject, begun

PLACES = (f"{FOLDER}/verdicts", "validation/verdicts")
"""Folders with verdicts, below the stack's folder."""
_VERDICTS = f"{FOLDER}/verdicts"
RECORD = f"{_VERDICTS}/export-pr.json"
"""File with the outcome of proofs on upstream's trees, each with a pull request and its needs but without the rest of the stack."""
_OUTCOMES = {ProofState.PASSES: Outcome.PASSED, ProofState.FAILS: Outcome.FAILED, ProofState.NOT_RUN: Outcome.NOT_RUN}


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """A row of the validation table: the command, the machine, and the outcome.

    `own` is true if the row is about this pull request or its series.
    """

    command: str
    where: str
    outcome: str
    own: bool
    passed: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """A measurement: its name, its numbers as they were recorded, and the machine."""

    name: str
    numbers: Mapping[str, float | str]
    where: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """All recorded results for a pull request."""

    rows: tuple[EvidenceRow, ...] = ()
    measured: tuple[Measured, ...] = ()

    @property
    def proves(self) -> bool:
        """Return whether a check of the pull request itself passed."""
        return any(row.own and row.passed for row in self.rows)


def record_of(lane: str | None) -> str:
    """Return the file with the outcome of a lane's proofs, below the stack's folder: each lane has one of its own."""
    return RECORD if lane is None else f"{FOLDER}/lanes/{lane}/verdicts/export-pr.json"


def verdicts(carried: Stack) -> tuple[Verdict, ...]:
    """Load the recorded verdicts of this stack, the oldest first.

    Raises:
        StackError: a file is not a verdict, or was changed after it was written.

    """
    own = record_of(carried.lane)
    files = [file for place in PLACES for file in sorted((carried.root / place).glob("*.json"))]
    files = [file for file in files if file != carried.root / RECORD] + [carried.root / own] * (carried.root / own).is_file()
    mine = digest.of(carried)
    return tuple(
        sorted((loaded for loaded in map(verdict.load, files) if loaded.stack == mine), key=lambda loaded: loaded.made)
    )


def evidence(proposal: Proposal, recorded: Iterable[Verdict]) -> Evidence:
    """Summarise verdicts for a pull request: its proof and its series case by case, all other suites as totals."""
    rows: list[EvidenceRow] = []
    measured: list[Measured] = []
    for judged in recorded:
        where = _where(judged)
        rows += _proof_rows(proposal, judged)
        rows += _series_rows(proposal, judged, where)
        rows += _sums(judged, where)
        measured += [Measured(case.name, case.measured, where) for case in judged.cases if _is_measurement(case)]
    # Rows about the pull request itself come first.
    return Evidence(tuple(sorted(rows, key=lambda row: not row.own)), tuple(measured))


def _proof_rows(proposal: Proposal, judged: Verdict) -> list[EvidenceRow]:
    name = f"proof/{proposal.name}"
    cases = [case for case in judged.cases if case.name == name and case.measured.get("change") == _change(proposal)]
    command = f"stack export-pr {proposal.series} --upstream {proposal.upstream} --onto {proposal.onto}"
    return [
        EvidenceRow(
            command,
            _machine(judged),
            f"its tests {_ended(case)} on {proposal.onto} with this change alone",
            own=True,
            passed=_passed(case),
        )
        for case in cases
    ]


def _series_rows(proposal: Proposal, judged: Verdict, where: str) -> list[EvidenceRow]:
    start = f"serve/series/{proposal.series}/"
    return [
        EvidenceRow(
            _command(judged, "serve"),
            where,
            f"{case.name.removeprefix('serve/series/')}: {_ended(case)}",
            own=True,
            passed=_passed(case),
        )
        for case in judged.cases
        if case.name.startswith(start)
    ]


def _sums(judged: Verdict, where: str) -> list[EvidenceRow]:
    counts: dict[str, Counter[Outcome]] = {}
    for case in judged.cases:
        if case.suite != "proof":
            counts.setdefault(case.suite, Counter())[case.outcome] += 1
    return [
        EvidenceRow(
            _command(judged, suite),
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


def _command(judged: Verdict, suite: str) -> str:
    """Return the command that made a verdict; a verdict with several suites comes from a validation pack."""
    if len({case.suite for case in judged.cases}) > 1 and judged.recipe is None:
        return "stack validate pack"
    return f"stack validate {suite}" + (f" --recipe {judged.recipe}" if judged.recipe else "")


def _where(judged: Verdict) -> str:
    pins = ", ".join(f"{name} {pin.tag or pin.commit[:12]}" for name, pin in judged.pins.items() if pin.tag)
    weights = f"; {judged.weights} weights" if judged.weights else ""
    return f"{_machine(judged)}; {pins}{weights}"


def _machine(judged: Verdict) -> str:
    gpus = ", ".join(dict.fromkeys(gpu.name for gpu in judged.machine.gpus))
    return f"{gpus or judged.machine.cpu}, {judged.made[:10]}"


def _ended(case: Case) -> str:
    words = {Outcome.PASSED: "passed", Outcome.FAILED: "failed", Outcome.NOT_RUN: "were not run"}
    return words[case.outcome] + (f" ({case.why.splitlines()[0][:120]})" if case.why.strip() else "")


def _passed(case: Case) -> bool:
    return case.outcome is Outcome.PASSED


def _is_measurement(case: Case) -> bool:
    """Return whether a case measured a speed; a case that failed or did not run has no number."""
    return case.suite == "bench" and case.outcome is Outcome.PASSED and ("tok/s" in case.measured or "ratio" in case.measured)


def _change(proposal: Proposal) -> str:
    """Return twelve hex digits that identify a pull request's change and its base."""
    text = b"\0".join([proposal.base.encode(), *(part.patch.diff for part in proposal.parts), *map(str.encode, proposal.needs)])
    return hashlib.sha256(text).hexdigest()[:12]


def record(carried: Stack, proposals: Sequence[Proposal]) -> None:
    """Record the outcome of the proofs that planning ran; outcomes of other pull requests of the same stack are kept.

    Raises:
        StackError: the earlier record is damaged, or the file cannot be written.

    """
    cases = {case.name: case for case in map(_case, proposals) if case is not None}
    if not cases:
        return
    file = carried.root / record_of(carried.lane)
    mine = digest.of(carried)
    before = verdict.load(file) if file.is_file() else None
    kept = {case.name: case for case in before.cases} if before is not None and before.stack == mine else {}
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
