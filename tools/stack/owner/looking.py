# SPDX-License-Identifier: Apache-2.0
"""Look at the owner's server: whether it answers with its model, how far its start is, how often it was restarted."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from stack.base.errors import StackError
from stack.base.text import printable, shortened
from stack.deploy import vllm_log
from stack.deploy.recipes import Recipe
from stack.owner import killed
from stack.owner.engine import Engine
from stack.owner.nodes import followers, kept
from stack.owner.state import Setup, State
from stack.serving.demands import KEY
from stack.validation import endpoint
from stack.validation.serve import server

_SHOWN = 200
_TAIL = 2000
"""Last lines of the log in which the step of a start is looked for."""


class Condition(StrEnum):
    """The condition of a server.

    There is no container; the container has ended; the server was killed for its memory, and its container waits; it is starting; it
    answers; or something answers in its place: with another model, or without accepting the server's API key.
    """

    ABSENT = "absent"
    STOPPED = "stopped"
    OUT_OF_MEMORY = "out-of-memory"
    STARTING = "starting"
    ANSWERS = "answers"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Look:
    """The server's condition; the step of its start in the log's words; the restarts by the engine, and the last exit code.

    `why`: why the server was killed, or what answers in its place; None otherwise. `others`: of a server on several nodes the other ones,
    by host name, and whether each one's container runs.
    """

    condition: Condition
    stage: str | None = None
    restarts: int = 0
    exit_code: int = 0
    why: str | None = None
    others: tuple[tuple[str, bool], ...] = ()


def look(known: State, recipe: Recipe | None = None) -> Look:
    """Look at the container and its log, ask the server for its model, and look at the containers of other nodes.

    `recipe`: the server's, if it is known here: without it, any model will do.

    Raises:
        StackError: The engine does not answer.

    """
    setup = known.target or known.now
    others = tuple(_others(known)) if setup is not None and setup.spread else ()
    return replace(_look(known, setup, recipe), others=others)


def _others(known: State) -> Iterator[tuple[str, bool]]:
    for each in followers.of(kept.read(kept.path()), known.engine):
        try:
            container = each.engine.container(known.container)
        except StackError:  # a machine that is off
            container = None
        runs = container is not None and container.running and killed.reason(each.engine, known.container) is None
        yield each.host, runs


def _look(known: State, setup: Setup | None, recipe: Recipe | None) -> Look:
    engine = Engine(known.engine)
    container = engine.container(known.container)
    if container is None:
        return Look(Condition.ABSENT)
    if not container.running:
        return Look(Condition.STOPPED, None, container.restarts, container.exit_code)
    if (why := killed.reason(engine, known.container)) is not None:
        return Look(Condition.OUT_OF_MEMORY, None, container.restarts, why=why)
    if setup is not None and server.healthy(setup.url):
        why = _difference(setup, recipe, container.variables.get(KEY) or None)
        return Look(Condition.ANSWERS if why is None else Condition.OTHER, None, container.restarts, why=why)
    text = engine.output("logs", f"--tail={_TAIL}", known.container).decode("utf-8", "replace")
    return Look(Condition.STARTING, vllm_log.read(text).stage, container.restarts)


def _difference(setup: Setup, recipe: Recipe | None, key: str | None) -> str | None:
    """Ask what is healthy at the server's address for its models; say what is not the server's, None if nothing is.

    /health alone would do for any server that listens there, and answers without a key.
    """
    try:
        names = [model.name for model in endpoint.at(setup.url, key).models()]
    except StackError as failed:
        return f"it lists no model ({shortened(printable(failed.problem), _SHOWN)})"
    wanted = recipe.checkpoint.repository if recipe is not None and recipe.checkpoint is not None else None
    if not names or (wanted is not None and wanted not in names):
        served = shortened(printable(", ".join(names)), _SHOWN) or "no model"
        return f"it serves {served}, and the recipe {setup.recipe} has {wanted or 'a model'}"
    return None
