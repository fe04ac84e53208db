# SPDX-License-Identifier: Apache-2.0
"""Check values against types that TypeScript declares, as generators write them from an OpenAPI document."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_$][\w$]*)|(?P<text>'[^']*'|\"[^\"]*\")|(?P<number>-?\d+)|(?P<sign>[{}\[\]()<>;:?|,=]))"
)
_PRIMITIVES: Mapping[str, type | tuple[type, ...]] = {"string": str, "number": (int, float), "boolean": bool}


@dataclass(frozen=True)
class Field:
    """A field of an object."""

    type: "Type"
    optional: bool


Type = Any
"""A primitive's or a type's name, a set of literals, ("array", T), ("union", [T]), or a dict of fields."""


class Declarations:
    """The types of a file; each is parsed at its first use."""

    def __init__(self, text: str) -> None:
        self._places = {match[1]: match.end() for match in re.finditer(r"^(?:export )?type (\w+) = ", text, re.MULTILINE)}
        self._text = text
        self._parsed: dict[str, Type] = {}

    def type(self, name: str) -> Type:
        """Parse a type by its name."""
        if name not in self._parsed:
            end = self._text.find("\n};", self._places[name])
            line = self._text.find(";\n", self._places[name])
            opened = self._text.startswith("{", self._places[name])
            source = self._text[self._places[name] : (end + 3 if opened else line + 1)]
            self._parsed[name] = _Parser(_COMMENT.sub("", source)).type()
        return self._parsed[name]

    def faults(self, value: Any, wanted: Type, place: str = "") -> Iterator[str]:
        """Yield what is wrong with a value; a field that is not declared is wrong, too."""
        match wanted:
            case "unknown" | "never":
                if wanted == "never" and value is not None:
                    yield f"{place}: takes nothing"
            case str() if wanted in _PRIMITIVES:
                if not isinstance(value, _PRIMITIVES[wanted]) or (wanted == "number" and isinstance(value, bool)):
                    yield f"{place}: {value!r} is not a {wanted}"
            case str():
                yield from self.faults(value, self.type(wanted), place)
            case frozenset():
                if value not in wanted:
                    yield f"{place}: {value!r} is not in {sorted(wanted)}"
            case ("array", entry):
                if not isinstance(value, list):
                    yield f"{place}: {value!r} is not a list"
                    return
                for each in value:
                    yield from self.faults(each, entry, f"{place}[]")
            case ("union", choices):
                if all(list(self.faults(value, each, place)) for each in choices):
                    yield f"{place}: {value!r} fits none of {choices}"
            case dict():
                yield from self._of_object(value, wanted, place)

    def _of_object(self, value: Any, wanted: Mapping[str, Field], place: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{place}: {value!r} is not an object"
            return
        anything = wanted.get("")
        for name, inner in value.items():
            declared = wanted.get(name, anything)
            if declared is None:
                yield f"{place}.{name}: is not declared"
            elif inner is not None or not declared.optional:  # a generator has no null: Go leaves a value out, or gives null
                yield from self.faults(inner, declared.type, f"{place}.{name}")
        yield from (
            f"{place}.{name}: is missing"
            for name, declared in wanted.items()
            if name and not declared.optional and name not in value
        )


class _Parser:
    def __init__(self, source: str) -> None:
        self._tokens = [match.group().strip() for match in _TOKEN.finditer(source)]
        self._at = 0

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, sign: str) -> bool:
        found = self._at < len(self._tokens) and self._tokens[self._at] == sign
        self._at += found
        return found

    def type(self) -> Type:
        self._take("|")
        choices = [self._array()]
        while self._take("|"):
            choices.append(self._array())
        if len(choices) == 1:
            return choices[0]
        if all(isinstance(each, frozenset) for each in choices):
            return frozenset().union(*choices)
        return ("union", choices)

    def _array(self) -> Type:
        found = self._single()
        while self._take("["):
            assert self._take("]")
            found = ("array", found)
        return found

    def _single(self) -> Type:
        token = self._next()
        if token == "{":
            return self._object()
        if token == "(":
            found = self.type()
            assert self._take(")")
            return found
        if token[0] in "'\"":
            return frozenset({token[1:-1]})
        if re.fullmatch(r"-?\d+", token):
            return frozenset({int(token)})
        if self._take("<"):
            inner = self.type()
            while self._take(","):
                inner = self.type()
            assert self._take(">")
            return ("array", inner) if token == "Array" else inner
        return token

    def _object(self) -> Mapping[str, Field]:
        fields: dict[str, Field] = {}
        while not self._take("}"):
            if self._take("["):  # [key: string]: T
                while self._next() != "]":
                    pass
                name = ""
            else:
                name = self._next().strip("'\"")
            optional = self._take("?")
            assert self._take(":"), (name, self._tokens[self._at :][:5])
            fields[name] = Field(self.type(), optional)
            self._take(";")
        return fields


def asked(value: str, wanted: Type) -> Any:
    """Read a value of a query as the type that is wanted of it."""
    if wanted == "number":
        return int(value)
    if isinstance(wanted, tuple) and wanted[0] == "array":
        return [asked(value, wanted[1])]
    return value


def loads(body: bytes) -> Any:
    """Read JSON; nothing is None."""
    return json.loads(body) if body else None
