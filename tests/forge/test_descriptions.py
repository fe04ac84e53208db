# SPDX-License-Identifier: Apache-2.0
"""The descriptions of GitLab's and Forgejo's APIs find what is wrong, and GitLab's agrees with a client that others wrote."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from stack.base.errors import StackError
from stack.forge.github import VIEWER
from stack.proof import environment
from stack.store import cache

from .. import npm
from . import forgejo_contract
from .contract import Fault, missing
from .declarations import Declarations
from .gitlab_table import CONTRACT

AGENT = {"User-Agent": "x"}
ISSUES = "/projects/me%2Fstack/issues"
REPO = "/repos/me/stack"
GRAPHQL = "@octokit/graphql-schema@15.26.1"
CLIENT = "python-gitlab==8.6.0"
_LISTS = """
import json
from gitlab.v4 import objects
managers = {
    "issues": objects.ProjectIssueManager, "merge_requests": objects.ProjectMergeRequestManager,
    "notes": objects.ProjectIssueNoteManager, "members": objects.ProjectMemberAllManager,
}
def names(attributes):
    return [*attributes.required, *attributes.optional]
print(json.dumps({name: {
    "list": list(getattr(one, "_list_filters", ())), "create": names(one._create_attrs) if hasattr(one, "_create_attrs") else [],
    "update": names(one._update_attrs) if hasattr(one, "_update_attrs") else [],
} for name, one in managers.items()}))
"""


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", f"{ISSUES}?status=all", None),
        ("GET", f"{ISSUES}?state=open", None),
        ("GET", f"{ISSUES}?per_page=many", None),
        ("GET", f"{ISSUES}s", None),
        ("DELETE", ISSUES, None),
        ("POST", ISSUES, {}),
        ("POST", ISSUES, {"title": 7}),
        ("POST", ISSUES, {"title": "t", "body": "b"}),
        ("POST", ISSUES, {"title": "t", "labels": ["a"]}),
        ("PUT", f"{ISSUES}/1", {"state_event": "open"}),
    ],
)
def test_a_request_that_gitlab_does_not_know(method: str, target: str, body: object) -> None:
    with pytest.raises(Fault):
        CONTRACT.check_request(method, target, AGENT, json.dumps(body).encode() if body is not None else b"")
    assert CONTRACT.check_request("POST", ISSUES, AGENT, b'{"title": "t", "labels": "a,b"}').path == "/projects/{id}/issues"


@pytest.mark.parametrize("body", [b"{}", b"[7]", b'[{"id": 1}]', b"null"])
def test_an_answer_that_gitlab_does_not_give(body: bytes) -> None:
    CONTRACT.check_answer("GET", ISSUES, 200, b"[]")
    with pytest.raises(Fault):
        CONTRACT.check_answer("GET", ISSUES, 200, body)


TYPES = Declarations("""
type Kind = 'a' | 'b';
/**
 * One
 */
export type One = {
    /** the name; never empty */
    name: string;
    kinds?: Array<Kind>;
    next?: One | number;
    'odd-name'?: boolean;
    more?: {
        [key: string]: string;
    };
};
""")


@pytest.mark.parametrize(
    "value",
    [
        7, {}, {"name": 7}, {"name": "x", "other": 1}, {"name": "x", "kinds": "a"}, {"name": "x", "kinds": ["c"]},
        {"name": "x", "next": "y"}, {"name": "x", "next": {"name": 1}}, {"name": "x", "odd-name": 1}, {"name": "x", "more": {"k": 1}},
        {"name": None},
    ],
)  # fmt: skip
def test_a_value_that_a_declaration_does_not_allow(value: object) -> None:
    assert list(TYPES.faults(value, "One"))


@pytest.mark.parametrize(
    "value",
    [
        {"name": "x"}, {"name": "x", "kinds": ["a", "b"], "next": 3, "odd-name": True, "more": {"k": "v"}},
        {"name": "x", "next": {"name": "y"}, "kinds": None},
    ],
)  # fmt: skip
def test_a_value_that_a_declaration_allows(value: object) -> None:
    assert list(TYPES.faults(value, "One")) == []


@pytest.mark.images
def test_requests_and_answers_that_forgejo_does_not_know() -> None:
    contract = forgejo_contract.load()
    for method, target, body in (
        ("GET", f"{REPO}/issues?per_page=5", b""),
        ("GET", f"{REPO}/issues?state=opened", b""),
        ("POST", f"{REPO}/issues", b"{}"),
        ("POST", f"{REPO}/issues", b'{"title": "t", "labels": ["x"]}'),
        ("POST", f"{REPO}/pulls", b'{"title": "t", "draft": true}'),
        ("PUT", f"{REPO}/issues/1", b"{}"),
    ):
        with pytest.raises(Fault):
            contract.check_request(method, target, AGENT, body)
    for status, body in ((200, b"{}"), (201, b'{"number": "1"}'), (201, b'{"no": 1}'), (500, b"{}")):
        with pytest.raises(Fault):
            contract.check_answer("POST", f"{REPO}/issues", status, body)
    contract.check_answer("POST", f"{REPO}/issues", 201, b'{"number": 1}')


@pytest.mark.images
def test_githubs_other_api_tells_a_program_who_it_is() -> None:
    """The query is held against GitHub's published GraphQL schema."""
    assert VIEWER == "query { viewer { login } }"
    try:
        schema = npm.content(GRAPHQL, "package/schema.graphql").decode()
    except (OSError, subprocess.CalledProcessError, StackError) as failed:
        missing(GRAPHQL, failed)
    for kind, field in (("Query", "viewer: User!"), ("User", "login: String!")):
        body = re.search(rf"^type {kind}\b.*?^}}", schema, re.MULTILINE | re.DOTALL)
        assert body is not None
        assert f"\n  {field}\n" in body.group()


@pytest.fixture(scope="module")
def client() -> Any:
    """Parameters and fields of each request, as python-gitlab lists them from the same documentation."""
    steps = {"installing python-gitlab": [CLIENT]}
    try:
        python = environment.made(cache.root(), "python-gitlab-8.6.0", steps, lambda line: print(line, file=sys.stderr))
    except (OSError, StackError) as failed:
        missing(CLIENT, failed)
    return json.loads(subprocess.run([python, "-c", _LISTS], check=True, capture_output=True, text=True).stdout)


@pytest.mark.images
def test_gitlabs_table_asks_only_what_a_client_of_others_asks(client: Any) -> None:
    known = client
    for (method, path), endpoint in CONTRACT.endpoints.items():
        name = next((one for one in ("notes", "issues", "merge_requests", "members") if f"/{one}" in path), None)
        if name is None:
            continue
        lists = known[name]
        assert set(endpoint.query) - {"page", "per_page", *_sorted(name)} <= {*lists["list"], "query"}, path
        fields = lists["create" if method == "POST" else "update"]
        assert set(endpoint.body) - {"remove_labels"} <= {*fields}, path


def _sorted(name: str) -> set[str]:
    """Notes are sorted, which that client leaves to the caller."""
    return {"order_by", "sort"} if name == "notes" else set()
