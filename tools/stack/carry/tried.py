# SPDX-License-Identifier: Apache-2.0
"""Remember in the cache what became of the patches when they were last carried, so that `stack status` needs no network.

An outcome is kept for exactly these pins and patches: after any change of the stack it is not found any more. Decisions of a
person in a working tree, such as leaving a patch out, count only as long as that working tree stands.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stack.carry import resolutions
from stack.carry.outcome import Outcome
from stack.model import digest
from stack.model.ids import Sha256
from stack.model.stack import Stack
from stack.store import results

if TYPE_CHECKING:
    from stack.carry.outcome import Carried
    from stack.carry.rebase import Rebase

_KIND = "tried"
_FORMAT = "2"
RECORD = "stack-rebase.json"
"""The file in `.git` that a working tree of a rebase has until the rebase ends."""
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

    `time`: seconds since the epoch. `workspace`: the working tree in which it has stopped, None if that is gone by now.
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
    rows = [_row(row) for row in work.rows()]
    key, known = _key(work.stack, request.upstream), results.results(cache, _KIND)
    kept = {"onto": request.tag, "through": list(request.through), "time": int(time.time()), "patches": rows}
    place = str(workspace.resolve()) if workspace is not None else None
    earlier = known.get(key) if request.resolved else None
    known.put(key, kept | {"workspace": place, "undecided": _undecided(work, rows, earlier)})


def _row(row: "Carried") -> dict[str, Any]:
    return {"patch": row.patch.ref.path, "outcome": row.outcome.value, "reason": _reason(row), "person": row.needs_person}


def _undecided(work: "Rebase", rows: Sequence[Mapping[str, Any]], earlier: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return the outcomes without a person's decisions: those that the next rebase finds if this one is given up.

    A recorded resolution stays, and so does its outcome. For other decisions, return what was kept for the patch before.
    """
    if not work.request.resolved:
        return list(rows)
    recorded = {each.patch for each in resolutions.standing(work.stack.root).named.values()}
    same = earlier is not None and earlier.get("onto") == work.request.tag
    listed = earlier.get("undecided") if earlier is not None and same else None
    before = {each.get("patch"): each for each in listed if isinstance(each, dict)} if isinstance(listed, list) else {}
    found = []
    for row, now in zip(work.rows(), rows, strict=True):
        path = row.patch.ref.path
        decided = row.by_hand and (row.outcome is Outcome.LEFT_OUT or path not in recorded)
        if not decided:
            found.append(now)
        elif path in before:
            found.append(before[path])
    return found


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
    workspace = Path(place) if isinstance(place, str) and (Path(place) / ".git" / RECORD).is_file() else None
    return Tried(
        upstream,
        str(known["onto"]),
        tuple(map(str, known["through"])),
        int(known["time"]),
        tuple(
            TriedPatch(str(row["patch"]), str(row["outcome"]), str(row["reason"]), bool(row["person"]))
            for row in known["undecided" if workspace is None else "patches"]
        ),
        workspace,
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
