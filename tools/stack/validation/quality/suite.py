# SPDX-License-Identifier: Apache-2.0
"""The suite `quality`: a case for each server that is recorded, and one for the comparison of each choice with the reference."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.deploy import server_version_check
from stack.model.ids import Sha256
from stack.model.verdict import Case, Outcome
from stack.store import cache as places
from stack.validation.endpoint import Endpoint
from stack.validation.quality import distance, scores
from stack.validation.quality.choices import CHOICES, Choice
from stack.validation.quality.scores import Scores, TokenPlace, UnscoredError
from stack.validation.suite import Job

FOLDER = Path(".stack/quality")
"""The folder of the records, below the stack."""
LEAST = 50
"""Least number of tokens of a text."""


Server = tuple[Endpoint, str]
"""A server's endpoint, and its model's name."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A server to record. `name` is its choice, or another name. `opened` provides the server while it is read."""

    name: str
    opened: Callable[[Progress], AbstractContextManager[Server]]


@dataclass(frozen=True, slots=True)
class Quality:
    """The servers to record, the folder of records, the reference's name, and whether this machine has a GPU."""

    folder: Path
    text: str
    stack: Sha256
    reference: str
    recordings: Sequence[Recording] = ()
    top: int = scores.TOP
    gpu: bool = False

    def __call__(self, job: Job) -> Iterator[Case]:
        """Record servers, then compare records."""
        for recording in self.recordings:
            if self._wanted(recording.name, job):
                yield self._recorded(recording, job)
        known = {file.stem: scores.load(file) for file in sorted(self.folder.glob("*.json"))}
        names = dict.fromkeys([*(choice.name for choice in CHOICES), *known])
        for name in names:
            if name != self.reference and job.wants(f"quality/{name}"):
                yield self._compared(name, known)

    def _wanted(self, name: str, job: Job) -> bool:
        """Return whether to record: the recording, or a comparison that needs it, is selected."""
        if f"quality/recorded/{name}" in job.known:
            return False
        needed = name == self.reference or job.wants(f"quality/{name}")
        return needed or job.wants(f"quality/recorded/{name}")

    def _recorded(self, recording: Recording, job: Job) -> Case:
        name, began = f"quality/recorded/{recording.name}", time.monotonic()
        try:
            with recording.opened(job.tell) as (server, model):
                stack = server_version_check.case(name, server.version(), self.stack)
                if stack.outcome is Outcome.FAILED:
                    return stack
                scored = self._read(server, model, job)
        except (UnscoredError, StackError) as refused:  # the other servers must still be recorded
            return Case(name, Outcome.FAILED, str(refused), seconds=time.monotonic() - began)
        record = Scores(recording.name, model, self.stack, scores.digest(self.text), self.top, server.here, tuple(scored))
        self.folder.mkdir(parents=True, exist_ok=True)
        places.put(self.folder / f"{recording.name}.json", scores.write(record))
        measured = {"tokens": len(scored), "perplexity": perplexity(scored)} | dict(stack.measured)
        return Case(name, Outcome.PASSED, needs=_needs(record), measured=measured, seconds=time.monotonic() - began)

    def _read(self, server: Endpoint, model: str, job: Job) -> list[TokenPlace]:
        pieces = list(scores.pieces(self.text))
        scored: list[TokenPlace] = []
        for number, piece in enumerate(pieces):
            job.tell("reading the text", number, len(pieces))
            scored += scores.score(server, model, piece, self.top)
        if len(scored) < LEAST:
            raise UnscoredError(f"the text has {len(scored)} tokens, at least {LEAST} are needed")
        return scored

    def _compared(self, name: str, known: Mapping[str, Scores]) -> Case:
        began = time.monotonic()
        case = f"quality/{name}"
        choice = next((each for each in CHOICES if each.name == name), None)
        if missing := self._missing(name, choice, known):
            return Case(case, Outcome.NOT_RUN, missing, choice.needs if choice else ())
        reference, record = known[self.reference], known[name]
        compared = distance.between(reference.places, record.places)
        wrong = {key: distance.between(reference.places, mutant(reference.places)) for key, mutant in distance.WRONG.items()}
        bar, agreed = min(each.kl for each in wrong.values()), max(each.agreement for each in wrong.values())
        why = _judged(compared, bar, agreed, choice)
        return Case(
            case,
            Outcome.FAILED if why else Outcome.PASSED,
            why,
            _needs(record),
            _numbers(compared) | {"top-1 agreement of a wrong server": agreed},
            bar,
            {key: each.kl / compared.kl for key, each in wrong.items()} if compared.kl else {},
            time.monotonic() - began,
        )

    def _missing(self, name: str, choice: Choice | None, known: Mapping[str, Scores]) -> str:
        """Return why a choice cannot be compared with the reference; empty if it can."""
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


def perplexity(scored: Sequence[TokenPlace]) -> float:
    """Compute the perplexity of a record."""
    return math.exp(-statistics.fmean(place.likely[place.token] for place in scored))


def _judged(compared: distance.Distance, bar: float, agreed: float, choice: Choice | None) -> str:
    """Return why a choice fails; empty if it does not.

    The divergence is only a lower bound, and a weak one between servers that name different tokens. So agreement counts, too.
    """
    if compared.kl >= bar or compared.agreement <= agreed:
        numbers = f"KL {compared.kl:.3g} (a wrong one: {bar:.3g}), top-1 agreement {compared.agreement:.0%} ({agreed:.0%})"
        return f"it is as far from the reference as a server that does not run the model: {numbers}"
    # Rounding to fewer bits moves every log-probability a little. If none moves, a flag was ignored.
    if choice is not None and compared.kl_most == 0 and compared.ratio == 1:
        return f"nothing was quantized, since every number equals the reference's: was the server started with {choice.flag}?"
    return ""


def _numbers(compared: distance.Distance) -> dict[str, float | str]:
    return {
        "tokens": compared.tokens,
        "KL": compared.kl,
        "KL 99th percentile": compared.kl_99,
        "KL most": compared.kl_most,
        "covered": compared.covered,
        "top-1 agreement": compared.agreement,
        "perplexity of the reference": compared.perplexity[0],
        "perplexity": compared.perplexity[1],
        "ratio": compared.ratio,
        "ratio low": compared.low,
        "ratio high": compared.high,
    }


def _needs(record: Scores) -> tuple[str, ...]:
    return () if record.here else ("elsewhere",)
