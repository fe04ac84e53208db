# SPDX-License-Identifier: Apache-2.0
"""Settings of early forks that the pinned vLLM does not have, with their replacements; see `removed_settings.toml`."""

import functools
import shlex
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from stack.model import document

FILE = Path(__file__).with_name("removed_settings.toml")


@dataclass(frozen=True, slots=True)
class RemovedSetting:
    """A flag of `vllm serve`, or a variable, that nothing reads any more; `name` may end with `*`.

    `by`: alternatives with the same effect, as arguments of `vllm serve`. `since`: the first release of vLLM without the setting; None
    if vLLM never had it.
    """

    name: str
    by: tuple[str, ...]
    note: str | None = None
    since: str | None = None

    @property
    def when(self) -> str:
        """The release that removed it."""
        return f"gone since vLLM {self.since}" if self.since else "never vLLM's own"

    @property
    def instead(self) -> str:
        """The advice for a user."""
        return f"use {' or '.join(map(for_shell, self.by))}{f' ({self.note})' if self.note else ''}"

    def __str__(self) -> str:
        """Return both texts."""
        return f"{self.when}; {self.instead}"


def for_shell(argument: str) -> str:
    """Quote the value of `--flag=value` for a shell, if it needs that."""
    name, equals, value = argument.partition("=")
    return f"{name}{equals}{shlex.quote(value)}" if value else argument


@functools.cache
def known() -> tuple[RemovedSetting, ...]:
    """Load all of them, in the order of the file."""
    table = document.load(FILE)
    settings = []
    for entry in table.tables("gone"):
        settings.append(
            RemovedSetting(entry.text("name"), entry.texts("by"), entry.optional_text("note"), entry.optional_text("since"))
        )
        entry.finish()
    table.finish()
    return tuple(settings)


def find(setting: str) -> RemovedSetting | None:
    """Find the entry of a flag (with or without its value) or a variable; the first that matches. None if there is none."""
    name = setting.partition("=")[0]
    name = name.replace("_", "-") if name.startswith("--") else name
    return next((entry for entry in known() if fnmatchcase(name, entry.name)), None)
