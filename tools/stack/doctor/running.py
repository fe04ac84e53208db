# SPDX-License-Identifier: Apache-2.0
"""Check a running server by its answers.

No answer is trusted: a missing or late one, or one of another form, is a finding.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from stack.base.progress import Progress, silent
from stack.deploy.recipes import Recipe
from stack.doctor.finding import Finding, Found, Severity, fine, unknown, wrong
from stack.doctor.server.basics import alive
from stack.doctor.server.client import Client, NoAnswer
from stack.doctor.server.context import LONG, NotAsked
from stack.doctor.server.interview import Asked, Interview, Question
from stack.doctor.server.questions import QUESTIONS
from stack.doctor.server.shown import SEE_LOG, hiding, shown, without

CHECKS = QUESTIONS
NOT_ASKED = "not asked"
"""The outcome of a question that was not asked."""
_FIRST = ("health", "model")
"""Questions without which the others make no sense."""
_ORDER = (Severity.WRONG, Severity.UNKNOWN, Severity.NOTE, Severity.FINE)
_ODD = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def interview(
    url: str,
    name: str | None,
    recipe: Recipe | None,
    limit: float | None,
    *,
    key: str | None,
    longest: float,
    context: int = LONG,
    tell: Progress = silent,
    questions: Sequence[Question] = QUESTIONS,
) -> Iterator[Asked]:
    """Check a server by asking it questions.

    Args:
        url: its address, without /v1.
        name: of the model; by default the only one.
        recipe: the recipe by which it was started.
        limit: tokens per second that the hardware's memory allows.
        key: the API key.
        longest: seconds for all answers together.
        context: tokens of the longest request; 0: none with a long prompt.
        tell: gets each question before it is asked.
        questions: the questions to ask.

    """
    client = Client(url, longest, key, time.monotonic() + longest)
    subject = Interview(client, name or "", recipe, limit, context, tell)
    silence = ""
    for number, question in enumerate(questions):
        subject.reserved = sum(later.least for later in questions[number + 1 :])
        if not silence and time.monotonic() >= client.until:
            silence = f"the {longest:g} seconds of --timeout are over"
        why = silence
        if not why and question.least and subject.purse.allowed(question.least, subject.reserved) < question.least:
            why = f"the {subject.purse.most} tokens that it may generate are used up"
        if why:
            yield _asked(question, url, key, NOT_ASKED, (unknown(f"not asked: {why}"),), 0, 0.0)
            continue
        tell(f"asking: {question.about}")
        with hiding(key):
            asked = _ask(question, subject)
        yield asked
        silence = _silence(question, asked, subject)


def _ask(question: Question, subject: Interview) -> Asked:
    """Ask one question."""
    began, spent = time.monotonic(), subject.purse.spent
    outcome, found = "", list[Found]()
    failure: NoAnswer | None = None
    try:
        found += question.look(subject)
    except NotAsked as left_out:
        outcome = NOT_ASKED
        if left_out.found is None:
            return _asked(question, subject.client.url, subject.client.key, outcome, (), 0, time.monotonic() - began)
        found.append(left_out.found)
    except NoAnswer as failed:
        found.append(failed.found)
        failure = failed
    except _ODD as odd:
        # The questions check the forms that are known; what they do not foresee is a fault of the answer all the same.
        found.append(wrong(f"the answer has a wrong form ({shown(f'{type(odd).__name__}: {odd}')})", SEE_LOG))
    if failure is not None and question.name not in _FIRST and _died(failure, subject):
        subject.dead = True
        found.append(wrong("after this question /health does not answer any more: it ended the server", SEE_LOG))
    found = found or [fine(question.fine)]
    seconds = time.monotonic() - began
    return _asked(question, subject.client.url, subject.client.key, outcome, tuple(found), subject.purse.spent - spent, seconds)


def _died(failed: NoAnswer, subject: Interview) -> bool:
    """Tell whether the server died of a question that had no answer."""
    return failed.may_be_dead and time.monotonic() < subject.client.until and not alive(subject)


def _asked(
    question: Question, url: str, key: str | None, outcome: str, found: tuple[Found, ...], tokens: int, seconds: float
) -> Asked:
    worst = next((severity for severity in _ORDER if any(each.severity is severity for each in found)), Severity.FINE)
    findings = tuple(Finding(question.name, url, _without(key, each)) for each in found)
    return Asked(question, outcome or str(worst), findings, tokens, seconds)


def _without(key: str | None, found: Found) -> Found:
    """Take the API key out of a finding, where words of the server stand in it that were not shown as such."""
    return replace(found, what=without(key, found.what), fix=without(key, found.fix))


def _silence(question: Question, asked: Asked, subject: Interview) -> str:
    """Return why no further question makes sense; empty if one does."""
    bad = asked.outcome in (Severity.WRONG, Severity.UNKNOWN)
    if question.name in _FIRST and bad:
        return "the server does not answer" if question.name == "health" else "no model is known that could be asked"
    if subject.dead:
        return "the server does not answer any more"
    return ""
