# SPDX-License-Identifier: Apache-2.0
"""The identity of a checkout: a random id, kept in the user's state folder outside of the checkout.

A checkout's files may come from somebody else. A journal there counts only if it names this id, which the author of those files
cannot know. The id belongs to the folder's path: a moved or copied checkout has none.
"""

import hashlib
import json
import os
import secrets
from pathlib import Path

import platformdirs

from stack.base import files
from stack.base.errors import StackError


def identity(root: Path) -> str | None:
    """Return the id of the checkout in `root`, or None if it has none yet.

    Raises:
        StackError: The state folder cannot be read.

    """
    place = _place(root)
    try:
        with files.opened(place.parent) as folder:
            data = folder.read(place.name)
        return None if data is None else str(json.loads(data)["id"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as failed:
        raise StackError(f"{place} cannot be read ({failed})", "remove it: stack writes a new one") from failed


def identify(root: Path) -> str:
    """Return the id of the checkout in `root`; create one if there is none.

    Raises:
        StackError: The state folder cannot be written.

    """
    known = identity(root)
    if known is not None:
        return known
    place, made = _place(root), secrets.token_hex(16)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with files.opened(place.parent) as folder:
            part = f".{place.name}.{os.getpid()}"
            folder.write(part, json.dumps({"root": os.path.realpath(root), "id": made}).encode())
            folder.move(part, folder, place.name)
            folder.sync()
    except OSError as failed:
        raise StackError(
            f"{place.parent} cannot be written ({failed.strerror})",
            "check its rights, or name another folder in XDG_STATE_HOME",
        ) from failed
    return made


def _place(root: Path) -> Path:
    name = hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()
    return platformdirs.user_state_path("stack") / "checkouts" / f"{name}.json"
