# SPDX-License-Identifier: Apache-2.0
"""Write the doctor's questions to a server as cases of a verdict."""

from collections.abc import Iterable, Iterator

from stack.doctor.finding import Severity
from stack.doctor.server.interview import Asked
from stack.model.verdict import Case, Outcome

SUITE = "doctor"
_OUTCOMES = {Severity.WRONG: Outcome.FAILED, Severity.FINE: Outcome.PASSED, Severity.NOTE: Outcome.PASSED}
_LEFT_OUT = "it was left out"


def of(asked: Iterable[Asked], needs: tuple[str, ...]) -> Iterator[Case]:
    """Yield a case for each question: wrong has failed, fine and worth knowing have passed, anything else was not run."""
    for each in asked:
        outcome = next((_OUTCOMES[severity] for severity in _OUTCOMES if each.outcome == severity), Outcome.NOT_RUN)
        why = "" if outcome is Outcome.PASSED else _why(each)
        measured = {"generated tokens": float(each.tokens)} if outcome is not Outcome.NOT_RUN else {}
        yield Case(f"{SUITE}/{each.question.name}", outcome, why, needs, measured, seconds=each.seconds)


def _why(asked: Asked) -> str:
    """Say in words what was found, the findings that count first."""
    bad = [finding for finding in asked.findings if finding.severity == asked.outcome] or [*asked.findings]
    return "\n".join(finding.found.what for finding in bad) or _LEFT_OUT
