# SPDX-License-Identifier: Apache-2.0
"""Parse a file that starts servers: a shell script, compose file, Dockerfile, .env file, recipe, manifest, unit, or Python code."""

import json
import re
from dataclasses import replace
from pathlib import Path

from stack.base.errors import StackError
from stack.doctor import manifests, python_code, shell, units
from stack.doctor.commands import (
    Collector,
    Container,
    Flag,
    Script,
    Serve,
    Setting,
    served,
    shell_commands,
    takes_arguments,
)
from stack.doctor.fix_files import LARGEST
from stack.doctor.shell import Command, Word

__all__ = ["Container", "Flag", "Script", "Serve", "Setting", "parse", "read"]

_INSTRUCTION = re.compile(r"^[ \t]*([A-Za-z]+)[ \t]+((?:[^\\\n]|\\[\s\S])*)", re.MULTILINE)
_SPARK = re.compile(
    r"\bGB10\b|DGX[ _-]?Spark|\bsm_?121[af]?\b|ARCH_LIST\W{1,4}12\.1|\benp1s0f[01]np[01]\b|\broceP?2?p?1s0f[01]\b|spark-vllm|\bvllm-node\b|\bgx10\b",
    re.IGNORECASE,
)
"""Names that only a DGX Spark has: its GPU, its network interfaces, and images for it."""
_REASONS = re.compile(r"^# Corrected by `stack doctor --fix`.*\n(?:#   .*\n)*", re.MULTILINE)
"""The comment at the top of a corrected copy, whose reasons may name a machine."""
_JSON_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRANCH = re.compile(r"^[ \t]*(?:(?:if|case|select|function)\s|[\w-]{1,60}[ \t]{0,9}\(\))", re.MULTILINE)
_MANIFEST = re.compile(r"^(?:apiVersion|services|recipe_version):", re.MULTILINE)


def read(file: Path) -> Script:
    """Parse a file.

    Raises:
        StackError: it cannot be read, or is not such a file.

    """
    return parse(str(file), text_of(file))


def text_of(file: Path) -> str:
    """Read a script's text.

    Raises:
        StackError: it cannot be read, or is not a script.

    """
    try:
        with file.open("rb") as opened:  # devices are endless: limit the read
            data = opened.read(LARGEST + 1)
    except OSError as failed:
        raise StackError(f"{file} cannot be read ({failed.strerror})", "name a script, or a compose file") from failed
    if b"\0" in data:
        raise StackError(f"{file} is not a script", "name a text file")
    if len(data) > LARGEST:
        raise StackError(f"{file} is larger than {LARGEST // 2**10} KiB", "name a script, or a compose file")
    return data.decode("utf-8-sig", "replace").replace("\r\n", "\n")


def parse(path: str, text: str) -> Script:
    """Parse a text that is in a file of that name."""
    found, name = Collector(), Path(path).name
    if name.endswith((".yaml", ".yml")):
        manifests.parse(found, path, text)
    elif re.match(r"(Dockerfile|Containerfile)", name) or name.endswith((".Dockerfile", ".dockerfile")):
        _dockerfile(found, text)
    elif name.endswith((".service", ".container")) or units.is_unit(text):
        units.parse(found, text)
    elif name.endswith(".py"):
        python_code.parse(found, text)
    elif "." not in name.lstrip(".") and _MANIFEST.search(text) and manifests.is_valid(text):
        manifests.parse(found, path, text)
    else:
        shell_commands(found, shell.commands(text), None)
    handed = found.exported | ({"*"} if re.search(r"(^|\.)env(\.|$)", name) else set())
    settings = (replace(each, exported=each.exported or not handed.isdisjoint((each.name, "*"))) for each in found.settings)
    return Script(
        path,
        tuple(settings),
        tuple(found.serves),
        tuple(found.containers),
        tuple(found.commands),
        tuple(found.sources),
        tuple(dict.fromkeys(found.others)),
        found.is_spark or _SPARK.search(_REASONS.sub("", text)) is not None,
        tuple(dict.fromkeys(found.built)),
        _BRANCH.search(text) is not None,
    )


def _dockerfile(found: Collector, text: str) -> None:
    stage, line, at = _Stage(), 1, 0
    for instruction in _INSTRUCTION.finditer(text):
        name, rest = instruction[1].upper(), instruction[2]
        line, at = line + text.count("\n", at, instruction.start(2)), instruction.start(2)
        if name == "FROM":
            stage.start(found)
            stage = _Stage(_image_of(rest))
        elif name in ("ENV", "ARG"):
            words = next(shell.commands(rest, line), ())
            if words and "=" not in words[0].text:
                words = (Word(f"{words[0].text}={' '.join(word.text for word in words[1:])}", words[0].line),)
            found.settings += [
                Setting(word.text.partition("=")[0], word.text.partition("=")[2], word.line)
                for word in words
                if "=" in word.text
            ]
        elif name in ("CMD", "ENTRYPOINT"):
            listed = _json(rest, line) if rest.lstrip().startswith("[") else None
            stage.give(name, [listed] if listed is not None else [*shell.commands(rest, line)], is_list=listed is not None)
    stage.start(found)


class _Stage:
    """A stage of a Dockerfile: its image, and the last entry point and command, each with whether it is a list."""

    def __init__(self, image: str = "") -> None:
        self._image = image
        self._entry: list[Command] | None = None
        self._command: list[Command] = []
        self._is_list = True

    def give(self, name: str, commands: list[Command], *, is_list: bool) -> None:
        """Take an instruction. A command is of no effect beside an entry point that is a text: a shell runs that."""
        if name == "ENTRYPOINT":
            self._entry, self._is_list = commands, is_list
        else:
            self._command = commands

    def start(self, found: Collector) -> None:
        """Collect what the stage's image starts."""
        container = Container(1, is_started=False)
        entry, command = self._entry, self._command if self._is_list else []
        if entry is not None and self._is_list and len(command) < 2:
            words = (*(entry[0] if entry else ()), *(command[0] if command else ()))
            shell_commands(found, iter((words,) if words else ()), container)
            return
        if entry is None and len(command) == 1 and command[0] and takes_arguments(self._image, command[0][0].text):
            found.commands.append(command[0])
            found.serves.append(served(command[0], command[0][0].line, container))
            return
        shell_commands(found, iter((*(entry or ()), *command)), container)


def _image_of(rest: str) -> str:
    """Return the image of FROM."""
    return next((word for word in rest.split() if not word.startswith("--")), "")


def _json(text: str, line: int) -> Command | None:
    try:
        values = json.loads(re.sub(r"\\\n", " \n", text))
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        return None
    words, at = [], 0
    for value, written in zip(values, _JSON_TEXT.finditer(text), strict=True):
        line, at = line + text.count("\n", at, written.start()), written.start()
        words.append(Word(value, line))
    return tuple(words)
