# SPDX-License-Identifier: Apache-2.0
"""A patch file as `git format-patch` writes it: a mail, kept as bytes and parsed for carrying."""

import binascii
import functools
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

from stack.base.errors import StackError
from stack.base.text import counted
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
# Remove the first bracket only: git adds it, and the subject behind it may begin with one of its own, such as `[DISPATCH]`.
_SUBJECT_PREFIX = re.compile(r"^\[(?:[^\]]*\s)?PATCH(?:v\d+)?(?=[\]\s,:/-])[^\]]*\]\s*")
_IN_BODY = re.compile(r"^(From(?=:.*@)|Subject|Date):", re.IGNORECASE)
# RFC 2047 encoded words such as `=?utf-8?q?M=C3=BCller?=`; a blank between two of them is dropped.
_ENCODED = re.compile(r"=\?([^?\s]+)\?([bBqQ])\?([^?\s]*)\?=")
_BETWEEN = re.compile(r"(\?=)[ \t\n]+(?==\?[^?\s]+\?[bBqQ]\?)")
# The date as `git format-patch` writes it: `Tue, 7 Jan 2025 12:00:00 +0100`.
_DATE = re.compile(r"[A-Z][a-z]{2}, (\d{1,2}) ([A-Z][a-z]{2}) ([1-9]\d{3}) (\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TRAILER = re.compile(r"^([A-Za-z0-9][A-Za-z0-9-]*): +(.+)$")


@dataclass(frozen=True, slots=True)
class Author:
    """Author and date of a patch; `date` is git's raw form, `<seconds> <+hhmm>`."""

    name: str
    mail: str
    date: str


@dataclass(frozen=True, slots=True)
class Patch:
    """A parsed patch file. `message` is the commit message, subject included; `diff` holds the bytes for `git apply`.

    `wrapping` is the mail's encoding, None if the file holds the text verbatim. `lead` is the mail's text above the diff.
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
        """Return the bytes of this patch's file with another diff."""
        if self.wrapping is None:
            return self.raw[: len(self.raw) - len(self.diff)] + diff
        return self.wrapping.wrap(self.lead + diff)

    def diff_of(self, file: bytes) -> bytes:
        """Return the diff in a file that `with_diff` made."""
        if self.wrapping is None:
            return file[len(self.raw) - len(self.diff) :]
        read = mail.read(file)
        assert read is not None
        return read.text[len(self.lead) :]


def read(path: Path, ref: PatchRef) -> Patch:
    """Read a patch file of the stack.

    Raises:
        StackError: The file is missing, too large, holds several patches, or is not what `git format-patch` writes.

    """
    raw = document.read_bytes(path, missing="restore it, or take it out of series.toml", largest=LARGEST)
    count = sum(_DIFF_START.search(part) is not None for part in mail.split(raw))
    if count > 1:
        raise StackError(
            f"{path} holds {counted(count, 'patch')}", "make a file of each (`git mailsplit`), and list them in series.toml"
        )
    return parse(raw, ref, name=str(path))


def parse(raw: bytes, ref: PatchRef, *, name: str) -> Patch:
    """Parse the bytes of a patch file; errors call it `name`.

    Raises:
        StackError: The bytes are not what `git format-patch` writes.

    The result is the same as with `git am` (git's mailinfo.c), with two exceptions where git loses what the author wrote: `Re:`
    at the start of a subject is kept, and so is a name of more than 60 bytes.

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
    """Parse the files that a patch changes.

    Raises:
        StackError: The diff cannot be read.

    """
    try:
        return parse_diff(patch.diff)
    except DiffError as bad:
        raise StackError(f"{patch.ref.path} holds a diff that cannot be read ({bad})", "export it with git again") from bad


def parse_all(raw: bytes, ref: PatchRef, *, name: str) -> tuple[Patch, ...]:
    """Parse a file of one or more patches, as from `git format-patch --stdout`; with several, each `file` gets a number.

    Raises:
        StackError: One of them is not what `git format-patch` writes.

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
    """Tell whether git takes this line of a mail as the end of the message."""
    return _MESSAGE_END.match(line.encode("utf-8", "surrogateescape")) is not None


def trailers(message: str) -> tuple[tuple[str, str], ...]:
    """Return the trailers (key, value) of a commit message: its last paragraph, if every line there is a trailer."""
    paragraphs = re.split(r"\n{2,}", message.strip("\n"))
    if len(paragraphs) < 2:
        return ()
    matches = [_TRAILER.match(line) for line in paragraphs[-1].split("\n")]
    return tuple((line[1], line[2].strip()) for line in matches if line) if all(matches) else ()


def _without_headers(text: str) -> tuple[dict[str, str], str]:
    """Split the header lines that `git format-patch --from` puts at the start of a message from the rest."""
    lines = text.split("\n")
    end, seen = 0, set()
    while end < len(lines) and ((key := _IN_BODY.match(lines[end])) or (end and lines[end].startswith((" ", "\t")))):
        if key and key[1].lower() in seen:
            break
        seen |= {key[1].lower()} if key else set()
        end += 1
    return mail.fields(lines[:end]), "\n".join(lines[end:]).strip("\n")


def _decoded(header: str) -> str:
    """Decode a header's text. Python's `email` would turn no-break spaces into blanks and requote names."""
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
        when = _as_git_writes(date) or _as_any_mail(date)
    except ValueError as bad:
        raise StackError(f"{name} has no readable date ({date!r})", "export it with `git format-patch`") from bad
    if not address:
        raise StackError(f"{name} names no author", "export it with `git format-patch`")
    return Author(who or address, address, f"{int(when.timestamp())} {when.strftime('%z')}")


def _as_git_writes(date: str) -> datetime | None:
    """Parse a date in the form that git writes; None if it has any other form."""
    match = _DATE.fullmatch(date)
    if match is None or match[2] not in _MONTHS:
        return None
    day, year, hour, minute, second = (int(match[group]) for group in (1, 3, 4, 5, 6))
    offset = timedelta(hours=int(match[8]), minutes=int(match[9]))
    zone = timezone(-offset if match[7] == "-" else offset)
    return datetime(year, _MONTHS.index(match[2]) + 1, day, hour, minute, second, tzinfo=zone)


def _as_any_mail(date: str) -> datetime:
    """Parse a date in any form that mails have.

    Raises:
        ValueError: it is not a date.

    """
    import email.utils  # noqa: PLC0415  (a hundredth of a second that git's own form does not need)

    when = email.utils.parsedate_to_datetime(date)
    # Python returns a date with the zone -0000 without a time zone, and would take it for local time.
    return when if when.tzinfo else when.replace(tzinfo=UTC)
