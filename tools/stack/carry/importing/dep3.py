# SPDX-License-Identifier: Apache-2.0
"""Read the text above a diff: a mail's header, the fields of Debian's DEP-3, or free text."""

import email.errors
import email.header
import email.utils
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from stack.carry.importing.candidate import Upstreamed, storable
from stack.model import mail
from stack.model.patch import Author

_FIELD = re.compile(r"^([A-Za-z][A-Za-z0-9-]*):(?:[ \t]|$)")
_KNOWN = re.compile(
    r"^(From|Author|Subject|Description|Origin|Bug(-[A-Za-z0-9]+)?|Forwarded|Applied-Upstream|Last-Update|Reviewed-by|Acked-by"
    r"|Date|Message-Id|Signed-off-by|Debian-Bug|Comment|Upstream-Status|Reviewed-By|Last-Updated)$",
    re.IGNORECASE,
)
_KEPT = re.compile(
    r"^(Origin|Bug(-.+)?|Forwarded|Applied-Upstream|Last-Updated?|Reviewed-by|Acked-by|Debian-Bug|Comment|Upstream-Status)$",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"^\[(?=[^\]]{0,100}PATCH)[^\]]*\]\s*", re.IGNORECASE)
_LONGEST_AUTHOR = 1000
_ADDRESS = re.compile(r"https?://[^\s,>)]+")
_PERSON = re.compile(r"^(?P<name>[^<]*?)\s*<(?P<mail>[^>]+)>")
_SHOWN = re.compile(r"commit [0-9a-f]{7,40}\b")
_NOT_A_DESCRIPTION = re.compile(r"^(#!|Index: |={10,}|diff |-{3} |\+{3} |From [0-9a-f]{40} )")


@dataclass(frozen=True, slots=True)
class Header:
    """The author and message that the text above a diff states (None if it does not), and the state upstream."""

    author: Author | None
    message: str | None
    upstreamed: Upstreamed


def read(text: bytes, *, fallback: Author) -> Header:
    """Read the text above a diff; `fallback` completes an author without a date or an address."""
    lines = mail.decoded(text, None).replace("\r\n", "\n").split("\n")
    lines = [line.removeprefix("## DP: ").removeprefix("# ") if line.startswith(("## DP: ", "# ")) else line for line in lines]
    if "---" in (stripped := [line.rstrip() for line in lines]):
        rest = stripped.index("---")
        # DEP-3 and git end the header with this line; quilt users also begin a file with it.
        lines = lines[:rest] if any(stripped[:rest]) else lines[rest + 1 :]
    lines = _shown_commit(lines)
    found, free = _split([line for line in lines if not _NOT_A_DESCRIPTION.match(line)])
    fields: dict[str, str] = {}
    for name, value in found:
        fields.setdefault(name.lower(), value)
    described = fields.get("subject") or fields.get("description") or ""
    first, _, more = described.partition("\n")
    subject = _PREFIX.sub("", _decoded(first).strip())
    body = "\n\n".join(part for part in (_unfolded(more), free.strip("\n")) if part.strip())
    if not subject and body:
        subject, body = _from_text(body)
    kept = _trailers(found)
    author = _author(fields.get("from") or fields.get("author"), fields, fallback)
    message = None
    if subject:
        message = storable("\n\n".join(part for part in (" ".join(subject.split()), body, kept) if part.strip()))
    return Header(author, message, _upstreamed(fields))


def _shown_commit(lines: list[str]) -> list[str]:
    """Turn what `git show` and `git log` print above a diff into a header: their message is indented by four blanks."""
    first = next((place for place, line in enumerate(lines) if line.strip()), None)
    if first is None or not _SHOWN.match(lines[first]):
        return lines
    rest = [line for line in lines[first + 1 :] if not line.startswith(("Merge:", "Commit:", "CommitDate:"))]
    texts = [line.removeprefix("    ") for line in rest if not re.match(r"(Author|AuthorDate|Date):", line)]
    fields = [line for line in rest if re.match(r"(Author|AuthorDate|Date):", line)]
    subject, _, body = "\n".join(texts).strip("\n").partition("\n")
    return [*fields, f"Subject: {subject}", "", *body.strip("\n").split("\n")]


def _split(lines: Sequence[str]) -> tuple[list[tuple[str, str]], str]:
    """Split the header into its fields and its free text.

    Fields stand in the first paragraph, and in later ones that consist of known fields only.
    """
    fields: list[tuple[str, str]] = []
    free: list[str] = []
    for place, paragraph in enumerate(re.split(r"\n[ \t]*\n", "\n".join(lines).strip("\n"))):
        parsed = _fields(paragraph, strict=place > 0)
        if parsed is None:
            free.append(paragraph)
        else:
            fields += parsed
    return fields, "\n\n".join(free)


def _fields(paragraph: str, *, strict: bool) -> list[tuple[str, str]] | None:
    """Return the fields of a paragraph, with folded lines joined by line ends; None if it is free text."""
    found: list[tuple[str, str]] = []
    for line in paragraph.split("\n"):
        name = _FIELD.match(line)
        if name and (_KNOWN.match(name[1]) or (found and not strict)):
            found.append((name[1], line[name.end(1) + 1 :].strip()))
        elif found and line[:1] in (" ", "\t"):
            found[-1] = (found[-1][0], f"{found[-1][1]}\n{line}")
        elif found and not strict and line.strip():
            # Many headers forget to indent the long description.
            found[-1] = (found[-1][0], f"{found[-1][1]}\n {line}")
        else:
            return None
    signed = strict and all(name.lower() == "signed-off-by" for name, _ in found)
    return found if found and not signed else None


def _unfolded(text: str) -> str:
    """Return a folded long description as plain paragraphs: one blank in front goes, a lone dot is a blank line."""
    lines = [line[1:] if line.startswith(" ") else line for line in text.split("\n")]
    return "\n".join("" if line.strip() == "." else line for line in lines).strip("\n")


def _from_text(body: str) -> tuple[str, str]:
    first, _, rest = body.partition("\n")
    if len(first) <= 100 and (not rest.strip() or rest.startswith("\n")):
        return first.strip(), rest.strip("\n")
    return first.strip()[:100], body


def _trailers(found: Sequence[tuple[str, str]]) -> str:
    """Return the fields that stay in the message, one a line."""
    return "\n".join(
        f"{name}: {' '.join(value.split())}"
        for name, value in found
        if value.strip() and (_KEPT.match(name) or name.lower() == "signed-off-by")
    )


def _decoded(text: str) -> str:
    try:
        return str(email.header.make_header(email.header.decode_header(text)))
    except (ValueError, LookupError, email.errors.MessageError):
        return text


def _author(who: str | None, fields: Mapping[str, str], fallback: Author) -> Author | None:
    if who is None:
        return None
    text = " ".join(_decoded(who[:_LONGEST_AUTHOR]).split())
    person = _PERSON.match(text)
    date = _date(fields) or fallback.date
    if person:
        return Author(_plain(person["name"]) or person["mail"], _plain(person["mail"]), date)
    address = re.search(r"[^\s<>(),]+@[^\s<>(),]+", text)
    name = _plain(re.sub(r"[<(]?[^\s<>(),]+@[^\s<>(),]+[>)]?", "", text)).strip(" ,()")
    if address:
        return Author(name or address[0], address[0], date)
    return Author(name, "unknown@localhost", date) if name else None


def _plain(text: str) -> str:
    return re.sub(r'[<>"\n\x00]', "", text).strip()


def _date(fields: Mapping[str, str]) -> str | None:
    """Return the stated date in git's raw form."""
    stated = re.match(r"\d{4}-\d\d-\d\d", fields.get("last-update", ""))
    text = fields.get("date", "") or fields.get("authordate", "")
    for read_date, given in (
        (email.utils.parsedate_to_datetime, text),
        (_git_date, text),
        (datetime.fromisoformat, stated and stated[0]),
    ):
        try:
            when = read_date(given or "")
        except (ValueError, OverflowError):
            continue
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        return f"{max(int(when.timestamp()), 0)} {when.strftime('%z')}"
    return None


def _git_date(text: str) -> datetime:
    """Read a date as `git log` prints it: `Thu Jun 2 20:41:21 2022 +0000`."""
    return datetime.strptime(text, "%a %b %d %H:%M:%S %Y %z")


def _upstreamed(fields: Mapping[str, str]) -> Upstreamed:
    forwarded = fields.get("forwarded", "").strip()
    origin = fields.get("origin", "")
    proposed = _ADDRESS.search(forwarded) or (
        _ADDRESS.search(origin) if re.search(r"/(pull|merge_requests)/\d+", origin) else None
    )
    applied = " ".join(fields.get("applied-upstream", "").split())
    if not applied and re.match(r"(upstream|backport)\b", origin.strip(), re.IGNORECASE):
        applied = " ".join(origin.split()).partition(",")[2].strip()
    not_needed = forwarded.lower().replace("_", "-").startswith("not-needed")
    return Upstreamed(proposed[0] if proposed else None, applied or None, not_needed)
