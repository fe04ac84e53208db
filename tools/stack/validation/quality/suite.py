# SPDX-License-Identifier: Apache-2.0
"""The suite `quality`: a case for the server that is recorded now, and one for each choice held against the reference."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.deploy import server_version_check
from stack.model.ids import Sha256
from stack.model.verdict import Case, Outcome
from stack.store import cache as places
from stack.store.sources import Progress
from stack.validation.endpoint import Endpoint
from stack.validation.quality import distance, scores
from stack.validation.quality.choices import CHOICES, Choice
from stack.validation.quality.scores import Place, Scores, UnscoredError
from stack.validation.suite import Job

FOLDER = Path(".stack/quality")
"""Where records lie, below the stack."""
LEAST = 50
"""Tokens of the shortest text."""


Server = tuple[Endpoint, str]
"""Where a server is, and its model's name."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A server to record: `name` is the choice that it runs with, or whatever else it is to be called; `opened` as long as it is read."""

    name: str
    opened: Callable[[Progress | None], AbstractContextManager[Server]]


@dataclass(frozen=True, slots=True)
class Quality:
    """What is recorded, where records lie, which of them is the reference; and whether there is a GPU here."""

    folder: Path
    text: str
    stack: Sha256
    reference: str
    recordings: Sequence[Recording] = ()
    top: int = scores.TOP
    gpu: bool = False

    def __call__(self, job: Job) -> Iterator[Case]:
        """Record, then compare."""
        for recording in self.recordings:
            if self._wanted(recording.name, job):
                yield self._recorded(recording, job)
        known = {file.stem: scores.load(file) for file in sorted(self.folder.glob("*.json"))}
        names = dict.fromkeys([*(choice.name for choice in CHOICES), *known])
        for name in names:
            if name != self.reference and job.wants(f"quality/{name}"):
                yield self._compared(name, known)

    def _wanted(self, name: str, job: Job) -> bool:
        """Whether to record: it is asked for itself, or what is asked for is held against it."""
        if f"quality/recorded/{name}" in job.known:
            return False
        asked = name == self.reference or job.wants(f"quality/{name}")
        return asked or job.wants(f"quality/recorded/{name}")

    def _recorded(self, recording: Recording, job: Job) -> Case:
        name, began = f"quality/recorded/{recording.name}", time.monotonic()
        try:
            with recording.opened(job.tell) as (server, model):
                stack = server_version_check.case(name, server.version(), self.stack)
                if stack.outcome is Outcome.FAILED:
                    return stack
                found = self._read(server, model, job)
        except (UnscoredError, StackError) as refused:  # a server that does not start leaves the others theirs
            return Case(name, Outcome.FAILED, str(refused), seconds=time.monotonic() - began)
        one = Scores(recording.name, model, self.stack, scores.digest(self.text), self.top, server.here, tuple(found))
        self.folder.mkdir(parents=True, exist_ok=True)
        places.put(self.folder / f"{recording.name}.json", scores.write(one))
        measured = {"tokens": len(found), "perplexity": perplexity(found)} | dict(stack.measured)
        return Case(name, Outcome.PASSED, needs=_needs(one), measured=measured, seconds=time.monotonic() - began)

    def _read(self, server: Endpoint, model: str, job: Job) -> list[Place]:
        pieces = list(scores.pieces(self.text))
        found: list[Place] = []
        for number, piece in enumerate(pieces):
            job.step("reading the text", number, len(pieces))
            found += scores.score(server, model, piece, self.top)
        if len(found) < LEAST:
            raise UnscoredError(f"the text has {len(found)} tokens, fewer than {LEAST} say nothing")
        return found

    def _compared(self, name: str, known: Mapping[str, Scores]) -> Case:
        began = time.monotonic()
        case = f"quality/{name}"
        choice = next((one for one in CHOICES if one.name == name), None)
        if missing := self._missing(name, choice, known):
            return Case(case, Outcome.NOT_RUN, missing, choice.needs if choice else ())
        reference, one = known[self.reference], known[name]
        found = distance.between(reference.places, one.places)
        wrong = {key: distance.between(reference.places, mutant(reference.places)) for key, mutant in distance.WRONG.items()}
        bar, agreed = min(each.kl for each in wrong.values()), max(each.agreement for each in wrong.values())
        why = _judged(found, bar, agreed, choice)
        return Case(
            case,
            Outcome.FAILED if why else Outcome.PASSED,
            why,
            _needs(one),
            _numbers(found) | {"top-1 agreement of a wrong server": agreed},
            bar,
            {key: each.kl / found.kl for key, each in wrong.items()} if found.kl else {},
            time.monotonic() - began,
        )

    def _missing(self, name: str, choice: Choice | None, known: Mapping[str, Scores]) -> str:
        """Why a choice cannot be held against the reference; empty where it can."""
        for wanted in (self.reference, name):
            if wanted not in known:
                if wanted == name and choice is not None and choice.needs and not self.gpu:
                    return f"{name} needs a GPU: a CPU has no kernel for linear layers in MXFP4"
                how = (
                    f"start a server with {choice.flag}"
                    if choice and wanted == name
                    else "start a server with dense layers in BF16"
                )
                return f"{wanted} is not recorded: {how} and run `stack validate quality --url URL --as {wanted}`"
            if known[wanted].stack != self.stack or known[wanted].text != scores.digest(self.text):
                return f"{wanted} was recorded with another stack or text: record it again"
        if known[self.reference].subject != known[name].subject:
            return f"{name} and {self.reference} were recorded with other tokens or another --top: record them again"
        return ""


def perplexity(found: Sequence[Place]) -> float:
    """The perplexity of a record."""
    return math.exp(-statistics.fmean(place.likely[place.token] for place in found))


def _judged(found: distance.Distance, bar: float, agreed: float, choice: Choice | None) -> str:
    """Why a choice fails; empty where it does not.

    The divergence is a lower bound, and a weak one between servers that name different tokens; agreement is not.
    """
    if found.kl >= bar or found.agreement <= agreed:
        told = f"KL {found.kl:.3g} (a wrong one: {bar:.3g}), top-1 agreement {found.agreement:.0%} ({agreed:.0%})"
        return f"this is not the model any more: it is as far from the reference as a server that does not run it: {told}"
    # Rounding to fewer bits moves every log-probability a little; not at all means that a flag was ignored.
    if choice is not None and found.kl_most == 0 and found.ratio == 1:
        return f"nothing was quantised: every number is the reference's; was the server started with {choice.flag}?"
    return ""


def _numbers(found: distance.Distance) -> dict[str, float | str]:
    return {
        "tokens": found.tokens,
        "KL": found.kl,
        "KL 99th percentile": found.kl_99,
        "KL most": found.kl_most,
        "covered": found.covered,
        "top-1 agreement": found.agreement,
        "perplexity of the reference": found.perplexity[0],
        "perplexity": found.perplexity[1],
        "ratio": found.ratio,
        "ratio low": found.low,
        "ratio high": found.high,
    }


def _needs(one: Scores) -> tuple[str, ...]:
    return () if one.here else ("elsewhere",)
