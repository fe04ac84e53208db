# SPDX-License-Identifier: Apache-2.0
"""Settings of the early forks that are gone at the pins, and what does the same now; `tools/stack/deploy/removed_settings.toml`."""

import functools
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from stack.model import document

FILE = Path(__file__).with_name("removed_settings.toml")


@dataclass(frozen=True, slots=True)
class Gone:
    """A flag of `vllm serve`, or a variable, that nothing reads any more; `name` may end with `*`.

    `by`: what does the same, one or the other, as arguments of `vllm serve`. `since`: the first release of vLLM without it; None
    where vLLM never had it.
    """

    name: str
    by: tuple[str, ...]
    note: str | None = None
    since: str | None = None

    @property
    def when(self) -> str:
        """Since when it is gone."""
        return f"gone since vLLM {self.since}" if self.since else "never vLLM's own"

    @property
    def instead(self) -> str:
        """What to do instead, for a person."""
        return f"use {' or '.join(self.by)}{f' ({self.note})' if self.note else ''}"

    def __str__(self) -> str:
        """Both."""
        return f"{self.when}; {self.instead}"


@functools.cache
def known() -> tuple[Gone, ...]:
    """All of them; where several names fit, the first one counts."""
    table = document.load(FILE)
    found = []
    for one in table.tables("gone"):
        found.append(Gone(one.text("name"), one.texts("by"), one.optional_text("note"), one.optional_text("since")))
        one.finish()
    table.finish()
    return tuple(found)


def find(setting: str) -> Gone | None:
    """What a flag or a variable was, if it is one of those; a flag with or without its value."""
    name = setting.partition("=")[0]
    name = name.replace("_", "-") if name.startswith("--") else name
    return next((one for one in known() if fnmatchcase(name, one.name)), None)
