# SPDX-License-Identifier: Apache-2.0
"""Find the folder of the model that a command serves on this machine, through the volumes of its container."""

from pathlib import Path, PurePosixPath

from stack.doctor.commands import Serve


def folder_of(serve: Serve, beside: Path) -> Path | None:
    """Return the folder that a command names as its model; None if it names none, or one that a container has from elsewhere.

    Args:
        serve: the command.
        beside: the folder of its script, for relative names.

    """
    named = serve.model or ""
    if "$" in named or "\0" in named or not named.startswith(("/", ".", "~")):
        return None
    if serve.container is None:
        return _here(named, beside)
    for source, target in serve.container.binds:
        inner = PurePosixPath(named)
        if inner.is_relative_to(target):
            return _here(source, beside) / inner.relative_to(target)
    return None


def _here(named: str, beside: Path) -> Path:
    """Return a path of this machine."""
    start = next((start for start in ("~/", "$HOME/", "${HOME}/") if named.startswith(start)), None)
    return beside / named if start is None else Path.home() / named.removeprefix(start)
