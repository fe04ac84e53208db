# SPDX-License-Identifier: Apache-2.0
"""GitHub on the loopback interface: what its API keeps, and how it refuses; every request and answer is held against the contract.

Its answers are the document's own examples with what is kept here in them.
"""

import json
import re
import shlex
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from ..loopback import listening
from . import fake_threads
from .contract import Fault, Operation
from .fake_threads import Call, Issue

JSON = "application/json; charset=utf-8"
DIFF = "application/vnd.github.diff"
Json = Any


@dataclass
class Request:
    """A pull request. `fork` is the repository of its branch if that is another one."""

    number: int
    title: str
    author: str
    head: str
    sha: str
    base: str = "main"
    body: str = ""
    draft: bool = False
    state: str = "open"
    modify: bool = False
    merge: str | None = None
    diff: bytes = b""
    reviews: list[tuple[str, str]] = field(default_factory=list)
    """(who, state)."""
    labels: list[str] = field(default_factory=list)
    fork: str | None = None


@dataclass
class Repo:
    """A repository: `parent` is the one that it was forked from."""

    parent: str | None = None
    branches: Mapping[str, str] = field(default_factory=lambda: {"main": "0" * 40})
    pulls: list[Request] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    runs: dict[str, list[tuple[str, str | None]]] = field(default_factory=dict)
    """Runs of workflows by their files' names: when each began, and its conclusion."""


@dataclass(frozen=True)
class Answer:
    """What the server says. `body` is text where it is no JSON."""

    status: int
    body: Json = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Trouble:
    """What happens to requests instead of, or after, what should; `times` of them."""

    matches: str
    act: Callable[["Handler"], None] | Answer | Json
    times: int = 1
    after: bool = False
    """Once the request was carried out, in place of the answer."""


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str, **more: Json) -> None:
        super().__init__(message)
        self.answer = Answer(status, {"message": message, "documentation_url": "https://docs.github.com/rest", **more})


class Hub:
    """What is kept."""

    def __init__(self, contract: Any) -> None:
        self.contract = contract
        self.repositories: dict[str, Repo] = {}
        self.tokens: dict[str, str] = {}
        self.readers: set[str] = set()
        """Tokens that may read only."""
        self.apps: set[str] = set()
        """Tokens of programs, which may not ask who they are."""
        self.permissions: dict[str, str] = {}
        """The rights of accounts in every repository."""
        self.behind: dict[str, int] = {}
        self.runs: dict[str, list[tuple[str, str | None]]] = {}
        """Checks of GitHub's apps by commit: name, conclusion (None: has not ended)."""
        self.statuses: dict[str, list[tuple[str, str]]] = {}
        self.faults: list[str] = []
        self.seen: list[tuple[str, str]] = []
        self.sent: list[bytes] = []
        """What was posted."""
        self.troubles: list[Trouble] = []
        self.at_write: Callable[[bool], bool] = lambda after: False
        """Called at each write, before and after it is carried out; true: the connection ends there."""
        self.url = ""

    def add(self, repository: str, **values: Any) -> Request:
        """A pull request that somebody opened."""
        pulls = self.repositories[repository].pulls
        made = Request(
            **{"number": self.next_number(repository), "author": "somebody", "head": "somebody:topic", "sha": "5" * 40} | values
        )
        pulls.append(made)
        return made

    def next_number(self, repository: str) -> int:
        """Issues and pull requests are counted together."""
        repo = self.repositories[repository]
        return max((one.number for one in (*repo.issues, *repo.pulls)), default=0) + 1

    def trouble(self, matches: str, act: Any, *, times: int = 1, after: bool = False) -> None:
        """What is to happen to the next requests `METHOD /path` that the pattern matches."""
        self.troubles.append(Trouble(matches, act, times, after))

    def due(self, line: str, *, after: bool) -> Trouble | None:
        for one in self.troubles:
            if one.times and one.after == after and re.search(one.matches, line):
                one.times -= 1
                return one
        return None

    def asked(self, pattern: str) -> int:
        """How many requests the pattern matches."""
        return sum(bool(re.search(pattern, f"{method} {target}")) for method, target in self.seen)

    def carry_out(
        self, operation: Operation, user: str | None, reads_only: bool, query: Mapping[str, str], sent: Json
    ) -> Answer:
        """What a request that the contract allows brings."""
        values = {name: unquote(value) for name, value in operation.values.items()}
        name = f"{values.get('owner')}/{values.get('repo')}"
        known = next((key for key in self.repositories if key.lower() == name.lower()), None)
        if "owner" in values and known is None:
            raise Refusal(404, "Not Found")
        act = f"{operation.method} {operation.path.replace('/repos/{owner}/{repo}', 'REPO')}"
        match act:
            case "get /user":
                if user is None:
                    raise Refusal(401, "Requires authentication")
                return Answer(200, self._user(user))
            case "post /graphql":
                return Answer(200, {"data": {"viewer": {"login": user}}})
            case "get REPO/collaborators/{username}/permission":
                return self._permission(values["username"])
            case "get /search/issues":
                return Answer(200, self._found(query["q"], int(query.get("per_page", 30))))
            case "get REPO":
                return Answer(200, self._repository(known or ""))
            case "get REPO/git/matching-refs/{ref}":
                return Answer(200, self._refs(known or "", values["ref"]))
            case "get REPO/pulls":
                return Answer(200, self._listed(known or "", query))
            case "get REPO/pulls/{pull_number}":
                return Answer(200, self._pull(known or "", self.one(known or "", int(values["pull_number"]))))
            case "get REPO/pulls/{pull_number}/reviews":
                return Answer(200, self._reviews(self.one(known or "", int(values["pull_number"]))))
            case "get REPO/commits/{ref}/check-runs":
                return Answer(200, self._check_runs(values["ref"]))
            case "get REPO/commits/{ref}/status":
                return Answer(200, self._status(values["ref"]))
            case "get REPO/compare/{basehead}":
                return Answer(200, self._compared(values["basehead"].partition("...")[2]))
            case "post REPO/pulls":
                return Answer(201, self._pull(known or "", self._opened(known or "", user, reads_only, sent), created=True))
        if reads_only and operation.method != "get":
            raise Refusal(403, "Resource not accessible by personal access token")
        try:
            return Answer(*fake_threads.answered(act, Call(self, known or "", values, query, sent, user)))
        except LookupError:
            raise Refusal(404, "Not Found") from None

    def refusal(self, status: int, message: str) -> Refusal:
        """An answer that refuses, in the forge's form."""
        return Refusal(status, message)

    def one(self, repository: str, number: int) -> Request:
        for one in self.repositories[repository].pulls:
            if one.number == number:
                return one
        raise Refusal(404, "Not Found")

    def _opened(self, repository: str, user: str | None, reads_only: bool, sent: Json) -> Request:
        if user is None:
            raise Refusal(401, "Requires authentication")
        if reads_only:
            raise Refusal(403, "Resource not accessible by personal access token")
        owner, _, branch = sent["head"].rpartition(":")
        forks = [
            repo for name, repo in self.repositories.items()
            if name.partition("/")[0] == owner and (name == repository or repo.parent == repository)
        ]  # fmt: skip
        sha = next((repo.branches[branch] for repo in forks if branch in repo.branches), None)
        if sha is None:
            raise Refusal(422, "Validation Failed", errors=[{"resource": "PullRequest", "field": "head", "code": "invalid"}])
        if sent["base"] not in self.repositories[repository].branches:
            raise Refusal(422, "Validation Failed", errors=[{"resource": "PullRequest", "field": "base", "code": "invalid"}])
        pulls = self.repositories[repository].pulls
        if any(one.head == sent["head"] and one.state == "open" for one in pulls):
            said = f"A pull request already exists for {sent['head']}."
            raise Refusal(422, "Validation Failed", errors=[{"resource": "PullRequest", "code": "custom", "message": said}])
        return self.add(
            repository,
            title=sent["title"],
            author=user,
            head=sent["head"],
            sha=sha,
            base=sent["base"],
            body=sent.get("body", ""),
            draft=sent.get("draft", False),
            modify=sent.get("maintainer_can_modify", False),
        )

    def _permission(self, login: str) -> Answer:
        if login.endswith("[bot]"):
            raise Refusal(404, f"{login} is not a user")
        example = self.contract.example("/repos/{owner}/{repo}/collaborators/{username}/permission")
        level = self.permissions.get(login, "read")
        user = example["user"] | {"login": login, "role_name": level}  # the example lacks what the document demands
        return Answer(200, example | {"permission": level, "user": user})

    def _user(self, login: str) -> Json:
        unset = dict.fromkeys(("name", "company", "blog", "location", "email", "hireable", "bio"))
        counts = dict.fromkeys(("public_repos", "public_gists", "followers", "following"), 0)
        times = dict.fromkeys(("created_at", "updated_at"), "2020-01-01T00:00:00Z")
        basis = self.contract.example("/repos/{owner}/{repo}")["owner"]
        return {**basis, **unset, **counts, **times, "login": login, "user_view_type": "public"}

    def _repository(self, name: str) -> Json:
        made = self.contract.example("/repos/{owner}/{repo}") | {"language": None}
        parent = self.repositories[name].parent
        for key in ("parent", "source"):
            above = made.pop(key)
            if parent is not None:
                made[key] = above | {"full_name": parent, "name": parent.partition("/")[2], "language": None}
        made["owner"]["login"] = name.partition("/")[0]
        return made | {
            "full_name": name, "name": name.partition("/")[2], "fork": parent is not None, "default_branch": "main",
        }  # fmt: skip

    def _refs(self, name: str, prefix: str) -> Json:
        example = self.contract.example("/repos/{owner}/{repo}/git/matching-refs/{ref}")[0]
        return [
            example | {"ref": f"refs/heads/{branch}", "object": example["object"] | {"sha": sha}}
            for branch, sha in self.repositories[name].branches.items()
            if f"heads/{branch}".startswith(prefix)
        ]

    def _listed(self, name: str, query: Mapping[str, str]) -> Json:
        state = query.get("state", "open")
        shown = [
            one
            for one in self.repositories[name].pulls
            if state in ("all", one.state) and query.get("head", one.head) == one.head
        ]
        size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
        listed = shown[(page - 1) * size : page * size]
        return [self.filled(name, self.contract.example("/repos/{owner}/{repo}/pulls")[0], one) for one in listed]

    def _pull(self, name: str, one: Request, *, created: bool = False) -> Json:
        path = "/repos/{owner}/{repo}/pulls"
        example = self.contract.example(path, "post", 201) if created else self.contract.example(f"{path}/{{pull_number}}")
        made = self.filled(name, example, one)
        return made | {"merged": one.merge is not None, "maintainer_can_modify": one.modify}

    def filled(self, name: str, example: Json, one: Request) -> Json:
        branch = one.head.partition(":")[2]
        example["head"] |= {"label": one.head, "ref": branch, "sha": one.sha}
        example["head"]["repo"] |= {"full_name": one.fork or name}
        example["base"] |= {"label": f"{name.partition('/')[0]}:{one.base}", "ref": one.base}
        example["user"]["login"] = one.author
        return example | {
            "number": one.number,
            "url": f"{self.url}/repos/{name}/pulls/{one.number}",
            "html_url": f"https://github.com/{name}/pull/{one.number}",
            "title": one.title,
            "body": one.body,
            "state": one.state,
            "draft": one.draft,
            "requested_teams": [],
            "labels": [fake_threads.label(self, name) for name in one.labels],
            "merged_at": "2026-11-20T10:00:00Z" if one.merge else None,
            "closed_at": "2026-11-20T10:00:00Z" if one.state == "closed" else None,
            "merge_commit_sha": one.merge or "9" * 40,
        }

    def _found(self, query: str, size: int) -> Json:
        words = shlex.split(query)
        ways = dict(word.split(":", 1) for word in words if re.match(r"(repo|author|head|is):", word))
        texts = [word.lower() for word in words if not re.match(r"(repo|author|head|is):", word)]
        assert "is:pr" in words, query
        hits = [
            one
            for one in self.repositories[ways["repo"]].pulls
            if ("is:open" not in words or one.state == "open")
            and ways.get("author", one.author) == one.author
            and all(text in f"{one.title} {one.body}".lower() for text in texts)
        ]
        example = self.contract.example("/search/issues")
        item = example["items"][0]
        items = [
            item
            | {
                "number": one.number,
                "title": one.title,
                "body": one.body,
                "state": one.state,
                "user": item["user"] | {"login": one.author},
                "html_url": f"https://github.com/{ways['repo']}/pull/{one.number}",
            }
            for one in hits[:size]
        ]
        return example | {"total_count": len(hits), "items": items}

    def _reviews(self, one: Request) -> Json:
        example = self.contract.example("/repos/{owner}/{repo}/pulls/{pull_number}/reviews")[0]
        return [example | {"user": example["user"] | {"login": who}, "state": state} for who, state in one.reviews]

    def _check_runs(self, sha: str) -> Json:
        example = self.contract.example("/repos/{owner}/{repo}/commits/{ref}/check-runs")
        run = example["check_runs"][0]
        runs = [
            run | {"name": name, "status": "completed" if how else "in_progress", "conclusion": how, "head_sha": sha}
            for name, how in self.runs.get(sha, [])
        ]
        return {"total_count": len(runs), "check_runs": runs}

    def _status(self, sha: str) -> Json:
        example = self.contract.example("/repos/{owner}/{repo}/commits/{ref}/status")
        status = example["statuses"][0]
        listed = [status | {"context": context, "state": state} for context, state in self.statuses.get(sha, [])]
        return example | {"sha": sha, "statuses": listed, "total_count": len(listed)}

    def _compared(self, sha: str) -> Json:
        example = self.contract.example("/repos/{owner}/{repo}/compare/{basehead}")
        return example | {"behind_by": self.behind.get(sha, 0)}


class Handler(BaseHTTPRequestHandler):
    """The server's side of a connection; `hub` is set by `serving`."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.respond(b"")

    def do_POST(self) -> None:
        self.respond(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    do_PATCH = do_PUT = do_POST

    def do_DELETE(self) -> None:
        self.respond(b"")

    def respond(self, body: bytes) -> None:
        hub, line = self.hub, f"{self.command} {self.path}"
        hub.seen.append((self.command, self.path))
        if body:
            hub.sent.append(body)
        early = hub.due(line, after=False)
        if early is not None:
            self.act(early)
            return
        if self.command != "GET" and hub.at_write(False):
            self.drop()
            return
        try:
            operation = hub.contract.check_request(self.command, self.path, self.headers, body)
            answer = self.carried_out(operation, body)
        except Refusal as refusal:
            answer = refusal.answer
        except Fault as fault:
            hub.faults.append(f"{line}: {fault}")
            answer = Answer(500, {"message": str(fault)})
        if self.command != "GET" and hub.at_write(True):
            self.drop()
            return
        late = hub.due(line, after=True)
        if late is not None:
            self.act(late)
            return
        self.send(answer)

    def carried_out(self, operation: Operation, body: bytes) -> Answer:
        hub = self.hub
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        if token and (kind.lower() not in ("bearer", "token") or token not in hub.tokens):
            raise hub.refusal(401, "Bad credentials")
        if token in hub.apps and operation.path == "/user":
            raise Refusal(403, "Resource not accessible by integration")
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        if self.headers.get("Accept") == DIFF:
            name = f"{operation.values['owner']}/{operation.values['repo']}"
            return Answer(
                200, hub.one(name, int(operation.values["pull_number"])).diff, {"Content-Type": f"{DIFF}; charset=utf-8"}
            )
        return hub.carry_out(operation, hub.tokens.get(token), token in hub.readers, query, json.loads(body) if body else None)

    def act(self, trouble: Trouble) -> None:
        if isinstance(trouble.act, Answer):
            self.send(trouble.act)
        else:
            trouble.act(self)

    def send(self, answer: Answer) -> None:
        data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        if answer.status == 204:
            data = b""
        if not isinstance(answer.body, bytes):
            try:
                self.hub.contract.check_answer(self.command, self.path, answer.status, data)
            except Fault as fault:
                self.hub.faults.append(f"answer to {self.command} {self.path}: {fault}")
        self.send_response(answer.status)
        for name, value in ({"Content-Type": JSON} | dict(answer.headers)).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def drop(self) -> None:
        """End the connection without a word."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def break_off(self) -> None:
        """Begin an answer and end the connection."""
        self.send_response(200)
        self.send_header("Content-Type", JSON)
        self.send_header("Content-Length", "5000")
        self.end_headers()
        self.wfile.write(b'{"login": "')
        self.wfile.flush()
        self.drop()

    def drip(self) -> None:
        """Say a byte now and then, for ever."""
        self.send_response(200)
        self.send_header("Content-Length", "5000")
        self.end_headers()
        try:
            for _ in range(100):
                self.wfile.write(b" " * 10)
                self.wfile.flush()
                time.sleep(0.05)
        except OSError:
            self.close_connection = True

    def flood(self) -> None:
        """Say more than anybody wants to hear."""
        self.send_response(200)
        self.send_header("Content-Type", JSON)
        self.end_headers()
        self.close_connection = True
        try:
            for _ in range(1000):
                self.wfile.write(b" " * (1 << 20))
        except OSError:
            pass

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(contract: Any, kind: type[Hub] = Hub) -> Iterator[Hub]:
    """A forge, as long as the block runs; at its end nobody may have asked what it would refuse."""
    hub = kind(contract)
    with listening(type("Bound", (Handler,), {"hub": hub})) as port:
        hub.url = f"http://127.0.0.1:{port}"
        yield hub
