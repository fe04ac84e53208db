# SPDX-License-Identifier: Apache-2.0
"""The files of a wheel's dist-info folder, rewritten line by line: what is not named stays as it is, to the byte."""

import base64
import csv
import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name


@dataclass(frozen=True, slots=True)
class Edits:
    """What changes in METADATA: requirements that are left out, and those whose local version part is (`torch==2.13.0+cpu`)."""

    without: tuple[str, ...] = ()
    public: tuple[str, ...] = ()


def metadata(data: bytes, name: str, version: str, edits: Edits) -> tuple[bytes, tuple[str, ...]]:
    """METADATA under another name and version, and what was edited, in words."""
    text = data.decode("utf-8").replace("\r\n", "\n")
    head, blank, body = text.partition("\n\n")
    lines: list[str] = []
    said: list[str] = []
    for line in head.split("\n"):
        field, _, value = line.partition(": ")
        now = {"Name": name, "Version": version}.get(field, value)
        if field == "Requires-Dist":
            kept = _requirement(value, edits)
            if kept is None:
                said.append(f"Requires-Dist: {value} is left out")
                continue
            now = kept
        if now != value:
            said.append(f"{field}: {value} became {now}")
        lines.append(f"{field}: {now}" if now != value else line)
    return ("\n".join(lines) + blank + body).encode(), tuple(said)


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
    """WHEEL with the tags that the file's name has."""
    kept = [line for line in data.decode("utf-8").rstrip("\n").split("\n") if line and not line.startswith("Tag: ")]
    return ("\n".join([*kept, *sorted(f"Tag: {tag}" for tag in tags)]) + "\n").encode()


def parsed_record(data: bytes) -> dict[str, tuple[str, str]]:
    """RECORD: hash and size, as they are written, by path.

    Raises:
        ValueError: it is no such table.

    """
    rows: dict[str, tuple[str, str]] = {}
    try:
        for path, checksum, size in csv.reader(io.StringIO(data.decode("utf-8"), newline=""), strict=True):
            rows[path] = (checksum, size)
    except csv.Error as bad:
        raise ValueError(str(bad)) from bad
    return rows


def record(rows: Mapping[str, tuple[str, str]]) -> bytes:
    """RECORD as a file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows((path, *row) for path, row in rows.items())
    return text.getvalue().encode()


def row(data: bytes) -> tuple[str, str]:
    """The hash and the size of a file, as RECORD has them."""
    return checksum(hashlib.sha256(data).digest()), str(len(data))


def checksum(digest: bytes) -> str:
    """A SHA-256 as RECORD has it."""
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")


def fields(data: bytes) -> dict[str, str]:
    """The fields of METADATA; of one that is there several times, the last."""
    head = data.decode("utf-8", "replace").replace("\r\n", "\n").partition("\n\n")[0]
    return dict(line.split(": ", 1) for line in head.split("\n") if ": " in line)
