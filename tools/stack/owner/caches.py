# SPDX-License-Identifier: Apache-2.0
"""The volumes for the code that servers compile: one for all images that a key has signed, one for each image without a signature.

A server loads the code that an earlier image has left in its volume. So only images that trust each other share one: an update that the same
key has signed need not compile again.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from stack.base.errors import StackError
from stack.owner.engine import Engine
from stack.owner.state import Setup

USER = "stack.user"
"""The label with the id of the user whose server or volume it is: docker has one set of names for all users."""
_VOLUME = "stack-server-cache"
_DIGITS = 12


def name(digest: str, key: Path | None) -> str:
    """Return the volume's name for an image of a digest; `key`: the file of the key that it was verified with."""
    if key is None:
        return f"{_VOLUME}-image-{digest.removeprefix('sha256:')[:_DIGITS]}"
    return f"{_VOLUME}-key-{hashlib.sha256(key.read_bytes()).hexdigest()[:_DIGITS]}"


def of(setup: Setup) -> str:
    """Return the name of a server's volume."""
    if setup.image.cache is not None:
        return setup.image.cache
    return _VOLUME if setup.image.key is not None else f"{_VOLUME}-unverified"  # by an older version of this program


def make(engine: Engine, volume: str) -> None:
    """Make a volume with the label of this user, unless there is one of that name.

    Raises:
        StackError: The engine does not do it.

    """
    if not engine.has_volume(volume):
        engine.run("volume", "create", f"--label={USER}={os.getuid()}", volume)


def remove(engines: Iterable[Engine], keep: Iterable[Setup | None]) -> int:
    """Remove the volumes of this user that none of the servers in `keep` has; return their number.

    Raises:
        StackError: An engine does not list them.

    """
    kept = {of(setup) for setup in keep if setup is not None}
    count = 0
    for engine in engines:
        listed = engine.run("volume", "ls", "--quiet", f"--filter=label={USER}={os.getuid()}").split()
        for volume in listed:
            if volume.startswith(f"{_VOLUME}-") and volume not in kept:
                with contextlib.suppress(StackError):  # a container that somebody else has started uses it
                    engine.run("volume", "rm", volume)
                    count += 1
    return count
