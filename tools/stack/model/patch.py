# SPDX-License-Identifier: Apache-2.0
"""One patch file: a mail as `git format-patch` writes it, kept as bytes, with the parts that carrying it needs."""

import binascii
import email.utils
import functools
import re
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path

from stack.base.errors import StackError
from stack.model import document, mail
from stack.model.diff import DiffError, FileDiff
from stack.model.diff import parse as parse_diff
from stack.model.mail import Mail, Wrapping
from stack.model.series import PatchRef

LARGEST = 256 * 2**20
"""Bytes of the largest patch that is read."""
# Where `git am` ends the message (mailinfo.c, patchbreak).
_MESSAGE_END = re.compile(rb"^(?:diff -|Index: |---(?:[ \t]*$| [^ \t\n]))", re.MULTILINE)
_DIFF_START = re.compile(rb"^diff --git ", re.MULTILINE)
# Only the first one: git puts it in front of a subject that may begin with a bracket of its own, such as `[DISPATCH]`.
_SUBJECT_PREFIX = re.compile(r"^\[(?:[^\]]*\s)?PATCH(?:v\d+)?(?=[\]\s,:/-])[^\]]*\]\s*")
_IN_BODY = re.compile(r"^(From(?=:.*@)|Subject|Date):", re.IGNORECASE)
# RFC 2047: `=?utf-8?q?M=C3=BCller?=`; the blank between two of them does not count.
_ENCODED = re.compile(r"=\?([^?\s]+)\?([bBqQ])\?([^?\s]*)\?=")
_BETWEEN = re.compile(r"(\?=)[ \t\n]+(?==\?[^?\s]+\?[bBqQ]\?)")
_TRAILER = re.compile(r"^([A-Za-z0-9][A-Za-z0-9-]*): +(.+)$")


@dataclass(frozen=True, slots=True)
class Author:
    """Who wrote a patch and when; `date` is git's raw form, `<seconds> <+hhmm>`."""

    name: str
    mail: str
    date: str


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch file, parsed. `message` is the commit message, subject included; `diff` the bytes for `git apply`.

    `wrapping`: how a mail's text stands in the file, where it does not stand there as it is. `lead`: its text above the diff.
    """

    ref: PatchRef
    raw: bytes
    author: Author
    subject: str
    message: str
    diff: bytes
    wrapping: Wrapping | None = None
    lead: bytes = b""

    def with_diff(self, diff: bytes) -> bytes:
        """The bytes of this patch's file with another diff."""
        if self.wrapping is None:
            return self.raw[: len(self.raw) - len(self.diff)] + diff
        return self.wrapping.wrap(self.lead + diff)

    def diff_of(self, file: bytes) -> bytes:
        """The diff in what `with_diff` gave."""
        if self.wrapping is None:
            return file[len(self.raw) - len(self.diff) :]
        read = mail.read(file)
        assert read is not None
        return read.text[len(self.lead) :]


def read(path: Path, ref: PatchRef) -> Patch:
    """Read a patch file of the stack.

    Raises:
        StackError: missing, too large, several patches, or not what `git format-patch` writes.

    """
    raw = document.read_bytes(path, missing="restore it, or take it out of series.toml", largest=LARGEST)
    count = sum(_DIFF_START.search(part) is not None for part in mail.split(raw))
    if count > 1:
        raise StackError(f"{path} holds {count} patches", "make a file of each (`git mailsplit`), and list them in series.toml")
    return parse(raw, ref, name=str(path))


def parse(raw: bytes, ref: PatchRef, *, name: str) -> Patch:
    """Parse the bytes of a patch file; `name` stands for it in errors.

    Raises:
        StackError: it is not what `git format-patch` writes.

    What the file means is what it means to `git am` (git's mailinfo.c), with two exceptions where that loses what the author
    wrote: `Re:` at the start of a subject and a name of more than 60 bytes stay.

    """
    letter = _mail(raw, name)
    rest = letter.text
    end = _MESSAGE_END.search(rest)
    start = _DIFF_START.search(rest, end.start()) if end else None
    if end is None or start is None:
        raise StackError(f"{name} holds no diff", "a patch has to change something")
    in_body, text = _without_headers(letter.decoded(rest[: end.start()]).strip("\n"))
    headers = letter.headers | in_body
    subject = _SUBJECT_PREFIX.sub("", " ".join(re.split(r"[ \t\n]+", _decoded(headers.get("subject", ""))))).strip(" ")
    if not subject:
        raise StackError(f"{name} has no subject", "give the commit a message")
    stands_as_it_is = raw.endswith(rest)
    return Patch(
        ref=ref,
        raw=raw,
        author=_author(headers.get("from", ""), headers.get("date", ""), name),
        subject=subject,
        message=f"{subject}\n\n{text}\n" if text else f"{subject}\n",
        diff=rest[start.start() :],
        wrapping=None if stands_as_it_is else letter.wrapping,
        lead=b"" if stands_as_it_is else rest[: start.start()],
    )


@functools.lru_cache(maxsize=1024)
def files(patch: Patch) -> tuple[FileDiff, ...]:
    """The files that a patch changes.

    Raises:
        StackError: its diff cannot be read.

    """
    try:
        return parse_diff(patch.diff)
    except DiffError as bad:
        raise StackError(f"{patch.ref.path} holds a diff that cannot be read ({bad})", "export it with git again") from bad


def parse_all(raw: bytes, ref: PatchRef, *, name: str) -> tuple[Patch, ...]:
    """Parse a file of one patch or several, as `git format-patch --stdout` writes them; each after the first has its number.

    Raises:
        StackError: one of them is not what `git format-patch` writes.

    """
    parts = mail.split(raw)
    if len(parts) == 1:
        return (parse(raw, ref, name=name),)
    return tuple(
        parse(part, replace(ref, file=f"{ref.file}#{number}"), name=f"mail {number} of {name}")
        for number, part in enumerate(parts, 1)
    )


def _mail(raw: bytes, name: str) -> Mail:
    try:
        letter = mail.read(raw)
    except (ValueError, KeyError) as bad:
        raise StackError(
            f"{name} is not in the transfer encoding that its header states", "export it with `git format-patch`"
        ) from bad
    if letter is None:
        raise StackError(f"{name} is not a patch that `git format-patch` wrote", "export it with git, or use `stack refresh`")
    return letter


def ends_message(line: str) -> bool:
    """Whether git takes this line of a mail for the end of the message."""
    return _MESSAGE_END.match(line.encode("utf-8", "surrogateescape")) is not None


def trailers(message: str) -> tuple[tuple[str, str], ...]:
    """The trailers (key, value) of a commit message: its last paragraph, when every line there is one."""
    paragraphs = message.strip("\n").split("\n\n")
    if len(paragraphs) < 2:
        return ()
    found = [_TRAILER.match(line) for line in paragraphs[-1].split("\n")]
    return tuple((line[1], line[2].strip()) for line in found if line) if all(found) else ()


def _without_headers(text: str) -> tuple[dict[str, str], str]:
    """Headers at the start of a message, which `git format-patch --from` puts there, and the message without them."""
    lines = text.split("\n")
    end, seen = 0, set()
    while end < len(lines) and ((key := _IN_BODY.match(lines[end])) or (end and lines[end].startswith((" ", "\t")))):
        if key and key[1].lower() in seen:
            break
        seen |= {key[1].lower()} if key else set()
        end += 1
    return mail.fields(lines[:end]), "\n".join(lines[end:]).strip("\n")


def _decoded(header: str) -> str:
    """A header's text. Not with Python's `email`: it takes no-break blanks for blanks and quotes names anew."""
    return _ENCODED.sub(_decoded_word, _BETWEEN.sub(r"\1", header))


def _decoded_word(word: re.Match[str]) -> str:
    try:
        data = word[3].encode("ascii")
        plain = binascii.a2b_base64(data) if word[2] in "bB" else binascii.a2b_qp(data, header=True)
        return plain.decode(word[1])
    except (ValueError, LookupError):
        return word[0]


def _author(sender: str, date: str, name: str) -> Author:
    who, _, address = sender.rpartition("<")
    address, who = address.partition(">")[0].strip(" \t"), who.strip(" \t")
    quoted = re.fullmatch(r'"((?:[^"\\]|\\.)*)"', who)
    who = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else _decoded(who)
    try:
        when = email.utils.parsedate_to_datetime(date)
    except ValueError as bad:
        raise StackError(f"{name} has no readable date ({date!r})", "export it with `git format-patch`") from bad
    if not address:
        raise StackError(f"{name} names no author", "export it with `git format-patch`")
    # A date with the zone -0000 has none in Python, which would then take it for local time.
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return Author(who or address, address, f"{int(when.timestamp())} {when.strftime('%z')}")
