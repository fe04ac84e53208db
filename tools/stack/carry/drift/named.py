# SPDX-License-Identifier: Apache-2.0
"""Find the environment variables and the flags of the projects' commands that recipes and compose files name."""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stack.carry.drift import owners
from stack.projects import known

FOLDERS = ("validation/recipes", "docker")
"""The folders of a stack with such files."""
_SUFFIXES = frozenset({".toml", ".yaml", ".yml", ".env", ".sh", ".json"})
_NAMES = re.compile(r"^(?:Dockerfile|Containerfile|compose)\b|^\.env")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*(?:\.[\w.]+)?(?=[\s=\"',\]]|$)")
_BEFORE_VALUE = re.compile(r"(?:[=:]\s*[\"']|(?<![\w-])--(?!env\b)[a-z][\w.-]*(?:[\"'],\s*[\"']|[\s=]+[\"']?))$")
"""The text before a word that is the value of a key or a flag: backends have names like variables."""
_NEAR = 100
"""Characters before a word that are read for that, however long its line is."""
_COMMAND = re.compile(r"^(\s*)(?:-\s+)?[\"']?(?:command|args|arguments|serve|flags)[\"']?\s*[:=]")


@dataclass(frozen=True, slots=True)
class Named:
    """A variable or flag, and the line that names it. `path` is below the stack's root."""

    path: str
    line: int
    name: str


def settings(root: Path) -> Iterator[Path]:
    """Yield the recipes and compose files of a stack."""
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.is_file() and (file.suffix in _SUFFIXES or _NAMES.match(file.name)):
                yield file


def named(path: str, text: str) -> Iterator[Named]:
    """Yield the variables that a file names, and the flags in the arguments of a project's command (`vllm serve`); skip comments."""
    inside: int | None = None
    variables, starts = owners.pattern(owners.WORD), _starts(known.commands())
    for number, line in enumerate(text.split("\n"), 1):
        code = line.split(" #")[0] if not line.lstrip().startswith("#") else ""
        inside = _arguments(code, inside, starts)
        for found in variables.finditer(code):
            if not _is_value(code, found):
                yield Named(path, number, found[0])
        for flag in _FLAG.findall(code) if inside is not None else ():
            yield Named(path, number, flag)


def _is_value(code: str, word: re.Match[str]) -> bool:
    """Return whether a word is the whole value of a key or of a flag, and so no variable."""
    return (
        not code[word.end() :].startswith("=")
        and _BEFORE_VALUE.search(code[max(0, word.start() - _NEAR) : word.start()]) is not None
    )


@functools.lru_cache(maxsize=4)
def _starts(commands: tuple[tuple[str, ...], ...]) -> re.Pattern[str]:
    """Match one of the commands, in a shell's line or in a list of words."""
    spelled = (r"[\"',\s]+".join(map(re.escape, words)) for words in commands)
    return re.compile(rf"\b(?:{'|'.join(spelled) or '(?!)'})\b")


def _arguments(line: str, inside: int | None, starts: re.Pattern[str]) -> int | None:
    """Return the indentation of the line where the arguments of a command began; None if this line is not one of them.

    They end at the next line that is not indented further, unless it is an item, a closing bracket or a continuation.
    """
    indented = len(line) - len(line.lstrip())
    if starts.search(line) or _COMMAND.match(line):
        return indented
    if inside is None or not line.strip():
        return inside
    if indented > inside or line.lstrip().startswith(("-", "]", ")", '"', "'")):
        return inside
    return None
