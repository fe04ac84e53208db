# SPDX-License-Identifier: Apache-2.0
"""The contract refuses what GitHub would refuse: each kind of fault is seen once."""

import json
from typing import Any

import pytest

from .contract import Contract, Fault

PULLS = "/repos/up/gamma/pulls"
AGENT = {"User-Agent": "test", "Accept": "application/vnd.github+json"}
SENT = {"title": "One", "head": "me:one", "base": "main", "draft": True, "maintainer_can_modify": True}


def post(contract: Contract, sent: Any, headers: dict[str, str] = AGENT, target: str = PULLS) -> None:
    contract.check_request("POST", target, headers, sent if isinstance(sent, bytes) else json.dumps(sent).encode())


def test_requests(github_contract: Contract) -> None:
    post(github_contract, SENT)
    github_contract.check_request("GET", f"{PULLS}?state=all&head=me%3Aone&per_page=100", AGENT, b"")
    github_contract.check_request("GET", f"{PULLS}/7", AGENT | {"Accept": "application/vnd.github.diff"}, b"")


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ({key: value for key, value in SENT.items() if key != "head"}, "'head' is a required property"),
        (SENT | {"draft": "yes"}, "draft 'yes' is not of type 'boolean'"),
        (SENT | {"base": None}, "base None"),
        (SENT | {"maintainers_can_modify": True}, "takes no ['maintainers_can_modify']"),
        ([SENT], "is not of type 'object'"),
    ],
)
def test_bodies_that_are_refused(github_contract: Contract, sent: Any, why: str) -> None:
    with pytest.raises(Fault) as caught:
        post(github_contract, sent)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("method", "target", "why"),
    [
        ("GET", "/repos/up/gamma/pullrequests", "no path"),
        ("GET", "/repos/up/gamma/git/matching-refs/heads/one/two", "no path"),
        ("POST", "/user", "takes no POST"),
        ("GET", f"{PULLS}?state=every", "'every' is not one of"),
        ("GET", f"{PULLS}?branch=one", "has no parameters ['branch']"),
        ("GET", f"{PULLS}/one", "pull_number:  Failed to cast"),
        ("GET", "/search/issues", "q"),
    ],
)
def test_requests_that_are_refused(github_contract: Contract, method: str, target: str, why: str) -> None:
    with pytest.raises(Fault) as caught:
        github_contract.check_request(method, target, AGENT, b"")
    assert why in str(caught.value)


def test_headers_that_are_refused(github_contract: Contract) -> None:
    for headers, why in (
        ({"Accept": "*/*"}, "no User-Agent"),
        (AGENT | {"Accept": "application/vnd.github.patches"}, "gives no application/vnd.github.patches"),
    ):
        with pytest.raises(Fault) as caught:
            github_contract.check_request("GET", f"{PULLS}/7", headers, b"")
        assert why in str(caught.value)


def test_answers(github_contract: Contract) -> None:
    good = github_contract.example("/repos/{owner}/{repo}/commits/{ref}/check-runs")
    target = "/repos/up/gamma/commits/abc/check-runs"

    def check(status: int, value: Any) -> None:
        github_contract.check_answer("GET", target, status, json.dumps(value).encode())

    check(200, good)
    check(401, {"message": "Bad credentials"})
    run = good["check_runs"][0]
    for status, value, why in (
        (200, {"check_runs": []}, "'total_count' is a required property"),
        (200, good | {"check_runs": [run | {"conclusion": "good"}]}, "'good' is not one of"),
        (200, good | {"total_count": "1"}, "'1' is not of type 'integer'"),
        (201, good, "is never answered with 201"),
        (403, {"error": "no"}, "is never answered with 403"),
    ):
        with pytest.raises(Fault) as caught:
            check(status, value)
        assert why in str(caught.value)
