# SPDX-License-Identifier: Apache-2.0
"""Find the patch that a user names: by its path, or by any part of it that no other patch has."""

from pathlib import Path

from stack.base.did_you_mean import unknown_name
from stack.base.errors import StackError
from stack.model.series import PatchRef
from stack.model.stack import FOLDER, Stack

LISTER = "stack status --all"
"""The command that lists all patches by name."""
_SUFFIX = ".patch"
_LISTED = 6


def find(stack: Stack, name: str) -> PatchRef:
    """Return the patch of that name.

    A name is the path of the patch file, `series/upstream/name`, the end of it (`name`, `upstream/name`), `series/name`, the
    beginning of the last part, or any other part of the path. The first of these that fits counts. The suffix may be left out.

    Raises:
        StackError: No patch has that name, several have it, or the patch has landed and is no longer carried.

    """
    wanted = _plain(stack, name)
    known = {ref.path.removesuffix(_SUFFIX): ref for ref in stack.patches}
    for matches in (_equal, _ending, _beginning, _within):
        if matches is _within:
            # A landed patch that is named whole comes before a carried one that has the name somewhere in its path.
            _refuse_landed(stack, wanted)
        found = [ref for path, ref in known.items() if wanted and matches(path, ref, wanted)]
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(ref.path.removesuffix(_SUFFIX) for ref in found[:_LISTED])
            raise StackError(f"{name!r} names {len(found)} patches", f"name one: {listed}")
    raise unknown_name("patch", name, known, holder="the stack", remedy="the stack has no patches", lister=LISTER)


def _equal(path: str, _ref: PatchRef, wanted: str) -> bool:
    return path == wanted


def _ending(path: str, ref: PatchRef, wanted: str) -> bool:
    return path.endswith(f"/{wanted}") or f"{ref.series}/{path.rpartition('/')[2]}" == wanted


def _beginning(path: str, ref: PatchRef, wanted: str) -> bool:
    last = path.rpartition("/")[2]
    return any(whole.startswith(wanted) for whole in (last, f"{ref.upstream}/{last}", f"{ref.series}/{last}"))


def _within(path: str, _ref: PatchRef, wanted: str) -> bool:
    return wanted in path


def _plain(stack: Stack, name: str) -> str:
    """Return a name without the folders above the series and without suffix."""
    path = Path(name)
    folder = (stack.root / FOLDER).resolve()
    if path.suffix == _SUFFIX and path.is_file() and path.resolve().is_relative_to(folder):
        name = path.resolve().relative_to(folder).as_posix()
    return name.removeprefix("./").removeprefix(f"{FOLDER}/").removesuffix(_SUFFIX).strip("/")


def _refuse_landed(stack: Stack, wanted: str) -> None:
    for series in stack.series:
        for landed in series.landed:
            path = landed.ref.path.removesuffix(_SUFFIX)
            if path == wanted or path.endswith(f"/{wanted}"):
                raise StackError(
                    f"{path} has landed in {landed.ref.upstream} {landed.release}",
                    f"it is no longer carried; stacks/{series.name}/series.toml keeps the record",
                )
