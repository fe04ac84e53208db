# SPDX-License-Identifier: Apache-2.0
"""Mails that carry patches, as bytes: split a mailbox, undo a transfer encoding, and put it on again.

A mail's text is bytes in whatever encoding the changed files have. Only its header and its message are text.
"""

import binascii
import itertools
import re
from dataclasses import dataclass

_FROM_LINE = re.compile(rb"^From \S[^\n]*\d:\d\d:\d\d[^\n]*\d{4}[^\n]*\n(?=[A-Za-z][A-Za-z0-9-]*:)", re.MULTILINE)
_HEADER = re.compile(rb"From |(?:[A-Za-z][A-Za-z0-9-]*:[^\n]*\n(?:[ \t][^\n]*\n)*)*?From:", re.IGNORECASE)
_CONTENT = re.compile(rb"^(?:Content-[A-Za-z-]+|MIME-Version):[^\n]*\n(?:[ \t][^\n]*\n)*", re.MULTILINE | re.IGNORECASE)
_CHARSET = re.compile(r"charset=\"?([^\s\";]+)", re.IGNORECASE)
_PLAIN = b"MIME-Version: 1.0\nContent-Type: text/plain; charset=%s\nContent-Transfer-Encoding: 8bit\n"
_LINE = 76
"""Characters of a line of an encoded mail."""


@dataclass(frozen=True, slots=True)
class Wrapping:
    """How a mail's text stands in its file. `crlf`: each line of the file ends with CRLF; `quoted_crlf`: each line that is encoded."""

    head: bytes
    """The header with the blank line after it; its line ends are LF here."""
    encoding: str
    crlf: bool
    quoted_crlf: bool

    def wrap(self, text: bytes) -> bytes:
        """The file of a mail with this text."""
        if self.quoted_crlf:
            text = text.replace(b"\n", b"\r\n")
        file = self.head + _ENCODED[self.encoding](text)
        return file.replace(b"\n", b"\r\n") if self.crlf else file


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail's header fields by their lower-case names, its text, and the charset that it states for its message."""

    headers: dict[str, str]
    text: bytes
    charset: str | None
    wrapping: Wrapping

    def decoded(self, message: bytes) -> str:
        """A part of the text as characters."""
        return decoded(message, self.charset)


def decoded(message: bytes, charset: str | None) -> str:
    """Read a message. As in git, a line that is neither of the stated charset nor UTF-8 is taken for Latin-1."""
    return "\n".join(_decoded(line, charset) for line in message.split(b"\n"))


def split(file: bytes) -> tuple[bytes, ...]:
    """The mails of a mailbox, in order; a file with one mail, or with none, is one part."""
    starts = [found.start() for found in _FROM_LINE.finditer(file)]
    edges = [0, *(start for start in starts if start > 0), len(file)]
    return tuple(file[first:last] for first, last in itertools.pairwise(edges))


def is_mail(file: bytes) -> bool:
    """Whether a file begins as a mail does: with a `From ` line, or with header fields that name the sender."""
    return _HEADER.match(file) is not None


def read(file: bytes) -> Mail | None:
    """Read a mail; None where the file is not one.

    Raises:
        ValueError: the text is not in the transfer encoding that the header states.

    """
    crlf = file.partition(b"\n")[0].endswith(b"\r")
    if crlf:
        file = file.replace(b"\r\n", b"\n")
    head, blank, body = file.partition(b"\n\n")
    if not is_mail(file) or not blank:
        return None
    head += blank
    headers = fields(_decoded(head, None).split("\n"))
    charset = _CHARSET.search(headers.get("content-type", ""))
    charset_name = charset[1] if charset else None
    encoding = headers.get("content-transfer-encoding", "8bit").lower()
    if headers.get("content-type", "").lower().startswith("multipart/"):
        body, charset_name = _joined(b"".join(_CONTENT.findall(head)) + b"\n" + body)
        head = _CONTENT.sub(b"", head)[:-1] + _PLAIN % (charset_name or "UTF-8").encode() + b"\n"
        encoding = "8bit"
    text = _DECODED[encoding](body)
    quoted_crlf = text is not body and text.partition(b"\n")[0].endswith(b"\r")
    if quoted_crlf:
        text = text.replace(b"\r\n", b"\n")
    return Mail(headers, text, charset_name, Wrapping(head, encoding, crlf, quoted_crlf))


def fields(lines: list[str]) -> dict[str, str]:
    """Header lines by their lower-case names, folded ones in one line."""
    unfolded = re.sub(r"\n[ \t]+", " ", "\n".join(lines)).split("\n")
    return {key.lower(): value.strip(" \t") for key, colon, value in (line.partition(":") for line in unfolded) if colon}


def _joined(mail: bytes) -> tuple[bytes, str | None]:
    """The texts of a mail of several parts, one after the other, and the charset of the first."""
    texts: list[bytes] = []
    charset = None
    import email  # noqa: PLC0415  (a hundredth of a second that only such a mail needs)

    for part in email.message_from_bytes(mail).walk():
        name = part.get_filename() or ""
        if (
            part.get_content_type() == "text/plain"
            or part.get_content_subtype() in _PATCHES
            or name.endswith((".patch", ".diff"))
        ):
            data = part.get_payload(decode=True)
            assert isinstance(data, bytes)
            texts.append(data if data.endswith(b"\n") else data + b"\n")
            charset = charset or part.get_content_charset()
    return b"".join(texts), charset


_PATCHES = ("x-patch", "x-diff", "x-git-patch")


def _decoded(data: bytes, charset: str | None) -> str:
    for name in (charset, "utf-8"):
        try:
            return data.decode(name or "utf-8")
        except (UnicodeDecodeError, LookupError):
            continue
    return data.decode("latin-1")


def _from_base64(body: bytes) -> bytes:
    return binascii.a2b_base64(body)


def _to_base64(text: bytes) -> bytes:
    step = _LINE // 4 * 3
    return b"".join(binascii.b2a_base64(text[place : place + step]) for place in range(0, len(text), step))


def _from_quoted(body: bytes) -> bytes:
    return binascii.a2b_qp(body)


def _to_quoted(text: bytes) -> bytes:
    # Line by line: `b2a_qp` gives all lines the end of the first one.
    return b"\n".join(binascii.b2a_qp(line, istext=False) for line in text.split(b"\n"))


def _as_it_is(text: bytes) -> bytes:
    return text


_DECODED = {"7bit": _as_it_is, "8bit": _as_it_is, "binary": _as_it_is, "base64": _from_base64, "quoted-printable": _from_quoted}
_ENCODED = {"7bit": _as_it_is, "8bit": _as_it_is, "binary": _as_it_is, "base64": _to_base64, "quoted-printable": _to_quoted}
