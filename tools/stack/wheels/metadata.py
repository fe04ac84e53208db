# SPDX-License-Identifier: Apache-2.0
"""Rewrite the files of a wheel's dist-info folder line by line; everything else stays unchanged, to the byte."""

import base64
import csv
import hashlib
import io
import re
from collections.abc import Iterable, Mapping

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name

from stack.projects import Edits


def metadata(data: bytes, name: str, version: str, edits: Edits) -> tuple[bytes, tuple[str, ...]]:
    """Give METADATA another name and version, and return it with a description of the edits."""
    text = data.decode("utf-8").replace("\r\n", "\n")
    head, blank, body = text.partition("\n\n")
    lines: list[str] = []
    edited: list[str] = []
    for line in head.split("\n"):
        field, _, value = line.partition(": ")
        now = {"Name": name, "Version": version}.get(field, value)
        if field == "Requires-Dist":
            kept = _requirement(value, edits)
            if kept is None:
                edited.append(f"Requires-Dist: {value} is left out")
                continue
            now = kept
        if now != value:
            edited.append(f"{field}: {value} became {now}")
        lines.append(f"{field}: {now}" if now != value else line)
    return ("\n".join(lines) + blank + body).encode(), tuple(edited)


def _requirement(text: str, edits: Edits) -> str | None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return text
    name = canonicalize_name(requirement.name)
    if name in edits.without:
        return None
    return re.sub(r"(==\s*[0-9.]+)\+[\w.]+", r"\1", text) if name in edits.public else text


def wheel(data: bytes, tags: Iterable[Tag]) -> bytes:
    """Give WHEEL the tags of the file's name."""
    kept = [line for line in data.decode("utf-8").rstrip("\n").split("\n") if line and not line.startswith("Tag: ")]
    return ("\n".join([*kept, *sorted(f"Tag: {tag}" for tag in tags)]) + "\n").encode()


def parsed_record(data: bytes) -> dict[str, tuple[str, str]]:
    """Parse RECORD into hash and size, as written there, by path.

    Raises:
        ValueError: the data is not such a table.

    """
    rows: dict[str, tuple[str, str]] = {}
    try:
        for path, checksum, size in csv.reader(io.StringIO(data.decode("utf-8"), newline=""), strict=True):
            rows[path] = (checksum, size)
    except csv.Error as bad:
        raise ValueError(str(bad)) from bad
    return rows


def record(rows: Mapping[str, tuple[str, str]]) -> bytes:
    """Write RECORD."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows((path, *row) for path, row in rows.items())
    return text.getvalue().encode()


def row(data: bytes) -> tuple[str, str]:
    """Return a file's hash and size in RECORD's form."""
    return checksum(hashlib.sha256(data).digest()), str(len(data))


def checksum(digest: bytes) -> str:
    """Return a SHA-256 digest in RECORD's form."""
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def fields(data: bytes) -> dict[str, str]:
    """Return the fields of METADATA; of a repeated field, the last value."""
    head = data.decode("utf-8", "replace").replace("\r\n", "\n").partition("\n\n")[0]
    return dict(line.split(": ", 1) for line in head.split("\n") if ": " in line)
