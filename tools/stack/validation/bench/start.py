# SPDX-License-Identifier: Apache-2.0
"""Turn a user's options into the suite `bench`: check the server, find its model, load baselines, and report the numbers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stack.base.errors import StackError
from stack.base.progress import Progress, silent
from stack.deploy import server_version_check
from stack.model import digest
from stack.model.stack import Stack
from stack.model.verdict import Outcome, Verdict, Weights
from stack.store import cache as places
from stack.validation import endpoint, machine
from stack.validation import suite as suites
from stack.validation.bench import baseline, benchy
from stack.validation.bench.suite import AGAINST, ANSWERS, PROMPTS, Bench, case_name, measured, prefill_runs, table

OF_STACK = "bench/stack"
"""The case that checks that the server is of the stack."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """A user's options; empty sizes mean the default ones. `key`: the API key, if the server wants one."""

    url: str
    model: str | None = None
    tokenizer: Path | None = None
    weights: str | None = None
    prompts: tuple[int, ...] = ()
    answers: tuple[int, ...] = ()
    runs: int = 5
    record: bool = False
    recipe: str | None = None
    key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Begun:
    """A bench that is ready to run; `after` makes the report for the user."""

    suite: Bench
    subject: suites.ValidatedSubject
    after: Callable[[Verdict], str]


def names(options: BenchOptions) -> tuple[str, ...]:
    """List the names of the cases, as far as they are known without a server; of comparisons only the beginning."""
    return (OF_STACK, *map(case_name, _sizes(options)), AGAINST)


def begin(carried: Stack, cache: Path | None, options: BenchOptions, tell: Progress = silent) -> Begun:
    """Connect to the server and load the baselines.

    Raises:
        StackError: the server does not answer, its model or tokenizer is not clear, a baseline is invalid, or the facts that a
            recorded baseline needs are not known.

    """
    server = endpoint.at(options.url, options.key)
    model = server.model(options.model)
    # A tiny model that must go on after its end generates almost only control tokens; its speed is meaningless anyway.
    share = 0.0 if options.weights == Weights.TINY else benchy.SHARE
    target = benchy.Target(server.url, model.name, endpoint.tokenizer(model, options.tokenizer), share, server.key)
    python = benchy.python(places.root(cache), tell)
    subject = baseline.MeasuredSubject(
        model=model.name,
        weights=Weights(options.weights) if options.weights else None,
        machine=machine.here() if server.here else None,
        pins={pin.upstream: pin.commit for pin in carried.pins},
        tool=f"llama-benchy {benchy.version(python)}",
    )
    if options.record and (subject.machine is None or subject.weights is None):
        raise StackError(
            "a baseline names its machine and weights", "run this on the machine of the server, and name them with --weights"
        )
    folder = carried.root / baseline.FOLDER
    version = server.version()
    of_stack = server_version_check.case(OF_STACK, version, digest.of(carried))
    bench = Bench(python, target, subject, _sizes(options), baseline.load(folder), model.length, of_stack)

    # --resume must not take another server's measurements for those of this one.
    versions = {"bench": subject.tool, "model": model.name, "server": version or "unknown"}

    def after(verdict: Verdict) -> str:
        results = [result for case in verdict.cases if (result := measured(case)) is not None]
        lines = [table(model.name, results)] if results else []
        if options.record:
            lines.append(_record(folder, subject, verdict, bench))
        return "\n\n".join(lines)

    return Begun(bench, suites.ValidatedSubject(options.recipe, subject.weights, versions=versions), after)


def _sizes(options: BenchOptions) -> list[benchy.Size]:
    return [
        benchy.Size(prompt, answer, options.runs)
        for prompt in options.prompts or PROMPTS
        for answer in options.answers or ANSWERS
    ]


def _record(folder: Path, subject: baseline.MeasuredSubject, verdict: Verdict, bench: Bench) -> str:
    """Write the baseline of this machine, if every size was measured without a failure."""
    ours = {case_name(size) for size in bench.sizes}
    failed = [case.name for case in verdict.cases if case.name in ours and case.outcome is Outcome.FAILED]
    results = [result for case in verdict.cases if case.name in ours and (result := measured(case)) is not None]
    if failed or not results:
        return f"not recorded: {', '.join(failed) or 'nothing'} was not measured"
    decode = {(result.size.answer, result.size.prompt): result.decode for result in results}
    text = baseline.text(subject, verdict.stack, prefill_runs(results), decode)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{baseline.file_name(subject)}.toml"
    places.put(file, text.encode())
    return f"recorded: {file}"
