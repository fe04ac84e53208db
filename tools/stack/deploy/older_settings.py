# SPDX-License-Identifier: Apache-2.0
"""Settings of older vLLM releases and of other servers, with what does the same now; see `older_settings.toml`. Values count."""

import functools
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from stack.deploy import removed_settings
from stack.model import document

FILE = Path(__file__).with_name("older_settings.toml")
_VALUE = "{value}"


@dataclass(frozen=True, slots=True)
class OlderSetting:
    """A flag or a variable that the pinned vLLM does not have; `name` may end with `*`.

    `values`: the values for which the entry holds, empty for all; `by`: what does the same, empty if nothing is needed; `gone_by`: a
    release that does not have it, None if vLLM never had it.
    """

    name: str
    values: tuple[str, ...]
    by: tuple[str, ...]
    note: str | None
    gone_by: str | None


@dataclass(frozen=True, slots=True)
class Replacement:
    """The replacement of a setting: when it went, the advice, and arguments of `vllm serve` that do the same, best first."""

    when: str
    advice: str
    by: tuple[str, ...]


@functools.cache
def known() -> tuple[OlderSetting, ...]:
    """Load all of them, in the order of the file."""
    table = document.load(FILE)
    found = []
    for entry in table.tables("older"):
        entry.has_to_give("by")
        found.append(
            OlderSetting(
                entry.text("name"),
                entry.texts("values"),
                entry.texts("by"),
                entry.optional_text("note"),
                entry.optional_text("gone_by"),
            )
        )
        entry.finish()
    table.finish()
    return tuple(found)


def find(setting: str, value: str | None) -> Replacement | None:
    """Find what replaces a flag or a variable with a value; None if it is not known to be gone."""
    name = setting.replace("_", "-") if setting.startswith("--") else setting
    fitting = [entry for entry in known() if fnmatchcase(name, entry.name)]
    by_value = next((entry for entry in fitting if (value or "").strip().lower() in entry.values), None)
    if by_value is None and (gone := removed_settings.find(name)) is not None:
        return Replacement(gone.when, gone.instead, gone.by)
    entry = by_value or next((entry for entry in fitting if not entry.values), None)
    return _replacement(entry, value) if entry is not None else None


def _replacement(entry: OlderSetting, value: str | None) -> Replacement:
    by = tuple(argument.replace(_VALUE, value or "VALUE") for argument in entry.by)
    advice = (
        f"use {' or '.join(map(removed_settings.for_shell, by))}{f' ({entry.note})' if entry.note else ''}"
        if by
        else entry.note or "nothing replaces it"
    )
    return Replacement(f"gone by vLLM {entry.gone_by}" if entry.gone_by else "never vLLM's own", advice, by)
