# SPDX-License-Identifier: Apache-2.0
"""Look at the owner's server: whether it answers, how far its start is, how often it was restarted."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from stack.base.errors import StackError
from stack.deploy import vllm_log
from stack.owner.engine import Engine
from stack.owner.nodes import followers, kept
from stack.owner.state import Setup, State
from stack.validation.serve import server

_TAIL = 2000
"""Last lines of the log in which the step of a start is looked for."""


class Condition(StrEnum):
    """The condition of a server: no container, a container that has ended, starting, or answering."""

    ABSENT = "absent"
    STOPPED = "stopped"
    STARTING = "starting"
    ANSWERS = "answers"


@dataclass(frozen=True, slots=True)
class Look:
    """The server's condition; the step of its start in the log's words; the restarts by the engine, and the last exit code.

    `others`: of a server on several nodes the other ones, by host name, and whether each one's container runs.
    """

    condition: Condition
    stage: str | None = None
    restarts: int = 0
    exit_code: int = 0
    others: tuple[tuple[str, bool], ...] = ()


def look(known: State) -> Look:
    """Look at the container and its log, and at the containers of other nodes.

    Raises:
        StackError: The engine does not answer.

    """
    setup = known.target or known.now
    others = tuple(_others(known)) if setup is not None and setup.spread else ()
    return replace(_look(known, setup), others=others)


def _others(known: State) -> Iterator[tuple[str, bool]]:
    for each in followers.of(kept.read(kept.path()), known.engine):
        try:
            container = each.engine.container(known.container)
        except StackError:  # a machine that is off
            container = None
        yield each.host, container is not None and container.running


def _look(known: State, setup: Setup | None) -> Look:
    engine = Engine(known.engine)
    container = engine.container(known.container)
    if container is None:
        return Look(Condition.ABSENT)
    if not container.running:
        return Look(Condition.STOPPED, None, container.restarts, container.exit_code)
    if setup is not None and server.healthy(setup.url):
        return Look(Condition.ANSWERS, None, container.restarts)
    text = engine.output("logs", f"--tail={_TAIL}", known.container).decode("utf-8", "replace")
    return Look(Condition.STARTING, vllm_log.read(text).stage, container.restarts)
