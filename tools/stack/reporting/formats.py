# SPDX-License-Identifier: Apache-2.0
"""Write a report to a file whose suffix chooses the format."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from stack.base.errors import StackError
from stack.reporting import html, markdown
from stack.reporting.report import Report
from stack.store import cache


def as_json(report: Report) -> dict[str, object]:
    """Return a report as a document for JSON."""
    document: dict[str, object] = asdict(report)
    return document


def _json(report: Report) -> str:
    return json.dumps({"schema": "stack/report/1", **as_json(report)}, indent=2) + "\n"


FORMATS: Mapping[str, Callable[[Report], str]] = {
    ".html": html.render,
    ".htm": html.render,
    ".md": markdown.render,
    ".markdown": markdown.render,
    ".json": _json,
}
"""The function that writes each format, by the suffix of the file."""


def check(file: Path, suffixes: Iterable[str] = FORMATS) -> None:
    """Refuse a file that cannot be written, before long work begins.

    Raises:
        StackError: The suffix names no format, the folder is missing, or something else than a file has that name.

    """
    if file.suffix.lower() not in suffixes:
        raise StackError(f"{file}: no format has that suffix", f"name a file that ends in {', '.join(suffixes)}")
    if not file.parent.is_dir():
        raise StackError(f"{file.parent} is not a folder", "make it first")
    if file.is_dir():
        raise StackError(f"{file} is a folder", "name a file in it")


def write(file: Path, report: Report) -> None:
    """Write a report; the file appears whole or not at all.

    Raises:
        StackError: See `check`.
        OSError: The file cannot be written.

    """
    check(file)
    cache.put(file, FORMATS[file.suffix.lower()](report).encode("utf-8", "replace"))
