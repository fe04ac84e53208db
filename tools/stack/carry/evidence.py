# SPDX-License-Identifier: Apache-2.0
"""Say in lines of text why a patch has its outcome."""

import re
from collections.abc import Iterable, Iterator

from stack.carry.outcome import Carried, Conflict, Outcome, Upstream

CAUSE = "  "
"""How a line begins that names a cause of the line above."""


def lines(row: Carried) -> tuple[str, ...]:
    """Return a patch's evidence, then each conflict and drift with the upstream commits behind it."""
    return tuple(short_ids(line) for line in _lines(row))


def decided(row: Carried) -> str:
    """Return the release that decided the outcome: where the patch landed, or where it stopped."""
    if row.landed is not None:
        return row.landed.rung
    return row.rung if row.needs_person or row.outcome is Outcome.LANDED else ""


def short_ids(text: str) -> str:
    """Shorten full commit ids to 12 digits."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28}\b", r"\1", text)


def _lines(row: Carried) -> Iterator[str]:
    yield from row.evidence
    for conflict in row.conflicts:
        yield f"conflict in {conflict.path}{_place(conflict)}: {conflict.reason}"
        yield from _causes(conflict.upstream)
    for drift in row.drifts:
        yield f"{drift.path}{f':{drift.line}' if drift.line else ''}: {drift.problem}"
        yield from _causes(drift.upstream)


def _place(conflict: Conflict) -> str:
    if conflict.lines is None:
        return ""
    first, last = conflict.lines
    return f":{first}" if first == last else f":{first}-{last}"


def _causes(commits: Iterable[Upstream]) -> Iterator[str]:
    for place, commit in enumerate(commits):
        name = commit.subject if commit.release else f"{commit.commit[:12]} {commit.subject}"
        yield f"{CAUSE}{'and' if place else 'since'} {name}"
