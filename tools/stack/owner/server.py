# SPDX-License-Identifier: Apache-2.0
"""Start the owner's container, follow its log until it has answered, and compare what runs with the recipe."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.deploy import recipes, vllm_log
from stack.deploy.recipes import Recipe
from stack.deploy.vllm_log import Mismatch, Reading
from stack.owner import caches, killed, memory
from stack.owner import container as containers
from stack.owner.engine import Engine
from stack.owner.nodes.followers import Follower
from stack.owner.state import Setup
from stack.serving import demands
from stack.serving.container import GUARDED, INSIDE
from stack.serving.demands import KEY
from stack.serving.waiting import Awaited, Output, Watch, mismatches

_STOPPED = "60"
"""Seconds that a server gets to end by itself."""
_KILLED = 128 + signal.SIGKILL
_LOOKED = 1.0
"""Seconds between two looks at a container."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server is started: the engine, the container's name, the stack's folder with recipes of its own, and limits.

    `log`: a file for the log of a server that did not do. `seconds`: how long a server may take to its first answer. `patience`: how long to
    wait for memory that is taken. `warn`: gets a sentence for the user. `others`: the nodes beside this machine that serve, or served, with
    it.
    """

    engine: Engine
    container: str
    root: Path | None
    log: Path
    seconds: float
    tell: Progress
    warn: Callable[[str], None]
    patience: float = 0.0
    others: tuple[Follower, ...] = ()

    @property
    def engines(self) -> tuple[Engine, ...]:
        """The engines of all nodes."""
        return (self.engine, *(each.engine for each in self.others))

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
    others = place.others if setup.spread else ()
    kept = there is not None and containers.is_wanted(there, words, key)
    kept = kept and all(each.runs(setup, recipe, place.container) for each in others)
    engines = (place.engine, *(each.engine for each in others))
    kept = kept and not any(killed.reason(each, place.container) for each in engines)
    if not kept:
        for each in others:
            each.prepare(place.engine, setup, place.tell)
        stop(place)
        demands.demand_port(INSIDE if setup.opened else "127.0.0.1", setup.port)
        if warning := memory.demand(recipe, setup.extra, place.patience, place.tell):
            place.warn(warning)
        _warn_of_unguarded(place, setup)
        try:
            for engine in engines:
                caches.make(engine, caches.of(setup))
            for each in others:
                each.start(setup, recipe, place.container, place.tell)
            place.tell("starting the container")
            place.engine.run(*words, environment=containers.environment(os.environ))
        except StackError:
            if others:
                stop(place)
            raise
    started()
    return _answered(place, setup, recipe, kept=kept)


def stop(place: Place) -> bool:
    """Stop and remove the container, on all nodes; return whether there was one.

    Raises:
        StackError: The container here is not this user's server, and nothing is stopped. Or an engine does not do it, or a node is not
            reached; the other nodes are stopped all the same.

    """
    found = place.engine.container(place.container)
    there = found is not None
    if found is not None:
        containers.demand_own(found, place.container)
        place.tell("stopping the container")
        place.engine.run("stop", f"--time={_STOPPED}", place.container)
        place.engine.run("rm", "--force", place.container)
    else:
        place.engine.remove_half_made(place.container)
    failed = []
    for each in place.others:
        try:
            there = each.stop(place.container, _STOPPED, place.tell) or there
        except StackError as error:
            failed.append(error)
    if failed:
        raise failed[0]
    return there


def _warn_of_unguarded(place: Place, setup: Setup) -> None:
    """Warn if the image's entry point knows nothing of the memory to keep free: it is of an older version."""
    labels = ((place.engine.image(setup.image.id) or {}).get("Config") or {}).get("Labels") or {}
    if setup.keep_free and GUARDED not in labels:
        place.warn(
            f"the image {setup.image.name} has no memory guard, so that nothing ends the server before the machine freezes: "
            "build or take a newer image"
        )


def _answered(place: Place, setup: Setup, recipe: Recipe, *, kept: bool) -> Answered:
    began = time.monotonic()
    with _log(place) as output:
        followed = killed.Followed(output)
        ended = _ended(place, place.others if setup.spread else (), followed)
        awaited = Awaited(recipe, setup.url, os.environ.get(KEY) or None, place.seconds, ended, followed)
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


def _ended(place: Place, others: Sequence[Follower], followed: killed.Followed) -> Callable[[], int | None]:
    """Return a function that returns the exit code of a server that has ended on a node; the engine may have started it again since."""
    engines = (place.engine, *(each.engine for each in others))
    firsts = [engine.container(place.container) for engine in engines]
    last = time.monotonic()

    def ended() -> int | None:
        nonlocal last
        if time.monotonic() < last + _LOOKED * len(engines):
            return None
        last = time.monotonic()
        if followed.reason is not None or any(killed.reason(each.engine, place.container) for each in others):
            return _KILLED
        for engine, first in zip(engines, firsts, strict=True):
            now = engine.container(place.container)
            if now is None or first is None:
                return 0
            if not now.running or now.restarts != first.restarts:
                return now.exit_code
        return None

    return ended
