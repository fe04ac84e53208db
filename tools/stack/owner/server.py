# SPDX-License-Identifier: Apache-2.0
"""Start the owner's container, follow its log until it has answered, and compare what runs with the recipe."""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stack.base.progress import Progress
from stack.deploy import recipes, vllm_log
from stack.deploy.recipes import Recipe
from stack.deploy.vllm_log import Mismatch, Reading
from stack.owner import container as containers
from stack.owner import memory
from stack.owner.engine import Engine
from stack.owner.state import Setup
from stack.serving import demands
from stack.serving.container import INSIDE
from stack.serving.demands import KEY
from stack.serving.waiting import Awaited, Output, Watch, mismatches

_STOPPED = "60"
"""Seconds that a server gets to end by itself."""
_LOOKED = 1.0
"""Seconds between two looks at a container."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server is started: the engine, the container's name, the stack's folder with recipes of its own, and limits.

    `log`: a file for the log of a server that did not do. `seconds`: how long a server may take to its first answer. `patience`: how long to
    wait for memory that is taken. `warn`: gets a sentence for the user.
    """

    engine: Engine
    container: str
    root: Path | None
    log: Path
    seconds: float
    tell: Progress
    warn: Callable[[str], None]
    patience: float = 0.0

    def recipe(self, setup: Setup) -> Recipe:
        """Load the recipe of a setup."""
        return recipes.load(setup.recipe, self.root)


@dataclass(frozen=True, slots=True)
class Answered:
    """A server that has answered: its log's facts, its differences from the recipe, its name of the model, and the seconds waited.

    `kept`: it ran already; the beginning of its log may be gone.
    """

    reading: Reading
    mismatches: tuple[Mismatch, ...]
    model: str
    seconds: float
    kept: bool


def serve(place: Place, setup: Setup, started: Callable[[], object] = lambda: None) -> Answered:
    """Start a server, unless it runs already, and wait for its first answer; `started` is called in between.

    Raises:
        NotServing: It ended, is not ready in time, or gives no answer.
        StackError: It cannot be started.

    """
    recipe, key = place.recipe(setup), os.environ.get(KEY, "")
    words = containers.command_of(place.engine, setup, recipe, place.container)
    there = place.engine.container(place.container)
    kept = there is not None and containers.is_wanted(there, words, key)
    if not kept:
        stop(place)
        demands.demand_port(INSIDE if setup.opened else "127.0.0.1", setup.port)
        if warning := memory.demand(recipe, setup, place.patience, place.tell):
            place.warn(warning)
        place.tell("starting the container")
        place.engine.run(*words, environment=containers.environment(os.environ))
    started()
    return _answered(place, setup, recipe, kept=kept)


def stop(place: Place) -> bool:
    """Stop and remove the container; return whether there was one."""
    if place.engine.container(place.container) is None:
        return False
    place.tell("stopping the container")
    place.engine.run("stop", f"--time={_STOPPED}", place.container)
    place.engine.run("rm", "--force", place.container)
    return True


def _answered(place: Place, setup: Setup, recipe: Recipe, *, kept: bool) -> Answered:
    began = time.monotonic()
    with _log(place) as output:
        awaited = Awaited(recipe, setup.url, os.environ.get(KEY) or None, place.seconds, _ended(place))
        model = Watch(awaited, output, place.tell, began).wait()
    assert model is not None, "it has an address"
    # A server that ran already answers before its log has been followed to its end.
    text = place.engine.output("logs", place.container).decode("utf-8", "replace")
    reading = vllm_log.read(text)
    return Answered(reading, mismatches(recipe, reading, text), model, time.monotonic() - began, kept)


@contextlib.contextmanager
def _log(place: Place) -> Iterator[Output]:
    """Follow the container's log, from its beginning, while the block runs."""
    command = (place.engine.name, "logs", "--follow", place.container)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        output = Output(process.stdout, lambda _: None)
        try:
            yield output
        finally:
            process.terminate()
            output.close()


def _ended(place: Place) -> Callable[[], int | None]:
    """Return a function that returns the exit code of a server that has ended; the engine may have started it again since."""
    first = place.engine.container(place.container)
    restarts = first.restarts if first is not None else 0
    last = time.monotonic()

    def ended() -> int | None:
        nonlocal last
        if time.monotonic() < last + _LOOKED:
            return None
        last = time.monotonic()
        now = place.engine.container(place.container)
        if now is None:
            return 0
        return None if now.running and now.restarts == restarts else now.exit_code

    return ended
