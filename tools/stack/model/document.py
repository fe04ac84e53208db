# SPDX-License-Identifier: Apache-2.0
"""Strict reading of TOML: a key that the reader does not use is an error that names the file and the key."""

import graphlib
import os
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stack.base import files
from stack.base.did_you_mean import similar, suggestion, unknown_name
from stack.base.errors import StackError

LARGEST = 16 * 2**20
"""Bytes of the largest file that is read."""
_PARTS = 32
"""Parts of the longest dotted key; the parser's time and memory grow with their square. Our files use three."""
_DOTTED = re.compile(rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{_PARTS}}}""")
_LONGEST = 200
"""Characters of a value that an error message shows."""
_INTEGERS = range(-(2**63), 2**63)
"""TOML's integer range; Python refuses to print integers with thousands of digits."""


def read_bytes(path: Path, *, missing: str = "check --root", largest: int = LARGEST, piped: bool = False) -> bytes:
    """Read a file of at most `largest` bytes; `missing` is the remedy in the error if it does not exist.

    `piped` allows a pipe, which only a path named by the user may be.

    Raises:
        StackError: The file is missing, unreadable or too large.

    """
    try:
        # O_NONBLOCK: opening a named pipe would wait for its other end. The check refuses devices, which have no end.
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
    """Read a file as UTF-8 text.

    Raises:
        StackError: The file is missing, unreadable, too large or not UTF-8.

    """
    try:
        return read_bytes(path, largest=largest, piped=piped).decode("utf-8")
    except UnicodeDecodeError as bad:
        raise StackError(f"{path} is not UTF-8 (byte {bad.start})", "save it as UTF-8") from bad


def load(path: Path, *, largest: int = LARGEST) -> "Table":
    """Read the top table of a TOML file.

    Raises:
        StackError: The file is missing, too large, not UTF-8, or not TOML (with line and column).

    """
    text = read_text(path, largest=largest)
    if text.startswith("\ufeff"):
        raise StackError(f"{path}:1 begins with a byte order mark", "save it as UTF-8 without one")
    try:
        return Table(parse(text), file=path)
    except ValueError as bad:
        raise StackError(f"{path}: {bad}", "mend the TOML there") from bad


def parse(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        ValueError: The text is not TOML, is nested too deeply, or has too large a number.

    """
    if _DOTTED.search(text):
        raise ValueError(f"a key has more than {_PARTS} parts")
    try:
        top = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError as deep:
        raise ValueError("it is nested too deeply") from deep
    except ValueError as long:  # Python refuses integers with thousands of digits
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
    """Read the table `name` from a file that has one table for each `kind` of thing.

    Raises:
        StackError: The table is missing, or the file cannot be read.

    """
    top = load(path)
    if name not in tuple(top):
        raise unknown_name(kind, name[:100], top, holder=path.name)
    return top.table(name)


class Table:
    """A TOML table that records which keys were read; `finish` refuses the others."""

    def __init__(self, values: Mapping[str, Any], *, file: Path, key: str = "") -> None:
        self._values = values
        self._file = file
        self._key = key
        self._asked: set[str] = set()

    @property
    def file(self) -> Path:
        """The file that it was read from."""
        return self._file

    def error(self, key: str, problem: str, remedy: str = "") -> StackError:
        """Build an error that names the file and the full key."""
        return StackError(f"{self._file}: {self._path(key)} {problem}", remedy)

    def text(self, key: str, *, pattern: str = r"(?s).*\S.*", meaning: str = "text") -> str:
        """Return a required string that matches the whole of `pattern`; `meaning` describes the expected value in errors.

        Raises:
            StackError: The value is missing, not a string, or does not match.

        """
        value = self._required(key)
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise self.error(key, f"is {_shown(value)}", f"it has to be {meaning}")
        return value

    def optional_text(self, key: str, *, pattern: str = r"(?s).*\S.*", meaning: str = "text") -> str | None:
        """Like `text`, but return None if the key is absent."""
        self._asked.add(key)
        return self.text(key, pattern=pattern, meaning=meaning) if key in self._values else None

    def given(self, key: str) -> bool:
        """Tell whether a key has a value; JSON's null counts as absent."""
        self._asked.add(key)
        return self._values.get(key) is not None

    def is_text(self, key: str) -> bool:
        """Tell whether a value is a string, for keys that allow numbers, too."""
        return isinstance(self._values.get(key), str)

    def is_empty_list(self, key: str) -> bool:
        """Tell whether a value is an empty list, which stands for a key that was taken out."""
        self._asked.add(key)
        return bool(self._values.get(key) == [])

    def number(self, key: str) -> float:
        """Return a required number; an integer stays an integer.

        Raises:
            StackError: The value is missing, not a number, or not finite.

        """
        value = self._required(key)
        # `not … <=` also refuses NaN.
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            raise self.error(key, f"is {_shown(value)}", "it has to be a number")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        """Return a required number or list of numbers.

        Raises:
            StackError: The value is missing or of another type.

        """
        value = self._required(key)
        if not isinstance(value, list):
            return (self.number(key),)
        inner = Table({str(place): item for place, item in enumerate(value)}, file=self._file, key=self._path(key))
        return tuple(inner.number(place) for place in inner)

    def whole(self, key: str) -> int:
        """Return a required integer of at least 0.

        Raises:
            StackError: The value is missing, not an integer, or negative.

        """
        value = self.number(key)
        if not isinstance(value, int) or value < 0:
            raise self.error(key, f"is {_shown(value)}", "it has to be a whole number from 0")
        return value

    def flag(self, key: str) -> bool:
        """Return a required boolean.

        Raises:
            StackError: The value is missing, or neither true nor false.

        """
        value = self._required(key)
        if not isinstance(value, bool):
            raise self.error(key, f"is {_shown(value)}", "it has to be true or false")
        return value

    def texts(self, key: str, *, unique: bool = True) -> tuple[str, ...]:
        """Return a list of strings, empty if the key is absent.

        Raises:
            StackError: The value is not a list of strings, or repeats one although `unique` is set.

        """
        self._asked.add(key)
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self.error(key, f"is {_shown(value)}", "it has to be a list of strings")
        twice = next((item for item, count in Counter(value).items() if count > 1), None)
        if unique and twice is not None:
            raise self.error(key, f"names {twice!r} twice", "name it once")
        return tuple(value)

    def texts_and_tables(self, key: str) -> tuple[tuple[str, ...], tuple["Table", ...]]:
        """Return the strings and the tables of a list that may have both; both are empty if the key is absent.

        Raises:
            StackError: The value is not a list of strings and tables, or repeats a string.

        """
        self._asked.add(key)
        value = self._values.get(key, [])
        if not isinstance(value, list):
            raise self.error(key, f"is {_shown(value)}", "it has to be a list")
        tables = {place: item for place, item in enumerate(value) if isinstance(item, Mapping)}
        rest = [item for place, item in enumerate(value) if place not in tables]
        texts = Table({key: rest}, file=self._file, key=self._key).texts(key)
        return texts, tuple(self._as_table(f"{key}[{place}]", item) for place, item in tables.items())

    def table(self, key: str) -> "Table":
        """Return a required table.

        Raises:
            StackError: The value is missing or not a table.

        """
        return self._as_table(key, self._required(key))

    def optional_table(self, key: str) -> "Table | None":
        """Like `table`, but return None if the key is absent."""
        self._asked.add(key)
        return self.table(key) if key in self._values else None

    def tables(self, key: str) -> tuple["Table", ...]:
        """Return an array of tables, empty if the key is absent.

        Raises:
            StackError: The value is not an array of tables.

        """
        self._asked.add(key)
        value = self._values.get(key, [])
        if not isinstance(value, list):
            raise self.error(key, f"is {_shown(value)}", "it has to be an array of tables")
        return tuple(self._as_table(f"{key}[{place}]", item) for place, item in enumerate(value))

    def has_to_give(self, *keys: str) -> None:
        """Require keys whose values may be empty, so that their absence would go unnoticed.

        Raises:
            StackError: A key is missing; the error names the first one.

        """
        for key in keys:
            self._required(key)

    def over(self, below: "Table", keys: Iterable[str] | None = None) -> "Table":
        """Return this table with the values that it lacks and `below` has; with `keys`, only of these keys."""
        wanted = below if keys is None else [key for key in keys if key in below._values]
        return Table({key: below._values[key] for key in wanted} | dict(self._values), file=self._file, key=self._key)

    def __iter__(self) -> Iterator[str]:
        """Iterate over all keys in the file's order."""
        return iter(self._values)

    def finish(self) -> None:
        """Refuse keys that were never read.

        Raises:
            StackError: A key is unknown; the error names the first one and the nearest known key.

        """
        for key in self._values:
            if key not in self._asked:
                near = similar(key, sorted(self._asked))[:1]
                known = suggestion(near) if near else f"known here: {', '.join(sorted(self._asked))}"
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
    """Return a value as text for an error message, cut to one line."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def find_cycle(edges: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return a cycle of a directed graph, as its nodes with the first one repeated at the end; empty if there is none."""
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        return tuple(reversed(error.args[1]))  # it lists each node before those that point at it
    return ()
