# SPDX-License-Identifier: Apache-2.0
"""A mirror of Hugging Face's hub with one small model, that lies where a test says so."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.loopback import Patient, listening

REPOSITORY, COMMIT = "maker/model", "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secret"
LARGE = {f"model-0000{number}-of-00002.safetensors": bytes([number]) * 300_000 for number in (1, 2)}
SMALL = {
    "config.json": b"{}",
    "tokenizer.json": b'{"a": 1}',
    "tokenizer_config.json": b"[]",
    "special_tokens_map.json": b"[]",  # the same bytes as another file
    "model.safetensors.index.json": json.dumps({"weight_map": {f"w{name}": name for name in LARGE}}).encode(),
}
UNREAD = {"README.md": b"read me", "original/weights.bin": b"of another program", "pytorch_model.bin": b"older"}
FILES = {**LARGE, **SMALL, **UNREAD}


def hashed(name: str) -> str:
    """The hash that the hub states for a file."""
    data = FILES[name]
    if name in LARGE:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Hub:
    """A hub, and how it lies: each function gets a file's name and its bytes from the asked place on.

    `breaks`: bytes after which a file's connection breaks off, the first times. `other`: the host that large files are redirected to;
    `moved`: where everything is redirected to.
    """

    address: str = ""
    change: Callable[[str, bytes], bytes] = lambda _, data: data
    size: Callable[[str, int], int] = lambda _, size: size
    breaks: dict[str, list[int]] = field(default_factory=dict)
    other: str | None = None
    moved: str | None = None
    down: bool = False
    asked: list[tuple[str, str, str | None, str | None]] = field(default_factory=list)
    """Method, path, range and authorization of each request."""

    def downloads(self) -> list[str]:
        """The files that were asked for, in order."""
        return [path.rpartition("/")[2] for method, path, *_ in self.asked if method == "GET" and "/api/" not in path]


def _handler(hub: Hub) -> type[Patient]:
    class Handler(Patient):
        def do_HEAD(self) -> None:
            self.serve(body=False)

        def do_GET(self) -> None:
            self.serve(body=True)

        def serve(self, *, body: bool) -> None:
            path = urlsplit(self.path).path
            hub.asked.append((self.command, path, self.headers.get("Range"), self.headers.get("Authorization")))
            if hub.down:
                self.close_connection = True
                return
            if hub.moved is not None:
                self.whole(302, b"", {"Location": hub.moved}, body)
                return
            if "/tree/" in path:
                self.whole(200, json.dumps(_tree()).encode(), {"Content-Type": "application/json"}, body)
                return
            if path.startswith("/api/models/"):
                self.whole(200, json.dumps(_listing()).encode(), {"Content-Type": "application/json"}, body)
                return
            name = path.partition(f"/resolve/{COMMIT}/")[2] or path.removeprefix("/lfs/")
            if name not in FILES:
                self.whole(404, b"", {"X-Error-Code": "EntryNotFound"}, body)
            elif name in LARGE and hub.other is not None and not path.startswith("/lfs/"):
                self.whole(302, b"", {**_named(name), "Location": f"{hub.other}/lfs/{name}"}, body)
            else:
                self.file(name, body)

        def file(self, name: str, body: bool) -> None:
            data = hub.change(name, FILES[name])
            start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
            part, total = data[start:], hub.size(name, len(data))
            more = {"Content-Range": f"bytes {start}-{total - 1}/{total}"} if start else {}
            self.send_response(206 if start else 200)
            for key, value in {**_named(name), **more, "Content-Length": str(total - start)}.items():
                self.send_header(key, value)
            self.end_headers()
            if not body:
                return
            left = hub.breaks.get(name)
            if left:
                self.wfile.write(part[: left.pop(0)])
                self.close_connection = True
                return
            self.wfile.write(part)
            self.close_connection = total > len(data)  # the client would wait for the rest for a minute

        def whole(self, status: int, data: bytes, headers: dict[str, str], body: bool) -> None:
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(key, value)
            self.end_headers()
            if body:
                self.wfile.write(data)

    return Handler


def _named(name: str) -> dict[str, str]:
    linked = {"X-Linked-Etag": f'"{hashed(name)}"', "X-Linked-Size": str(len(FILES[name]))} if name in LARGE else {}
    return {"X-Repo-Commit": COMMIT, "ETag": f'"{hashed(name)}"', "Accept-Ranges": "bytes", **linked}


def _listing() -> dict[str, object]:
    files = []
    for name, data in FILES.items():
        lfs = {"lfs": {"sha256": hashed(name), "size": len(data), "pointerSize": 134}} if name in LARGE else {}
        blob = hashed(name) if name not in LARGE else "1" * 40
        files.append({"rfilename": name, "size": len(data), "blobId": blob, **lfs})
    return {
        "_id": "1",
        "id": REPOSITORY,
        "sha": COMMIT,
        "siblings": files,
        "private": False,
        "tags": [],
        "downloads": 0,
        "likes": 0,
    }


def _tree() -> list[dict[str, object]]:
    """The files as huggingface_hub asks for them."""
    files: list[dict[str, object]] = []
    for name, data in FILES.items():
        lfs = {"lfs": {"oid": hashed(name), "size": len(data), "pointerSize": 134}} if name in LARGE else {}
        oid = hashed(name) if name not in LARGE else "1" * 40
        files.append({"type": "file", "path": name, "size": len(data), "oid": oid, **lfs})
    return files


@contextmanager
def serving() -> Iterator[Hub]:
    """A hub for as long as the block runs."""
    hub = Hub()

    def named(server: ThreadingHTTPServer) -> None:
        hub.address = f"http://127.0.0.1:{server.server_port}"

    with listening(_handler(hub), named):
        yield hub
