# SPDX-License-Identifier: Apache-2.0
"""`git merge-tree --write-tree` and what it says."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from stack.carry.export import NO_ATTRIBUTES
from stack.model.ids import TreeId
from stack.store import git
from stack.store.objects import Identity, Objects

_NOBODY = Identity("stack", "stack@localhost", "0 +0000")
_SETTINGS = [*NO_ATTRIBUTES, "-c", "merge.conflictStyle=merge", "-c", "core.looseCompression=1"]
_COMMAND = [*_SETTINGS, "merge-tree", "--write-tree", "--messages", "-z"]


@dataclass(frozen=True, slots=True)
class Message:
    """What git says about a merge: the paths that it is about, its kind (`CONFLICT (contents)`, `Auto-merging`), its text."""

    paths: tuple[str, ...]
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Result:
    """The tree (with markers where there is a conflict), the paths with conflict stages, and git's messages."""

    clean: bool
    tree: TreeId
    stages: Mapping[str, tuple[int, ...]]
    messages: tuple[Message, ...]


def merge_trees(objects: Objects, base: TreeId, ours: TreeId, theirs: TreeId) -> Result:
    """Three-way merge of whole trees. Git learns the merge base as the common parent of two commits made for it.

    That works from git 2.38 on; `--merge-base` came with 2.40. One process for many merges (`--stdin`) cannot be had: git keeps
    its answers until its buffer is full, and the next merge needs the answer to the last.

    Raises:
        GitError: git could not merge at all.

    """
    root = objects.write_commit(base, (), "base\n", _NOBODY)
    onto = objects.write_commit(ours, (root,), "onto\n", _NOBODY)
    patch = objects.write_commit(theirs, (root,), "patch\n", _NOBODY)
    done = git.run([*_COMMAND, onto, patch], env={"GIT_DIR": str(objects.repository)}, accept=(0, 1))
    result = _result(done.returncode == 0, iter([*done.stdout.decode("utf-8", "surrogateescape").split("\0"), ""]))
    # The two commits say nothing to a person, and are others in every merge.
    said = tuple(
        replace(one, text=one.text.replace(onto, "the new base").replace(patch, "the patch")) for one in result.messages
    )
    return replace(result, messages=said)


def _result(clean: bool, fields: Iterator[str]) -> Result:
    """Read a result: tree, `<mode> <id> <stage>\\t<path>` fields up to an empty one, messages up to an empty one."""
    tree = TreeId(next(fields))
    stages: dict[str, tuple[int, ...]] = {}
    while field := next(fields):
        head, _, path = field.partition("\t")
        stages[path] = (*stages.get(path, ()), int(head.split(" ")[2]))
    messages = []
    # What follows the last message may be advice in plain text: on submodules that cannot be merged.
    while (count := next(fields)).isdigit():
        paths = tuple(next(fields) for _ in range(int(count)))
        kind = next(fields)
        messages.append(Message(paths, kind, " ".join(next(fields).split())))
    return Result(clean, tree, stages, tuple(messages))
