# SPDX-License-Identifier: Apache-2.0
"""What the tests of the store are made from: archives (sound and hostile), package indexes that answer or lie, git remotes."""

import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from stack.model.ids import Sha256
from stack.store import git

from ..loopback import listening

TOP = "pkg-1.0"
TIME = 1_700_000_000


def header(
    name: bytes,
    kind: bytes = b"0",
    size: int = 0,
    target: bytes = b"",
    *,
    mode: bytes = b"0000644\0",
    size_field: bytes | None = None,
    mtime: bytes = b"%011o\0" % TIME,
    magic: bytes = b"ustar\x0000",
) -> bytes:
    """One tar header, also of the kinds that no library would write."""
    stated = size_field if size_field is not None else b"%011o\0" % size
    block = bytearray(name.ljust(100, b"\0") + mode + b"0000000\0" * 2 + stated + mtime + b" " * 8 + kind)
    block += target.ljust(100, b"\0") + magic
    block = block.ljust(512, b"\0")
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def member(name: bytes, content: bytes = b"x", kind: bytes = b"0", target: bytes = b"", **fields: bytes) -> bytes:
    """A header and its content."""
    return header(name, kind, len(content), target, **fields) + padded(content)


def padded(content: bytes) -> bytes:
    """Content as it stands in a tar file."""
    return content + b"\0" * (-len(content) % 512)


def pax(records: Mapping[bytes, bytes], kind: bytes = b"x") -> bytes:
    """A pax header."""
    content = b""
    for key, value in records.items():
        length = len(key) + len(value) + 3
        digits = length + len(str(length))
        digits = length + len(str(digits))
        content += b"%d %s=%s\n" % (digits, key, value)
    return member(b"PaxHeader", content, kind)


def archive(path: Path, *members: bytes, end: bytes = b"\0" * 1024) -> Path:
    """A .tar.gz of raw members."""
    path.write_bytes(gzip.compress(b"".join(members) + end, mtime=0))
    return path


def sdist(
    path: Path, files: Mapping[str, bytes], *, programs: tuple[str, ...] = (), top: str = TOP, form: int = tarfile.PAX_FORMAT
) -> Path:
    """A source archive as a release tool writes it."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=form) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size, info.mtime, info.mode = len(content), TIME, 0o755 if name in programs else 0o644
            tar.addfile(info, io.BytesIO(content))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(plain.getvalue(), 1, mtime=0))
    return path


def sha256(path: Path) -> Sha256:
    return Sha256(hashlib.sha256(path.read_bytes()).hexdigest())


def bare(path: Path) -> Path:
    git.run(["init", "--quiet", "--bare", "--template=", str(path)])
    return path


def listing(repository: Path, commit: str) -> dict[bytes, tuple[bytes, bytes]]:
    """What git says a commit holds: path -> mode and blob id."""
    lines = git.run(["ls-tree", "-r", "-z", commit], cwd=repository).stdout.split(b"\0")[:-1]
    found = {}
    for line in lines:
        meta, _, path = line.partition(b"\t")
        mode, _, blob = meta.split(b" ")
        found[path] = mode, blob
    return found


def blob(content: bytes) -> bytes:
    return hashlib.sha1(b"blob %d\0%s" % (len(content), content)).hexdigest().encode()


def strays(store: Path) -> list[str]:
    """Files in a store that a finished or failed operation may not leave."""
    names = (path.relative_to(store).as_posix() for path in store.rglob("*"))
    return sorted(
        name for name in names if "tmp_" in name or "incoming" in name or name.endswith((".lock", ".keep")) or "crash" in name
    )


Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Server:
    """A package index on the loopback interface; `answers` maps a path to what it says."""

    url: str
    answers: dict[str, Answer | Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)

    @property
    def index(self) -> str:
        return f"{self.url}/simple/"

    def offer(self, *archives: Path, project: str = "pkg", hashes: bool = True, lie: str | None = None) -> None:
        """Serve a project page with these archives."""
        links = []
        for path in archives:
            fragment = f"#sha256={lie or sha256(path)}" if hashes else ""
            links.append(f'<a href="../../files/{path.name}{fragment}">{path.name}</a><br/>')
            self.answers[f"/files/{path.name}"] = 200, {"Content-Type": "application/gzip"}, path.read_bytes()
        page = f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()
        self.answers[f"/simple/{project}/"] = 200, {"Content-Type": "text/html"}, page


@contextmanager
def serving(context: Callable[[ThreadingHTTPServer], None] | None = None) -> Iterator[Server]:
    """A server that runs as long as the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            server.asked.append(self.path)
            server.authorizations.append(self.headers.get("Authorization"))
            answer = server.answers.get(self.path, (404, {}, b"nothing here"))
            if not isinstance(answer, tuple):
                answer(self)
                return
            status, headers, body = answer
            self.send_response(status)
            for key, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    def prepare(http: ThreadingHTTPServer) -> None:
        http.handle_error = lambda *args: None  # type: ignore[method-assign]
        if context is not None:
            context(http)

    with listening(Handler, prepare) as port:
        server = Server(f"{'https' if context else 'http'}://127.0.0.1:{port}")
        yield server


class Remote:
    """An upstream's git repository, served over file://."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"file://{path}"
        git.run(["init", "--quiet", "--initial-branch=main", "--template=", str(path)])
        self.git("config", "uploadpack.allowFilter", "true")
        self.git("config", "uploadpack.allowAnySHA1InWant", "true")
        self.git("config", "user.name", "Up Stream")
        self.git("config", "user.email", "up@stream")

    def git(self, *args: str) -> str:
        dates = {"GIT_AUTHOR_DATE": f"{TIME} +0000", "GIT_COMMITTER_DATE": f"{TIME} +0000"}
        return git.text(args, cwd=self.path, env=dates)

    def commit(
        self, files: Mapping[str, bytes], message: str = "change", *, submodules: Mapping[str, str] | None = None
    ) -> str:
        for name, content in files.items():
            place = self.path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        if files:
            self.git("add", "--", *files)
        for entry, commit in (submodules or {}).items():
            self.git("update-index", "--add", "--cacheinfo", f"160000,{commit},{entry}")
        self.git("commit", "--quiet", "-m", message)
        return self.git("rev-parse", "HEAD")

    def tag(self, name: str, *, annotated: bool = False) -> None:
        self.git("tag", *(["-a", "-m", name] if annotated else []), name)


def run_python(code: str, *args: str, **kwargs: object) -> subprocess.CompletedProcess[str]:
    """Run a script in a Python of its own, where it may fork, kill itself and set limits."""
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=False, **kwargs)  # type: ignore[call-overload,no-any-return]
