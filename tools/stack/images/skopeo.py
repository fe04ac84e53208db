# SPDX-License-Identifier: Apache-2.0
"""skopeo, which does all that touches a registry: credentials stay in the user's container auth file and never pass through us.

What a registry says of itself is not believed: digests are computed here, from the bytes.
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
"""How long a manifest or a list of tags may take, as skopeo writes it; a copy may take as long as it takes."""

# What a registry says of a manifest or a repository that it does not have (the distribution specification's error codes).
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
    """The registry is there and has no such image."""


class Refused(StackError):
    """The registry wants other credentials."""


class Unreachable(StackError):
    """No registry answers there, or none that is trusted."""


def raw(image: str | Reference, *, tls: bool = True) -> bytes:
    """The manifest or index of an image, byte for byte as its place gives it; compared with the digest in the reference.

    Raises:
        Absent: there is none.
        Refused: not without other credentials.
        Unreachable: no answer.
        StackError: anything else, a manifest of another digest included.

    """
    where = _reference(image)
    found = _run(where, "inspect", "--raw", *_tls(where, "tls-verify", tls), "--", str(where), patience=True)
    if where.digest is not None and digest(found) != where.digest:
        raise StackError(
            f"{where.shown} has another digest ({digest(found)})", "the registry gives what was not asked for: do not use it"
        )
    return found


def config(image: str | Reference, *, tls: bool = True) -> bytes:
    """The configuration of an image, as bytes: whoever reads them compares them with the digest in the manifest.

    Raises:
        StackError: as with `raw`.

    """
    where = _reference(image)
    return _run(where, "inspect", "--config", "--raw", *_tls(where, "tls-verify", tls), "--", str(where), patience=True)


def digest(data: bytes) -> str:
    """The digest of bytes: `sha256:` and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def copy(
    source: str | Reference,
    destination: str | Reference,
    *,
    all_: bool = False,
    digest_file: Path | None = None,
    tls: bool = True,
) -> None:
    """Copy an image, unchanged: where its digest could not stay the same, nothing is copied.

    Args:
        source: where it is.
        destination: where it shall be.
        all_: of an index, every platform's image; else that of this machine.
        digest_file: gets the digest of what was copied.
        tls: whether registries have to have a trusted certificate.

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
    """Fetch all of an image into a folder, as skopeo's `dir:` lays it out: that takes every kind of manifest as it is.

    Raises:
        StackError: as with `raw`.

    """
    origin = _reference(source)
    options = ("--quiet", "--preserve-digests", "--all", *_tls(origin, "src-tls-verify", tls))
    _run(origin, "copy", *options, "--", str(origin), f"dir:{folder}")


def tags(repository: str | Reference, *, tls: bool = True) -> tuple[str, ...]:
    """The tags of a repository, in order.

    Raises:
        StackError: as with `raw`; or the answer is no list of tags.

    """
    where = _reference(repository)
    if where.layout or where.tag or where.digest:
        raise StackError(f"{where.shown} is no repository", "write HOST/NAME")
    answer = _run(where, "list-tags", *_tls(where, "tls-verify", tls), "--", str(where), patience=True)
    try:
        found: Any = json.loads(answer)["Tags"]
    except (ValueError, LookupError, TypeError) as bad:
        raise StackError(f"{where.shown} gives no list of tags", "is it a registry?") from bad
    if not isinstance(found, list) or not all(isinstance(one, str) and re.fullmatch(reference.TAG, one) for one in found):
        raise StackError(f"{where.shown} gives tags that are none", "is it a registry?")
    return tuple(sorted(found))


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
    """What skopeo's words mean; nothing in them is a credential unless an address held one."""
    said = _USERINFO.sub("//", _said(stderr))
    words = said.replace(str(where), "").replace(where.shown, "")  # a tag may be any of these words
    # docker-registry says "manifest unknown" of what is there, too, where it could not be read as it is.
    if _ABSENT.search(words) and "accept header does not support" not in words:
        return Absent(f"{where.shown} does not exist", "check the name")
    if _REFUSED.search(words):
        return Refused(f"{where.shown} is refused ({said})", "log in: skopeo login HOST")
    if _UNREACHABLE.search(words):
        return Unreachable(
            f"{where.shown} cannot be reached ({said})", "check the name, the network and the registry's certificate"
        )
    return StackError(f"skopeo failed on {where.shown} ({said})")


def _said(stderr: str) -> str:
    found = _MESSAGE.findall(stderr)
    if not found:
        lines = [line.strip() for line in stderr.splitlines() if line.strip()]
        return lines[-1] if lines else "it said nothing"
    message: str = found[-1]
    try:
        return str(json.loads(message)) if message.startswith('"') else message
    except ValueError:
        return message
