# SPDX-License-Identifier: Apache-2.0
"""Add guards, accept what became of them, and drop them: each writes `guards.toml` in one switch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stack.base.did_you_mean import unknown_name
from stack.base.errors import StackError
from stack.base.text import printable
from stack.carry.drift.tree import Files
from stack.carry.guards import code
from stack.carry.guards.judgement import Guarded
from stack.carry.guards.judging import text_of
from stack.carry.guards.own import Own
from stack.carry.guards.standing import Point, inside, pinned
from stack.carry.guards.view import Cache, View
from stack.carry.upstream_stores import Stores
from stack.model import guards, lanes
from stack.model.guards import Guard, Kind
from stack.model.stack import Stack
from stack.store.objects import blob_id


@dataclass(frozen=True, slots=True)
class Wanted:
    """A guard that a user wants; the rest of it is read from the tree. `upstream`: None for the only one with that target."""

    name: str
    kind: Kind
    target: str
    reason: str
    upstream: str | None = None
    text: str = ""
    file: str = ""

    @property
    def guard(self) -> Guard:
        """Return the guard as far as the user has stated it."""
        module = self.target.partition(":")[0].replace(".", "/")
        defined = f"{module}.py" if self.kind is Kind.PATCHED else ""
        return Guard(
            self.name, self.upstream or "", self.kind, self.target, self.reason, text=self.text, file=self.file, defined=defined
        )


def check(wanted: Wanted) -> None:
    """Refuse a guard that could not be read again.

    Raises:
        StackError: its name, target, text or reason is not valid.

    """
    if not re.fullmatch(guards.NAME, wanted.name):
        raise StackError(f"{wanted.name!r:.100} cannot name a guard", "use lower-case letters, digits, dots and dashes")
    fault = _fault(wanted)
    if fault:
        colon = wanted.kind is Kind.PATCHED and ":" not in wanted.target
        advice = "write a colon between the module and its attribute" if colon else "see stack guard add --help"
        raise StackError(f"{wanted.target!r:.200} {fault}", advice)
    if not wanted.reason.strip() or (wanted.kind in (Kind.TEXT, Kind.PATTERN) and not wanted.text.strip()):
        raise StackError("a guard needs a reason and a target that are not empty", 'add --reason "…"')
    for what, text in (("reason", wanted.reason), ("text", wanted.text)):
        if why := guards.text_fault(text):
            raise StackError(f"the {what} {printable(text)!r:.100} {why}", "see docs/guards.md")
    if wanted.kind is Kind.PATTERN and (why := guards.pattern_fault(wanted.text)):
        raise StackError(f"the pattern {wanted.text!r:.200} {why}", "see docs/guards.md")
    if wanted.file and (why := guards.path_fault(wanted.file)):
        raise StackError(f"{wanted.file!r:.200} {why}", "write a path below your repository's folder")


def _fault(wanted: Wanted) -> str:
    if wanted.kind is Kind.PATCHED:
        fits = re.fullmatch(rf"{guards.QUALIFIED}:{guards.QUALIFIED}", wanted.target)
        return "" if fits else "is not package.module:Class.method"
    if wanted.kind in (Kind.TEXT, Kind.PATTERN):
        return guards.path_fault(wanted.target)
    return guards.target_fault(wanted.target, needs_member=wanted.kind is Kind.DEFINITION)


def added(stores: Stores, wanted: Sequence[Wanted], copied_at: str | None = None) -> tuple[Guard, ...]:
    """Fill in guards from the pinned trees and write them; `copied_at`: the revision from which files were copied.

    Raises:
        StackError: a name is taken, no upstream has a target, several have, or a copy cannot be read.

    """
    taken = {guard.name for guard in stores.stack.guards}
    made = []
    for each in wanted:
        check(each)
        if each.name in taken:
            raise StackError(f"there is a guard {each.name} already", f"choose another name, or stack guard drop {each.name}")
        taken.add(each.name)
        made.append(_filled(stores, each, copied_at))
    written(stores, made)
    return tuple(made)


def written(stores: Stores, made: Sequence[Guard]) -> None:
    """Write new guards in one switch.

    Raises:
        StackError: there would be too many, or the file cannot be edited.

    """
    if len(made) + len(stores.stack.guards) > guards.MOST:
        raise StackError(f"{guards.PLACE} would have more than {guards.MOST} guards", "add fewer, or drop some")
    names = " ".join(guard.name for guard in made)
    _write(stores.stack, {guard.name: guard for guard in made}, f"guard add {names:.100}", follow=True)


def _filled(stores: Stores, wanted: Wanted, copied_at: str | None) -> Guard:
    if wanted.file:
        Own(stores.stack.root).read(wanted.file)
    names = [wanted.upstream] if wanted.upstream is not None else [pin.upstream for pin in stores.stack.pins]
    found, reasons = [], dict[str, str]()
    for name in names:
        point = pinned(stores, name) if copied_at is None else _copied_point(stores, name, copied_at)
        made = filled(replace(wanted.guard, upstream=name), stores, point)
        if isinstance(made, Guard):
            found.append(made)
        else:
            reasons[name] = made
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(guard.upstream for guard in found)
        raise StackError(f"several upstreams have {wanted.target}: {listed}", "name one with --upstream")
    near = "" if wanted.kind is Kind.PATCHED else _near(stores, names, wanted.target.partition("::")[0])
    raise StackError(
        "; ".join(f"{name}: {why}" for name, why in reasons.items()),
        f"name the path in upstream's tree: {near}" if near else "name a target that the pinned tree has",
    )


def _near(stores: Stores, names: Sequence[str], path: str) -> str:
    """Return the paths of the pinned trees that end like a path, for a user who left out the first folders; at most three."""
    found = list[str]()
    for name in names:
        objects = stores.objects(name)
        found += [
            each for each in Files(objects, objects.tree_of(pinned(stores, name).commit)).walk() if each.endswith(f"/{path}")
        ]
    return ", ".join(dict.fromkeys(sorted(found)[:3]))


def _copied_point(stores: Stores, upstream: str, revision: str) -> Point:
    within = stores.stack.pins.get(upstream).within
    holder = within.upstream if within is not None else upstream
    return inside(stores, upstream, stores.obtain(holder, stores.resolve(holder, revision)))


def filled(guard: Guard, stores: Stores, point: Point) -> Guard | str:
    """Return a guard with what only the tree knows, or why the tree has no such target."""
    try:
        return _filled_at(guard, stores, point)
    except RecursionError:
        return f"{guard.path} is nested too deeply to be read"


def _filled_at(guard: Guard, stores: Stores, point: Point) -> Guard | str:
    objects = stores.objects(guard.upstream)
    view = View(objects, objects.tree_of(point.commit), Cache())
    guard = replace(guard, at=point.named)
    if guard.kind is Kind.PATCHED:
        return _patched(guard, view)
    text = text_of(guard, view)
    if isinstance(text, str):
        return (
            text.replace(" no longer has", " does not have")
            .replace(" no longer defines", " does not define")
            .replace(" is gone", " does not exist")
        )
    if guard.kind is not Kind.COPIED:
        return guard
    return replace(guard, hash=blob_id(text.data) if guard.member else str(view.blob(guard.path)))


def _patched(guard: Guard, view: View) -> Guard | str:
    module, _, member = guard.target.partition(":")
    found = view.attribute(module, member)
    if found is not None:
        return replace(guard, signature=code.signature(found.found), defined=found.path)
    return f"there is no module {module}" if view.module(module) is None else f"{module} does not define or import {member}"


def chosen(stack: Stack, names: Sequence[str]) -> tuple[Guard, ...]:
    """Return the guards of these names.

    Raises:
        StackError: one does not exist.

    """
    known = {guard.name: guard for guard in stack.guards}
    for name in names:
        if name not in known:
            raise unknown_name("guard", name, known, holder=guards.PLACE, remedy="add one: stack guard add --help")
    return tuple(known[name] for name in dict.fromkeys(names))


def accepted(stores: Stores, found: Sequence[Guarded], *, dry_run: bool = False) -> tuple[Guard, ...]:
    """Write guards as the pinned trees have them now; return them as they are written.

    Raises:
        StackError: a tree has no target for a guard any more.

    """
    made = []
    for each in found:
        now = each.judgement.renewed
        if now is None:
            name = each.guard.name
            raise StackError(
                f"{name} has nothing to accept: {each.judgement.problem}",
                f"correct its target in {guards.PLACE}, or stack guard drop {name}",
            )
        made.append(replace(now, at=pinned(stores, now.upstream).named))
    if not dry_run:
        names = " ".join(guard.name for guard in made)
        _write(stores.stack, {guard.name: guard for guard in made}, f"guard accept {names:.100}")
    return tuple(made)


def dropped(stack: Stack, names: Sequence[str]) -> tuple[Guard, ...]:
    """Remove guards; return them.

    Raises:
        StackError: one does not exist, or the file cannot be edited.

    """
    gone = chosen(stack, names)
    _write(stack, dict.fromkeys((guard.name for guard in gone), None), f"guard drop {' '.join(names):.100}", follow=True)
    return gone


def _write(stack: Stack, changes: Mapping[str, Guard | None], title: str, *, follow: bool = False) -> None:
    expected = lanes.contents(stack, [guards.PLACE])
    held = expected[guards.PLACE]
    text = guards.edited(None if held is None else held.decode("utf-8"), changes)
    lanes.apply(stack, {guards.PLACE: text.encode()}, title=title, expected=expected, follow=follow)
