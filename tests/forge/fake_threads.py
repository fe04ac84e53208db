# SPDX-License-Identifier: Apache-2.0
"""The part of GitHub on the loopback interface that has issues, comments, labels, changes of pull requests, and runs of workflows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .fake_github import Hub, Request

Json = Any
ISSUES = "/repos/{owner}/{repo}/issues"
PULL = "/repos/{owner}/{repo}/pulls/{pull_number}"


@dataclass
class Issue:
    """An issue. `comments` are (author, association, text)."""

    number: int
    title: str
    body: str
    author: str = "me"
    association: str = "OWNER"
    state: str = "open"
    labels: list[str] = field(default_factory=list)
    comments: list[tuple[str, str, str]] = field(default_factory=list)


@dataclass
class Call:
    """A request to a repository that the contract allows."""

    hub: "Hub"
    repository: str
    values: Mapping[str, str]
    query: Mapping[str, str]
    sent: Json
    user: str | None

    def one(self) -> Issue:
        number = int(self.values["issue_number"])
        found = next((one for one in self.hub.repositories[self.repository].issues if one.number == number), None)
        if found is None:
            raise LookupError
        return found

    def pull(self) -> "Request":
        return self.hub.one(self.repository, int(self.values["pull_number"]))


def answered(act: str, call: Call) -> tuple[int, Json]:
    """Carry out a request; a LookupError is for what there is not."""
    repo = call.hub.repositories[call.repository]
    match act:
        case "get REPO/issues":
            return 200, _page(_listed(call), call.query)
        case "post REPO/issues":
            made = Issue(call.hub.next_number(call.repository), call.sent["title"], call.sent.get("body") or "", str(call.user))
            made.labels = list(call.sent.get("labels", []))
            repo.issues.append(made)
            return 201, _issue(call, call.hub.contract.example(ISSUES, "post", 201), made)
        case "patch REPO/issues/{issue_number}":
            made = call.one()
            for key, value in call.sent.items():
                setattr(made, key, value)
            return 200, _issue(call, call.hub.contract.example(f"{ISSUES}/{{issue_number}}", "patch"), made)
        case "get REPO/issues/{issue_number}/comments":
            example = call.hub.contract.example(f"{ISSUES}/{{issue_number}}/comments")[0]
            return 200, _page([_comment(example, *comment) for comment in call.one().comments], call.query)
        case "post REPO/issues/{issue_number}/comments":
            call.one().comments.append((str(call.user), "OWNER", call.sent["body"]))
            return 201, _comment(
                call.hub.contract.example(f"{ISSUES}/{{issue_number}}/comments", "post", 201), *call.one().comments[-1]
            )
        case "delete REPO/issues/{issue_number}/labels/{name}":
            return 200, _unlabelled(call)
        case "patch REPO/pulls/{pull_number}":
            pull = call.pull()
            for key, value in call.sent.items():
                setattr(pull, key, value)
            return 200, call.hub.filled(call.repository, call.hub.contract.example(PULL, "patch"), pull)
        case "get REPO/actions/workflows/{workflow_id}/runs":
            return 200, _runs(call)
    raise AssertionError(act)


def _page(listed: list[Json], query: Mapping[str, str]) -> list[Json]:
    size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
    return listed[(page - 1) * size : page * size]


def _listed(call: Call) -> list[Json]:
    """Issues, and pull requests, which GitHub lists among them."""
    repo, wanted = call.hub.repositories[call.repository], call.query.get("labels")
    example = call.hub.contract.example(ISSUES)[0]
    found = [_issue(call, example, one) for one in repo.issues if wanted is None or wanted in one.labels]
    found += [
        _issue(call, example, Issue(pull.number, pull.title, pull.body, pull.author, labels=pull.labels))
        | {"pull_request": example["pull_request"]}
        for pull in repo.pulls
        if wanted is None or wanted in pull.labels
    ]
    for one in found:
        if "pull_request" in one and not any(pull.number == one["number"] for pull in repo.pulls):
            del one["pull_request"]
    return sorted(found, key=lambda one: int(one["number"]))


def _issue(call: Call, example: Json, one: Issue) -> Json:
    made = {key: value for key, value in example.items() if key != "pull_request"}
    return made | {
        "number": one.number,
        "title": one.title,
        "body": one.body,
        "state": one.state,
        "labels": [label(call.hub, name) for name in one.labels],
        "user": example["user"] | {"login": one.author},
        "author_association": one.association,
        "html_url": f"https://github.com/{call.repository}/issues/{one.number}",
        "closed_at": "2026-11-20T10:00:00Z" if one.state == "closed" else None,
    }


def label(hub: "Hub", name: str) -> Json:
    return hub.contract.example(ISSUES)[0]["labels"][0] | {"name": name}


def _comment(example: Json, author: str, association: str, body: str) -> Json:
    return example | {"body": body, "user": example["user"] | {"login": author}, "author_association": association}


def _unlabelled(call: Call) -> Json:
    repo, number = call.hub.repositories[call.repository], int(call.values["issue_number"])
    labels = next(one.labels for one in (*repo.issues, *repo.pulls) if one.number == number)
    if call.values["name"] not in labels:
        raise LookupError
    labels.remove(call.values["name"])
    return [label(call.hub, name) for name in labels]


def _runs(call: Call) -> Json:
    found = call.hub.repositories[call.repository].runs.get(call.values["workflow_id"])
    if found is None:
        raise LookupError
    example = call.hub.contract.example("/repos/{owner}/{repo}/actions/workflows/{workflow_id}/runs")
    run = example["workflow_runs"][0]
    listed = [run | {"created_at": began, "conclusion": how, "event": "schedule"} for began, how in found]
    return {"total_count": len(listed), "workflow_runs": listed}
