# SPDX-License-Identifier: Apache-2.0
"""Trailers of commit messages; two of them name a commit's series and patch file wherever patches stand as commits."""

from collections.abc import Iterable, Mapping

from stack.model.patch import trailers

SERIES = "Stack-Series"
PATCH = "Stack-Patch"


def with_trailers(message: str, added: Mapping[str, str]) -> str:
    """Append trailers to a message."""
    lines = "".join(f"{key}: {value}\n" for key, value in added.items())
    body = message.rstrip("\n")
    return f"{body}\n{lines}" if trailers(message) else f"{body}\n\n{lines}"


def without_trailers(message: str, keys: Iterable[str]) -> str:
    """Remove the trailers with these keys from a message, also from its middle, where a squash leaves some."""
    subject, *paragraphs = message.rstrip("\n").split("\n\n")
    kept = [subject]
    for paragraph in paragraphs:
        lines = paragraph.split("\n")
        if _pairs(paragraph):
            lines = [line for line in lines if line.partition(":")[0] not in set(keys)]
        if any(lines) or not paragraph.strip("\n"):
            kept.append("\n".join(lines))
    return "\n\n".join(kept) + "\n"


def marks(message: str) -> Mapping[str, str]:
    """Return the series and the patch file that a commit's trailers name.

    The last series counts, since `git commit --amend --trailer` appends one. The first file counts, since a squash keeps the
    first commit.
    """
    pairs = [pair for paragraph in message.split("\n\n")[1:] for pair in _pairs(paragraph)]
    series_pairs = [pair for pair in pairs if pair[0] == SERIES]
    file_pairs = [pair for pair in pairs if pair[0] == PATCH]
    return {**dict(series_pairs), **dict(reversed(file_pairs))}


def _pairs(paragraph: str) -> tuple[tuple[str, str], ...]:
    """Return the trailers of a paragraph. Several blank lines may stand above it: one of them is then its first line."""
    return trailers("-\n\n" + paragraph.strip("\n"))
