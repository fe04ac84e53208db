# SPDX-License-Identifier: Apache-2.0
"""Mails that carry patches, as bytes: split a mailbox, decode and encode transfer encodings.

The body consists of bytes in the encodings of the changed files. Only the header and the commit message are text.
"""

import binascii
import itertools
import re
from dataclasses import dataclass

_FROM_LINE = re.compile(rb"^From \S([^\n]*)\n(?=[A-Za-z][A-Za-z0-9-]*:)", re.MULTILINE)
_TIME, _YEAR = re.compile(rb"\d:\d\d:\d\d"), re.compile(rb"\d{4}")
_HEADER = re.compile(rb"From |(?:[A-Za-z][A-Za-z0-9-]*:[^\n]*\n(?:[ \t][^\n]*\n)*)*?From:", re.IGNORECASE)
_CONTENT = re.compile(rb"^(?:Content-[A-Za-z-]+|MIME-Version):[^\n]*\n(?:[ \t][^\n]*\n)*", re.MULTILINE | re.IGNORECASE)
_CHARSET = re.compile(r"charset=\"?([^\s\";]+)", re.IGNORECASE)
_PLAIN = b"MIME-Version: 1.0\nContent-Type: text/plain; charset=%s\nContent-Transfer-Encoding: 8bit\n"
_LINE = 76
"""Characters per line of an encoded mail."""


@dataclass(frozen=True, slots=True)
class Wrapping:
    """The encoding of a mail's text in its file.

    `crlf`: lines of the file end with CRLF. `quoted_crlf`: lines of the text inside the transfer encoding do.
    """

    head: bytes
    """The header and the blank line after it, with LF line ends."""
    encoding: str
    crlf: bool
    quoted_crlf: bool

    def wrap(self, text: bytes) -> bytes:
        """Return the file of a mail with this text."""
        if self.quoted_crlf:
            text = text.replace(b"\n", b"\r\n")
        file = self.head + _ENCODED[self.encoding](text)
        return file.replace(b"\n", b"\r\n") if self.crlf else file


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail: header fields by lower-case name, text, and the charset that the header states."""

    headers: dict[str, str]
    text: bytes
    charset: str | None
    wrapping: Wrapping

    def decoded(self, message: bytes) -> str:
        """Decode a part of the text."""
        return decoded(message, self.charset)


def decoded(message: bytes, charset: str | None) -> str:
    """Decode a message. As in git, a line that fits neither the stated charset nor UTF-8 is read as Latin-1."""
    return "\n".join(_decoded(line, charset) for line in message.split(b"\n"))


def split(file: bytes) -> tuple[bytes, ...]:
    """Split a mailbox into its mails, in order; a file with one mail or none gives one part."""
    starts = [found.start() for found in _FROM_LINE.finditer(file) if _dated(found[1])]
    edges = [0, *(start for start in starts if start > 0), len(file)]
    return tuple(file[first:last] for first, last in itertools.pairwise(edges))


def _dated(line: bytes) -> bool:
    """Tell whether a line has a time and a year after it; one expression for both would take time quadratic in the length."""
    time = _TIME.search(line)
    return time is not None and _YEAR.search(line, time.end()) is not None


def is_mail(file: bytes) -> bool:
    """Tell whether a file begins like a mail: with a `From ` line, or with header fields that include `From:`."""
    return _HEADER.match(file) is not None


def read(file: bytes) -> Mail | None:
    """Parse a mail; return None if the file is not a mail.

    Raises:
        ValueError: The text is not in the transfer encoding that the header states.

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
    """Map lower-case field names to their values, with folded lines joined."""
    unfolded = re.sub(r"\n[ \t]+", " ", "\n".join(lines)).split("\n")
    return {key.lower(): value.strip(" \t") for key, colon, value in (line.partition(":") for line in unfolded) if colon}


def _joined(mail: bytes) -> tuple[bytes, str | None]:
    """Join the text parts of a multipart mail; also return the charset of the first."""
    texts: list[bytes] = []
    charset = None
    import email  # noqa: PLC0415  (takes 0.01 s and only multipart mails need it)

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
        except (ValueError, LookupError):  # Python has a codec that always fails, and a name may hold a NUL
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
    # Line by line: `b2a_qp` gives all lines the line end of the first one.
    return b"\n".join(binascii.b2a_qp(line, istext=False) for line in text.split(b"\n"))


def _as_it_is(text: bytes) -> bytes:
    return text


_DECODED = {"7bit": _as_it_is, "8bit": _as_it_is, "binary": _as_it_is, "base64": _from_base64, "quoted-printable": _from_quoted}
_ENCODED = {"7bit": _as_it_is, "8bit": _as_it_is, "binary": _as_it_is, "base64": _to_base64, "quoted-printable": _to_quoted}
