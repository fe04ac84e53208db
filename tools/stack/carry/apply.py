# SPDX-License-Identifier: Apache-2.0
"""Apply a patch file to a tree, without a working tree and without fuzz.

Nearly always, the hunks of a patch apply exactly at their line numbers. Then they are applied here, and the blob id in the
`index` line proves the result. Other patches go to `git apply`, with an index of only the files that the patch names: with
8,500 files, reading and writing the index takes longer than applying the patch.

If the `index` line names another blob than the tree has, the patch was made on another base. If the repository has that blob,
the change is merged from it. If not, the patch's lines must occur exactly once in the file: with several places, the line
number would be a guess.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.carry import attributes
from stack.carry.mergetree import merge_trees
from stack.model import paths as names
from stack.model.diff import FileDiff, Hunk, substituted
from stack.model.ids import CommitId, TreeId
from stack.model.patch import Patch, files
from stack.store import git
from stack.store.objects import EMPTY_TREE, FILES, FOLDER, SUBMODULE, Entry, Identity, Objects

_NO_BLOB = "0" * 40
_FAILED = re.compile(r"^error: patch failed: (.+):(\d+)$", re.MULTILINE)
_OTHER_BINARY = re.compile(r"^error: the patch applies to '(.+)' \(", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why and where a patch does not apply. `line` is the hunk's line in the patch's old file.

    `unsure`: the patch may apply, but a person has to decide where.
    """

    path: str
    line: int | None
    reason: str
    unsure: bool = False

    @property
    def is_absent(self) -> bool:
        """Whether the patch changes a file that the sources do not have."""
        return self.reason in ("does not exist", "is not there")

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.reason}" if place else self.reason


_NOTHING = Misfit("", None, "it changes nothing")


class DoesNotApply(StackError):
    """Raised when a patch does not apply to its base."""

    def __init__(self, patch: Patch, misfit: Misfit) -> None:
        super().__init__(f"patch {patch.ref.path} does not apply to its base ({misfit})", "`stack lint` shows all that do not")
        self.patch = patch
        self.misfit = misfit


def announce(objects: Objects, base: CommitId, onto: CommitId, patches: Iterable[Patch]) -> None:
    """Have git read the objects that carrying needs, while the patches are parsed and applied."""
    objects.request((base, onto))
    # The patches are parsed here while git starts.
    count = Counter(file.old for patch in patches for file in files(patch) if file.old is not None)
    objects.expect([objects.tree_of(base)], count)
    # If several patches change a file, its contents on the new base are read, too, to guess the result of the first merge.
    again = [name if times > 1 else name.rpartition("/")[0] for name, times in count.items()]
    objects.expect([objects.tree_of(onto)], filter(None, again))


def chain(objects: Objects, base: CommitId, patches: Sequence[Patch]) -> tuple[CommitId, ...]:
    """Commit each patch on top of the one before, the first on `base`.

    Raises:
        DoesNotApply: a patch does not fit.

    """
    commits: list[CommitId] = []
    parent = base
    for patch in patches:
        tree = apply(objects, objects.tree_of(parent), patch)
        if isinstance(tree, Misfit):
            raise DoesNotApply(patch, tree)
        parent = commit(objects, tree, parent, patch)
        commits.append(parent)
    return tuple(commits)


def commit(objects: Objects, tree: TreeId, parent: CommitId, patch: Patch) -> CommitId:
    """Write the commit of a patch; its id is reproducible, since committer and date are the author's."""
    author = Identity(patch.author.name, patch.author.mail, patch.author.date)
    return objects.write_commit(tree, (parent,), patch.message, author)


def apply(objects: Objects, tree: TreeId, patch: Patch) -> TreeId | Misfit:
    """Return the tree after a patch, or why the patch does not apply."""
    standing = {path: objects.entry(tree, path) for path in touched(patch)}
    known = {path: entry for path, entry in standing.items() if entry is not None and entry.mode != FOLDER}
    exactly = _exactly(objects, known, patch)
    if not exactly and (other := foreign(objects, tree, patch)):
        return _from_another_base(objects, tree, patch, known, other)
    changes = exactly or _by_git(objects, known, patch)
    if isinstance(changes, Misfit):
        return changes
    return _placed(objects, tree, known, changes)


def _placed(objects: Objects, tree: TreeId, known: Mapping[str, Entry], changes: Mapping[str, Entry | None]) -> TreeId | Misfit:
    """Return the tree with the changed files, or a misfit if the path of a new file is taken or nothing changes."""
    gone = {path: None for path, entry in changes.items() if entry is None}
    rest = objects.replaced(tree, gone) if gone else tree
    below = below_a_file(changes)
    if below is not None:
        return Misfit(below, None, "is below a file of the same patch")
    blocked = [path for path in changes if path not in known and _taken(objects, rest, path)]
    if blocked:
        return Misfit(blocked[0], None, "already exists")
    after = objects.replaced(tree, changes)
    return after if after != tree else _NOTHING


def below_a_file(changes: Mapping[str, Entry | None]) -> str | None:
    """Return a path that stands below a file of the same changes, which no tree can hold; None if there is none."""
    files_ = {path for path, entry in changes.items() if entry is not None}
    for path in sorted(files_):
        parts = path.split("/")
        if any("/".join(parts[:depth]) in files_ for depth in range(1, len(parts))):
            return path
    return None


def foreign(objects: Objects, tree: TreeId, patch: Patch) -> tuple[FileDiff, ...]:
    """Return the files of a patch that were changed on another base: their `index` line names another blob than the tree has."""
    return tuple(
        file
        for file in files(patch)
        if file.old is not None
        and file.old_id is not None
        and file.old_mode != SUBMODULE
        and ((entry := objects.entry(tree, file.old)) is None or not entry.id.startswith(file.old_id))
    )


def _from_another_base(
    objects: Objects, tree: TreeId, patch: Patch, known: Mapping[str, Entry], other: Iterable[FileDiff]
) -> TreeId | Misfit:
    """Apply a patch to the blobs that it names, and merge; if the repository lacks a blob, use the tree's file instead."""
    base = dict(known)
    for file in other:
        blob = objects.find_blob(file.old_id or "")
        entry = known.get(file.old or "")
        if blob is not None and file.old is not None:
            base[file.old] = Entry(file.old_mode or (entry.mode if entry is not None else FILES[0]), blob)
        elif entry is not None and entry.mode in FILES and (unsure := _ambiguous(objects.read(entry.id), file)) is not None:
            return unsure
    changes = _exactly(objects, base, patch) or _by_git(objects, base, patch)
    if isinstance(changes, Misfit):
        return changes
    before = objects.replaced(tree, base)
    after = _placed(objects, before, base, changes)
    if isinstance(after, Misfit) or before == tree:
        return after
    ways = attributes.merging(objects, tree, base.keys())
    merged = merge_trees(objects, before, tree, after, attributes.lines(ways))
    if not merged.clean:
        path = next(iter(merged.stages), "")
        conflict = Misfit(path, None, "was made on another base, and is in conflict with what stands here", unsure=True)
        strictly = _by_git(objects, known, patch)
        return strictly if isinstance(strictly, Misfit) else conflict
    return merged.tree if merged.tree != tree else _NOTHING


def _ambiguous(data: bytes, file: FileDiff) -> Misfit | None:
    """Return a misfit for the first hunk whose old lines occur several times in a file, or that has no old lines."""
    for hunk in file.hunks:
        lines = hunk.sides()[0]
        count = _standing(data, lines)
        if count > 1 or (data and not lines):
            reason = (
                f"was made on another base that is not at hand, and its lines stand at {count} places here"
                if lines
                else "was made on another base that is not at hand, and has no lines to be found by"
            )
            return Misfit(file.path, hunk.old_start, reason, unsure=True)
    return None


def _standing(data: bytes, lines: bytes) -> int:
    """Count how often a block of whole lines occurs in a file; occurrences may overlap."""
    count, place = 0, data.find(lines) if lines else -1
    while place >= 0:
        end = place + len(lines)
        is_whole = (place == 0 or data[place - 1 : place] == b"\n") and (lines.endswith(b"\n") or end == len(data))
        count += is_whole
        place = data.find(lines, place + 1)
    return count


def _exactly(objects: Objects, known: Mapping[str, Entry], patch: Patch) -> dict[str, Entry | None]:
    """Return the changed files, if every result has the blob id that the patch names.

    That id proves the result, so git is not needed. In all other cases (modes, binary files, bare renames) return nothing.
    """
    changes: dict[str, Entry | None] = {}
    for file in files(patch):
        entry = known.get(file.old) if file.old is not None else None
        old = (entry.id, entry.mode) if entry is not None else (_NO_BLOB, file.old_mode)
        if (file.old_id, file.old_mode) != old or not file.hunks or not {file.old, file.new}.isdisjoint(changes):
            return {}
        if file.new is not None and file.new != file.old and file.new in known:
            return {}
        if entry is not None and entry.mode == SUBMODULE == file.new_mode and file.old == file.new and _moves(file):
            changes[str(file.new)] = Entry(SUBMODULE, str(file.new_id))
            continue
        if entry is not None and entry.mode not in FILES:
            return {}
        changed = _changed(objects, objects.read(entry.id) if entry is not None else b"", file)
        if changed is None or (file.new is not None and file.new_mode not in FILES):
            return {}
        if file.taken is not None:
            changes[file.taken] = None
        if file.new is not None and file.new_mode is not None:
            changes[file.new] = Entry(file.new_mode, changed)
    return changes


def _moves(file: FileDiff) -> bool:
    """Return whether a diff moves a submodule to another commit, and its lines agree with its `index` line."""
    lines = [f"-Subproject commit {file.old_id}".encode(), f"+Subproject commit {file.new_id}".encode()]
    return [list(hunk.lines) for hunk in file.hunks] == [lines] and len(file.new_id or "") == len(_NO_BLOB)


def _changed(objects: Objects, data: bytes, file: FileDiff) -> str | None:
    """Apply the hunks, write the blob and return its id; None if it is not the blob that the patch names.

    Searching for the hunks' lines is ten times as fast as counting lines. Wherever they are found, the id proves the result.
    """
    for replaced in (substituted, _replaced_lines):
        after = replaced(data, file.hunks)
        if after is not None and file.new is None and not after:
            return _NO_BLOB
        if after is not None and file.new is not None and objects.write_blob(after) == file.new_id:
            return file.new_id
    return None


def _replaced_lines(data: bytes, hunks: Sequence[Hunk]) -> bytes | None:
    """Apply hunks at their line numbers; None if a hunk's old lines are not exactly there."""
    lines = data.split(b"\n")
    result: list[bytes] = []
    done = 0
    for hunk in hunks:
        start = hunk.old_start - (1 if hunk.old_count else 0)
        result += lines[done:start]
        done = start + hunk.old_count
        if lines[start:done] != [line[1:] for line in hunk.lines if line[:1] in b" -"]:
            return None
        result += [line[1:] for line in hunk.lines if line[:1] in b" +"]
    return b"\n".join(result + lines[done:])


def _by_git(objects: Objects, known: Mapping[str, Entry], patch: Patch) -> dict[str, Entry | None] | Misfit:
    before = objects.replaced(EMPTY_TREE, known)
    with tempfile.TemporaryDirectory(prefix="stack-") as folder:
        place = {"GIT_DIR": str(objects.repository), "GIT_INDEX_FILE": str(Path(folder) / "index")}
        git.run(["read-tree", before], env=place)
        done = git.run(["apply", "--cached", "--whitespace=nowarn", "-"], stdin=patch.diff, env=place, accept=(0, 1, 128))
        if done.returncode != 0:
            return _misfit(done.stderr.decode("utf-8", "replace"))
        after = TreeId(git.run(["write-tree"], env=place).stdout.decode("ascii").strip())
    return {path: new for path, _, new in objects.difference(before, after)}


def touched(patch: Patch) -> tuple[str, ...]:
    """Return the paths that a patch reads or writes.

    Raises:
        StackError: the diff cannot be parsed, or names a path outside of the tree, or one that is too deep.

    """
    paths = {name for file in files(patch) for name in (file.old, file.new) if name is not None}
    for path in paths:
        parts = path.split("/")
        if len(parts) > names.MAX_DEPTH:
            raise StackError(
                f"{patch.ref.path} changes {path[:60]!r}…, which is deeper than {names.MAX_DEPTH} folders", "refuse this patch"
            )
        if not {"..", ".", ""}.isdisjoint(parts) or any(
            names.is_dot_git(part.encode("utf-8", "surrogateescape")) for part in parts
        ):
            raise StackError(f"{patch.ref.path} changes {path[:200]!r}, which is outside of the tree", "refuse this patch")
    return tuple(sorted(paths))


def _taken(objects: Objects, tree: TreeId, path: str) -> bool:
    """Return whether `path` is already a file or a folder, or is below a file."""
    parts = path.split("/")
    return objects.entry(tree, path) is not None or any(
        (entry := objects.entry(tree, "/".join(parts[:depth]))) is not None and entry.mode != FOLDER
        for depth in range(1, len(parts))
    )


def _misfit(stderr: str) -> Misfit:
    failed = _FAILED.search(stderr)
    if failed:
        return Misfit(failed[1], int(failed[2]), "the lines that it changes are not there")
    binary = _OTHER_BINARY.search(stderr)
    if binary:
        return Misfit(binary[1], None, "has other contents, and is binary")
    lines: Iterable[str] = (line.removeprefix("error: ").removeprefix("fatal: ") for line in stderr.splitlines())
    message = next((line for line in lines if line.strip()), "git apply failed")
    path, colon, reason = message.partition(": ")
    return Misfit(path, None, reason.removesuffix(" in index")) if colon else Misfit("", None, message)
