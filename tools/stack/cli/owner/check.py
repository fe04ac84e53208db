# SPDX-License-Identifier: Apache-2.0
"""`spark-stack check`: are the answers of the running server right, and how fast is it."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from stack.base.errors import StackError
from stack.base.text import counted
from stack.cli.common import Options, json_option, one_line, print_json, print_table, progress
from stack.cli.completing import complete_recipes
from stack.cli.owner.doctor import as_json as remark_json
from stack.cli.owner.doctor import show
from stack.cli.rendering import settings, text
from stack.cli.sentences import fact, say
from stack.deploy import recipes
from stack.model.verdict import Case, Outcome, Weights, case_json
from stack.owner import engine, kept_verdicts, state, state_file
from stack.owner.checking import checked, served_stack
from stack.owner.checking.checked import CheckedServer, CheckRequest
from stack.owner.checking.served_stack import ServedStack
from stack.owner.checking.speeds import Speed
from stack.owner.state import Setup, State
from stack.store import cache
from stack.validation import endpoint

_MINUTES = 2.0
_MOST = 60.0


@click.command("check")
@click.option("--url", help="A server to check. Default: the one that `spark-stack up` started.")
@click.option("--model", help="The server's model. Default: the only one.")
@click.option(
    "--recipe",
    "name",
    metavar="RECIPE",
    shell_complete=complete_recipes,
    help="The recipe that should run, for the expected speed and the memory's limit. Default: that of `spark-stack up`.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, _MOST),
    default=_MINUTES,
    show_default=True,
    help="The time for measuring speed; 0 measures none.",
)
@click.option(
    "--weights",
    type=click.Choice([each.value for each in Weights]),
    default=Weights.REAL.value,
    show_default=True,
    help="What the server has loaded: speeds are compared only with those of the same.",
)
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path, exists=True),
    help="The model's tokenizer.json, or its folder. Default: the model's folder, or the Hugging Face cache.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The verdict's file. Default: a new one in the user's state folder.",
)
@json_option
@click.pass_context
def command(
    context: click.Context,
    url: str | None,
    model: str | None,
    name: str | None,
    minutes: float,
    weights: str,
    tokenizer: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Check the running server: ask it questions, test its prompts and streams, and measure its speed for two minutes.

    Speeds are shown beside published ones and the limit that the memory sets. The result is kept as a verdict, which `spark-stack share`
    shares. The first run installs what it measures with (100 MB). Exit code 1 if an answer is wrong, or the GPU cannot run at full speed.
    """

    options: Options = context.obj
    known = state_file.read(state.path()) if url is None else None
    setup = known.now if known is not None else None
    if url is None and setup is None:
        raise StackError("no server was started here", "spark-stack up RECIPE, or name one with --url")
    chosen = name or (setup.recipe if setup is not None else None)
    request = CheckRequest(
        url=url or (setup.url if setup is not None else ""),
        cache=cache.root(options.cache),
        model=model,
        recipe=recipes.load(chosen, options.root_if_any()) if chosen is not None else None,
        weights=Weights(weights),
        minutes=minutes,
        key=os.environ.get("VLLM_API_KEY"),
        tokenizer=tokenizer or _tokenizer(setup),
    )
    served = _served(options, request.url, known)
    with progress(lines=True) as tell:
        found = checked.check(request, served, tell)
    file = _written(request, found, served, out)
    if as_json:
        print_json(_as_json(request, found, file))
    else:
        _print(request, found, file)
    context.exit(1 if found.failed else 0)


def _tokenizer(setup: Setup | None) -> Path | None:
    """Return the tokenizer in the folder of the model that runs, if it is there."""
    file = Path(setup.model.folder) / "tokenizer.json" if setup is not None else None
    return file if file is not None and file.is_file() else None


def _served(options: Options, url: str, known: State | None) -> ServedStack | None:
    """Find out which stack the server is of: by its image, else by the stack at hand."""
    setup = known.now if known is not None else None
    if known is not None and setup is not None and (labels := _labels(known, setup)):
        return served_stack.of_labels(labels, setup.image.digest)
    if options.root_if_any() is None:
        return None
    return served_stack.of_stack(options.load(), endpoint.at(url, os.environ.get("VLLM_API_KEY")).version())


def _labels(known: State, setup: Setup) -> Mapping[str, Any]:
    """Return the labels of the image that runs; empty if the engine does not answer: the server is checked all the same."""
    try:
        described = engine.Engine(known.engine).image(setup.image.id) or {}
    except StackError:
        return {}
    found = (described.get("Config") or {}).get("Labels")
    return found if isinstance(found, dict) else {}


def _written(request: CheckRequest, found: CheckedServer, served: ServedStack | None, out: Path | None) -> Path | None:
    """Write the verdict; None if nobody says which stack it would be about."""
    if served is None:
        if out is not None:
            raise StackError("there is no verdict: nobody says which stack the server is of", "leave --out out")
        return None
    made = checked.verdict(request, found, served)
    if out is None:
        return kept_verdicts.write(kept_verdicts.folder(state.path()), made)
    return kept_verdicts.write_to(out, made)


def _summary(found: CheckedServer) -> str:
    ran = [case for case in found.answers if case.outcome is not Outcome.NOT_RUN]
    if found.wrong:
        return f"wrong: {len(found.wrong)} of {counted(len(ran), 'check')} of its answers failed"
    return f"right: {counted(len(ran), 'check')} of its answers passed" if ran else "nothing could be checked"


def _print(request: CheckRequest, found: CheckedServer, file: Path | None) -> None:
    text.echo(text.styled(_summary(found), "bold red" if found.wrong else "bold green"))
    fact(one_line(f"{found.model} at {request.url}, version {found.version or 'not told'}"))
    for case in found.cases:
        if case.outcome is Outcome.FAILED:
            _print_case("✗", "red", case)
    if found.wrong and not settings.current().verbose:
        say("-v shows the requests and answers behind a failure.")
    for remark in found.remarks:
        show(remark)
    _print_not_run([case for case in found.cases if case.outcome is Outcome.NOT_RUN])
    if found.speeds:
        text.echo()
        _print_speeds(found.speeds)
    elif found.unmeasured:
        text.echo()
        say(f"No speed was measured: {one_line(found.unmeasured)}")
    text.echo()
    if file is None:
        say("No verdict was written: neither an image's labels nor the stack in this folder say which stack it is of.")
        say("If you built the server's wheels, run this command in the clone in which you built them.")
        return
    say(f"verdict: {one_line(str(file))}")
    say("Share it:", "spark-stack share")


def _print_case(sign: str, colour: str, case: Case) -> None:
    first, *rest = case.why.splitlines() or [""]
    fact(one_line(f"{sign} {case.name}: {first}"), mark=sign, fg=colour, bold=True)
    for line in rest if settings.current().verbose else ():
        fact(one_line(line), indent="    ", below="")


def _print_not_run(cases: Sequence[Case]) -> None:
    """Print why cases were not run, each reason once."""
    reasons = Counter((case.why.splitlines() or [""])[0] for case in cases)
    for why, count in reasons.items():
        fact(one_line(f"? {counted(count, 'case')} not run: {why}"), mark="?", fg="magenta", bold=True)


def _print_speeds(speeds: Sequence[Speed]) -> None:
    """Print speeds in tokens per second beside the published ones and the memory's limit; sources below the table."""
    sources = list(dict.fromkeys(each.published.source for each in speeds if each.published is not None))
    rows = []
    for each in speeds:
        published = (
            f"{_number(each.published.speed)} [{sources.index(each.published.source) + 1}]"
            if each.published is not None
            else "-"
        )
        limit = _number(each.limit) if each.limit is not None else "-"
        measured = f"{_number(each.mean)} ± {_number(each.spread)}"
        rows.append((each.test, measured, published, _percent(each.of_published), limit, _percent(each.of_limit)))
    print_table(("tokens/s", "measured", "published", "of it", "limit", "of it"), rows)
    for number, source in enumerate(sources, 1):
        fact(one_line(f"[{number}] {source}"), below="    ")
    say("The limit is what the memory's bandwidth allows for one request; there is none for prompts (pp).")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _as_json(request: CheckRequest, found: CheckedServer, file: Path | None) -> dict[str, object]:
    return {
        "right": not found.wrong,
        "url": request.url,
        "model": found.model,
        "version": found.version,
        "recipe": request.recipe.name if request.recipe is not None else None,
        "cases": [case_json(case) for case in found.cases],
        "speeds": [_speed_json(each) for each in found.speeds],
        "unmeasured": found.unmeasured or None,
        "remarks": [remark_json(each) for each in found.remarks],
        "verdict": str(file) if file is not None else None,
    }


def _speed_json(speed: Speed) -> dict[str, object]:
    return {
        "test": speed.test,
        "prompt": speed.prompt,
        "answer": speed.answer,
        "mean": round(speed.mean, 3),
        "spread": round(speed.spread, 3),
        "published": speed.published.speed if speed.published is not None else None,
        "source": speed.published.source if speed.published is not None else None,
        "limit": round(speed.limit, 3) if speed.limit is not None else None,
        "of_published": round(speed.of_published, 4) if speed.of_published is not None else None,
        "of_limit": round(speed.of_limit, 4) if speed.of_limit is not None else None,
    }
