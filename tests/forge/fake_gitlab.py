# SPDX-License-Identifier: Apache-2.0
"""GitLab on the loopback interface: what its API keeps, and how it refuses; every request and answer is held against the table."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from .contract import Operation
from .fake_github import Answer, Hub, Refusal, Repo, Request
from .fake_threads import Issue

Json = Any
DRAFT = "Draft: "
OWN_PROJECT = 7


class GitLabHub(Hub):
    """The state of a server, in the values of the stand-in for GitHub. `levels` are the members' access levels."""

    def __init__(self, contract: Any) -> None:
        super().__init__(contract)
        self.levels: dict[str, int] = {}

    def refusal(self, status: int, message: str) -> Refusal:
        refused = Refusal(status, message)
        refused.answer = _refusal(status, message)
        return refused

    def next_number(self, repository: str) -> int:
        """Merge requests are counted by themselves."""
        return max((one.number for one in self.repositories[repository].pulls), default=0) + 1

    def carry_out(
        self, operation: Operation, user: str | None, reads_only: bool, query: Mapping[str, str], sent: Json
    ) -> Answer:
        if user is None:
            return _refusal(401, "401 Unauthorized")
        name = unquote(operation.values.get("id", ""))
        repo = self.repositories.get(name)
        if operation.path != "/user" and repo is None:
            return _refusal(404, "404 Project Not Found")
        if reads_only and operation.method != "get":
            return _refusal(403, "403 Forbidden")
        act = f"{operation.method} {operation.path.removeprefix('/projects/{id}')}"
        match act:
            case "get /user":
                return Answer(200, _user(user))
            case "get ":
                return Answer(200, {"id": OWN_PROJECT, "path_with_namespace": name, "default_branch": "main"})
        assert repo is not None
        try:
            return self._of_project(act, operation.values, query, sent, user, repo, name)
        except LookupError:
            return _refusal(404, "404 Not found")

    def _of_project(
        self, act: str, values: Mapping[str, str], query: Mapping[str, str], sent: Json, user: str, repo: Repo, name: str
    ) -> Answer:
        match act:
            case "get /members/all":
                listed = [{**_user(who), "access_level": level} for who, level in self.levels.items() if query["query"] in who]
                return _page(listed, query)
            case "get /issues":
                wanted = query.get("labels")
                found = [_issue(one) for one in repo.issues if wanted is None or wanted in one.labels]
                return _page(found, query)
            case "post /issues":
                made = Issue(max((one.number for one in repo.issues), default=0) + 1, sent["title"], sent["description"], user)
                made.labels = [label for label in sent.get("labels", "").split(",") if label]
                repo.issues.append(made)
                return Answer(201, _issue(made))
            case "put /issues/{issue_iid}":
                return Answer(200, _issue(_changed(_of(repo.issues, values["issue_iid"]), sent)))
            case "get /issues/{issue_iid}/notes":
                one = _of(repo.issues, values["issue_iid"])
                notes = [_note(one, who, body) for who, _, body in one.comments]
                return _page([_note(one, user, "changed the description", system=True), *notes], query)
            case "post /issues/{issue_iid}/notes":
                one = _of(repo.issues, values["issue_iid"])
                one.comments.append((user, "OWNER", sent["body"]))
                return Answer(201, _note(one, user, sent["body"]))
            case "get /merge_requests":
                listed = [_merge_request(one) for one in repo.pulls if _branch(one) == query.get("source_branch", _branch(one))]
                return _page(listed, query)
            case "post /merge_requests":
                return self._opened(repo, name, sent, user)
            case "put /merge_requests/{merge_request_iid}":
                return Answer(200, _merge_request(_changed(_of(repo.pulls, values["merge_request_iid"]), sent)))
            case "get /pipeline_schedules":
                return _page([_schedule(number, key) for number, key in enumerate(repo.runs, 1)], query)
            case "get /pipeline_schedules/{pipeline_schedule_id}/pipelines":
                [*runs] = list(repo.runs.values())[int(values["pipeline_schedule_id"]) - 1]
                return _page([_pipeline(number, *run) for number, run in enumerate(reversed(runs), 1)], query)
        raise AssertionError(act)

    def _opened(self, repo: Repo, name: str, sent: Json, user: str) -> Answer:
        branch = sent["source_branch"]
        if branch not in repo.branches:
            return _refusal(400, ["Source branch does not exist"])
        if any(_branch(one) == branch and one.state == "open" and one.fork is None for one in repo.pulls):
            return _refusal(409, ["Another open merge request already exists for this source branch"])
        made = self.add(
            name,
            title=sent["title"].removeprefix(DRAFT),
            draft=sent["title"].startswith(DRAFT),
            author=user,
            head=f"{name.partition('/')[0]}:{branch}",
            sha=repo.branches[branch],
            base=sent["target_branch"],
            body=sent["description"],
        )
        return Answer(201, _merge_request(made))


def _refusal(status: int, message: str | list[str]) -> Answer:
    return Answer(status, {"message": message})


def _page(listed: list[Json], query: Mapping[str, str]) -> Answer:
    size, page = int(query.get("per_page", 20)), int(query.get("page", 1))
    more = {"Link": '<https://gitlab.com/next>; rel="next"'} if len(listed) > page * size else {}
    return Answer(200, listed[(page - 1) * size : page * size], more)


def _of(listed: list[Any], number: str) -> Any:
    return next((one for one in listed if one.number == int(number)), None) or _missing()


def _missing() -> Any:
    raise LookupError


def _branch(one: Request) -> str:
    return one.head.partition(":")[2]


def _changed(one: Any, sent: Json) -> Any:
    """Apply the fields of a change, as GitLab names them."""
    if "title" in sent:
        one.title = sent["title"].removeprefix(DRAFT)
        if isinstance(one, Request):
            one.draft = sent["title"].startswith(DRAFT)
    one.body = sent.get("description", one.body)
    one.state = {"close": "closed", "reopen": "open"}.get(sent.get("state_event", ""), one.state)
    one.labels = [label for label in one.labels if label not in sent.get("remove_labels", "").split(",")]
    return one


def _user(name: str) -> Json:
    return {"id": sum(name.encode()), "username": name, "name": name.title(), "state": "active"}


def _issue(one: Issue) -> Json:
    return {
        "id": 1000 + one.number,
        "iid": one.number,
        "project_id": OWN_PROJECT,
        "title": one.title,
        "description": one.body or None,
        "state": "opened" if one.state == "open" else "closed",
        "labels": list(one.labels),
        "author": _user(one.author) if one.author else None,
        "web_url": f"https://gitlab.com/x/-/issues/{one.number}",
    }


def _note(one: Issue, author: str, body: str, *, system: bool = False) -> Json:
    return {
        "id": 1, "body": body, "author": _user(author) if author else None, "system": system, "noteable_iid": one.number,
        "internal": False,
    }  # fmt: skip


def _merge_request(one: Request) -> Json:
    state = "merged" if one.merge else "opened" if one.state == "open" else "closed"
    return {
        "id": 2000 + one.number,
        "iid": one.number,
        "title": f"{DRAFT if one.draft else ''}{one.title}",
        "description": one.body or None,
        "state": state,
        "draft": one.draft,
        "labels": list(one.labels),
        "author": _user(one.author),
        "source_branch": _branch(one),
        "target_branch": one.base,
        "source_project_id": OWN_PROJECT if one.fork is None else OWN_PROJECT + 1,
        "target_project_id": OWN_PROJECT,
        "sha": one.sha,
        "web_url": f"https://gitlab.com/x/-/merge_requests/{one.number}",
    }


def _schedule(number: int, name: str) -> Json:
    return {
        "id": number, "description": name.removesuffix(".yml"), "ref": "refs/heads/main", "cron": "1 3 * * *",
        "cron_timezone": "UTC", "active": True, "owner": _user("me"),
    }  # fmt: skip


def _pipeline(number: int, began: str, how: str | None) -> Json:
    status = {"success": "success", "failure": "failed", "cancelled": "canceled", None: "running"}[how]
    return {
        "id": number, "iid": number, "project_id": OWN_PROJECT, "sha": "0" * 40, "ref": "main", "status": status,
        "source": "schedule", "created_at": began.replace("Z", ".123Z"), "updated_at": began,
        "web_url": f"https://gitlab.com/x/-/pipelines/{number}",
    }  # fmt: skip
