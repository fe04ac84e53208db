# SPDX-License-Identifier: Apache-2.0
"""Forgejo on the loopback interface: what its API keeps, and how it refuses; every request and answer is held against its types."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from .contract import Operation
from .fake_github import Answer, Hub, Refusal, Repo, Request
from .fake_threads import Issue

Json = Any
DRAFT = "WIP: "
REPO = "/repos/{owner}/{repo}"


class ForgejoHub(Hub):
    """The state of a server, in the values of the stand-in for GitHub. `labels` are the repository's labels, each at its number less one."""

    def __init__(self, contract: Any) -> None:
        super().__init__(contract)
        self.labels: list[str] = ["bug", "hold", "retry"]
        self.rights: dict[str, str] = {}
        self.asks_of_others = True
        """The token may ask for the rights of others."""

    def refusal(self, status: int, message: str) -> Refusal:
        refused = Refusal(status, message)
        refused.answer = _refusal(status, message)
        return refused

    def carry_out(
        self, operation: Operation, user: str | None, reads_only: bool, query: Mapping[str, str], sent: Json
    ) -> Answer:
        if user is None:
            return _refusal(401, "token is required")
        values = {name: unquote(value) for name, value in operation.values.items()}
        name = f"{values.get('owner')}/{values.get('repo')}"
        if operation.path == "/user":
            return Answer(200, _user(user))
        repo = self.repositories.get(name)
        if repo is None:
            return _refusal(404, "The target couldn't be found.")
        if reads_only and operation.method != "get":
            return _refusal(403, "token does not have at least one of required scope(s)")
        try:
            return self._of_repository(
                f"{operation.method} {operation.path.removeprefix(REPO)}", values, query, sent, user, repo
            )
        except LookupError:
            return _refusal(404, "The target couldn't be found.")

    def _of_repository(
        self, act: str, values: Mapping[str, str], query: Mapping[str, str], sent: Json, user: str, repo: Repo
    ) -> Answer:
        match act:
            case "get ":
                return Answer(200, {"full_name": f"{values['owner']}/{values['repo']}", "default_branch": "main"})
            case "get /collaborators/{collaborator}/permission":
                return self._rights(values["collaborator"], user)
            case "get /labels":
                return _page([self._label(name) for name in self.labels], query)
            case "post /labels":
                self.labels.append(sent["name"])
                return Answer(201, self._label(sent["name"]))
            case "get /actions/runs":
                runs = [
                    _run(number, query["workflow_id"], *run)
                    for number, run in enumerate(repo.runs.get(query["workflow_id"], []))
                ]
                return Answer(200, {"total_count": len(runs), "workflow_runs": runs})
        return self._threads(act, values, query, sent, user, repo)

    def _threads(
        self, act: str, values: Mapping[str, str], query: Mapping[str, str], sent: Json, user: str, repo: Repo
    ) -> Answer:
        name = f"{values['owner']}/{values['repo']}"
        match act:
            case "get /issues":
                # A label that does not exist is passed over.
                wanted = query.get("labels") if query.get("labels") in self.labels else None
                found = [self._issue(one) for one in reversed(repo.issues) if wanted is None or wanted in one.labels]
                return _page(found, query)
            case "post /issues":
                made = Issue(self.next_number(name), sent["title"], sent["body"], user)
                made.labels = [self.labels[number - 1] for number in sent["labels"]]
                repo.issues.append(made)
                return Answer(201, self._issue(made))
            case "get /issues/{index}":
                return Answer(200, self._issue(self._either(repo, values["index"])))
            case "patch /issues/{index}":
                return Answer(201, self._issue(_changed(_of(repo.issues, values["index"]), sent)))
            case "get /issues/{index}/comments":
                one = _of(repo.issues, values["index"])
                return Answer(200, [_comment(number, *comment) for number, comment in enumerate(one.comments)])
            case "post /issues/{index}/comments":
                one = _of(repo.issues, values["index"])
                one.comments.append((user, "OWNER", sent["body"]))
                return Answer(201, _comment(len(one.comments), *one.comments[-1]))
            case "delete /issues/{index}/labels/{identifier}":
                self._either(repo, values["index"]).labels.remove(self.labels[int(values["identifier"]) - 1])
                return Answer(204)
            case "get /pulls":
                return _page([self._pull(one, name) for one in repo.pulls], query)
            case "post /pulls":
                return self._opened(repo, name, sent, user)
            case "patch /pulls/{index}":
                return Answer(201, self._pull(_changed(_of(repo.pulls, values["index"]), sent), name))
        raise AssertionError(act)

    def _rights(self, who: str, user: str) -> Answer:
        if who != user and not self.asks_of_others:
            return _refusal(403, "Only admins can query all permissions")
        return Answer(200, {"permission": self.rights.get(who, "read"), "role_name": "", "user": _user(who)})

    def _opened(self, repo: Repo, name: str, sent: Json, user: str) -> Answer:
        branch = sent["head"]
        if branch not in repo.branches or sent["base"] not in repo.branches:
            return _refusal(404, "The target couldn't be found.")
        if any(_branch(one) == branch and one.state == "open" and one.fork is None for one in repo.pulls):
            return _refusal(409, "pull request already exists for these targets")
        made = self.add(
            name,
            title=sent["title"].removeprefix(DRAFT),
            draft=sent["title"].startswith(DRAFT),
            author=user,
            head=f"{name.partition('/')[0]}:{branch}",
            sha=repo.branches[branch],
            base=sent["base"],
            body=sent["body"],
        )
        return Answer(201, self._pull(made, name))

    def _either(self, repo: Repo, number: str) -> Any:
        return _of([*repo.issues, *repo.pulls], number)

    def _label(self, name: str) -> Json:
        if name not in self.labels:  # a person made it
            self.labels.append(name)
        return {"id": self.labels.index(name) + 1, "name": name, "color": "5319e7"}

    def _issue(self, one: Issue | Request) -> Json:
        return {
            "id": 100 + one.number,
            "number": one.number,
            "title": one.title,
            "body": one.body,
            "state": one.state,
            "labels": [self._label(name) for name in one.labels],
            "user": _user(one.author) if one.author else None,
            "html_url": f"https://codeberg.org/x/issues/{one.number}",
        }

    def _pull(self, one: Request, name: str) -> Json:
        repo = {"full_name": one.fork or name}
        return {
            "id": 200 + one.number,
            "number": one.number,
            "title": f"{DRAFT if one.draft else ''}{one.title}",
            "body": one.body,
            "state": one.state,
            "draft": one.draft,
            "merged": one.merge is not None,
            "labels": [self._label(name) for name in one.labels],
            "user": _user(one.author),
            "head": {"label": _branch(one), "ref": _branch(one), "sha": one.sha, "repo": repo},
            "base": {"label": one.base, "ref": one.base, "repo": {"full_name": name}},
            "html_url": f"https://codeberg.org/x/pulls/{one.number}",
        }


def _refusal(status: int, message: str) -> Answer:
    return Answer(status, {"message": message, "url": "https://codeberg.org/api/swagger"})


def _page(listed: list[Json], query: Mapping[str, str]) -> Answer:
    size, page = min(int(query.get("limit", 30)), 50), int(query.get("page", 1))
    more = {"Link": '<https://codeberg.org/next>; rel="next"'} if len(listed) > page * size else {}
    return Answer(200, listed[(page - 1) * size : page * size], more)


def _of(listed: list[Any], number: str) -> Any:
    found = next((one for one in listed if one.number == int(number)), None)
    if found is None:
        raise LookupError
    return found


def _branch(one: Request) -> str:
    return one.head.partition(":")[2]


def _changed(one: Any, sent: Json) -> Any:
    one.title = sent["title"].removeprefix(DRAFT)
    if isinstance(one, Request):
        one.draft = sent["title"].startswith(DRAFT)
    one.body, one.state = sent["body"], sent.get("state", one.state)
    return one


def _user(name: str) -> Json:
    return {"id": sum(name.encode()), "login": name, "full_name": name.title()}


def _comment(number: int, author: str, _: str, body: str) -> Json:
    return {"id": number, "body": body, "user": _user(author) if author else None}


def _run(number: int, workflow: str, began: str, how: str | None) -> Json:
    return {
        "id": 1000 - number, "workflow_id": workflow, "status": how or "running", "created": began, "trigger_event": "schedule",
        "event": "schedule",
    }  # fmt: skip
