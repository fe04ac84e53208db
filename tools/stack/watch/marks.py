# SPDX-License-Identifier: Apache-2.0
"""The hidden marks in the texts on a forge: by them the next run finds its issue, and knows what it wrote there."""

import json
import re
from dataclasses import asdict, dataclass
from datetime import date

from stack.model.pins import MAIN

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_ISSUE = re.compile(r"\A<!-- stack-watch issue (?P<upstream>\S+) (?P<state>\{[^<>]*\}) -->")
_PULL = re.compile(r"\A<!-- stack-watch pull (?P<upstream>\S+) (?P<state>\{[^<>]*\}) -->")
_COMMENT = re.compile(r"\A<!-- stack-watch outcome (?P<outcome>[0-9a-f]+) -->")


@dataclass(frozen=True, slots=True)
class IssueMark:
    """The hidden values of an issue: hashes of `Night`, and the day on which it was last written.

    `opened` is the outcome that the issue was opened with, so the first one that readers know. `outcome` is the last one whose
    consequences for the issue's state were drawn; it is empty before that.
    """

    opened: str
    outcome: str
    content: str
    day: str


@dataclass(frozen=True, slots=True)
class PullMark:
    """The hidden values of a pull request: the release, and the hash of its content."""

    release: str
    content: str


def of_issue(upstream: str, mark: IssueMark) -> str:
    """Write the mark of an issue, its first line."""
    return f"<!-- stack-watch issue {_checked(upstream)} {json.dumps(asdict(mark), sort_keys=True)} -->"


def key(upstream: str, lane: str) -> str:
    """Return what the mark of a pull request names: the upstream, with the lane if it is not `main`."""
    return upstream if lane == MAIN else f"{upstream}/{lane}"


def of_pull(name: str, mark: PullMark) -> str:
    """Write the mark of a pull request, its first line; `name` is the `key`."""
    return f"<!-- stack-watch pull {_checked(name)} {_safe(json.dumps(asdict(mark), sort_keys=True))} -->"


def of_comment(outcome: str) -> str:
    """Write the mark of a comment, its first line."""
    return f"<!-- stack-watch outcome {outcome} -->"


def issue(body: str, upstream: str) -> IssueMark | None:
    """Read the mark of an upstream's issue; None if the text is not one. Damaged values count as empty ones."""
    match = _ISSUE.match(body)
    if match is None or match["upstream"] != upstream:
        return None
    values = _parsed(match["state"])
    return IssueMark(*(values.get(key, "") for key in ("opened", "outcome", "content", "day")))


def pull(body: str, name: str) -> PullMark | None:
    """Read the mark of a pull request with the `key` `name`; None if the text is not one."""
    match = _PULL.match(body)
    if match is None or match["upstream"] != name:
        return None
    values = _parsed(match["state"])
    return PullMark(values.get("release", ""), values.get("content", ""))


def comment(body: str) -> str | None:
    """Read the outcome that a comment announced; None if it announced none."""
    match = _COMMENT.match(body)
    return match["outcome"] if match else None


def days_since(mark: IssueMark, today: date) -> int | None:
    """Return the days since an issue was last written; None if its day cannot be read."""
    try:
        return (today - date.fromisoformat(mark.day)).days
    except ValueError:
        return None


def _parsed(text: str) -> dict[str, str]:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):  # anybody may write an issue with a mark
        return {}
    return {key: value for key, value in read.items() if isinstance(value, str)}


def _checked(name: str) -> str:
    assert _NAME.fullmatch(name), name  # names of upstreams and of lanes in pins.toml have this form
    return name


def _safe(text: str) -> str:
    """Escape what would end the comment in HTML; a tag's name may hold it."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e")
