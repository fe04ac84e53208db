# SPDX-License-Identifier: Apache-2.0
"""Put one server in the place of another; go back by itself if the new one does not do.

The state is written before and after each step. After a kill, the next call finds the step and goes on: a container that is the
wanted one is kept, any other is replaced.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from stack.base import bounded_http
from stack.base.errors import StackError
from stack.base.text import shortened
from stack.deploy import vllm_log
from stack.owner import images, server, state_file
from stack.owner.server import Answered, Place
from stack.owner.state import Setup, State, Step, Work
from stack.serving import summary
from stack.serving.demands import KEY
from stack.store import cache
from stack.validation.serve.server import NotServing

_MOST = 2**24
"""Bytes of a log that are kept."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a server did not do: a sentence, the differences from the recipe or the log's reasons, and the file with its log.

    Without such a file, the reasons begin with the last lines of the log.
    """

    problem: str
    reasons: tuple[str, ...]
    log: Path | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a start: the setup that serves now and its answer (None: nothing serves), and why the wanted one does not."""

    state: State
    serves: Setup | None
    answered: Answered | None
    failure: Failure | None = None


class _UnfitError(Exception):
    """Raised when a server has answered and runs other kernels than its recipe expects."""

    def __init__(self, answered: Answered) -> None:
        super().__init__()
        self.answered = answered


def switch(place: Place, file: Path, known: State, target: Setup, verb: str) -> Outcome:
    """Start a server in the place of the one that runs, if any.

    Args:
        place: Where it is started.
        file: The state's file.
        known: The state.
        target: The server to start.
        verb: The verb that asks for it, for the state.

    Raises:
        StackError: The API key cannot be sent, the old server cannot be started again, or the state cannot be written.

    """
    # Without a key that can be sent, neither the new server nor the old one could be asked.
    bounded_http.demand_key(os.environ.get(KEY))
    known = _save(file, replace(known, target=target, work=_work(verb, Step.START, target)))
    was_started = False

    def started() -> None:
        nonlocal was_started
        was_started = True
        _save(file, replace(known, work=_work(verb, Step.ANSWER, target)))

    try:
        answered = server.serve(place, target, started)
        _demand_expected(answered, target, known)
    except (NotServing, StackError, _UnfitError) as failed:
        if isinstance(failed, StackError) and not _has_old(place, known):
            raise
        # Before its start, the container is still that of the old server, which did nothing wrong.
        return _back(place, file, known, _failure(place, failed, keep=was_started), verb)
    before = known.before if known.now is None or known.now == target else known.now
    known = _save(file, replace(known, now=target, before=before, target=None, work=None))
    return Outcome(known, target, answered)


def go_back(place: Place, file: Path, known: State) -> Outcome:
    """Finish a return to the old server that was interrupted.

    Raises:
        StackError: It cannot be started again.

    """
    assert known.work is not None
    failure = Failure("the new server did not do, and an earlier command was interrupted on its way back", (), None)
    return _back(place, file, known, failure, known.work.verb)


def _back(place: Place, file: Path, known: State, failure: Failure, verb: str) -> Outcome:
    """Return to the server before; without one, stop what was started."""
    old = known.now
    if old is None or not _has_old(place, known):
        server.stop(place)
        return Outcome(_save(file, replace(known, target=None, work=None)), None, None, failure)
    known = _save(file, replace(known, work=_work(verb, Step.BACK, old)))
    place.tell(f"going back to {old.image.name}")
    try:
        answered = server.serve(place, old)
    except NotServing as failed:
        raise StackError(
            f"the server before does not start again, either ({shortened(failed.cause, 200)})",
            "see spark-stack logs; spark-stack down gives it up",
        ) from failed
    return Outcome(_save(file, replace(known, target=None, work=None)), old, answered, failure)


def _has_old(place: Place, known: State) -> bool:
    """Return whether there is a server to return to: another one than the wanted one, with its image."""
    return known.now is not None and known.now != known.target and images.have(place.engine, known.now.image)


def _demand_expected(answered: Answered, target: Setup, known: State) -> None:
    """Refuse a server that runs other kernels than its recipe expects; one that was accepted before is not judged by what is left of its log."""
    if answered.mismatches and not target.fallback and not (answered.kept and known.now == target):
        raise _UnfitError(answered)


def _failure(place: Place, failed: Exception, *, keep: bool) -> Failure:
    """Describe why a server does not do, and keep its log: its container goes."""
    kept = _kept_log(place) if keep else None
    if isinstance(failed, _UnfitError):
        reasons = tuple(map(summary.mismatch, failed.answered.mismatches))
        return Failure("other kernels run than the recipe expects", reasons, kept)
    if isinstance(failed, NotServing):
        first, *last = str(failed).splitlines()
        refused = [f"{each.part} {each.name} was refused: {each.why}" for each in vllm_log.read(failed.log).refused]
        return Failure(first, (*(last if kept is None else ()), *refused), kept)
    return Failure(str(failed), (), kept)


def _kept_log(place: Place) -> Path | None:
    try:
        if place.engine.container(place.container) is None:
            return None
        text = b"".join(_logs(place))
        place.log.parent.mkdir(parents=True, exist_ok=True)
        with cache.appearing(place.log, 0o600) as opened:
            opened.write(text[-_MOST:])
    except (OSError, StackError):  # a full disk must not keep the old server from coming back
        return None
    return place.log


def _logs(place: Place) -> Iterator[bytes]:
    """Yield the logs of all nodes, each below its name where there are several."""
    for each in place.others:
        if each.engine.container(place.container) is not None:
            yield f"--- {each.host}\n".encode() + each.engine.output("logs", place.container)
    yield (b"--- this machine\n" if place.others else b"") + place.engine.output("logs", place.container)


def _work(verb: str, step: Step, setup: Setup) -> Work:
    return Work(verb, step, setup.wanted)


def _save(file: Path, known: State) -> State:
    state_file.write(file, known)
    return known
