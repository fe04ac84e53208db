# SPDX-License-Identifier: Apache-2.0
"""Judge a guard in one tree: whether its target is as it was."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from stack.base import pattern as patterns
from stack.carry.guards import code, wording
from stack.carry.guards.changes import Change, compared
from stack.carry.guards.judgement import Judgement, State
from stack.carry.guards.view import Definition, View
from stack.model.guards import Guard, Kind
from stack.store.objects import blob_id

LARGEST = 4_000_000
"""Bytes of the largest upstream file that is searched."""
Earlier = Callable[[], bytes | None]
"""Returns the text that was copied; None if the store no longer has it."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text that a guard watches: the whole file or a part of it, and its line."""

    data: bytes
    line: int


def judge(guard: Guard, view: View, earlier: Earlier = lambda: None, *, shares: bool = True) -> Judgement:
    """Judge a guard at the place that it names; other files are not searched.

    Args:
        guard: the guard.
        view: the tree.
        earlier: returns the text that was copied.
        shares: also compute how much of a copied text has changed.

    """
    try:
        if guard.kind is Kind.PATCHED:
            return _patched(guard, view)
        if guard.kind is Kind.COPIED:
            return _copied(guard, view, earlier if shares else None)
        return _anchored(guard, view)
    except RecursionError:
        return _broken(guard, f"{guard.path} is nested too deeply to be read")


def text_of(guard: Guard, view: View) -> Text | str:
    """Return what an anchor or a copy names in a tree, or why there is no such thing."""
    if view.blob(guard.path) is None:
        return f"{guard.path} is gone"
    data = view.files.read(guard.path) or b""
    if len(data) > LARGEST:
        return f"{guard.path} is larger than {LARGEST // 10**6} MB"
    if guard.kind in (Kind.TEXT, Kind.PATTERN):
        return _line_of_text(guard, data)
    if not guard.member:
        return Text(data, 0)
    return _python(guard, view, data) if guard.path.endswith((".py", ".pyi")) else _only_line(guard, data)


def _line_of_text(guard: Guard, data: bytes) -> Text | str:
    if guard.kind is Kind.TEXT:
        at = data.find(guard.text.encode())
        return Text(b"", data.count(b"\n", 0, at) + 1) if at >= 0 else f"{guard.path} no longer has the text"
    fitting = patterns.parse(guard.text)
    lines = data.decode("utf-8", "replace").split("\n")
    place = next((number for number, line in enumerate(lines, 1) if fitting.fits(line)), None)
    return Text(b"", place) if place else f"no line of {guard.path} fits the pattern"


def _only_line(guard: Guard, data: bytes) -> Text | str:
    wanted = guard.member.encode()
    places = [number for number, line in enumerate(data.split(b"\n"), 1) if wanted in line]
    if len(places) == 1:
        return Text(b"", places[0])
    return f"{guard.path} has {'no line' if not places else f'{len(places)} lines'} with {guard.member!r}"


def _python(guard: Guard, view: View, data: bytes) -> Text | str:
    if view.parsed(guard.path) is None:
        return f"{guard.path} cannot be read as Python"
    found = view.members(guard.path, guard.member)
    if found is None:
        return f"{guard.path} no longer defines {guard.member}"
    return Text(code.source(data, found.found), found.line)


def _anchored(guard: Guard, view: View) -> Judgement:
    text = text_of(guard, view)
    if isinstance(text, str):
        return _broken(guard, text)
    return Judgement(State.HELD, guard.path, text.line, renewed=guard)


def _copied(guard: Guard, view: View, earlier: Earlier | None) -> Judgement:
    text = text_of(guard, view)
    if isinstance(text, str):
        return _broken(guard, text)
    now = view.blob(guard.path) if not guard.member else blob_id(text.data)
    if now == guard.hash:
        return Judgement(State.HELD, guard.path, text.line or None, renewed=guard, share=0.0)
    renewed = replace(guard, hash=str(now))
    before = earlier() if earlier is not None else None
    changed = compared(view.objects, guard.target, before, text.data) if before is not None else None
    problem = f"{_share(changed)} of {guard.target} has changed since it was copied to {guard.file}"
    share, diff = (changed.share, changed.diff) if changed is not None else (None, "")
    return Judgement(State.BROKEN, guard.path, text.line or None, problem, renewed, share, diff)


def _share(changed: Change | None) -> str:
    if changed is None:
        return "some"
    percent = round(100 * changed.share)
    return f"{percent} %" if percent else "less than 1 %"


def _patched(guard: Guard, view: View) -> Judgement:
    module = guard.target.partition(":")[0]
    found = view.attribute(module, guard.member)
    if found is None:
        return _broken(guard, _why_not(guard, view))
    now = replace(guard, signature=code.signature(found.found), defined=found.path)
    if now.signature != guard.signature:
        diff = f"-{guard.signature}\n+{now.signature}\n"
        problem = f"{guard.target} {wording.changed(guard.signature, now.signature)}"
        return Judgement(State.BROKEN, found.path, found.line, problem, now, diff=diff)
    if found.path == guard.defined:
        return Judgement(State.HELD, found.path, found.line, renewed=now)
    return _elsewhere(guard, now, found, view)


def _elsewhere(guard: Guard, now: Guard, found: Definition, view: View) -> Judgement:
    """Judge an attribute that another file defines: a class can still be changed there, an imported name cannot."""
    own = view.module_file(guard.target.partition(":")[0])
    if "." not in guard.member and guard.defined == own:
        problem = f"{own} only imports {guard.member} from {found.path} now: code that uses it there does not see a replacement"
        return Judgement(State.BROKEN, found.path, found.line, problem, now)
    problem = f"{guard.target} is now defined in {found.path}, it was in {guard.defined}"
    return Judgement(State.MOVED, found.path, found.line, problem, now)


def _why_not(guard: Guard, view: View) -> str:
    module, _, member = guard.target.partition(":")
    path = view.module_file(module)
    if path is None:
        return f"there is no module {module}"
    if view.parsed(path) is None:
        return f"{path} cannot be read as Python"
    holder = member.rpartition(".")[0]
    if holder and view.attribute(module, holder) is None:
        return f"{module} has no {holder}"
    return f"{f'{module}.{holder}' if holder else module} has no {member.rpartition('.')[2]}"


def _broken(guard: Guard, problem: str) -> Judgement:
    return Judgement(State.BROKEN, guard.path, None, problem)
