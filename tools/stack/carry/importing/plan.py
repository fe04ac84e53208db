# SPDX-License-Identifier: Apache-2.0
"""Plan an import: which patches go into which series, and the files of the stack that come of it. Nothing is written here."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.carry import links, patch_sources
from stack.carry.importing import assignment as assignments
from stack.carry.importing import describing, reordering
from stack.carry.importing.applying import apply_all
from stack.carry.importing.assignment import Assignment
from stack.carry.importing.candidate import Candidate, LeftOut
from stack.carry.importing.files import Read
from stack.carry.importing.ordering import Order
from stack.carry.importing.reordering import Item
from stack.carry.upstream_stores import Stores
from stack.model import document, series
from stack.model import patch as patches
from stack.model import stack as stacks
from stack.model.series import PatchRef, Series, State
from stack.model.stack import FOLDER, Stack


@dataclass(frozen=True, slots=True)
class Request:
    """The candidates to import in order, a description of their source, and the rules for their series."""

    upstream: str
    read: Read
    came_from: str
    assignment: Assignment
    edit: Callable[[str], str | None] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Import:
    """A planned import: the imported patches, those left out, and the files to write with the bytes that they replace."""

    request: Request
    imported: Mapping[PatchRef, Candidate]
    left: tuple[LeftOut, ...]
    files: Mapping[str, bytes | None]
    expected: Mapping[str, bytes | None]
    notes: tuple[str, ...]
    order: tuple[str, ...] = ()
    """All series of the stack after the import."""
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def series(self) -> tuple[str, ...]:
        """The series that got patches."""
        return tuple(dict.fromkeys(ref.series for ref in self.imported))

    @property
    def failed(self) -> tuple[LeftOut, ...]:
        """The patches that do not apply."""
        return tuple(one for one in self.left if not one.known and not one.landed)

    def stack(self, before: Stack) -> Stack:
        """Return the stack after the import, as far as carrying its patches needs it."""
        added = {ref: patches.parse(self.files[f"{FOLDER}/{ref.path}"] or b"", ref, name=ref.path) for ref in self.imported}
        changed = {
            ref: patches.parse(raw, ref, name=ref.path)
            for ref in before.patches
            if (raw := self.files.get(f"{FOLDER}/{ref.path}")) is not None
        }
        known = {member.name: member for member in before.series}
        new = [Series(name, name, name, State.DRAFT) for name in self.order if name not in known]
        members = [
            replace(member, patches=(*member.patches, *(ref for ref in added if ref.series == member.name)))
            for member in (*before.series, *new)
        ]
        return replace(before, series=tuple(members), patches={**before.patches, **changed, **added})


def plan(stores: Stores, request: Request) -> Import:
    """Try every candidate on the stack, and plan the files of those that apply.

    Raises:
        StackError: The stack's own patches do not apply, or a name is invalid.

    """
    stack, upstream = stores.stack, request.upstream
    patch_sources.check(stack, upstream)
    base, objects = stores.base(upstream), stores.objects(upstream)
    existing = stack.order(upstream)
    commits = links.checked_chain(objects, base, existing)
    stores.tell("applying patches")
    read, series_of, lines = _chosen(request)
    applied = apply_all(objects, (base, *commits)[-1], existing, read, stores.source(upstream))
    if not applied.candidates:
        return Import(request, {}, tuple(applied.left), {}, {}, request.notes)
    items = reordering.items(objects, base, (*existing, *applied.candidates), (*commits, *applied.commits))
    names = [*(patch.ref.series for patch in existing), *map(series_of, applied.candidates)]
    place = {key: number for number, key in enumerate(lines, len(existing))}
    wanted = (*range(len(existing)), *(place[one.key] for one in applied.candidates)) if lines else ()
    order, needed, trees = reordering.ordered(objects, base, items, names, stack, wanted)
    refs = _named(stack, request, applied.candidates, order, items)
    imported = {refs[number]: applied.candidates[number - len(existing)] for number in order.places if number >= len(existing)}
    files: dict[str, bytes | None] = {}
    expected: dict[str, bytes | None] = {}
    for number, raw in reordering.exported(objects, base, items, order, trees, len(existing)).items():
        ref = refs[number]
        patches.parse(raw, ref, name=ref.path)
        files[f"{FOLDER}/{ref.path}"] = raw
        expected[f"{FOLDER}/{ref.path}"] = stack.patches[ref].raw if ref in stack.patches else None
    files |= patch_sources.mirrored(
        stack, {ref: files[f"{FOLDER}/{ref.path}"] for ref in stack.patches if f"{FOLDER}/{ref.path}" in files}
    )
    needs = order.needs(needed)
    for path, text in _described(stack, request, imported, order, needs):
        file = stack.root / path
        files[path], expected[path] = text.encode(), file.read_bytes() if file.is_file() else None
    _check_readable(files)
    _check_once(stack, files, upstream)
    notes = (*request.notes, *_moves(order, items))
    return Import(request, imported, tuple(applied.left), files, expected, notes, order.order, needs)


def _chosen(request: Request) -> tuple[Read, Callable[[Candidate], str], list[str]]:
    """Return the candidates to import, and the function that names the series of each; ask a person if there is an editor.

    The last value has the keys of the candidates in the order of a person's lines.
    """
    if request.edit is None:
        return request.read, request.assignment.series, []
    candidates = [one for one in request.read if isinstance(one, Candidate)]
    chosen = assignments.edited(candidates, request.assignment, request.edit)
    read = [one for one in request.read if isinstance(one, LeftOut) or one.key in chosen]
    return read, lambda one: chosen[one.key], list(chosen)


def _named(
    stack: Stack, request: Request, candidates: Sequence[Candidate], order: Order, items: Sequence[Item]
) -> dict[int, PatchRef]:
    """Return the name of every patch; a new one whose name is taken gets a number at its end."""
    taken = {ref.path for ref in stack.patches} | {record.ref.path for member in stack.series for record in member.landed}
    refs = {number: item.ref for number, item in enumerate(items) if item.ref is not None}
    first = len(refs)
    for number, one in enumerate(candidates, first):
        stem = f"{request.upstream}/{one.named().removesuffix('.patch')}"
        names = (f"{stem}{'' if count == 1 else f'-{count}'}.patch" for count in range(1, 100_000))
        ref = next(ref for name in names if (ref := PatchRef(order.series[number], request.upstream, name)).path not in taken)
        taken.add(ref.path)
        refs[number] = ref
    return refs


def _described(
    stack: Stack, request: Request, imported: Mapping[PatchRef, Candidate], order: Order, needs: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str]]:
    """Yield the new text of each `series.toml` and of `stack.toml`."""
    known = {member.name: member for member in stack.series}
    for name in dict.fromkeys(ref.series for ref in imported):
        path = f"{FOLDER}/{name}/{series.FILE}"
        added = {ref: one for ref, one in imported.items() if ref.series == name}
        if name not in known:
            yield path, describing.new_series(name, request.came_from, added, needs[name])
            continue
        text = series.with_needs(document.read_text(stack.root / path), needs[name])
        yield path, describing.with_patches(text, added, (*known[name].patches, *added))
    new = [name for name in order.order if name not in known]
    if new:
        path = f"{FOLDER}/{stacks.FILE}"
        yield path, describing.stack_toml(document.read_text(stack.root / path), new)


def _check_once(stack: Stack, files: Mapping[str, bytes | None], upstream: str) -> None:
    """Refuse an import after which the stack would hold a diff twice: it could not be loaded.

    Raises:
        StackError: Two patches have the same diff.

    """
    raws = {f"{FOLDER}/{ref.path}": one.raw for ref, one in stack.patches.items() if ref.upstream == upstream} | dict(files)
    seen: dict[bytes, str] = {}
    for path, raw in raws.items():
        if path.endswith(".patch") and raw is not None:
            first = seen.setdefault(patches.parse(raw, PatchRef("", upstream, ""), name=path).diff, path)
            if first != path:
                raise StackError(f"{path} would be the same patch as {first}", "leave one of them out (--edit)")


def _check_readable(files: Mapping[str, bytes | None]) -> None:
    """Read the new `series.toml` files before anything is written.

    Raises:
        StackError: One is not valid.

    """
    with tempfile.TemporaryDirectory(prefix="stack-") as folder:
        for path, data in files.items():
            if path.endswith(f"/{series.FILE}"):
                place = Path(folder) / path
                place.parent.mkdir(parents=True)
                place.write_bytes(data or b"")
                series.load(place.parent)


def _moves(order: Order, items: Sequence[Item]) -> Iterator[str]:
    """Name the patches that had to go into another series, or to another place, than asked."""
    for number, other in (*order.moved, *order.late):
        ours, theirs = (items[each].message.partition("\n")[0] for each in (number, other))
        if (number, other) in order.late:
            yield f"{ours!r} stays after {theirs!r}: they do not commute"
        else:
            yield f"{ours!r} does not commute with {theirs!r}: both are in {order.series[number]}"
