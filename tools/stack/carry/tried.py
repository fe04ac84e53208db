# SPDX-License-Identifier: Apache-2.0
"""Remember in the cache what became of the patches when they were last carried, so that `stack status` needs no network.

An outcome is kept for exactly these pins and patches: after any change of the stack it is not found any more.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stack.model import digest
from stack.model.ids import Sha256
from stack.model.stack import Stack
from stack.store import results

if TYPE_CHECKING:
    from stack.carry.outcome import Carried
    from stack.carry.rebase import Rebase

_KIND = "tried"
_FORMAT = "1"
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class TriedPatch:
    """A patch's outcome when it was carried: its path below `stacks/`, and in one sentence why."""

    patch: str
    outcome: str
    reason: str
    needs_person: bool


@dataclass(frozen=True, slots=True)
class Tried:
    """The last carry of an upstream's patches. `onto` is what the user asked for, `through` the releases on the way.

    `time`: seconds since the epoch. `workspace`: the working tree in which it stopped; it may be gone by now.
    """

    upstream: str
    onto: str
    through: tuple[str, ...]
    time: int
    patches: tuple[TriedPatch, ...]
    workspace: Path | None = None

    @property
    def open(self) -> tuple[TriedPatch, ...]:
        """The patches that need a person there."""
        return tuple(patch for patch in self.patches if patch.needs_person)


def keep(cache: Path, work: "Rebase", workspace: Path | None = None) -> None:
    """Keep the outcomes of a rebase that was planned; a cache that cannot be written keeps nothing."""
    request = work.request
    if not any(leg.moves for leg in work.legs):
        return
    rows = [
        {"patch": row.patch.ref.path, "outcome": row.outcome.value, "reason": _reason(row), "person": row.needs_person}
        for row in work.rows()
    ]
    kept = {"onto": request.tag, "through": list(request.through), "time": int(time.time()), "patches": rows}
    place = str(workspace.resolve()) if workspace is not None else None
    results.results(cache, _KIND).put(_key(work.stack, request.upstream), kept | {"workspace": place})


def last(cache: Path, stack: Stack) -> tuple[Tried, ...]:
    """Return the last carry of each upstream for exactly this stack."""
    return tuple(_read(cache, stack))


def _read(cache: Path, stack: Stack) -> Iterator[Tried]:
    kept = results.results(cache, _KIND)
    for pin in stack.pins:
        known = kept.get(_key(stack, pin.upstream))
        try:
            if known is not None:
                yield _parsed(pin.upstream, known)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError):  # another program wrote the file
            continue


def _parsed(upstream: str, known: Mapping[str, Any]) -> Tried:
    place = known["workspace"]
    return Tried(
        upstream,
        str(known["onto"]),
        tuple(map(str, known["through"])),
        int(known["time"]),
        tuple(
            TriedPatch(str(row["patch"]), str(row["outcome"]), str(row["reason"]), bool(row["person"]))
            for row in known["patches"]
        ),
        Path(place) if isinstance(place, str) else None,
    )


def _key(stack: Stack, upstream: str) -> Sha256:
    return results.key({"format": _FORMAT, "stack": digest.exact(stack), "upstream": upstream})


def _reason(row: "Carried") -> str:
    """Return why a patch has its outcome, in one sentence."""
    if row.conflicts:
        places = [f"{each.path}:{each.lines[0]}" if each.lines else each.path for each in row.conflicts]
        return f"conflict in {', '.join(dict.fromkeys(places))}"[:_LONGEST]
    if row.drifts:
        return f"{row.drifts[0].path}: {row.drifts[0].problem}"[:_LONGEST]
    return "; ".join(row.evidence)[:_LONGEST]
