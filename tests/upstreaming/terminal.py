# SPDX-License-Identifier: Apache-2.0
"""A terminal with a person at it: a program's questions are answered in order, as they come."""

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Callable, Sequence

Answer = str | Callable[[], str]
"""What the person types, or what they do before they type what it gives."""

_PATIENCE = 120.0
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def answered(
    command: Sequence[str], question: str, answers: Sequence[Answer], *, env: dict[str, str] | None = None
) -> tuple[int, str]:
    """Run a command on a terminal, and type the answers when it asks; its exit code, and all that was on the screen."""
    ours, theirs = pty.openpty()
    # setsid makes it the terminal of the program, so that Ctrl-C comes as it does to a person's.
    process = subprocess.Popen(
        ["setsid", "--ctty", *command], stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | (env or {})
    )
    os.close(theirs)
    screen, left, end = "", list(answers), time.monotonic() + _PATIENCE
    asked = 0
    try:
        while (data := _read(ours, end)) is not None:
            screen += data
            if left and screen.count(question) > asked:
                asked += 1
                answer = left.pop(0)
                os.write(ours, f"{answer if isinstance(answer, str) else answer()}\n".encode())
        return process.wait(_PATIENCE), _ESCAPES.sub("", screen)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _read(terminal: int, end: float) -> str | None:
    """What is new on the screen; None at its end."""
    ready, _, _ = select.select([terminal], [], [], max(end - time.monotonic(), 0))
    if not ready:
        raise TimeoutError
    try:
        return os.read(terminal, 1 << 16).decode("utf-8", "replace") or None
    except OSError:  # the other side has gone
        return None
