# SPDX-License-Identifier: Apache-2.0
"""From what a user asks for to the suite `bench`: the server, its model, the baselines, and what is done with the numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.deploy import server_version_check
from stack.model import digest
from stack.model.stack import Stack
from stack.model.verdict import Outcome, Verdict, Weights
from stack.store import cache as places
from stack.store.sources import Progress
from stack.validation import endpoint, machine
from stack.validation import suite as suites
from stack.validation.bench import baseline, benchy
from stack.validation.bench.suite import AGAINST, ANSWERS, PROMPTS, Bench, case_name, measured, prefill_runs, table

OF_STACK = "bench/stack"
"""The case that says whether the server is of the stack."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user asks for; empty sizes mean the usual ones."""

    url: str
    model: str | None = None
    tokenizer: Path | None = None
    weights: str | None = None
    prompts: tuple[int, ...] = ()
    answers: tuple[int, ...] = ()
    runs: int = 5
    record: bool = False
    recipe: str | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """A bench that is ready to run: what `after` returns is for the user to read."""

    suite: Bench
    subject: suites.Subject
    after: Callable[[Verdict], str]


def names(asked: Asked) -> tuple[str, ...]:
    """The names of the cases, as far as they are known before there is a server: of comparisons only how they begin."""
    return (OF_STACK, *map(case_name, _sizes(asked)), AGAINST)


def begin(carried: Stack, cache: Path | None, asked: Asked, tell: Progress | None = None) -> Begun:
    """Look at the server and the baselines.

    Raises:
        StackError: the server does not answer, its model or tokenizer is not clear, a baseline is not of the form, or what is
            to be recorded is not known well enough.

    """
    server = endpoint.at(asked.url)
    model = server.model(asked.model)
    # A tiny model that has to go on after its end says hardly anything but control tokens; its speed means nothing anyway.
    share = 0.0 if asked.weights == Weights.TINY else benchy.SHARE
    target = benchy.Target(server.url, model.name, endpoint.tokenizer(model, asked.tokenizer), share)
    python = benchy.python(places.root(cache), lambda step: tell(step, 0, None) if tell else None)
    subject = baseline.Subject(
        model=model.name,
        weights=Weights(asked.weights) if asked.weights else None,
        machine=machine.here() if server.here else None,
        pins={pin.upstream: pin.commit for pin in carried.pins},
        tool=f"llama-benchy {benchy.version(python)}",
    )
    if asked.record and (subject.machine is None or subject.weights is None):
        raise StackError("a baseline says what was measured", "run this on the machine of the server, with --weights")
    folder = carried.root / baseline.FOLDER
    version = server.version()
    of_stack = server_version_check.case(OF_STACK, version, digest.of(carried))
    bench = Bench(python, target, subject, _sizes(asked), baseline.load(folder), model.length, of_stack)

    # What another server has measured must not be taken for this one's by --resume.
    versions = {"bench": subject.tool, "model": model.name, "server": version or "unknown"}

    def after(verdict: Verdict) -> str:
        found = [one for case in verdict.cases if (one := measured(case)) is not None]
        lines = [table(model.name, found)] if found else []
        if asked.record:
            lines.append(_record(folder, subject, verdict, bench))
        return "\n\n".join(lines)

    return Begun(bench, suites.Subject(asked.recipe, subject.weights, versions=versions), after)


def _sizes(asked: Asked) -> list[benchy.Size]:
    return [
        benchy.Size(prompt, answer, asked.runs) for prompt in asked.prompts or PROMPTS for answer in asked.answers or ANSWERS
    ]


def _record(folder: Path, subject: baseline.Subject, verdict: Verdict, bench: Bench) -> str:
    """Write the baseline of this machine; only of what was measured without fault."""
    ours = {case_name(size) for size in bench.sizes}
    failed = [case.name for case in verdict.cases if case.name in ours and case.outcome is Outcome.FAILED]
    found = [one for case in verdict.cases if case.name in ours and (one := measured(case)) is not None]
    if failed or not found:
        return f"not recorded: {', '.join(failed) or 'nothing'} was not measured"
    decode = {(one.size.answer, one.size.prompt): one.decode for one in found}
    text = baseline.text(subject, verdict.stack, prefill_runs(found), decode)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{baseline.file_name(subject)}.toml"
    places.put(file, text.encode())
    return f"recorded: {file}"
