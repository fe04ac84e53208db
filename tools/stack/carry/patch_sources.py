# SPDX-License-Identifier: Apache-2.0
"""Keep the new files of a patch as ordinary files, for editors, formatters and reviewers.

`from = "kernels/src/NAME"` of a patch in `series.toml` names a folder of the stack. It holds exactly the files that the patch
adds, at their paths in the upstream, with the same bytes. Commands that write the patch write the folder along with it;
`refresh` goes the other way, from the folder into the patch.
"""

import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from stack.base import files as plain_files
from stack.base.errors import StackError
from stack.base.files import Folder
from stack.carry import apply, links
from stack.carry.export import export
from stack.carry.merge import merge
from stack.carry.upstream_stores import Stores
from stack.model.patch import Patch, files, parse
from stack.model.series import PatchRef
from stack.model.stack import Stack
from stack.store.objects import Entry

_REGULAR = (0o100644, 0o100755)
_IGNORED = "__pycache__"


def added(patch: Patch) -> Mapping[str, bytes]:
    """Return the text files that a patch adds, by their path in the upstream.

    Raises:
        StackError: its diff cannot be parsed.

    """
    return {
        file.new: b"".join(hunk.sides()[1] for hunk in file.hunks)
        for file in files(patch)
        if file.old is None and file.new is not None and file.new_mode in _REGULAR and not file.binary
    }


def mirrored(stack: Stack, patches: Mapping[PatchRef, bytes | None]) -> dict[str, bytes | None]:
    """Return the changes to the patches' folders that belong to new patch files, by path below the stack's root.

    Args:
        stack: the stack before the change.
        patches: the new bytes of patches; None for a patch that is removed, together with its folder.

    Returns:
        The bytes of each file; None removes it.

    """
    changes: dict[str, bytes | None] = {}
    for ref, raw in patches.items():
        folder = stack.sources.get(ref)
        if folder is not None:
            now = {} if raw is None else added(parse(raw, ref, name=ref.path))
            changes |= {f"{folder}/{path}": None for path in added(stack.patches[ref]) if path not in now}
            changes |= {f"{folder}/{path}": data for path, data in now.items()}
    return changes


def problems(stack: Stack, upstream: str) -> Iterator[tuple[str, str]]:
    """Yield (path below the root, problem) for each file that differs from the file that a patch adds.

    Raises:
        StackError: a folder has a link or a special file, or cannot be read.

    """
    for patch in stack.order(upstream):
        folder = stack.sources.get(patch.ref)
        if folder is None:
            continue
        wanted, actual = added(patch), _read(stack.root, folder)
        if actual is None:
            yield folder, f"is missing, and {patch.ref.path} names it"
            continue
        for path in sorted(wanted.keys() | actual.keys()):
            if path not in actual:
                yield f"{folder}/{path}", f"is missing, and {patch.ref.path} adds it"
            elif path not in wanted:
                yield f"{folder}/{path}", f"is not in {patch.ref.path}"
            elif wanted[path] != actual[path]:
                yield f"{folder}/{path}", f"is not what {patch.ref.path} adds"


def check(stack: Stack, upstream: str) -> None:
    """Refuse to continue if a folder and its patch differ: writing one of them would lose changes in the other.

    Raises:
        StackError: they differ.

    """
    for place, problem in problems(stack, upstream):
        raise StackError(f"{place} {problem}", remedy(upstream))


def remedy(upstream: str) -> str:
    """Return the advice on how to synchronise an upstream's folders and patches."""
    return f"run `stack refresh {upstream}`, which writes the folder into the patch, or makes a missing folder from it"


def refreshed(stores: Stores, upstream: str) -> dict[PatchRef, bytes]:
    """Export an upstream's patches with the current files of their folders; the stack is not written.

    Later patches that change these files are merged onto them. The patch of a missing folder stays as it is.

    Raises:
        StackError: a folder cannot be read, or a later patch changes lines that the new file does not have.

    """
    stack, objects = stores.stack, stores.objects(upstream)
    before = tip = base = stores.base(upstream)
    patches = stack.order(upstream)
    commits = []
    for patch, commit in zip(patches, links.checked_chain(objects, base, patches), strict=True):
        merged = merge(objects, {}, objects.tree_of(before), objects.tree_of(tip), objects.tree_of(commit))
        if merged.conflicts:
            paths = ", ".join(sorted({conflict.path for conflict in merged.conflicts}))
            raise StackError(
                f"{patch.ref.path} changes lines of {paths} that are no longer there",
                f"edit both in a working tree: stack checkout {upstream} DIR",
            )
        tree = merged.tree
        folder = stack.sources.get(patch.ref)
        new = None if folder is None else _read(stack.root, folder)
        if folder is not None and new is not None:
            changes: dict[str, Entry | None] = {path: None for path in added(patch) if path not in new}
            for path, data in new.items():
                known = objects.entry(tree, path)
                mode = known.mode if known is not None else _mode(stack.root / folder / path)
                changes[path] = Entry(mode, objects.write_blob(data))
            tree = objects.replaced(tree, changes)
        before, tip = commit, apply.commit(objects, tree, tip, patch)
        commits.append(tip)
    return dict(zip((patch.ref for patch in patches), export(objects, base, commits), strict=True))


def _read(root: Path, folder: str) -> dict[str, bytes] | None:
    """Read all files below a folder of the stack; None if it is missing. A checkout may hold anything: links are refused."""
    with plain_files.opened(root) as top:
        try:
            with top.below(*folder.split("/")) as place:
                return dict(_contents(place))
        except FileNotFoundError:
            return None


def _contents(place: Folder, above: str = "") -> Iterator[tuple[str, bytes]]:
    for name in place.names():
        if name == _IGNORED:
            continue
        try:
            with place.below(name) as inner:
                yield from _contents(inner, f"{above}{name}/")
        except NotADirectoryError:
            data = place.read(name)
            if data is not None:
                yield f"{above}{name}", data


def _mode(path: Path) -> int:
    return _REGULAR[1] if path.stat().st_mode & stat.S_IXUSR else _REGULAR[0]
