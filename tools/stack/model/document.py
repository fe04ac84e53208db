# SPDX-License-Identifier: Apache-2.0
"""Strict reading of TOML: every key is asked for once, what nobody asked for is an error that names file and key."""

import difflib
import graphlib
import os
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stack.base import files
from stack.base.errors import StackError

LARGEST = 16 * 2**20
"""Bytes of the largest file that is read."""
_PARTS = 32
"""Parts of the longest dotted key: the parser takes time and memory by their square. Ours have three."""
_DOTTED = re.compile(rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{_PARTS}}}""")
_LONGEST = 200
"""Characters of a value that an error shows."""
_INTEGERS = range(-(2**63), 2**63)
"""TOML's: Python does not even show those of thousands of digits."""


def read_bytes(path: Path, *, missing: str = "check --root", largest: int = LARGEST, piped: bool = False) -> bytes:
    """The bytes of a file of no more than `largest`; `missing` says what to do where there is none.

    A pipe is read only where the user may have named one (`piped`).

    Raises:
        StackError: the file is missing, unreadable or too large.

    """
    try:
        # Opening a named pipe waits for its other end; a device has no end.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if piped else os.O_NONBLOCK))
        with os.fdopen(descriptor, "rb") as opened:
            if not piped:
                files.check_regular(descriptor, path)
            data = opened.read(largest + 1)
    except FileNotFoundError as absent:
        raise StackError(f"{path} is missing", missing) from absent
    except OSError as failed:
        raise StackError(f"{path} cannot be read ({failed.strerror})", "check the file's rights") from failed
    if len(data) > largest:
        size = f"{largest // 2**20} MiB" if largest >= 2**20 else f"{largest // 2**10} KiB"
        raise StackError(f"{path} is larger than {size}", "name another file")
    return data


def read_text(path: Path, *, largest: int = LARGEST, piped: bool = False) -> str:
    """The UTF-8 text of a file.

    Raises:
        StackError: the file is missing, unreadable, too large or not UTF-8.

    """
    try:
        return read_bytes(path, largest=largest, piped=piped).decode("utf-8")
    except UnicodeDecodeError as bad:
        raise StackError(f"{path} is not UTF-8 (byte {bad.start})", "save it as UTF-8") from bad


def load(path: Path, *, largest: int = LARGEST) -> "Table":
    """The top table of a TOML file.

    Raises:
        StackError: missing, too large, not UTF-8, or not TOML (with line and column).

    """
    text = read_text(path, largest=largest)
    if text.startswith("\ufeff"):
        raise StackError(f"{path}:1 begins with a byte order mark", "save it as UTF-8 without one")
    try:
        return Table(parse(text), file=path)
    except ValueError as bad:
        raise StackError(f"{path}: {bad}", "mend the TOML there") from bad


def parse(text: str) -> dict[str, Any]:
    """What a TOML text says.

    Raises:
        ValueError: it is not TOML, or nests or counts beyond all measure.

    """
    if _DOTTED.search(text):
        raise ValueError(f"a key has more than {_PARTS} parts")
    try:
        top = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError as deep:
        raise ValueError("it is nested too deeply") from deep
    except ValueError as long:  # Python reads no integers of thousands of digits
        raise ValueError("a number has too many digits") from long
    values: list[Any] = [top]
    while values:
        value = values.pop()
        if isinstance(value, dict | list):
            values += value.values() if isinstance(value, dict) else value
        elif isinstance(value, int) and value not in _INTEGERS:
            raise ValueError("a number has too many digits")
    return top


def entry(path: Path, name: str, kind: str) -> "Table":
    """The table of that name of a file that has one for each thing of a kind.

    Raises:
        StackError: there is none, or the file cannot be read.

    """
    top = load(path)
    if name not in tuple(top):
        raise StackError(f"unknown {kind} {name!r:.100}", f"{path.name} has {', '.join(top)}")
    return top.table(name)


class Table:
    """A TOML table that notes which keys were read; `finish` refuses the rest."""

    def __init__(self, values: Mapping[str, Any], *, file: Path, key: str = "") -> None:
        self._values = values
        self._file = file
        self._key = key
        self._asked: set[str] = set()

    def error(self, key: str, problem: str, remedy: str = "") -> StackError:
        """An error that names the file and the full key."""
        return StackError(f"{self._file}: {self._path(key)} {problem}", remedy)

    def text(self, key: str, *, pattern: str = r"(?s).*\S.*", meaning: str = "text") -> str:
        """A required string that matches `pattern` as a whole; `meaning` says what is expected.

        Raises:
            StackError: missing, not a string, or of another form.

        """
        value = self._required(key)
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise self.error(key, f"is {_shown(value)}", f"it has to be {meaning}")
        return value

    def optional_text(self, key: str, *, pattern: str = r"(?s).*\S.*", meaning: str = "text") -> str | None:
        """Like `text`, None where the key is absent."""
        self._asked.add(key)
        return self.text(key, pattern=pattern, meaning=meaning) if key in self._values else None

    def given(self, key: str) -> bool:
        """Whether a key has a value; JSON's null is none."""
        self._asked.add(key)
        return self._values.get(key) is not None

    def is_text(self, key: str) -> bool:
        """Whether a key's value is a string, where numbers are allowed, too."""
        return isinstance(self._values.get(key), str)

    def number(self, key: str) -> float:
        """A required number; an integer stays one.

        Raises:
            StackError: missing, no number, or not finite.

        """
        value = self._required(key)
        # Written so that NaN is refused, too.
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            raise self.error(key, f"is {_shown(value)}", "it has to be a number")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        """A required number, or list of numbers.

        Raises:
            StackError: missing, or something else in it.

        """
        value = self._required(key)
        if not isinstance(value, list):
            return (self.number(key),)
        inner = Table({str(place): item for place, item in enumerate(value)}, file=self._file, key=self._path(key))
        return tuple(inner.number(place) for place in inner)

    def whole(self, key: str) -> int:
        """A required integer from 0.

        Raises:
            StackError: missing, no integer, or negative.

        """
        value = self.number(key)
        if not isinstance(value, int) or value < 0:
            raise self.error(key, f"is {_shown(value)}", "it has to be a whole number from 0")
        return value

    def flag(self, key: str) -> bool:
        """A required truth value.

        Raises:
            StackError: missing, or neither true nor false.

        """
        value = self._required(key)
        if not isinstance(value, bool):
            raise self.error(key, f"is {_shown(value)}", "it has to be true or false")
        return value

    def texts(self, key: str, *, unique: bool = True) -> tuple[str, ...]:
        """A list of strings, empty where the key is absent.

        Raises:
            StackError: not a list of strings, or one of them twice where each has to be `unique`.

        """
        self._asked.add(key)
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self.error(key, f"is {_shown(value)}", "it has to be a list of strings")
        twice = next((item for item, count in Counter(value).items() if count > 1), None)
        if unique and twice is not None:
            raise self.error(key, f"names {twice!r} twice", "name it once")
        return tuple(value)

    def table(self, key: str) -> "Table":
        """A required table.

        Raises:
            StackError: missing or not a table.

        """
        return self._as_table(key, self._required(key))

    def optional_table(self, key: str) -> "Table | None":
        """Like `table`, None where the key is absent."""
        self._asked.add(key)
        return self.table(key) if key in self._values else None

    def tables(self, key: str) -> tuple["Table", ...]:
        """An array of tables, empty where the key is absent.

        Raises:
            StackError: not an array of tables.

        """
        self._asked.add(key)
        value = self._values.get(key, [])
        if not isinstance(value, list):
            raise self.error(key, f"is {_shown(value)}", "it has to be an array of tables")
        return tuple(self._as_table(f"{key}[{place}]", item) for place, item in enumerate(value))

    def has_to_give(self, *keys: str) -> None:
        """Refuse a table that leaves one of these out, though it could be empty.

        Raises:
            StackError: names the first one that is missing.

        """
        for key in keys:
            self._required(key)

    def __iter__(self) -> Iterator[str]:
        """All keys, in the file's order."""
        return iter(self._values)

    def finish(self) -> None:
        """Refuse keys that nobody asked for.

        Raises:
            StackError: names the first unknown key and the nearest known one.

        """
        for key in self._values:
            if key not in self._asked:
                near = difflib.get_close_matches(key, sorted(self._asked), n=1)
                known = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(sorted(self._asked))}"
                raise self.error(key, "is an unknown key", known)

    def _path(self, key: str) -> str:
        return f"{self._key}.{key}" if self._key else key

    def _required(self, key: str) -> Any:
        self._asked.add(key)
        if key not in self._values:
            raise self.error(key, "is missing", "add it")
        return self._values[key]

    def _as_table(self, key: str, value: Any) -> "Table":
        if not isinstance(value, Mapping):
            raise self.error(key, f"is {_shown(value)}", "it has to be a table")
        return Table(value, file=self._file, key=self._path(key))


def _shown(value: object) -> str:
    """A value in an error: as much of it as a line takes."""
    said = repr(value)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."


def find_cycle(edges: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return a cycle of a directed graph, as its nodes with the first one repeated at the end; empty if there is none."""
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        return tuple(reversed(error.args[1]))  # it lists each node before those that point at it
    return ()
