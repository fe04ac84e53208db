# SPDX-License-Identifier: Apache-2.0
"""One patch file: what `git format-patch` wrote, kept as bytes, with the parts that carrying it needs."""

import email.parser
import email.policy
import email.utils
import re
from dataclasses import dataclass
from pathlib import Path

from stack.model.errors import StackError
from stack.model.series import PatchRef

# Where `git am` ends the message (mailinfo.c, patchbreak).
_DIFF_START = re.compile(rb"^(?:diff -|Index: )", re.MULTILINE)
_SEPARATOR = re.compile(rb"^---[ \t]*$", re.MULTILINE)
_SUBJECT_PREFIX = re.compile(r"^(?:\[PATCH[^\]]*\]\s*)+")
_TRAILER = re.compile(r"^([A-Za-z0-9][A-Za-z0-9-]*): +(.+)$")


@dataclass(frozen=True, slots=True)
class Author:
    """Who wrote a patch and when; `date` is git's raw form, `<seconds> <+hhmm>`."""

    name: str
    mail: str
    date: str


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch file, parsed. `message` is the commit message, subject included; `diff` the bytes for `git apply`."""

    ref: PatchRef
    raw: bytes
    author: Author
    subject: str
    message: str
    diff: bytes


def read(path: Path, ref: PatchRef) -> Patch:
    """Read a patch file of the stack.

    Raises:
        StackError: missing, not UTF-8, CRLF line ends, or not what `git format-patch` writes.

    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError as missing:
        raise StackError(f"{path} is missing", "restore it, or take it out of series.toml") from missing
    except OSError as failed:
        raise StackError(f"{path} cannot be read ({failed.strerror})", "check the file's rights") from failed
    return parse(raw, ref, name=str(path))


def parse(raw: bytes, ref: PatchRef, *, name: str) -> Patch:
    """Parse the bytes of a patch file; `name` stands for it in errors.

    Raises:
        StackError: not UTF-8, CRLF line ends, or not what `git format-patch` writes.

    """
    _check_text(raw, name)
    head, blank, rest = raw.partition(b"\n\n")
    if not head.startswith(b"From ") or not blank:
        raise StackError(f"{name} is not a patch that `git format-patch` wrote", "export it with git, or use `stack refresh`")
    headers = email.parser.BytesParser(policy=email.policy.default).parsebytes(head.partition(b"\n")[2] + b"\n\n")
    start = _DIFF_START.search(rest)
    if start is None:
        raise StackError(f"{name} holds no diff", "a patch has to change something")
    body, diff = rest[: start.start()], rest[start.start() :]
    separator = _SEPARATOR.search(body)
    text = body[: separator.start() if separator else None].decode("utf-8").strip("\n")
    subject = _SUBJECT_PREFIX.sub("", _unfolded(headers.get("Subject")))
    if not subject:
        raise StackError(f"{name} has no subject", "give the commit a message")
    return Patch(
        ref=ref,
        raw=raw,
        author=_author(_unfolded(headers.get("From")), _unfolded(headers.get("Date")), name),
        subject=subject,
        message=f"{subject}\n\n{text}\n" if text else f"{subject}\n",
        diff=diff,
    )


def trailers(message: str) -> tuple[tuple[str, str], ...]:
    """The trailers (key, value) of a commit message: its last paragraph, when every line there is one."""
    paragraphs = message.strip("\n").split("\n\n")
    if len(paragraphs) < 2:
        return ()
    found = [_TRAILER.match(line) for line in paragraphs[-1].splitlines()]
    return tuple((line[1], line[2].strip()) for line in found if line) if all(found) else ()


def _check_text(raw: bytes, name: str) -> None:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as bad:
        line = raw.count(b"\n", 0, bad.start) + 1
        raise StackError(
            f"{name}:{line} is not UTF-8", "save the patch as UTF-8; changes of other encodings cannot be carried"
        ) from bad
    place = raw.find(b"\r\n")
    if place >= 0:
        line = raw.count(b"\n", 0, place) + 1
        raise StackError(
            f"{name}:{line} has CRLF line ends", "convert the file to LF; `*.patch -text` in .gitattributes keeps it so"
        )


def _unfolded(header: object) -> str:
    return " ".join(str(header or "").split())


def _author(sender: str, date: str, name: str) -> Author:
    who, mail = email.utils.parseaddr(sender)
    try:
        when = email.utils.parsedate_to_datetime(date)
    except ValueError as bad:
        raise StackError(f"{name} has no readable date ({date!r})", "export it with `git format-patch`") from bad
    if not mail:
        raise StackError(f"{name} names no author", "export it with `git format-patch`")
    return Author(who or mail, mail, f"{int(when.timestamp())} {when.strftime('%z') or '+0000'}")
