# SPDX-License-Identifier: Apache-2.0
"""Forgejo's API as its own OpenAPI document has it, by way of a client whose types are generated from that document.

No package of a registry has the document itself. npm's package @llamaduck/forgejo-ts has the types of all requests and answers of
Forgejo 15. They say of no field of an answer that it must be there; unknown fields and other types are faults.
"""

import hashlib
import subprocess
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

from stack.base.errors import StackError
from stack.store import cache

from .. import npm
from .contract import Fault, Operation, missing
from .declarations import Declarations, asked, loads

PACKAGE = "@llamaduck/forgejo-ts@15.0.9"
SHA256 = "0812956e2c0623565ce682dda37fd2fd6fda1903a270376df5f1eeae436b0a12"
"""Of the file with the types in it."""
_FILE = "package/dist/index.d.ts"
_REPO = "/repos/{owner}/{repo}"
OPERATIONS = {
    ("GET", "/user"): "UserGetCurrent",
    ("GET", _REPO): "RepoGet",
    ("GET", f"{_REPO}/issues"): "IssueListIssues",
    ("POST", f"{_REPO}/issues"): "IssueCreateIssue",
    ("GET", f"{_REPO}/issues/{{index}}"): "IssueGetIssue",
    ("PATCH", f"{_REPO}/issues/{{index}}"): "IssueEditIssue",
    ("GET", f"{_REPO}/issues/{{index}}/comments"): "IssueGetComments",
    ("POST", f"{_REPO}/issues/{{index}}/comments"): "IssueCreateComment",
    ("DELETE", f"{_REPO}/issues/{{index}}/labels/{{identifier}}"): "IssueRemoveLabel",
    ("GET", f"{_REPO}/labels"): "IssueListLabels",
    ("POST", f"{_REPO}/labels"): "IssueCreateLabel",
    ("GET", f"{_REPO}/pulls"): "RepoListPullRequests",
    ("POST", f"{_REPO}/pulls"): "RepoCreatePullRequest",
    ("PATCH", f"{_REPO}/pulls/{{index}}"): "RepoEditPullRequest",
    ("GET", f"{_REPO}/collaborators/{{collaborator}}/permission"): "RepoGetRepoPermissions",
    ("GET", f"{_REPO}/actions/runs"): "ListActionRuns",
}
"""The names that the generator gives to what is asked here."""


class ForgejoContract:
    """Checks by the declared types."""

    def __init__(self, text: str) -> None:
        self.types = Declarations(text)

    def operation(self, method: str, target: str) -> Operation:
        """Which operation a request is.

        Raises:
            Fault: Forgejo has none such, as far as it is asked here.

        """
        parts = urlsplit(target).path.split("/")
        for known, path in OPERATIONS:
            wanted = path.split("/")
            if known == method and len(wanted) == len(parts):
                values = {one[1:-1]: part for one, part in zip(wanted, parts, strict=True) if one.startswith("{")}
                if all(one.startswith("{") or one == part for one, part in zip(wanted, parts, strict=True)):
                    declared = self.types.type(f"{OPERATIONS[method, path]}Data")["url"].type
                    assert declared == frozenset({path}), declared
                    return Operation(path, method.lower(), values)
        raise Fault(f"nothing is known of {method} {target}")

    def check_request(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Operation:
        """Hold a request against the types.

        Raises:
            Fault: Forgejo would refuse it, or pass over a part of it.

        """
        operation = self.operation(method, target)
        data = self.types.type(f"{OPERATIONS[method, operation.path]}Data")
        query = data["query"].type if isinstance(data["query"].type, dict) else {}
        for name, values in parse_qs(urlsplit(target).query, keep_blank_values=True).items():
            if name not in query:
                raise Fault(f"{operation.path} has no parameter {name}")
            self._raise(asked(values[0], query[name].type), query[name].type, f"{operation.path}?{name}")
        if not headers.get("User-Agent"):
            raise Fault("no User-Agent")
        if body or not data["body"].optional:
            self._raise(loads(body), data["body"].type, operation.path)
        return operation

    def check_answer(self, method: str, target: str, status: int, body: bytes) -> None:
        """Hold an answer against the types.

        Raises:
            Fault: Forgejo would not give it.

        """
        operation = self.operation(method, target)
        name = OPERATIONS[method, operation.path]
        answers = self.types.type(f"{name}Responses")
        if str(status) in answers:
            self._raise(loads(body), answers[str(status)].type, operation.path)
        elif status < 400 or not isinstance(loads(body).get("message"), str):
            raise Fault(f"{operation.path} is never answered with {status}")

    def _raise(self, value: object, wanted: object, place: str) -> None:
        for fault in self.types.faults(value, wanted, place):
            raise Fault(fault)


def load() -> ForgejoContract:
    """The contract; without npm and without a network the test is skipped, with STACK_CI=1 it fails."""
    file = cache.root() / "tests" / f"forgejo-{SHA256[:12]}.d.ts"
    with cache.lock(file):
        if not file.exists():
            try:
                text = _fetched()
            except (OSError, subprocess.CalledProcessError, StackError) as failed:
                missing(f"Forgejo's types ({PACKAGE})", failed)
            part = file.with_name(f"{file.name}{cache.PART}")
            part.write_bytes(text)
            part.rename(file)
    return ForgejoContract(file.read_text())


def _fetched() -> bytes:
    text = npm.content(PACKAGE, _FILE)
    assert hashlib.sha256(text).hexdigest() == SHA256
    return text
