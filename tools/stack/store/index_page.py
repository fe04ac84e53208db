# SPDX-License-Identifier: Apache-2.0
"""Read the page of a project on a package index, in a child process with limits if the page is large.

An HTML parser builds a tree, and for a hostile page its time grows with the square of the size. Run as a program, this module
reads a request and a page from stdin and prints the offers as JSON.
"""

import io
import json
import re
import resource
import subprocess
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import requests

from stack.base.addresses import redacted
from stack.base.errors import StackError
from stack.model.ids import Sha256

if TYPE_CHECKING:
    from pypi_simple import DistributionPackage

ACCEPTED = ", ".join(
    ("application/vnd.pypi.simple.v1+json", "application/vnd.pypi.simple.v1+html;q=0.2", "text/html;q=0.1"),
)
"""The forms of a page; JSON comes first, since it is parsed ten times as fast as HTML and has the sizes."""
SECONDS = 20.0
"""Seconds in which a page is parsed; the largest real pages, of ten thousand files, take about two."""
SMALL = 2**16
"""Bytes of the largest page that this process parses: no page of this size takes a second."""
_MEMORY = 4 * 2**30
_LARGEST = 64 * 2**20
"""Bytes of the largest list of offers: a page may make each address much longer."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A file that an index offers; `kind` is `sdist` or `wheel`, for example."""

    filename: str
    url: str
    kind: str | None
    version: str | None
    sha256: Sha256 | None
    size: int | None
    is_yanked: bool


def offers(response: requests.Response, project: str) -> list[Offer]:
    """List the files on a project's page.

    Raises:
        StackError: The page takes too long to parse.
        ValueError, TypeError, LookupError, RecursionError, UnsupportedRepoVersionError: The page is not one of an index.

    """
    if len(response.content) <= SMALL:
        return _parsed(response, project)
    request = {"url": response.url, "headers": dict(response.headers), "project": project}
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-m", __name__],
            input=json.dumps(request).encode() + b"\n" + response.content,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        problem = f"the page of {project} at {redacted(response.url)} takes more than {SECONDS:.0f} s to parse"
        raise StackError(problem, "check the configured index") from late
    if child.returncode != 0:
        raise ValueError(f"the page of {project} cannot be parsed")
    return [Offer(*row) for row in json.loads(child.stdout)]


def _parsed(response: requests.Response, project: str) -> list[Offer]:
    # It brings an HTML parser: a fifth of a second, which only a question to an index needs.
    from pypi_simple import ProjectPage  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about malformed pages: the results are checked
        return [_offer(package) for package in ProjectPage.from_response(response, project).packages]


def _offer(package: "DistributionPackage") -> Offer:
    stated, size = (package.digests.get("sha256") or "").lower(), package.size
    return Offer(
        package.filename,
        package.url,
        package.package_type,
        package.version,
        Sha256(stated) if re.fullmatch(r"[0-9a-f]{64}", stated) else None,
        size if isinstance(size, int) and size >= 0 else None,
        package.is_yanked,
    )


def _response(url: str, headers: Mapping[str, str], body: bytes) -> requests.Response:
    made = requests.Response()
    made.status_code, made.url, made.raw = requests.codes.ok, url, io.BytesIO(body)
    made.headers.update(headers)
    return made


def _main() -> int:
    """Parse the page on stdin within limits that hold also if the parent process is gone."""
    for limit, value in ((resource.RLIMIT_CPU, int(SECONDS) + 1), (resource.RLIMIT_AS, _MEMORY)):
        with suppress(ValueError, OSError):  # a lower limit is set already, or the system has none
            resource.setrlimit(limit, (value, value))
    request = json.loads(sys.stdin.buffer.readline())
    response = _response(request["url"], request["headers"], sys.stdin.buffer.read())
    text = json.dumps([astuple(offer) for offer in _parsed(response, request["project"])])
    if len(text) > _LARGEST:
        return 1
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
