# SPDX-License-Identifier: Apache-2.0
"""Look at the owner's server: whether it answers, how far its start is, how often it was restarted."""

from dataclasses import dataclass
from enum import StrEnum

from stack.deploy import vllm_log
from stack.owner.engine import Engine
from stack.owner.state import State
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
    """The server's condition; the step of its start in the log's words; the restarts by the engine, and the last exit code."""

    condition: Condition
    stage: str | None = None
    restarts: int = 0
    exit_code: int = 0


def look(known: State) -> Look:
    """Look at the container and its log.

    Raises:
        StackError: The engine does not answer.

    """
    engine = Engine(known.engine)
    container = engine.container(known.container)
    if container is None:
        return Look(Condition.ABSENT)
    if not container.running:
        return Look(Condition.STOPPED, None, container.restarts, container.exit_code)
    setup = known.target or known.now
    if setup is not None and server.healthy(setup.url):
        return Look(Condition.ANSWERS, None, container.restarts)
    text = engine.output("logs", f"--tail={_TAIL}", known.container).decode("utf-8", "replace")
    return Look(Condition.STARTING, vllm_log.read(text).stage, container.restarts)
