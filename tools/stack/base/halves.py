# SPDX-License-Identifier: Apache-2.0
"""Share work between this process and a copy of it."""

import os
import pickle
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def is_possible() -> bool:
    """Return whether a copy of this process would have its own core, and could not hang on the lock of another thread."""
    return hasattr(os, "fork") and threading.active_count() == 1 and _cores() > 1


def shared(
    work: Callable[[Sequence[_Item]], list[_Result]], items: Sequence[_Item], detach: Callable[[], object]
) -> list[_Result]:
    """Return the results of `work` in the order of the items; a copy of this process does every second item.

    If the copy fails, this process does its part, too.

    Args:
        work: returns one result for each item, which can be pickled; it has no other effects that this process needs.
        items: what to work on.
        detach: called in the copy before it works: it lets go of what two processes cannot share.

    """
    own, others = items[::2], items[1::2]
    reading, writing = os.pipe()
    copy = os.fork()
    if not copy:
        _work_and_exit(work, others, detach, writing)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as stream:
            results = work(own)
            data = stream.read()
    except BaseException:
        os.kill(copy, signal.SIGKILL)
        raise
    finally:
        _, status = os.waitpid(copy, 0)
    rest: list[_Result] = work(others) if status else pickle.loads(data)  # noqa: S301  (our own copy wrote it)
    both = [*results, *rest]
    both[::2], both[1::2] = results, rest
    return both


def _work_and_exit(
    work: Callable[[Sequence[_Item]], list[_Result]], items: Sequence[_Item], detach: Callable[[], object], writing: int
) -> NoReturn:
    """Do the work, write the results and end this process, without the buffers and exit handlers of the original."""
    code = 1
    with suppress(BaseException):
        detach()
        data = pickle.dumps(work(items))
        with os.fdopen(writing, "wb") as stream:
            stream.write(data)
        code = 0
    os._exit(code)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
