# SPDX-License-Identifier: Apache-2.0
"""Run skopeo, which does all access to registries; credentials stay in the user's container auth file.

A registry's own statements about digests are not trusted: digests are computed here from the bytes.
"""

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.images import reference
from stack.images.reference import Reference

PROGRAM = "skopeo"
PATIENCE = "2m"
"""Maximal time for a manifest or a list of tags, in skopeo's notation; a copy has no limit."""

# Messages of a registry that lacks a manifest or repository (error codes of the distribution specification).
_ABSENT = re.compile(
    r"manifest unknown|MANIFEST_UNKNOWN|name unknown|NAME_UNKNOWN|no descriptor found for reference|StatusCode: 404\b|from registry 404\b"
)
_REFUSED = re.compile(
    r"unauthorized|authentication required|access to the resource is denied|DENIED|invalid username/password"
    r"|StatusCode: 40[13]\b|from registry 40[13]\b"
)
_UNREACHABLE = re.compile(
    r"pinging container registry|dial tcp|i/o timeout|x509:|tls:|context deadline exceeded|connection reset|EOF"
)
_MESSAGE = re.compile(r'level=fatal msg=("(?:[^"\\]|\\.)*"|\S+)')
_USERINFO = re.compile(r"//[^/@\s\"]+@")


class Absent(StackError):
    """Raised when the registry answers but does not have the image."""


class Refused(StackError):
    """Raised when the registry requires other credentials."""


class Unreachable(StackError):
    """Raised when no trusted registry answers."""


def raw(image: str | Reference, *, tls: bool = True) -> bytes:
    """Return the manifest or index of an image unchanged, after comparing it with the digest in the reference.

    Raises:
        Absent: it does not exist.
        Refused: other credentials are needed.
        Unreachable: there is no answer.
        StackError: any other failure, such as a manifest with another digest.

    """
    where = _reference(image)
    manifest = _run(where, "inspect", "--raw", *_tls(where, "tls-verify", tls), "--", str(where), patience=True)
    if where.digest is not None and digest(manifest) != where.digest:
        raise StackError(
            f"{where.shown} has another digest ({digest(manifest)})", "the registry returns a different image: do not use it"
        )
    return manifest


def config(image: str | Reference, *, tls: bool = True) -> bytes:
    """Return the configuration of an image as bytes; the caller compares them with the digest in the manifest.

    Raises:
        StackError: as with `raw`.

    """
    where = _reference(image)
    return _run(where, "inspect", "--config", "--raw", *_tls(where, "tls-verify", tls), "--", str(where), patience=True)


def digest(data: bytes) -> str:
    """Return the digest of some bytes: `sha256:` and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def copy(
    source: str | Reference,
    destination: str | Reference,
    *,
    all_: bool = False,
    digest_file: Path | None = None,
    tls: bool = True,
) -> None:
    """Copy an image unchanged; if its digest would change, nothing is copied.

    Args:
        source: the image.
        destination: its new place.
        all_: copy the images of all platforms of an index, not only the one for this machine.
        digest_file: file to write the copied image's digest to.
        tls: whether registries need a trusted certificate.

    Raises:
        StackError: as with `raw`.

    """
    origin, target = _reference(source), _reference(destination)
    arguments = [
        "copy",
        "--quiet",
        "--preserve-digests",
        *(["--all"] if all_ else []),
        *(["--digestfile", str(digest_file)] if digest_file is not None else []),
        *_tls(origin, "src-tls-verify", tls),
        *_tls(target, "dest-tls-verify", tls),
    ]
    _run(target if origin.layout else origin, *arguments, "--", str(origin), str(target))


def download(source: str | Reference, folder: Path, *, tls: bool = True) -> None:
    """Download all of an image into a folder in skopeo's `dir:` format, which keeps every kind of manifest unchanged.

    Raises:
        StackError: as with `raw`.

    """
    origin = _reference(source)
    options = ("--quiet", "--preserve-digests", "--all", *_tls(origin, "src-tls-verify", tls))
    _run(origin, "copy", *options, "--", str(origin), f"dir:{folder}")


def load(source: Reference, storage: str) -> None:
    """Copy an image of this machine's platform into an engine's storage: `docker-daemon:NAME` or `containers-storage:NAME`.

    Raises:
        StackError: as with `raw`.

    """
    _run(source, "copy", "--quiet", "--", str(source), storage)


def tags(repository: str | Reference, *, tls: bool = True) -> tuple[str, ...]:
    """Return the tags of a repository, in order.

    Raises:
        StackError: as with `raw`, or the answer is not a list of tags.

    """
    where = _reference(repository)
    if where.layout or where.tag or where.digest:
        raise StackError(f"{where.shown} is not a repository", "write HOST/NAME")
    answer = _run(where, "list-tags", *_tls(where, "tls-verify", tls), "--", str(where), patience=True)
    try:
        listed: Any = json.loads(answer)["Tags"]
    except (ValueError, LookupError, TypeError) as bad:
        raise StackError(f"{where.shown} returns no list of tags", "check that it is a registry") from bad
    if not isinstance(listed, list) or not all(isinstance(name, str) and re.fullmatch(reference.TAG, name) for name in listed):
        raise StackError(f"{where.shown} returns invalid tags", "check that it is a registry")
    return tuple(sorted(listed))


def _reference(image: str | Reference) -> Reference:
    return image if isinstance(image, Reference) else reference.parse(image)


def _tls(where: Reference, option: str, tls: bool) -> tuple[str, ...]:
    return () if tls or where.layout else (f"--{option}=false",)


def _run(where: Reference, *arguments: str, patience: bool = False) -> bytes:
    command = [PROGRAM, *(["--command-timeout", PATIENCE] if patience else []), *arguments]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except FileNotFoundError as missing:
        raise StackError("skopeo is missing", "apt-get install skopeo (1.9 or newer)") from missing
    if done.returncode:
        raise _failure(where, done.stderr.decode("utf-8", "replace"))
    return done.stdout


def _failure(where: Reference, stderr: str) -> StackError:
    """Turn skopeo's message into an error, without credentials that an address may have contained."""
    message = _USERINFO.sub("//", _said(stderr))
    words = message.replace(str(where), "").replace(
        where.shown, ""
    )  # remove the name: a tag may be one of the words searched for
    # docker-registry also says "manifest unknown" about a manifest that it cannot return in its own format.
    if _ABSENT.search(words) and "accept header does not support" not in words:
        return Absent(f"{where.shown} does not exist", "check the name")
    if _REFUSED.search(words):
        return Refused(f"{where.shown} is refused ({message})", "log in: skopeo login HOST")
    if _UNREACHABLE.search(words):
        return Unreachable(
            f"{where.shown} cannot be reached ({message})", "check the name, the network and the registry's certificate"
        )
    return StackError(f"skopeo failed on {where.shown} ({message})")


def _said(stderr: str) -> str:
    messages = _MESSAGE.findall(stderr)
    if not messages:
        lines = [line.strip() for line in stderr.splitlines() if line.strip()]
        return lines[-1] if lines else "no message"
    message: str = messages[-1]
    try:
        return str(json.loads(message)) if message.startswith('"') else message
    except ValueError:
        return message
