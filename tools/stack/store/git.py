# SPDX-License-Identifier: Apache-2.0
"""Running git: the one place that starts it.

Inside the store and in everything that writes patch bytes, git runs without the user's configuration, so that the same
input gives the same bytes everywhere. Talking to a remote (`user_config=True`) keeps it: proxies and credentials are there.
"""

import functools
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from stack.model.errors import StackError

MINIMUM_VERSION = (2, 38)
"""`git merge-tree --write-tree` came with 2.38."""

_ISOLATED = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
    "TZ": "UTC",
}


class GitError(StackError):
    """A git command failed; `stderr` holds all that it said, the message its last line."""

    def __init__(self, command: Sequence[str], returncode: int, stderr: str) -> None:
        lines = [line for line in stderr.splitlines() if line.strip() and not line.startswith("hint:")]
        said = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1] if lines else "no message")
        full = "No space left on device" in stderr
        super().__init__(
            f"git {command[0]} failed ({returncode}): {said}",
            "free some disk space and run the command again" if full else "",
        )
        self.returncode = returncode
        self.stderr = stderr


def environment(*, user_config: bool = False, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment that git runs in: nothing of the caller's repository leaks in, its configuration only on request."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_") or key.startswith(("GIT_SSL", "GIT_SSH"))}
    own = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"} if user_config else _ISOLATED
    if user_config:
        kept |= {key: value for key, value in os.environ.items() if key.startswith("GIT_CONFIG")}
    return kept | own | dict(extra or {})


def run(
    args: Sequence[str],
    *,
    cwd: Path | None = None,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    user_config: bool = False,
    accept: Sequence[int] = (0,),
) -> subprocess.CompletedProcess[bytes]:
    """Run `git ARGS` in `cwd` and return the finished process.

    Raises:
        GitError: the exit code is not in `accept`.
        StackError: git is not on the PATH.

    """
    try:
        done = subprocess.run(
            ["git", *args],
            cwd=cwd,
            input=stdin if stdin is not None else b"",
            capture_output=True,
            env=environment(user_config=user_config, extra=env),
            check=False,
        )
    except FileNotFoundError as missing:
        if cwd is not None and not cwd.is_dir():
            raise StackError(f"{cwd} is not a folder", "check the path") from missing
        raise StackError("git is not installed", "install git 2.38 or newer") from missing
    if done.returncode not in accept:
        raise GitError(args, done.returncode, done.stderr.decode("utf-8", "replace"))
    return done


def text(args: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """What `git ARGS` prints, without the last line end."""
    return run(args, cwd=cwd, env=env).stdout.decode("utf-8", "surrogateescape").rstrip("\n")


@functools.cache
def version() -> tuple[int, int]:
    """Major and minor version of the user's git."""
    found = re.search(r"(\d+)\.(\d+)", text(["--version"]))
    return (int(found[1]), int(found[2])) if found else (0, 0)


def require() -> None:
    """Refuse a git that cannot merge without a working tree.

    Raises:
        StackError: git is older than 2.38 or missing.

    """
    if version() < MINIMUM_VERSION:
        have = ".".join(map(str, version()))
        raise StackError(f"git {have} is too old", "install git 2.38 or newer (`git merge-tree --write-tree` is needed)")
