# SPDX-License-Identifier: Apache-2.0
"""The environment variables and the flags of `vllm serve` that recipes and compose files name."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("validation/recipes", "docker")
"""Where a stack has such files."""
_SUFFIXES = frozenset({".toml", ".yaml", ".yml", ".env", ".sh", ".json"})
_NAMES = re.compile(r"^(?:Dockerfile|Containerfile|compose)\b|^\.env")
_VARIABLE = re.compile(r"\b(?:VLLM|FLASHINFER)_[A-Z0-9_]*[A-Z0-9]\b")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*(?:\.[\w.]+)?(?=[\s=\"',\]]|$)")
_SERVE = re.compile(r"\bvllm[\"',\s]+serve\b")
_COMMAND = re.compile(r"^(\s*)(?:-\s+)?[\"']?(?:command|args|arguments|serve|flags)[\"']?\s*[:=]")


@dataclass(frozen=True, slots=True)
class Named:
    """A variable or flag, and where it is named. `path` is below the stack's root."""

    path: str
    line: int
    name: str


def settings(root: Path) -> Iterator[Path]:
    """The recipes and compose files of a stack."""
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.is_file() and (file.suffix in _SUFFIXES or _NAMES.match(file.name)):
                yield file


def named(path: str, text: str) -> Iterator[Named]:
    """What a file names: every variable, and the flags in the arguments of `vllm serve`; comments left out."""
    inside: int | None = None
    for number, line in enumerate(text.split("\n"), 1):
        code = line.split(" #")[0] if not line.lstrip().startswith("#") else ""
        inside = _arguments(code, inside)
        for found in _VARIABLE.findall(code):
            yield Named(path, number, found)
        for found in _FLAG.findall(code) if inside is not None else ():
            yield Named(path, number, found)


def _arguments(line: str, inside: int | None) -> int | None:
    """Whether a line belongs to the arguments of `vllm serve`: the indentation of the line that they began with.

    They end with the next line that is indented no further and is no item, closing bracket or continuation of theirs.
    """
    indented = len(line) - len(line.lstrip())
    if _SERVE.search(line) or _COMMAND.match(line):
        return indented
    if inside is None or not line.strip():
        return inside
    if indented > inside or line.lstrip().startswith(("-", "]", ")", '"', "'")):
        return inside
    return None
