# SPDX-License-Identifier: Apache-2.0
"""Read the identity from git's configuration: the person who signs off patches, and what goes upstream."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.model.patch import trailers
from stack.store import git

SIGNED = "Signed-off-by"
_IDENTITY = re.compile(r"(?P<name>.+) <(?P<mail>[^<>]+)> \d+ [+-]\d{4}")
_OWN = ("GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")


@dataclass(frozen=True, slots=True)
class Person:
    """A name and a mail address as git writes them."""

    name: str
    mail: str

    def __str__(self) -> str:
        return f"{self.name} <{self.mail}>"


def configured(folder: Path) -> Person:
    """Return the identity that `git commit --signoff` would use in a folder; a guess of git does not count.

    Raises:
        StackError: no identity is configured.

    """
    own = {name: os.environ[name] for name in _OWN if name in os.environ}
    command = ["-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT"]
    done = git.run(command, cwd=folder, user_config=True, env=own, accept=(0, 128))
    identity = _IDENTITY.fullmatch(done.stdout.decode("utf-8", "replace").strip())
    if done.returncode or identity is None or "\ufffd" in identity[0]:
        raise StackError(
            "git does not know who signs off the commits",
            "git config --global user.name 'Your Name' and user.email you@example.org, as upstream shall see them",
        )
    return Person(identity["name"], identity["mail"])


def is_signed(message: str) -> bool:
    """Tell whether anybody has signed off a commit message."""
    return any(key == SIGNED for key, _ in trailers(message))
