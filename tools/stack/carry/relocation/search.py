# SPDX-License-Identifier: Apache-2.0
"""Search of the new tree, and of the old one, for the places that are like a hunk's."""

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
"""Bytes; what is larger is data."""
MOST_FILES = 40_000
"""Files that are read for one answer; vLLM has 8,500. One at a time is held."""
MOST_PLACES = 500
"""A line that stands in more places tells nothing."""
RIVAL = 0.5
"""A place whose rival has more than this share of its strength is not the only one.

Synthetic edits of lines in FlashInfer that moved to another file between five pairs of releases (v0.2.0 to v0.6.17), which git
alone left in conflict: 275 of 500 right, 225 without an answer, none wrong. Edits of lines that are gone: 0 of 500 placed; of lines
that stay beside a change: 0 of 500. With all bounds lax (rivals up to 1, strength 3, one line beside, copies allowed) 199 of 300
instead of 172 were right, and of lines that stand in more than one place 137 of 300 instead of 68, none wrong either. The bounds
stay, since a wrong place costs more than a conflict.
"""
KEPT = 1 / 3
"""Where more than this share of a place's lines still stand at the old place, they were copied, or changed, and did not move.

Not even one of the lines that the hunk changes, or of those next to them, may: FlashInfer's sparse_mainloop.cuh was rewritten in
place but for that line, and a copy made, which the share alone took for the code.
"""

_FAMILIES = (
    frozenset((".py", ".pyi")),
    frozenset((".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl", ".jinja")),
)

File = tuple[str, Entry]


@dataclass(frozen=True, slots=True)
class Found:
    """A hunk and where it belongs."""

    change: Change
    core: Core
    place: Place


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A hunk, what it looks for, and what would stand where it has been done."""

    left: Left
    core: Core
    image: Image
    done: Image


class _Spot(NamedTuple):
    """A file's line."""

    path: str
    first: int


def family(path: str) -> frozenset[str]:
    """The suffixes of files that code of this one may move to."""
    suffix = PurePosixPath(path).suffix.lower()
    return next((each for each in _FAMILIES if suffix in each), frozenset((suffix,)))


def find(objects: Objects, before: TreeId, ours: TreeId, left: Sequence[Left]) -> list[Found]:
    """The place of each hunk that has lost its own.

    Raises:
        Doubt: one has no place, or more than one.

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


def _find(objects: Objects, before: TreeId, ours: TreeId, wanted: Sequence[_Wanted]) -> list[Found]:
    suffixes = family(wanted[0].left.change.path)
    differences = [each for each in objects.difference(before, ours) if PurePosixPath(each[0]).suffix.lower() in suffixes]
    was = [(path, old) for path, old, _ in differences if old is not None]
    now = [(path, new) for path, _, new in differences if new is not None]
    # What moved came into a file that changed: most conflicts are none of these, and end here.
    both = [*(each.image for each in wanted), *(each.done for each in wanted)]
    there = _scan(objects, now, both)
    best = [_best(each, places) for each, places in zip(wanted, there, strict=False)]
    stood = _scan(objects, was, both)
    # A place in a file that is the same in both trees is a rival all the same: who can tell which of the two was moved?
    others = _scan(objects, _unchanged(objects, ours, {path for path, *_ in differences}, suffixes), both[: len(wanted)])
    for number, (each, place) in enumerate(zip(wanted, best, strict=True)):
        here, own = _Spot(place.path, place.first), _Spot(each.left.change.path, each.core.old[0])
        _refuse_rivals(place, here, [*there[number], *others[number]])
        _refuse_rivals(place, own, stood[number])
        done = number + len(wanted)
        _refuse_done(_done(place, here, there[done]), _done(place, own, stood[done]))
    _refuse_added(objects, ours, wanted, best)
    return [Found(each.left.change, each.core, place) for each, place in zip(wanted, best, strict=True)]


def _best(wanted: _Wanted, places: Sequence[Place]) -> Place:
    """The strongest place, if its lines have left the old one.

    Not in the same file: what git does not merge there has its like there (each of three cases in FlashInfer's history had), and
    the conflict shows both.
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
    """The first of some lines from `start` on, upwards or downwards."""
    return [line for line in lines if (line - start) * step >= 0][:1]


def _refuse_rivals(best: Place, own: _Spot, places: Iterable[Place]) -> None:
    """Refuse a place where another one of the same tree is nearly as strong; `own` is the one that is no rival in that tree."""
    for place in places:
        if (place.path, place.first) != own and _strength(place, own) > RIVAL * best.strict:
            raise Doubt


def _strength(place: Place, own: _Spot) -> int:
    """Of a rival. The windows of two places near each other are nearly the same: there only the run tells them apart."""
    is_near = place.path == own.path and abs(place.first - own.first) <= WINDOW
    return place.strict if is_near else place.loose


def _done(best: Place, own: _Spot, places: Iterable[Place]) -> Counter[str]:
    """How many places of each file look as if the hunk had been applied there."""
    return Counter(place.path for place in places if place.fits and _strength(place, own) > RIVAL * best.strict)


def _refuse_done(has: Counter[str], had: Counter[str]) -> None:
    """Refuse a hunk that some file has by now and had not before: it has landed, or a part of it."""
    if has - had:
        raise Doubt


def _refuse_added(objects: Objects, ours: TreeId, wanted: Sequence[_Wanted], best: Sequence[Place]) -> None:
    """Refuse a hunk whose added lines stand near its place by now, and did not before."""
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
    """The places of each image in some files."""
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
                if place is not None and place.loose > RIVAL * STRONG:  # less is nobody's rival
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
