# SPDX-License-Identifier: Apache-2.0
"""Parse systemd units and Quadlet files: commands, variables, containers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from stack.doctor import shell
from stack.doctor.commands import Collector, Container, Setting, served, shell_commands
from stack.doctor.shell import Word

_SECTION = re.compile(r"\[(Unit|Service|Container|Install|Pod|Kube)\]\s*$", re.MULTILINE)
_ENTRY = re.compile(r"([A-Za-z]\w{1,60})\s{0,20}=\s{0,20}(.*)", re.DOTALL)
_COMMANDS = ("ExecStart", "ExecStartPre", "ExecStartPost", "ExecStop", "ExecStopPost", "ExecReload")
_PREFIX = re.compile(r"^[-@:+!|]{1,4}")
_SHARED = re.compile(r"--ipc[= ]host|--shm-size")


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of a unit, its value without continuations, and its line."""

    name: str
    value: str
    line: int


def is_unit(text: str) -> bool:
    """Tell whether a text is a unit."""
    return _SECTION.search(text) is not None


def parse(found: Collector, text: str) -> None:
    """Parse a unit."""
    entries = [*_entries(text)]
    settings = [setting for entry in entries if entry.name == "Environment" for setting in _settings(entry)]
    found.settings += settings
    found.sources += [entry.value.lstrip("-") for entry in entries if entry.name == "EnvironmentFile"]
    for entry in entries:
        if entry.name in _COMMANDS:
            shell_commands(found, shell.commands(_PREFIX.sub("", entry.value), entry.line), None)
    if any(entry.name == "Image" for entry in entries):
        _quadlet(found, entries, settings)


def _entries(text: str) -> Iterator[_Entry]:
    lines = text.split("\n")
    place = 0
    while place < len(lines):
        start, whole = place, lines[place]
        while whole.endswith("\\") and place + 1 < len(lines):
            place += 1
            # Keep the line break: the lines of a command's flags are counted.
            whole = f"{whole}\n{lines[place]}"
        place += 1
        if not whole.lstrip().startswith(("#", ";")) and (match := _ENTRY.fullmatch(whole.strip())):
            yield _Entry(match[1], match[2], start + 1)


def _settings(entry: _Entry) -> Iterator[Setting]:
    for command in shell.commands(entry.value, entry.line):
        for word in command:
            name, equals, value = word.text.partition("=")
            if equals:
                yield Setting(name, value, word.line)


def _quadlet(found: Collector, entries: list[_Entry], settings: list[Setting]) -> None:
    """Parse a `.container` file."""

    def given(name: str) -> list[_Entry]:
        return [entry for entry in entries if entry.name == name]

    image = given("Image")[0]
    container = Container(
        image.line,
        next((entry.line for entry in given("PodmanArgs") if "--privileged" in entry.value), None),
        any(entry.value == "host" for entry in given("Network")),
        tuple(Word(entry.value, entry.line) for entry in given("PublishPort")),
        tuple(entry.value.split(":")[1] if ":" in entry.value else entry.value for entry in given("Volume")),
        tuple(settings),
        shared=bool(given("ShmSize")) or any(_SHARED.search(entry.value) for entry in given("PodmanArgs")),
        image=Word(image.value, image.line),
    )
    found.containers.append(container)
    for entry in given("Exec"):
        words = [word for command in shell.commands(entry.value, entry.line) for word in command]
        before = len(found.serves)
        shell_commands(found, iter((tuple(words),) if words else ()), container)
        if len(found.serves) == before and words and (words[0].text.startswith("--") or "vllm" in image.value):
            found.serves.append(served(tuple(words[words[0].text == "serve" :]), words[0].line, container))
