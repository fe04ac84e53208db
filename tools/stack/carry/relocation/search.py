# SPDX-License-Identifier: Apache-2.0
"""Search the new and the old tree for places that are similar to a hunk's."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

from stack.carry.relocation.context_window import STRONG, WINDOW, Image, Place, tells
from stack.carry.relocation.errors import Doubt
from stack.carry.relocation.hunks import Change, Core, Left
from stack.model.ids import TreeId
from stack.store.objects import EMPTY_TREE, FILES, Entry, Objects

LARGEST = 2 << 20
"""In bytes; larger files are data and are not searched."""
MOST_FILES = 40_000
"""Upper bound of the files that are read for one search; vLLM has 8,500. Only one is in memory at a time."""
MOST_PLACES = 500
"""A hunk with more candidate places than this is not relocated."""
RIVAL = 0.5
"""A place is ambiguous if a rival has more than this share of its score.

Measured with synthetic edits of FlashInfer lines between five pairs of releases (v0.2.0 to v0.6.17), which git alone left in
conflict. Edits of lines that moved to another file: 275 of 500 right, 225 without an answer, none wrong. Edits of lines that are
gone: 0 of 500 placed. Edits of lines that stay next to a change: 0 of 500 placed.

With all bounds lax (rivals up to 1, score 3, one line on each side, copies allowed), 199 of 300 were right instead of 172. Of
lines that occur in several places, 137 of 300 were right instead of 68. None was wrong either. The strict bounds stay, since a
wrong place costs more than a conflict.
"""
KEPT = 1 / 3
"""If the old place still has more than this share of a place's lines, they were copied or changed, and did not move.

The old place must have none of the lines that the hunk changes, nor of the lines next to them. The share alone is not enough:
FlashInfer's sparse_mainloop.cuh was rewritten in place except for that line, and a copy of the old code looked like its new place.
"""

_FAMILIES = (
    frozenset((".py", ".pyi")),
    frozenset((".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl", ".jinja")),
)

File = tuple[str, Entry]


@dataclass(frozen=True, slots=True)
class RelocatedHunk:
    """A hunk and its new place."""

    change: Change
    core: Core
    place: Place


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A hunk, the image of its old lines (to find its place), and of its new lines (to find where it is already applied)."""

    left: Left
    core: Core
    image: Image
    done: Image


class _Spot(NamedTuple):
    """A line (from 0) of a file."""

    path: str
    first: int


def family(path: str) -> frozenset[str]:
    """Return the suffixes of files to which this file's code may move."""
    suffix = PurePosixPath(path).suffix.lower()
    return next((each for each in _FAMILIES if suffix in each), frozenset((suffix,)))


def find(objects: Objects, before: TreeId, ours: TreeId, left: Sequence[Left]) -> list[RelocatedHunk]:
    """Find the new place of each hunk that has lost its own.

    Raises:
        Doubt: a hunk has no place, or several.

    """
    wanted = [
        _Wanted(file, core, Image.of(file.change.before, core.old), Image.of(file.change.after, core.new))
        for file in left
        for core in file.cores
    ]
    return [each for group in _by_family(wanted).values() for each in _find(objects, before, ours, group)]


def _by_family(wanted: Iterable[_Wanted]) -> Mapping[frozenset[str], list[_Wanted]]:
    groups: dict[frozenset[str], list[_Wanted]] = defaultdict(list)
    for each in wanted:
        groups[family(each.left.change.path)].append(each)
    return groups


def _find(objects: Objects, before: TreeId, ours: TreeId, wanted: Sequence[_Wanted]) -> list[RelocatedHunk]:
    suffixes = family(wanted[0].left.change.path)
    differences = [each for each in objects.difference(before, ours) if PurePosixPath(each[0]).suffix.lower() in suffixes]
    was = [(path, old) for path, old, _ in differences if old is not None]
    now = [(path, new) for path, _, new in differences if new is not None]
    # Moved code is in a file that changed, so search these first: most conflicts have no place there, and the search ends here.
    both = [*(each.image for each in wanted), *(each.done for each in wanted)]
    there = _scan(objects, now, both)
    best = [_best(each, places) for each, places in zip(wanted, there, strict=False)]
    stood = _scan(objects, was, both)
    # A similar place in an unchanged file is a rival, too: either of the two could be the code's place.
    others = _scan(objects, _unchanged(objects, ours, {path for path, *_ in differences}, suffixes), both[: len(wanted)])
    for number, (each, place) in enumerate(zip(wanted, best, strict=True)):
        here, own = _Spot(place.path, place.first), _Spot(each.left.change.path, each.core.old[0])
        _refuse_rivals(place, here, [*there[number], *others[number]])
        _refuse_rivals(place, own, stood[number])
        done = number + len(wanted)
        _refuse_done(_done(place, here, there[done]), _done(place, own, stood[done]))
    _refuse_added(objects, ours, wanted, best)
    return [RelocatedHunk(each.left.change, each.core, place) for each, place in zip(wanted, best, strict=True)]


def _best(wanted: _Wanted, places: Sequence[Place]) -> Place:
    """Return the place with the highest score, if its lines have left the old place.

    A place in the same file is refused. If git does not merge there, the file has similar code (as in all three cases in
    FlashInfer's history), and the conflict shows both.
    """
    fitting = [place for place in places if place.fits]
    if not fitting:
        raise Doubt
    place = max(fitting, key=lambda each: each.strict)
    if place.path == wanted.left.change.path:
        raise Doubt
    image = wanted.image
    telling = [number for number in place.run if image.telling[number]]
    kept = {number for number in telling if image.offset + number in wanted.left.kept}
    core = {*range(image.first, image.end), *_next([*reversed(telling)], image.first - 1, -1), *_next(telling, image.end, 1)}
    if kept & core or len(kept) > KEPT * len(telling):
        raise Doubt
    return place


def _next(lines: Iterable[int], start: int, step: int) -> list[int]:
    """Return the first of the lines from `start` on, going up or down; empty if there is none."""
    return [line for line in lines if (line - start) * step >= 0][:1]


def _refuse_rivals(best: Place, own: _Spot, places: Iterable[Place]) -> None:
    """Refuse a place if another place of the same tree scores nearly as high; `own` is the hunk's place in that tree."""
    for place in places:
        if (place.path, place.first) != own and _strength(place, own) > RIVAL * best.strict:
            raise Doubt


def _strength(place: Place, own: _Spot) -> int:
    """Return a rival's score. Two places near each other share most lines around them, so only the run distinguishes them."""
    is_near = place.path == own.path and abs(place.first - own.first) <= WINDOW
    return place.strict if is_near else place.loose


def _done(best: Place, own: _Spot, places: Iterable[Place]) -> Counter[str]:
    """Count the places of each file that look as if the hunk had been applied there."""
    return Counter(place.path for place in places if place.fits and _strength(place, own) > RIVAL * best.strict)


def _refuse_done(has: Counter[str], had: Counter[str]) -> None:
    """Refuse a hunk that a file has now and did not have before: it has landed, wholly or partly."""
    if has - had:
        raise Doubt


def _refuse_added(objects: Objects, ours: TreeId, wanted: Sequence[_Wanted], best: Sequence[Place]) -> None:
    """Refuse a hunk whose added lines are near its place now, and were not before."""
    for each, place in zip(wanted, best, strict=True):
        change = each.left.change
        added = Counter(line.strip() for line in change.after[slice(*each.core.new)] if tells(line))
        added -= Counter(line.strip() for line in change.before[slice(*each.core.old)])
        entry = objects.entry(ours, place.path)
        assert entry is not None
        size = each.image.end - each.image.first
        here = objects.read(entry.id).split(b"\n")[max(0, place.first - WINDOW) : place.first + size + WINDOW]
        come = Counter(line.strip() for line in here) - Counter(line.strip() for line in each.image.lines)
        if added and added <= come:
            raise Doubt


def _unchanged(objects: Objects, tree: TreeId, changed: set[str], suffixes: frozenset[str]) -> Iterator[File]:
    for path, _, entry in objects.difference(EMPTY_TREE, tree):
        if entry is not None and path not in changed and PurePosixPath(path).suffix.lower() in suffixes:
            yield path, entry


def _scan(objects: Objects, files: Iterable[File], images: Sequence[Image]) -> list[list[Place]]:
    """Return the places of each image in the files."""
    anchors: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
    for number, image in enumerate(images):
        for anchor in image.anchors:
            anchors[image.lines[anchor].strip()].append((number, anchor))
    places: list[dict[tuple[str, int], Place]] = [{} for _ in images]
    for path, lines in _texts(objects, files):
        stripped = [line.strip() for line in lines]
        if anchors.keys().isdisjoint(stripped):
            continue
        for at, line in enumerate(stripped):
            for number, anchor in anchors.get(line, ()):
                place = images[number].place(path, lines, anchor, at)
                if place is not None and place.loose > RIVAL * STRONG:  # A lower score can never be a rival.
                    places[number][path, place.first] = place
        if any(len(each) > MOST_PLACES for each in places):
            raise Doubt
    return [list(each.values()) for each in places]


def _texts(objects: Objects, files: Iterable[File]) -> Iterator[tuple[str, list[bytes]]]:
    for count, (path, entry) in enumerate(files):
        if count == MOST_FILES:
            raise Doubt
        if entry.mode not in FILES:
            continue
        data = objects.read(entry.id)
        if len(data) <= LARGEST and b"\0" not in data[:8000]:
            yield path, data.split(b"\n")
