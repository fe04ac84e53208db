# SPDX-License-Identifier: Apache-2.0
"""Which commit or release brought a patch's change upstream, under whatever name and however it was reworked on the way.

A patch is held against the lines that every step of the way added and removed, file by file (see `history`): the share of its
lines that a step has, too, is the score. Lines that many steps share (a licence header, `return None`) say nothing and are left
out. The same lines can stand where the patch does not act (the same guard, for another kernel): so what the score says counts
only if the patch's own place shows it after the step, too (see `place`). `Found.place` says how much of it has to be there.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stack.carry import history, reflow
from stack.carry.history import Held, Index, Line, Step
from stack.model import patch as patches
from stack.model.diff import FileDiff
from stack.model.ids import TreeId
from stack.model.patch import Patch
from stack.store.objects import FILES, Objects

LANDED = 0.9
"""From here on a patch has landed. Chosen on FlashInfer v0.6.4 -> v0.6.8, reported on other ranges: benchmarks/landing.py."""
PARTLY = 0.5
"""From here on a part of it has; so much is enough, too, where the pull request's number says that it is the same change."""
FEW = 3
"""Fewer telling lines than this prove nothing by themselves: such a patch has to be in its place as a whole."""
SURE = 10
"""The same patch with so many lines is no accident, wherever it stands."""
PLACE = 0.3
"""So much of a patch has to be in its place, where the score says that it has landed: in a sibling's file it is nothing."""
MORE = 0.2
"""A further commit counts where it has at least this share of the patch that the ones before lack: it landed in parts."""
_PARTS = 3
_REFLOWED = 0.3
"""From here on the lines that lack are looked for with other line breaks."""

_SUBJECT_NUMBER = re.compile(r"\(#(\d+)\)\s*$")
_PULL_ADDRESS = re.compile(r"https?://\S+/(?:pull|merge_requests)/(\d+)\b")
_SAYS_WHERE = frozenset({"upstream", "upstream-pr", "upstream-pull", "pull-request", "pr", "forwarded", "submitted"})

Place = tuple[str, Line]
"""A line of a patch, in the file that has it."""
Wanted = Mapping[Place, int]
"""How often a patch has a line, by the file that has it."""


@dataclass(frozen=True, slots=True)
class Found:
    """The steps that have most of a patch (the one with most of it first), how much they have, and the lines that none has.

    `place`: how much of the patch its own place has to show after them; 0 where there is no need to look. `whole`: the step is
    this very patch.
    """

    steps: tuple[Step, ...]
    score: float
    missing: frozenset[Place] = frozenset()
    pull: int | None = None
    place: float = PLACE
    whole: bool = False

    @property
    def landed(self) -> bool:
        """Whether the score reaches the bar."""
        return self.score >= (PARTLY if self.pull is not None else LANDED)

    @property
    def last(self) -> Step:
        """The step after which all of it is there."""
        return max(self.steps)

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the patch of which lines are missing."""
        return tuple(sorted({path for path, _ in self.missing}))


def recorded(patch: Patch) -> frozenset[int]:
    """The pull requests that a patch names as its own: `(#12)` at the end of its subject, or an address in a trailer."""
    found = set(_SUBJECT_NUMBER.findall(patch.subject))
    for key, value in patches.trailers(patch.message):
        if key.lower() in _SAYS_WHERE:
            found |= set(_PULL_ADDRESS.findall(value))
    return frozenset(map(int, found))


def pull_number(address: str) -> int | None:
    """The number of a pull request, from its address."""
    found = _PULL_ADDRESS.search(address)
    return int(found[1]) if found else None


def search(
    index: Index,
    files: Sequence[FileDiff],
    pulls: Collection[int] = (),
    *,
    objects: Objects | None = None,
    without: Collection[int] = (),
) -> Found | None:
    """What brought a patch; None where nothing on the way has half of it.

    Args:
        index: the way.
        files: the patch's change.
        pulls: the numbers of the patch's own pull requests.
        objects: the repository; without, a line is only recognised where upstream breaks it at the same places.
        without: the numbers of the steps that are not asked for.

    """
    same = next((step for step in index.same_patch(files) if step.number not in without), None)
    if same is not None:
        return Found((same,), 1.0, place=_bar(files), whole=True)
    own = wanted(files)
    holders = index.holders({turned for _, (side, number) in own for turned in ((side, number), (-side, number))})
    telling = {place: count for place, count in own.items() if place[1] in holders}
    for number in sorted(pulls):
        step = index.pull(number)
        if step is not None and step.number not in without:
            return _in_pull(telling, holders, step, number)
    found = _in_steps(index, telling, _hits(_Homes(index, files), telling, holders, without))
    if found is None:
        return None
    if sum(telling.values()) < FEW:
        return replace(found, place=1) if not found.missing and len(found.steps) == 1 else None
    if objects is not None and _REFLOWED <= found.score < LANDED:
        found = _reflowed(objects, index, files, telling, found)
    return found if found.score >= PARTLY else None


def _bar(files: Iterable[FileDiff]) -> float:
    """How much of a patch its place has to show, where a step is the same patch."""
    lines = {line for line, _ in zip((line for file in files for line in history.lines(file)), range(SURE), strict=False)}
    return 0 if len(lines) == SURE else PLACE if len(lines) >= FEW else 1


def reverted(index: Index, files: Sequence[FileDiff], brought: Step) -> bool:
    """Whether upstream reverted a patch after a step had brought it, and did not bring it again."""
    back = [step for step in index.same_patch([_reversed(file) for file in files]) if step > brought]
    if not back:
        return False
    again = search(index, files, without=range(back[-1].number + 1))
    return again is None or not again.landed


def reversal(index: Index, files: Sequence[FileDiff], brought: Step) -> Step | None:
    """The step that removed what another one had brought; None where none did so as a whole."""
    found = search(index, [_reversed(file) for file in files], without=range(brought.number + 1))
    return found.last if found is not None and found.landed else None


def _reversed(file: FileDiff) -> FileDiff:
    hunks = tuple(
        replace(
            hunk,
            old_start=hunk.new_start,
            old_count=hunk.new_count,
            new_start=hunk.old_start,
            new_count=hunk.old_count,
            lines=tuple(_turned(hunk.lines)),
        )
        for hunk in file.hunks
    )
    return replace(
        file,
        old=file.new,
        new=file.old,
        old_id=file.new_id,
        new_id=file.old_id,
        old_mode=file.new_mode,
        new_mode=file.old_mode,
        hunks=hunks,
    )


def _turned(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Added lines removed and removed ones added; what is removed comes first, as git writes it."""
    for changed, group in itertools.groupby(lines, lambda line: line[:1] in (b"+", b"-")):
        if not changed:
            yield from group
            continue
        together = list(group)
        yield from (b"-" + line[1:] for line in together if line[:1] == b"+")
        yield from (b"+" + line[1:] for line in together if line[:1] == b"-")


def wanted(files: Iterable[FileDiff]) -> Wanted:
    """The telling lines of a patch. What a renamed file loses is lost under its old name."""
    return Counter((_home(file, line), line) for file in files for line in history.lines(file))


def place_of(file: FileDiff, line: bytes) -> Place | None:
    """A line of a hunk as a patch's `wanted` lines name it; None where it tells nothing."""
    told = history.telling(line)
    return (_home(file, told), told) if told is not None else None


def _home(file: FileDiff, line: Line) -> str:
    return file.old if line[0] < 0 and file.old else file.path


def brought(objects: Objects, index: Index, files: Sequence[FileDiff], found: Found) -> Counter[Place]:
    """How often the steps of a landing have each line of a patch, common lines, too."""
    own = wanted(files)
    if found.whole:
        return Counter(own)
    holders = index.holders({line for _, line in own})
    steps = {step.number for step in found.steps}
    homes = _Homes(index, files)
    there: Counter[Place] = Counter()
    changes: dict[str, Mapping[Line, int]] = {}
    for place, count in own.items():
        path, line = place
        if place in found.missing:
            continue
        if line not in holders:
            if path not in changes:
                changes[path] = _changes(objects, index, steps, path)
            there[place] = changes[path].get(line, 0)
            continue
        times = sum(
            held.times for held in holders[line] if held.step in steps and (not found.place or homes.has(path, held.path))
        )
        there[place] = times or count  # with other line breaks
    return there


def _changes(objects: Objects, index: Index, steps: Collection[int], path: str) -> Mapping[Line, int]:
    """All lines that some steps changed in a file, those that are common, too."""
    changed: Counter[Line] = Counter()
    for touch in index.touching(path):
        if touch.step.number in steps:
            was, now = (Counter(objects.read(blob).split(b"\n") if blob else ()) for blob in (touch.was, touch.blob))
            changed.update({(1, history.hashed(line)): count for line, count in (now - was).items()})
            changed.update({(-1, history.hashed(line)): count for line, count in (was - now).items()})
    return changed


@dataclass(frozen=True, slots=True)
class _Homes:
    """In which other files of upstream a patch's lines may have landed: their own file has to be lost there.

    Anywhere else the same lines belong to a sibling of the patch: the same change, for another kernel.
    """

    index: Index
    files: Sequence[FileDiff]
    known: dict[tuple[str, str], bool] = field(default_factory=dict)

    def has(self, path: str, other: str) -> bool:
        """Whether a line of `path` may have landed in `other`: in the file itself, or in one that came in its stead."""
        if path == other:
            return True
        if (path, other) not in self.known:
            self.known[path, other] = self._lost(path, other) and any(one.was is None for one in self.index.touching(other))
        return self.known[path, other]

    def _lost(self, path: str, other: str) -> bool:
        """Whether upstream has dropped a file, or has one that a patch adds somewhere else."""
        touches = self.index.touching(path)
        if touches:
            return touches[-1].blob is None
        same_name = path.rpartition("/")[2] == other.rpartition("/")[2]
        return same_name and any(file.path == path and file.old is None for file in self.files)


_Hits = Mapping[int, Mapping[Place, int]]
"""By the step's number: which lines of a patch it has, and how often."""


def _hits(homes: _Homes, telling: Wanted, holders: Mapping[Line, Sequence[Held]], without: Collection[int]) -> _Hits:
    hits: dict[int, Counter[Place]] = defaultdict(Counter)
    own = {line for _, line in telling}
    for place in telling:
        path, (side, number) = place
        for held in holders[side, number]:
            if held.step not in without and homes.has(path, held.path):
                hits[held.step][place] += held.times
                # What a step takes from a file and puts into the one that comes in its stead (it renames it) is nothing new.
                if (-side, number) not in own:
                    hits[held.step][place] -= sum(
                        one.times
                        for one in holders.get((-side, number), ())
                        if one.step == held.step and one.path != held.path and homes.has(path, one.path)
                    )
    return hits


def _in_pull(telling: Wanted, holders: Mapping[Line, Sequence[Held]], step: Step, number: int) -> Found:
    """How much of a patch is in the commit of its pull request, in whatever files."""
    missing = frozenset(place for place in telling if all(held.step != step.number for held in holders[place[1]]))
    # A patch without a telling line has nothing that the number could be held against.
    return Found((step,), _share(telling, missing) if telling else 0.0, missing, number, place=0)


def _in_steps(index: Index, telling: Wanted, hits: _Hits) -> Found | None:
    """The step that has most of a patch, and those that have the rest."""
    total = sum(telling.values())
    missing = dict(telling)
    numbers: list[int] = []
    score = 0
    for _ in range(_PARTS):
        shares = {
            step: sum(min(missing[place], max(0, times)) for place, times in own.items() if place in missing)
            for step, own in hits.items()
        }
        # The first of several with the same score: later ones only carried it on.
        number, share = max(shares.items(), key=lambda item: (item[1], -item[0]), default=(0, 0))
        if share < min(FEW, total) or share == 0 or (numbers and share < MORE * total):
            break
        numbers.append(number)
        score += share
        missing = {place: count for place, count in missing.items() if hits[number].get(place, 0) <= 0}
    return Found(tuple(map(index.step, numbers)), score / total, frozenset(missing)) if numbers else None


def _reflowed(objects: Objects, index: Index, files: Sequence[FileDiff], telling: Wanted, found: Found) -> Found:
    """The same with the lines that a step has with other line breaks."""
    there = {place for step in found.steps for place in reflow.there(objects, index, step, files, found.missing)}
    missing = found.missing - there
    return replace(found, missing=missing, score=_share(telling, missing)) if there else found


def _share(telling: Wanted, missing: Collection[Place]) -> float:
    """How much of a patch is not missing."""
    total = sum(telling.values())
    return 1 - sum(telling[place] for place in missing) / total if total else 1.0


def present(objects: Objects, index: Index, tree: TreeId, files: Iterable[FileDiff]) -> float:
    """The share of a patch's change that a tree shows: added lines that are in its file, removed ones that are not.

    A file that was renamed on the way is looked for under its later name; one that the tree lacks shows nothing of what was added.
    """
    there = total = 0
    for file in files:
        entry = objects.entry(tree, file.path) or objects.entry(tree, index.name(file.path))
        data = objects.read(entry.id) if entry is not None and entry.mode in FILES else b""
        have = {history.hashed(line) for line in data.split(b"\n")}
        for side, line in history.lines(file):
            total += 1
            there += (line in have) == (side > 0)
    return there / total if total else 1.0
