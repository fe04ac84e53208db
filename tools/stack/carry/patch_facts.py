# SPDX-License-Identifier: Apache-2.0
"""Collect what the stack says about one patch: its series, its place, the files that it changes, and what proves it."""

from collections.abc import Sequence
from dataclasses import dataclass

from stack.carry import resolutions
from stack.model.diff import FileDiff, counts
from stack.model.patch import Patch, files
from stack.model.patch_names import find
from stack.model.series import PatchRef, Series
from stack.model.stack import Stack


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file that a patch changes; `change` is `added`, `removed`, `renamed`, `copied` or `changed`."""

    path: str
    change: str
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class PatchFacts:
    """The facts about one patch. `number` is its place among the `of` patches of its upstream."""

    patch: Patch
    series: Series
    number: int
    of: int
    files: tuple[ChangedFile, ...]
    pulls: tuple[str, ...]
    proofs: tuple[str, ...]
    resolutions: tuple[str, ...]
    """The names of kept resolutions of its conflicts."""

    @property
    def ref(self) -> PatchRef:
        """The patch's identity."""
        return self.patch.ref

    @property
    def name(self) -> str:
        """The path of the patch file below `stacks/`, without suffix."""
        return self.ref.path.removesuffix(".patch")


def facts(stack: Stack, name: str) -> PatchFacts:
    """Collect the facts about the patch that `name` names.

    Raises:
        StackError: No patch has that name, or several have it.

    """
    ref = find(stack, name)
    series = stack.get(ref.series)
    order = [patch.ref for patch in stack.order(ref.upstream)]
    patch = stack.patches[ref]
    known = resolutions.standing(stack.root).named.items()
    pulls = [*(pulled.address for pulled in series.pulls if pulled.ref == ref), *([series.pull] if series.pull else [])]
    return PatchFacts(
        patch,
        series,
        order.index(ref) + 1,
        len(order),
        tuple(map(changed, files(patch))),
        tuple(dict.fromkeys(pulls)),
        proofs(series, ref),
        tuple(key for key, resolution in known if resolution.patch == ref.path),
    )


def proofs(series: Series, ref: PatchRef) -> tuple[str, ...]:
    """Return the proofs of a patch: the files of its series, and the commands that name it."""
    return (*series.proves, *(command.run for command in series.commands if ref.file in command.patches))


def body(patch: Patch) -> str:
    """Return a patch's message without its subject."""
    return patch.message.partition("\n")[2].strip("\n")


def changed(file: FileDiff) -> ChangedFile:
    """Describe the change of one file."""
    return ChangedFile(file.path, _kind(file), *counts([file]))


def _kind(file: FileDiff) -> str:
    if file.copied:
        return "copied"
    if file.old is None:
        return "added"
    if file.new is None:
        return "removed"
    return "renamed" if file.old != file.new else "changed"


def totals(changed: Sequence[ChangedFile]) -> tuple[int, int]:
    """Return how many lines some files' changes add and remove."""
    return sum(file.added for file in changed), sum(file.removed for file in changed)
