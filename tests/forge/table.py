# SPDX-License-Identifier: Apache-2.0
"""A description of an API as a table, and a check of every request and every answer against it.

It is strict: an unknown path, method, parameter or field is a fault, and so is a field of another type or a missing one.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .contract import Fault, Operation

Shape = Any
"""A type, a tuple of allowed values or types (None stands for null), a list with the shape of its entries, or a dict of fields."""


@dataclass(frozen=True)
class Endpoint:
    """The requests that a path takes, and its answers. `body` has the fields of the request; those in `needed` must be there."""

    answers: Mapping[int, Shape]
    query: Mapping[str, Shape] = field(default_factory=dict)
    body: Mapping[str, Shape] = field(default_factory=dict)
    needed: frozenset[str] = frozenset()


class TableContract:
    """Checks by a table: endpoints by method and path. `error` is the shape of an answer that refuses."""

    def __init__(self, endpoints: Mapping[tuple[str, str], Endpoint], error: Shape, prefix: str = "") -> None:
        self.endpoints, self.error, self.prefix = endpoints, error, prefix

    def operation(self, method: str, target: str) -> Operation:
        """Which operation a request is.

        Raises:
            Fault: the table has none such.

        """
        parts = urlsplit(target).path.removeprefix(self.prefix).split("/")
        for known, path in self.endpoints:
            wanted = path.split("/")
            if known == method and len(wanted) == len(parts):
                values = {one[1:-1]: part for one, part in zip(wanted, parts, strict=True) if one.startswith("{")}
                if all(one.startswith("{") or one == part for one, part in zip(wanted, parts, strict=True)):
                    return Operation(path, method.lower(), values)
        raise Fault(f"nothing is known of {method} {target}")

    def check_request(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Operation:
        """Hold a request against the table.

        Raises:
            Fault: it has something that the table does not have.

        """
        operation = self.operation(method, target)
        endpoint = self.endpoints[method, operation.path]
        for name, values in parse_qs(urlsplit(target).query, keep_blank_values=True).items():
            if name not in endpoint.query:
                raise Fault(f"{operation.path} has no parameter {name}")
            if len(values) != 1 or not _asked(values[0], endpoint.query[name]):
                raise Fault(f"{operation.path} takes no {name}={values}")
        if not headers.get("User-Agent"):
            raise Fault("no User-Agent")
        sent = json.loads(body) if body else {}
        if not isinstance(sent, dict) or sent.keys() - endpoint.body.keys() or endpoint.needed - sent.keys():
            raise Fault(f"{operation.path} takes no body {sorted(sent)}")
        for name, value in sent.items():
            _check(value, endpoint.body[name], f"{operation.path} {name}")
        return operation

    def check_answer(self, method: str, target: str, status: int, body: bytes) -> None:
        """Hold an answer against the table.

        Raises:
            Fault: it has another form.

        """
        operation = self.operation(method, target)
        answers = self.endpoints[method, operation.path].answers
        if status not in answers and status < 400:
            raise Fault(f"{operation.path} is never answered with {status}")
        _check(json.loads(body) if body else None, answers.get(status, self.error), operation.path)


def _asked(value: str, shape: Shape) -> bool:
    if shape is int:
        return re.fullmatch(r"[0-9]+", value) is not None
    return shape is str or value in shape


def _check(value: Any, shape: Shape, place: str) -> None:
    if isinstance(shape, dict):
        if not isinstance(value, dict) or value.keys() != shape.keys():
            raise Fault(f"{place}: has {sorted(value) if isinstance(value, dict) else value!r}, not {sorted(shape)}")
        for name, inner in shape.items():
            _check(value[name], inner, f"{place}.{name}")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise Fault(f"{place}: {value!r} is not a list")
        for entry in value:
            _check(entry, shape[0], f"{place}[]")
    elif not any(_fits(value, each) for each in (shape if isinstance(shape, tuple) else (shape,))):
        raise Fault(f"{place}: {value!r} is not {shape}")


def _fits(value: Any, shape: Shape) -> bool:
    if isinstance(shape, dict | list):
        try:
            _check(value, shape, "")
        except Fault:
            return False
        return True
    if isinstance(shape, type):
        return isinstance(value, shape) and not (shape is int and isinstance(value, bool))
    return bool(value == shape)
