# SPDX-License-Identifier: Apache-2.0
"""Print what came of a start: the address and a request to try, the kernels and the speed, or why it failed."""

import json
import os
import shlex

import click

from stack.base.progress import Progress
from stack.cli.common import print_json
from stack.cli.rendering import text
from stack.cli.sentences import fact, say, tell
from stack.deploy.recipes import Recipe
from stack.owner import speed
from stack.owner.server import Answered, Place
from stack.owner.state import Setup
from stack.owner.switching import Failure, Outcome
from stack.serving import summary
from stack.serving.demands import KEY


def show(outcome: Outcome, place: Place, *, as_json: bool) -> int:
    """Print an outcome, with the speed of one answer; return the exit code."""
    measured = _speed(outcome, place.tell)
    place.tell("")
    if outcome.failure is not None:
        _tell_failure(outcome.failure)
        if outcome.serves is not None:
            tell(f"the server before runs again: {outcome.serves.image.name} ({outcome.serves.image.digest})")
    if as_json:
        print_json(_as_json(outcome, measured))
    elif outcome.serves is not None and outcome.answered is not None:
        _print(outcome.serves, outcome.answered, place.recipe(outcome.serves), measured)
    return 0 if outcome.failure is None else 1


def _speed(outcome: Outcome, told: Progress) -> float | None:
    if outcome.serves is None or outcome.answered is None:
        return None
    told("measuring the speed of one answer")
    return speed.measure(outcome.serves.url, outcome.answered.model, os.environ.get(KEY) or None)


def _tell_failure(failure: Failure) -> None:
    for line in failure.reasons:
        click.echo(text.one_line(line), err=True)
    tell(failure.problem)
    if failure.log is not None:
        tell(f"its log is kept; to find the cause: stack doctor --log {failure.log}")


def _print(setup: Setup, answered: Answered, recipe: Recipe, measured: float | None) -> None:
    text.echo(text.styled(f"{setup.recipe} serves at {setup.url}", "bold"))
    for mismatch in answered.mismatches:
        tell(summary.mismatch(mismatch))
    rows = (
        ("kernels", summary.kernels(answered.reading)),
        ("speed", speed_words(recipe, measured)),
        ("start", f"{answered.seconds:.0f} s"),
        ("image", f"{setup.image.name} ({setup.image.digest}), {signature(setup)}"),
        ("model", model(setup)),
    )
    for name, value in rows:
        fact(f"{name:<8} {text.one_line(value)}", below=" " * 9)
    say("Try it:", request(setup, answered.model))


def speed_words(recipe: Recipe, measured: float | None) -> str:
    """Say how fast a server wrote one answer, beside the fastest that the recipe knows of."""
    if measured is None:
        return "not measured: the answer did not say how many tokens it has"
    known = max(recipe.speeds, key=lambda each: each.decode, default=None)
    beside = f" (the recipe's: {known.decode:g} at {known.context}, {known.by})" if known is not None else ""
    return f"{measured:.1f} tokens a second in one answer{beside}"


def signature(setup: Setup) -> str:
    """Say whether an image was verified."""
    return f"verified with {setup.image.key}" if setup.image.key else "not verified: no --key was given"


def model(setup: Setup) -> str:
    """Name a model: its repository and revision, or its folder."""
    named = setup.model
    return f"{named.repository} at {named.revision}" if named.repository is not None else named.folder


def request(setup: Setup, name: str) -> str:
    """Return a command that asks the server; it takes the API key from the environment."""
    key = [f'-H "Authorization: Bearer ${KEY}"'] if os.environ.get(KEY) else []
    body = json.dumps({"model": name, "messages": [{"role": "user", "content": "Say hello."}]})
    head = ["curl -s", f"{setup.url}/v1/chat/completions", "-H 'Content-Type: application/json'"]
    return " ".join([*head, *key, "-d", shlex.quote(body)])


def say_newest(setup: Setup) -> None:
    """Say that an image is the newest of its name."""
    say(f"{setup.image.name} is still {setup.image.digest}: nothing to do.")


def _as_json(outcome: Outcome, measured: float | None) -> dict[str, object]:
    answered, failure = outcome.answered, outcome.failure
    kernels = summary.as_json(answered.reading, answered.mismatches) if answered is not None else None
    return {
        "serves": as_json(outcome.serves),
        "model_name": answered.model if answered is not None else None,
        "seconds": round(answered.seconds, 1) if answered is not None else None,
        "tokens_per_second": round(measured, 2) if measured is not None else None,
        "kernels": {name: kernels[name] for name in ("moe", "decode", "linear", "attention")} if kernels is not None else None,
        "kv": answered.reading.cache.kind if answered is not None else None,
        "graphs": answered.reading.graphs.on if answered is not None else None,
        "mismatches": kernels["mismatches"] if kernels is not None else [],
        "went_back": failure is not None and outcome.serves is not None,
        "problem": failure.problem if failure is not None else None,
        "reasons": list(failure.reasons) if failure is not None else [],
        "log": str(failure.log) if failure is not None and failure.log is not None else None,
    }


def as_json(setup: Setup | None) -> dict[str, object] | None:
    """Convert a setup for `--json`."""
    if setup is None:
        return None
    return {
        "recipe": setup.recipe,
        "url": setup.url,
        "open": setup.opened,
        "image": setup.image.name,
        "digest": setup.image.digest,
        "key": setup.image.key,
        "model": setup.model.repository or setup.model.folder,
        "revision": setup.model.revision,
        "keep_free": setup.keep_free,
    }
