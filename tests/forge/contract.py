# SPDX-License-Identifier: Apache-2.0
"""GitHub's API as GitHub itself describes it: every request and every answer of the tests is held against its OpenAPI document.

The document is GitHub's own (npm package @octokit/openapi), brought by npm as the machine has it configured, and cut down to what
is asked here: whole it has 13 MB. Stricter than the document in one thing: a parameter or field that it does not name is a fault,
since GitHub would pass over what was misspelled.
"""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import parse_qs, urlsplit

import pytest

from stack.base.errors import StackError
from stack.forge.github import VIEWER
from stack.store import cache

from .. import npm

if TYPE_CHECKING:
    from .schemas import Schemas

PACKAGE = "@octokit/openapi@23.0.2"
SHA256 = "829b4bebb19a53133289f7b0bc819f4f1118115821db2ca9f25e9ee995a7da2a"
"""Of the document in it."""
PATHS = (
    "/user",
    "/search/issues",
    "/repos/{owner}/{repo}",
    "/repos/{owner}/{repo}/git/matching-refs/{ref}",
    "/repos/{owner}/{repo}/pulls",
    "/repos/{owner}/{repo}/pulls/{pull_number}",
    "/repos/{owner}/{repo}/pulls/{pull_number}/reviews",
    "/repos/{owner}/{repo}/commits/{ref}/check-runs",
    "/repos/{owner}/{repo}/commits/{ref}/status",
    "/repos/{owner}/{repo}/compare/{basehead}",
    "/repos/{owner}/{repo}/issues",
    "/repos/{owner}/{repo}/issues/{issue_number}",
    "/repos/{owner}/{repo}/issues/{issue_number}/comments",
    "/repos/{owner}/{repo}/issues/{issue_number}/labels/{name}",
    "/repos/{owner}/{repo}/actions/workflows/{workflow_id}/runs",
    "/repos/{owner}/{repo}/collaborators/{username}/permission",
)
GRAPHQL = "/graphql"
"""GitHub's other API, which the document does not describe."""
_METHODS = ("get", "post", "patch", "delete")
_CUT = hashlib.sha256(repr((SHA256, PATHS, _METHODS)).encode()).hexdigest()[:12]
_FILE = "package/generated/api.github.com.json"
_ANYWHERE = (401, 403, 404, 429, 500, 502, 503)
"""What any request can be answered with, whether or not the document says so of this one: with an error of the basic form."""


class Fault(Exception):
    """A request that GitHub would refuse, or an answer that GitHub would not give."""


@dataclass(frozen=True)
class Operation:
    """What a request asks, by the document: its path's template and the values in it."""

    path: str
    method: str
    values: Mapping[str, str]


class Contract:
    """The document, and what it says of requests and answers."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    @cached_property
    def _schemas(self) -> "Schemas":
        # Importing it takes longer than collecting all tests of this folder.
        from .schemas import Schemas  # noqa: PLC0415

        return Schemas(self.document)

    def operation(self, method: str, target: str) -> Operation:
        """Which operation a request is.

        Raises:
            Fault: GitHub has none such, as far as the document is used here.

        """
        parts = urlsplit(target).path.split("/")
        for path, methods in self.document["paths"].items():
            wanted = path.split("/")
            named = {one[1:-1]: part for one, part in zip(wanted, parts, strict=False) if one.startswith("{")}
            if len(wanted) == len(parts) and all(
                one.startswith("{") or one == part for one, part in zip(wanted, parts, strict=True)
            ):
                if method.lower() not in methods:
                    raise Fault(f"{path} takes no {method}")
                return Operation(path, method.lower(), named)
        raise Fault(f"no path {target}")

    def check_request(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Operation:
        """Hold a request against the document.

        Raises:
            Fault: GitHub would refuse it, or pass over a part of it.

        """
        if (method, target) == ("POST", GRAPHQL):
            if json.loads(body) != {"query": VIEWER}:
                raise Fault("another query than the one of this test's GraphQL")
            return Operation(GRAPHQL, "post", {})
        operation = self.operation(method, target)
        spec = self.document["paths"][operation.path][operation.method]
        given = parse_qs(urlsplit(target).query, keep_blank_values=True)
        unknown = given.keys() - {one["name"] for one in self._parameters(spec) if one["in"] == "query"}
        if unknown:
            raise Fault(f"{operation.path} has no parameters {sorted(unknown)}")
        if "requestBody" in spec:
            fields = spec["requestBody"]["content"]["application/json"]["schema"]["properties"]
            sent = json.loads(body)
            if isinstance(sent, dict) and sent.keys() - fields.keys():
                raise Fault(f"{operation.path} takes no {sorted(sent.keys() - fields.keys())}")
        elif body:
            raise Fault(f"{operation.path} takes no body")
        if not headers.get("User-Agent"):
            raise Fault("GitHub wants to know who asks: no User-Agent")
        accepts = headers.get("Accept", "*/*")
        custom = "+json" not in accepts and accepts not in ("*/*", "application/json", "application/vnd.github.v3+json")
        if custom and f"`{accepts}`" not in spec["description"]:
            raise Fault(f"{operation.path} gives no {accepts}")
        if fault := self._schemas.fault_of_request(method, target, body):
            raise Fault(fault)
        return operation

    def check_answer(self, method: str, target: str, status: int, body: bytes) -> None:
        """Hold an answer of JSON against the document.

        Raises:
            Fault: GitHub would not give it.

        """
        if target == GRAPHQL:
            return
        operation = self.operation(method, target)
        if str(status) in self.document["paths"][operation.path][operation.method]["responses"]:
            if fault := self._schemas.fault_of_answer(method, target, status, body):
                raise Fault(fault)
        elif status not in _ANYWHERE or not isinstance(json.loads(body).get("message"), str):
            raise Fault(f"{operation.path} is never answered with {status}")

    def example(self, path: str, method: str = "get", status: int = 200) -> Any:
        """An answer that the document gives as an example: a copy."""
        found = self.document["paths"][path][method]["responses"][str(status)]["content"]["application/json"]["examples"]
        first = next(iter(found.values()))
        if "$ref" in first:
            first = self.document["components"]["examples"][first["$ref"].rpartition("/")[2]]
        return json.loads(json.dumps(first["value"]))

    def _parameters(self, spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        for one in spec.get("parameters", []):
            yield self.document["components"]["parameters"][one["$ref"].rpartition("/")[2]] if "$ref" in one else one


def load() -> Contract:
    """The contract; without npm and without a network the test is skipped, with STACK_CI=1 it fails."""
    file = cache.root() / "tests" / f"github-{_CUT}.json"
    with cache.lock(file):
        if not file.exists():
            try:
                document = _cut(json.loads(_fetched()))
            except (OSError, subprocess.CalledProcessError, StackError) as failed:
                missing(f"GitHub's OpenAPI document ({PACKAGE})", failed)
            part = file.with_name(f"{file.name}{cache.PART}")
            part.write_text(json.dumps(document))
            part.rename(file)
    return Contract(json.loads(file.read_text()))


def _fetched() -> bytes:
    """GitHub's document, as npm brings it."""
    document = npm.content(PACKAGE, _FILE)
    assert hashlib.sha256(document).hexdigest() == SHA256
    return document


def _cut(document: dict[str, Any]) -> dict[str, Any]:
    """The document with what is asked here, and what that refers to."""
    paths = {path: {method: spec for method, spec in document["paths"][path].items() if method in _METHODS} for path in PATHS}
    kept: dict[str, dict[str, Any]] = {}
    open_ends: list[Any] = [paths]
    while open_ends:
        value = open_ends.pop()
        if isinstance(value, list):
            open_ends += value
        elif isinstance(value, dict):
            open_ends += value.values()
            if value.get("nullable") and None not in value.get("enum", [None]):
                value["enum"].append(None)  # what GitHub means: OpenAPI 3.0.3 wants it said twice
            if isinstance(ref := value.get("$ref"), str):
                _, _, kind, name = ref.split("/")
                if name not in kept.setdefault(kind, {}):
                    kept[kind][name] = document["components"][kind][name]
                    open_ends.append(kept[kind][name])
    return {
        "openapi": document["openapi"],
        "info": document["info"],
        "servers": document["servers"],
        "paths": paths,
        "components": kept,
    }


def missing(what: str, failed: Exception) -> NoReturn:
    """Skip a test that needs something of npm's registry; with STACK_CI=1 it fails."""
    said = f"{what} is not to be had by this machine's npm ({type(failed).__name__}: {failed})"
    if os.environ.get("STACK_CI") == "1":
        pytest.fail(said, pytrace=False)
    pytest.skip(said)
