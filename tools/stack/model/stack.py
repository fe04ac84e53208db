# SPDX-License-Identifier: Apache-2.0
"""The whole stack: pins, series in order, and patches, loaded strictly from one folder."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from stack.base import files
from stack.base.did_you_mean import unknown_name
from stack.base.errors import StackError
from stack.model import document, guards, lane_files, lint_policy, patch, pins, series, switch
from stack.model.document import find_cycle
from stack.model.guards import Guard
from stack.model.lint_policy import LintPolicy
from stack.model.patch import Patch
from stack.model.pins import Pins
from stack.model.series import PatchRef, Series

FOLDER = "stacks"
FILE = "stack.toml"
RESOLUTIONS = "resolutions"
_RESERVED = {RESOLUTIONS: "conflict resolutions", lane_files.NAME: "the files of lanes"}


@dataclass(frozen=True, slots=True)
class Stack:
    """The contents of `pins.toml` and `stacks/`, as one lane sees them; `lane` is None for what stands in no lane."""

    root: Path
    pins: Pins
    series: tuple[Series, ...]
    patches: Mapping[PatchRef, Patch]
    label: str = "stack"
    """The word in the version of the stack's wheels: `0.32.0+<label>.g…`."""
    lint: LintPolicy = field(default_factory=LintPolicy)
    """The requirements of `stack lint` on this stack."""
    plugins: tuple[str, ...] = ()
    """The names of the project plug-ins that this stack relies on."""
    lane: str | None = None
    guards: tuple[Guard, ...] = ()
    """What code beside the patches relies on upstream."""

    @property
    def sources(self) -> Mapping[PatchRef, str]:
        """The folders with the new files of patches. They belong to the main patches: a lane has none."""
        if self.lane is not None:
            return {}
        return {ref: folder for each in self.series for ref, folder in each.sources.items()}

    def order(self, upstream: str) -> tuple[Patch, ...]:
        """Return the patches of an upstream in the order in which they apply."""
        return tuple(self.patches[ref] for each in self.series for ref in each.patches if ref.upstream == upstream)

    def place(self, path: str) -> str:
        """Return the path below the root of the file that stands for `path` (below `stacks/`): the lane's own one if it has one."""
        common = f"{FOLDER}/{path}"
        return lane_files.place(self.lane, common) if self.lane is not None and self.owns(path) else common

    def owns(self, path: str) -> bool:
        """Return whether the stack's lane has its own version of a file below `stacks/`."""
        return self.lane is not None and (self.root / lane_files.place(self.lane, f"{FOLDER}/{path}")).is_file()

    def get(self, name: str) -> Series:
        """Return the series of that name.

        Raises:
            StackError: No series has that name.

        """
        for each in self.series:
            if each.name == name:
                return each
        raise unknown_name("series", name, (each.name for each in self.series), holder=f"{FOLDER}/{FILE}")


def find_root(start: Path) -> Path:
    """Find the nearest folder at or above `start` that holds `pins.toml`.

    Raises:
        StackError: No such folder exists.

    """
    for folder in (start, *start.parents):
        if (folder / pins.FILE).is_file():
            return folder
    raise StackError(
        f"no {pins.FILE} in {start} or above",
        "run stack inside a stack, name one with --root, or begin one: stack init --git URL",
    )


def load(root: Path, lane: str | None = None) -> Stack:
    """Load the stack of a folder, as a lane sees it; None: as it is without lanes.

    Raises:
        StackError: The stack is invalid (with file and key), has no such lane, or a switch was interrupted there.

    """
    with switch.reading(root):
        return _load(root, lane)


def _load(root: Path, lane: str | None) -> Stack:
    for name in (pins.FILE, FOLDER, lane_files.FOLDER):
        _check_no_link(root / name)
    its_pins = pins.load(root / pins.FILE, lane)
    if lane is not None:
        _check_no_link(root / lane_files.FOLDER / lane)
    files.check_plain(root / FOLDER)
    view = _View(root, lane)
    order, label, policy, plugins = _settings(view)
    folder = root / FOLDER
    all_series = tuple(series.load(folder / name, view.table(f"{name}/{series.FILE}")) for name in order)
    _check_needs(all_series, folder)
    _check_upstreams(all_series, its_pins, folder)
    _check_listed(view, all_series, its_pins)
    patches = {ref: patch.read(view.file(ref.path), ref) for one in all_series for ref in one.patches}
    _check_once(patches, folder)
    return Stack(root, its_pins, all_series, MappingProxyType(patches), label, policy, plugins, lane, _guards(view, its_pins))


def _check_no_link(place: Path) -> None:
    if place.is_symlink():
        raise StackError(f"{place} is a link", "put the file or folder itself there: a switch cannot write through a link")


@dataclass(frozen=True, slots=True)
class _View:
    """The files of a stack as a lane sees them."""

    root: Path
    lane: str | None

    @property
    def own(self) -> Path | None:
        """The lane's folder."""
        return None if self.lane is None else self.root / lane_files.FOLDER / self.lane

    def file(self, path: str) -> Path:
        """Return the file for a path below `stacks/`."""
        own = self.own
        return own / path if own is not None and (own / path).is_file() else self.root / FOLDER / path

    def table(self, path: str) -> document.Table:
        """Load the TOML file of a path below `stacks/`, with the lane's keys over the common ones."""
        return lane_files.table(self.root / FOLDER / path, self.own / path if self.own is not None else None)


def _settings(view: _View) -> tuple[tuple[str, ...], str, LintPolicy, tuple[str, ...]]:
    """Read the names of the series, the label, the rules for `stack lint`, and the names of plug-ins."""
    if view.own is not None and (view.own / FILE).is_file():
        own = document.load(view.own / FILE)
        own.texts("series")
        own.finish()
    table = view.table(FILE)
    names = table.texts("series")
    label = table.optional_text("label", pattern="[a-z][a-z0-9]*", meaning="lower-case letters and digits") or "stack"
    policy = lint_policy.read(table.optional_table("lint"))
    plugins = table.texts("plugins") if table.given("plugins") else ()
    table.finish()
    for name in names:
        if not re.fullmatch(series.NAME, name):
            raise table.error("series", f"names {name!r}", "a series is named with lower-case letters, digits and dashes")
        if name in _RESERVED:
            raise table.error("series", f"names {name!r}", f"that folder holds {_RESERVED[name]}: give the series another name")
        if not view.file(f"{name}/{series.FILE}").is_file():
            raise table.error(
                "series", f"names {name!r}, which has no {FOLDER}/{name}/{series.FILE}", "add it, or take the name out"
            )
    return names, label, policy, plugins


def _guards(view: _View, its_pins: Pins) -> tuple[Guard, ...]:
    if not view.file(guards.FILE).is_file():
        return ()
    for place in (view.root / FOLDER / guards.FILE, view.file(guards.FILE)):
        _check_no_link(place)
        if place.is_file() and place.stat().st_size > guards.LARGEST:
            raise StackError(f"{place} is larger than {guards.LARGEST // 2**10} KiB", "drop guards that are no longer needed")
    table = view.table(guards.FILE)
    read = guards.read(table)
    for guard in read:
        if guard.upstream not in its_pins.names():
            raise table.error(
                f"{guard.name}.upstream",
                f"is {guard.upstream!r:.100}, which has no pin",
                f"pinned: {', '.join(its_pins.names())}",
            )
    return read


def _check_needs(all_series: tuple[Series, ...], folder: Path) -> None:
    names = [one.name for one in all_series]
    for one in all_series:
        for needed in one.needs:
            if needed not in names:
                raise StackError(
                    f"{folder / one.name / series.FILE}: needs names {needed!r}, which is not a series",
                    f"known: {', '.join(names)}",
                )
    cycle = find_cycle({one.name: one.needs for one in all_series})
    if cycle:
        raise StackError(f"{folder / cycle[0] / series.FILE}: needs is a cycle: {' -> '.join(cycle)}", "break it")
    for place, one in enumerate(all_series):
        late = [needed for needed in one.needs if needed not in names[:place]]
        if late:
            raise StackError(
                f"{folder / FILE}: {one.name!r} needs {late[0]!r}, which comes later", "put the needed series first"
            )


def _check_upstreams(all_series: tuple[Series, ...], its_pins: Pins, folder: Path) -> None:
    for one in all_series:
        for ref in one.patches:
            if ref.upstream not in its_pins.names():
                raise StackError(
                    f"{folder / one.name / series.FILE}: patch {ref.file!r} is for {ref.upstream!r}, which has no pin",
                    f"pinned: {', '.join(its_pins.names())}",
                )


def _check_once(patches: Mapping[PatchRef, Patch], folder: Path) -> None:
    seen: dict[tuple[str, bytes], PatchRef] = {}
    for ref, one in patches.items():
        first = seen.setdefault((ref.upstream, one.diff), ref)
        if first is not ref:
            raise StackError(f"{folder / ref.path} is the same patch as {first.path}", "keep it in one series")


def _check_listed(view: _View, all_series: tuple[Series, ...], its_pins: Pins) -> None:
    """Refuse patch files and series folders that no list names: they would be silently ignored."""
    root, folder = view.root, view.own or view.root / FOLDER
    listed = [ref.path for one in all_series for ref in one.patches]
    twice = sorted({path for path in listed if listed.count(path) > 1})
    if twice:
        raise StackError(f"{root / FOLDER / twice[0]} is listed twice", "list it once")
    names = {one.name for one in all_series}
    for file in sorted(folder.rglob("*")):
        place = file.relative_to(folder)
        if file.is_symlink() and not os.path.realpath(file).startswith(os.path.realpath(root) + os.sep):
            raise StackError(f"{file} is a link that leaves the stack", "put the file itself there")
        if view.lane is None and place.parts[0] == lane_files.NAME:
            _check_lane(file, place.parts[1:], its_pins)
            continue
        if file.name == series.FILE and len(place.parts) == 2 and place.parts[0] not in names:
            raise StackError(
                f"{file} belongs to no series of {FOLDER}/{FILE}",
                "name the series there, or remove its folder" if view.lane is None else _back(place.parts[0]),
            )
        if file.suffix == ".patch" and place.parts[0] != RESOLUTIONS and place.as_posix() not in listed:
            where = f"{place.parts[0]}/{series.FILE}" if place.parts[0] in names else "any series.toml"
            removed = view.lane is not None and place.parts[0] not in names
            raise StackError(
                f"{file} is not listed in {where}", _back(place.parts[0]) if removed else "list it, or remove the file"
            )


def _back(name: str) -> str:
    """Return the remedy for a series that was removed although a lane has files of it."""
    return f"the lane still uses series {name}: name it in {FOLDER}/{FILE} again, and bring back {FOLDER}/{name}"


def _check_lane(file: Path, below: tuple[str, ...], its_pins: Pins) -> None:
    """Refuse a folder that belongs to no lane. The files of a lane are checked when that lane is loaded."""
    if len(below) == 1 and below[0] not in its_pins.lanes:
        raise StackError(f"{file} belongs to no lane of {pins.FILE}", "name the lane there, or remove the folder")
