# SPDX-License-Identifier: Apache-2.0
"""A forge on the loopback interface: git's own smart HTTP behind accounts, of which each may push to its own repositories only."""

import base64
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path

from stack.store import git
from tests.loopback import Patient, listening

RECEIVE = "git-receive-pack"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: str
    user: str | None

    @property
    def pushes(self) -> bool:
        """Whether it is the one that brings a push's objects."""
        return self.method == "POST" and self.path.endswith(f"/{RECEIVE}")


@dataclass
class Forge:
    """Repositories below `root`, `<account>/<name>.git` each. What else it does is set while it runs.

    `hear` gets a request's body before git does, and may shorten it: then the connection is cut. `say` gets git's answer. `before`
    and `after` are called around git, with the request.
    """

    root: Path
    url: str = ""
    passwords: dict[str, str] = field(default_factory=dict)
    programs: set[str] = field(default_factory=set)
    """Accounts of programs, which may push everywhere."""
    hidden: set[str] = field(default_factory=set)
    """Repositories that only their owner may read."""
    old: bool = False
    """It speaks the first version of git's protocol only."""
    seen: list[tuple[Request, int]] = field(default_factory=list)
    before: Callable[[Request], None] = lambda _: None
    after: Callable[[Request], None] = lambda _: None
    hear: Callable[[Request, bytes], bytes] = lambda _, body: body
    say: Callable[[Request, bytes], bytes] = lambda _, body: body

    def asked(self, word: str) -> list[Request]:
        return [request for request, _ in self.seen if word in request.path or word in request.query]

    def make(self, name: str) -> Path:
        """An empty repository, as a forge has it: parts of histories are given, without contents if so asked."""
        place = self.root / f"{name}.git"
        git.run(["init", "--quiet", "--bare", "--template=", "--initial-branch=main", str(place)])
        for key in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant", "http.receivepack"):
            git.run(["config", key, "true"], cwd=place)
        git.run(["config", "receive.fsckObjects", "true"], cwd=place)
        return place

    def address(self, name: str, user: str = "") -> str:
        return f"{self.url.replace('://', f'://{user}@') if user else self.url}/{name}.git"


@contextmanager
def serving(root: Path) -> Iterator[Forge]:
    forge = Forge(root)

    class Handler(Patient):
        def answer(self) -> None:
            path, _, query = self.path.partition("?")
            name = "/".join(path.split("/")[1:3]).removesuffix(".git")
            request = Request(self.command, path, query, self.user())
            body = self.sent()
            status = self.refusal(request, name)
            if status:
                self.reply(request, status, [("Content-Type", "text/plain")], b"no\n")
                return
            heard = forge.hear(request, body)
            if heard != body:
                self.hang_up()
                return
            forge.before(request)
            said = subprocess.run(
                ["git", "http-backend"], input=body, capture_output=True, check=True, env=self.variables(request)
            ).stdout
            forge.after(request)
            head, _, answer = said.partition(b"\r\n\r\n")
            headers = [(key, value) for key, _, value in (line.partition(": ") for line in head.decode().split("\r\n"))]
            status = next((int(value.split()[0]) for key, value in headers if key == "Status"), 200)
            self.reply(request, status, [one for one in headers if one[0] != "Status"], answer)

        def user(self) -> str | None:
            kind, _, given = self.headers.get("Authorization", "").partition(" ")
            return base64.b64decode(given).decode() if kind == "Basic" else None

        def refusal(self, request: Request, name: str) -> int:
            """The status of a request that is not let through."""
            if not (forge.root / f"{name}.git").is_dir():
                return 404
            writes = RECEIVE in request.path or RECEIVE in request.query
            if not writes and name not in forge.hidden:
                return 0
            user, _, password = (request.user or "").partition(":")
            if request.user is None or forge.passwords.get(user) != password:
                return 401
            return 0 if name.startswith(f"{user}/") or user in forge.programs else 403

        def variables(self, request: Request) -> dict[str, str]:
            found = {
                "PATH": os.environ["PATH"],
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_PROJECT_ROOT": str(forge.root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": request.path,
                "QUERY_STRING": request.query,
                "REQUEST_METHOD": request.method,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "REMOTE_ADDR": "127.0.0.1",
                "REMOTE_USER": (request.user or "").partition(":")[0],
            }
            if "Git-Protocol" in self.headers and not forge.old:
                found["GIT_PROTOCOL"] = self.headers["Git-Protocol"]
            return found

        def reply(self, request: Request, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            said = forge.say(request, body)
            forge.seen.append((request, status))
            self.send_response(status)
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="forge"')
            for key, value in headers:
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body) if body.startswith(said) else len(said)))
            self.end_headers()
            self.wfile.write(said)
            if len(said) < len(body) and body.startswith(said):
                self.hang_up()

        def hang_up(self) -> None:
            self.wfile.flush()
            self.close_connection = True

        do_GET = do_POST = answer

    def prepare(server: ThreadingHTTPServer) -> None:
        server.handle_error = lambda *args: None  # type: ignore[method-assign]

    with listening(Handler, prepare) as port:
        forge.url = f"http://127.0.0.1:{port}"
        yield forge
