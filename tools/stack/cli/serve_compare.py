# SPDX-License-Identifier: Apache-2.0
"""`stack serve --compare A B`: serve two recipes in turn, measure both, and say which is faster."""

import contextlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.cli import sentences, serve_memory, starting
from stack.cli.common import Options, paused, print_json, progress
from stack.cli.rendering import comparison as rendering
from stack.cli.rendering.text import one_line
from stack.deploy import recipes, vllm_log
from stack.deploy.recipes import Recipe
from stack.serving import demands, summary
from stack.serving.command import command as of
from stack.serving.comparison import estimate, flow, measuring
from stack.serving.comparison.flow import Contestant, Plan, Result, Sample, UnfitError
from stack.serving.start import Start
from stack.store import cache
from stack.validation import machine
from stack.validation.bench import benchy
from stack.validation.bench.benchy import Size, TooShortError, UnmeasuredError
from stack.validation.serve.server import NotServing

PROMPTS, ANSWERS = (512, 2048), (128,)
"""Sizes that are measured unless others are named."""


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """The options of a comparison."""

    names: tuple[str, str]
    model: Path | None
    python: Path | None
    host: str
    port: int
    extra: tuple[str, ...]
    rounds: int
    runs: int
    prompts: tuple[int, ...]
    answers: tuple[int, ...]
    fallback: bool
    timeout: float
    keep_free: float | None = None
    wait_for_memory: float | None = None


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a comparison to a command."""
    for option in (
        click.option(
            "--tg",
            "answers",
            type=click.IntRange(min=2),
            multiple=True,
            help="With --compare: tokens of an answer. Default: 128.",
        ),
        click.option(
            "--pp",
            "prompts",
            type=click.IntRange(min=1),
            multiple=True,
            help="With --compare: tokens of a prompt. Default: 512, 2048.",
        ),
        click.option(
            "--runs",
            type=click.IntRange(1, 100),
            default=3,
            show_default=True,
            help="With --compare: measurements of each size and start.",
        ),
        click.option(
            "--rounds", type=click.IntRange(3, 50), default=4, show_default=True, help="With --compare: starts of each server."
        ),
        click.option(
            "--compare", nargs=2, metavar="A B", help="Serve recipes A and B in turn, measure both, and say which is faster."
        ),
    ):
        command = option(command)
    return command


def run(context: click.Context, request: CompareRequest, take: Callable[[bytes], None], *, as_json: bool) -> int:
    """Compare two recipes and print the result; return the exit code."""
    root = context.obj.root_if_any()
    first, second = (recipes.load(name, root) for name in request.names)
    _demand(request, first, second)
    with contextlib.ExitStack() as held:
        tell = held.enter_context(progress(lines=True))
        serve_memory.demand((first, second), machine.here(), request.extra, request.wait_for_memory, tell)
        base: Options = context.obj
        python = benchy.python(cache.root(base.cache), tell)
        plan = held.enter_context(planned(base, request, (first, second), python, tell))
        said = _Said(request, as_json=as_json)
        return said.ended(plan, take, tell, held)


@contextlib.contextmanager
def planned(
    base: Options, request: CompareRequest, both: tuple[Recipe, Recipe], python: Path, tell: Progress
) -> Iterator[Plan]:
    """Yield the plan of a comparison, with both servers ready to start; `python` is the interpreter of llama-benchy.

    Raises:
        StackError: vLLM or the model is not available.

    """
    sizes = [
        Size(prompt, answer, request.runs) for prompt in request.prompts or PROMPTS for answer in request.answers or ANSWERS
    ]
    with contextlib.ExitStack() as held:
        first, second = (
            _contestant(label, recipe, request, held.enter_context(starting.made(base, _server(recipe, request), tell)))
            for label, recipe in zip(("A", "B"), both, strict=True)
        )
        bench = measuring.Bench(python, sizes, request.model, tiny=both[0].is_ours)
        yield Plan((first, second), request.rounds, bench, request.fallback)


def _demand(request: CompareRequest, first: Recipe, second: Recipe) -> None:
    demands.demand_flags(request.extra)
    measuring.demand_comparable(first, second, request.model)
    if request.model is not None:
        demands.demand_model(request.model)
    if not demands.is_loopback(request.host):
        raise StackError(f"{request.host} can be reached from other machines", "--compare serves for this machine only")
    for recipe in (first, second):
        demands.demand_machine(recipe, machine.here(), fallback=request.fallback)
    demands.demand_port(request.host, request.port)


def _server(recipe: Recipe, request: CompareRequest) -> starting.ServerRequest:
    return starting.ServerRequest(
        recipe,
        lambda folder: of(recipe, {}, host=request.host, port=request.port, model_path=folder, extra=request.extra),
        model=request.model,
        image=None,
        python=request.python,
        dry=False,
    )


def _contestant(label: str, recipe: Recipe, request: CompareRequest, made: starting.Made) -> Contestant:
    # Nobody else reaches the server, and llama-benchy has no key.
    environment = {name: value for name, value in made.process.environment.items() if name != demands.KEY}
    process = replace(made.process, environment=environment)
    url = demands.address(request.host, request.port)
    start = Start(recipe, process, made.folder, url, None, request.timeout, serve_memory.guard(request.keep_free))
    return Contestant(label, start, lambda: demands.demand_port(request.host, request.port))


def _printed_but_first(failed: Exception) -> str:
    """Print the lines of an error after its first one, such as the end of a log; return the first."""
    first, *last = str(failed).splitlines()
    for line in last:
        click.echo(one_line(line), err=True)
    return first


class _Said:
    """Prints a comparison as it goes, and its end."""

    def __init__(self, request: CompareRequest, *, as_json: bool) -> None:
        self._request, self._as_json = request, as_json
        self._samples: list[Sample] = []

    def ended(self, plan: Plan, take: Callable[[bytes], None], tell: Progress, held: contextlib.ExitStack) -> int:
        """Run a comparison to its end, which may be a failure; return the exit code."""
        try:
            samples = flow.run(plan, take, tell, self._finished)
        except UnfitError as unfit:
            held.close()
            found = [summary.mismatch(each) for each in unfit.up.mismatches]
            return self._failed(f"{self._who(unfit.label)} does not run as its recipe says: nothing is compared", found)
        except NotServing as failed:
            held.close()
            first = _printed_but_first(failed)
            refused = [f"{each.part} {each.name} was refused: {each.why}" for each in vllm_log.read(failed.log).refused]
            return self._failed(f"{self._next()} did not start: {first}", refused)
        except (UnmeasuredError, TooShortError) as failed:
            held.close()
            return self._failed(f"{self._next()} was not measured: {_printed_but_first(failed)}", ())
        held.close()
        self._print(flow.results(samples), None)
        return 0

    def _print(self, results: Sequence[Result], error: str | None) -> None:
        request = self._request
        shown = rendering.Comparison(request.names, request.rounds, request.runs, tuple(self._samples), tuple(results), error)
        if self._as_json:
            print_json(rendering.as_json(shown), "serve-compare")
        elif error is None:
            rendering.show(shown)

    def _finished(self, sample: Sample) -> None:
        self._samples.append(sample)
        speeds = ", ".join(
            f"{measured.size.name} {statistics.median(measured.prefill):.0f} and {statistics.median(measured.decode):.1f} tok/s"
            for measured in sample.measured
        )
        with paused():
            sentences.tell(f"round {sample.round} of {self._request.rounds}, {self._who(sample.label)}: {speeds}")

    def _who(self, label: str) -> str:
        return f"{label} ({self._request.names['AB'.index(label)]})"

    def _next(self) -> str:
        """Name the server whose turn it was."""
        turns = [(number, label) for number, labels in enumerate(estimate.order(self._request.rounds), 1) for label in labels]
        number, label = turns[len(self._samples)]
        return f"{self._who(label)} in round {number}"

    def _failed(self, problem: str, more: Sequence[str]) -> int:
        sentences.tell(problem)
        for line in more:
            sentences.tell(line)
        self._print((), "; ".join((problem, *more)))
        return 1
