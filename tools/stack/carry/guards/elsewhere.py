# SPDX-License-Identifier: Apache-2.0
"""Search a tree for the target of a guard that is no longer at its place."""

import functools
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from stack.carry.drift.tree import ASIDE, Files
from stack.carry.guards.judgement import Judgement, State
from stack.carry.guards.judging import Earlier, judge
from stack.carry.guards.view import Cache, View
from stack.model.guards import Guard, Kind
from stack.model.ids import TreeId
from stack.store import git, remote
from stack.store.objects import FILES, Objects

_MOST = 30
"""Files that are looked at for one guard."""
_NAMED = 3
"""Places that a sentence names."""
_RENAMES = ["-c", "diff.renameLimit=3000", "diff-tree", "-r", "-z", "-M", "--diff-filter=R", "--name-status"]


class Elsewhere:
    """The places in a tree to which targets may have moved from a tree `before`, if there is one."""

    def __init__(self, objects: Objects, tree: TreeId, before: TreeId | None, cache: Cache) -> None:
        self._objects = objects
        self._tree = tree
        self._before = before
        self._cache = cache

    def judged(self, guard: Guard, here: Judgement, earlier: Earlier) -> Judgement:
        """Return the judgement of a guard that does not hold at its place: that of the place to which its target has moved.

        Args:
            guard: the guard.
            here: its judgement at its place.
            earlier: returns the text that was copied.

        """
        if here.renewed is not None:
            return here  # The target is there, and differs.
        if guard.kind is Kind.PATCHED:
            return self._patched(guard, here)
        renamed = self._renames.get(guard.path)
        places = dict.fromkeys([*([renamed] if renamed else []), *self._places(guard)])
        trials = [self._at(guard, path, earlier) for path in places]
        held = [trial for trial in trials if trial.state is State.HELD]
        first = next((trial for trial in trials if renamed and trial.path == renamed), None)
        if len(held) == 1 or (first is not None and first in held):
            found = first if first is not None and first in held else held[0]
            problem = f"{guard.target.partition('::')[0]} is now {found.path}" if not guard.member else f"now in {found.path}"
            return replace(found, state=State.MOVED, problem=problem)
        if held:
            return replace(here, problem=f"{here.problem}; {_several([trial.path for trial in held])} have it")
        if first is not None:  # The file was renamed, and its content changed, too.
            return replace(first, problem=f"{first.problem}; {guard.path} was renamed")
        return here

    def _at(self, guard: Guard, path: str, earlier: Earlier) -> Judgement:
        moved = replace(guard, target=f"{path}::{guard.member}" if guard.member else path)
        return judge(moved, self._view(), earlier)

    def _view(self) -> View:
        return View(self._objects, self._tree, self._cache)

    @functools.cached_property
    def _changed(self) -> Mapping[str, str] | None:
        """Return the blobs of the files that are new or changed since the earlier tree, by path; None if there is none.

        A target that has moved is in one of them. Their contents are fetched in one request if the store lacks them.
        """
        if self._before is None:
            return None
        pairs = list(self._objects.difference(self._before, self._tree))
        found = {path: now.id for path, _, now in pairs if now is not None and now.mode in FILES}
        gone = {was.id for _, was, now in pairs if was is not None and now is None and was.mode in FILES}
        remote.fetch_blobs(self._objects.repository, {*found.values(), *gone})
        return found

    @functools.cached_property
    def _renames(self) -> Mapping[str, str]:
        """Return the renamed files between both trees, as git finds them."""
        if self._before is None or self._changed is None:
            return {}
        args = [*_RENAMES, self._before, self._tree]
        fields = (
            git.run(args, env={"GIT_DIR": str(self._objects.repository)}).stdout.decode("utf-8", "surrogateescape").split("\0")
        )
        return dict(zip(fields[1::3], fields[2::3], strict=False))

    def _places(self, guard: Guard) -> Iterator[str]:
        """Yield files that may have the target: the same content, a definition of the same name, or the same text."""
        if guard.kind is Kind.PATTERN:
            return
        if not guard.member and guard.kind is Kind.COPIED:
            yield from (path for path, blob in self._files.items() if blob == guard.hash)
        elif guard.member and guard.path.endswith((".py", ".pyi")):
            yield from self._defining(guard.member)
        else:
            yield from self._having((guard.text or guard.member).strip("\n").partition("\n")[0])

    @functools.cached_property
    def _files(self) -> Mapping[str, str]:
        files = Files(self._objects, self._tree)
        return {path: entry.id for path in files.walk() if (entry := files.entry(path)) is not None}

    def _defining(self, member: str) -> Iterator[str]:
        """Yield the Python files that define a class or function of that name, or of the class that has it."""
        name = member.partition(".")[0]
        defines = re.compile(rf"^[ \t]*(?:async +def|def|class) +{name}\b".encode(), re.MULTILINE)
        for path in self._having(f" {name}", ".py"):
            if defines.search(self._objects.read(self._files[path])):
                yield path

    def _having(self, text: str, suffix: str = "") -> Iterator[str]:
        """Yield files of the package with a text."""
        found = self._text_in(self._changed, text, suffix) if self._changed is not None else self._grep(text, suffix)
        yield from itertools.islice((path for path in found if path.partition("/")[0] not in ASIDE), _MOST)

    def _text_in(self, files: Mapping[str, str], text: str, suffix: str) -> Iterator[str]:
        wanted = text.encode()
        return (path for path, blob in files.items() if path.endswith(suffix) and wanted in self._objects.read(blob))

    def _grep(self, text: str, suffix: str) -> Iterator[str]:
        if self._objects.lacks(self._tree):
            return
        done = git.run(
            ["grep", "-I", "-l", "-z", "-F", "-e", text, self._tree, "--", f":(glob)**/*{suffix}"],
            env={"GIT_DIR": str(self._objects.repository)},
            accept=(0, 1),
        )
        found = done.stdout.decode("utf-8", "surrogateescape").split("\0")
        yield from (place.partition(":")[2] for place in found if place)

    def _patched(self, guard: Guard, here: Judgement) -> Judgement:
        """Say which module has the attribute now: the user's code has to name another one."""
        try:
            return self._in_modules(guard, here)
        except RecursionError:  # a file is nested too deeply to be read
            return here

    def _in_modules(self, guard: Guard, here: Judgement) -> Judgement:
        targets: list[Guard] = []
        for path in self._defining(guard.member):
            found = self._view().members(path, guard.member)
            if found is not None and (module := _dotted(path)) is not None:
                targets.append(replace(guard, target=f"{module}:{guard.member}", defined=path))
        if not targets:
            return here
        names = _several([target.target for target in targets])
        problem = f"{here.problem}; {names} {'has' if len(targets) == 1 else 'have'} it"
        if len(targets) > 1:
            return replace(here, problem=problem)
        found_there = judge(targets[0], self._view())
        return replace(here, problem=problem, path=found_there.path, line=found_there.line, renewed=found_there.renewed)


def _dotted(path: str) -> str | None:
    """Return the module of a Python file; None if its path cannot be one."""
    place = path.removeprefix("src/").removeprefix("python/").removesuffix(".py").removesuffix("/__init__")
    return place.replace("/", ".") if all(part.isidentifier() for part in place.split("/")) else None


def _several(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"
