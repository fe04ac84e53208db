# SPDX-License-Identifier: Apache-2.0
"""`git merge-tree --write-tree` and what it says."""

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from stack.carry.export import NO_ATTRIBUTES
from stack.model.ids import TreeId
from stack.store import git
from stack.store.objects import ROOMY, Identity, Objects

_NOBODY = Identity("stack", "stack@localhost", "0 +0000")
_COMMAND = ["-c", "core.looseCompression=0", "merge-tree", "--write-tree", "--messages", "-z"]


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


class Merging:
    """A three-way merge of whole trees that git is working on. Use it as a context manager.

    Git learns the merge base as the common parent of two commits made for it. That works from git 2.38 on; `--merge-base` came
    with 2.40. One process for many merges (`--stdin`) cannot be had: git keeps its answers until its buffer is full, and the next
    merge needs the answer to the last.
    `attributes` says how some files are merged; no file of the user's does. `style` is git's `merge.conflictStyle`.
    """

    def __init__(
        self, objects: Objects, base: TreeId, ours: TreeId, theirs: TreeId, attributes: bytes = b"", style: str = "merge"
    ) -> None:
        root = objects.write_commit(base, (), "base\n", _NOBODY)
        self._onto = objects.write_commit(ours, (root,), "onto\n", _NOBODY)
        self._patch = objects.write_commit(theirs, (root,), "patch\n", _NOBODY)
        self._said = tempfile.TemporaryFile(prefix="stack-")  # noqa: SIM115  (closed by __exit__)
        self._attributes = tempfile.NamedTemporaryFile(prefix="stack-") if attributes else None  # noqa: SIM115  (closed by __exit__)
        if self._attributes is not None:
            self._attributes.write(attributes)
            self._attributes.flush()
        stated = ("-c", f"core.attributesFile={self._attributes.name}") if self._attributes is not None else NO_ATTRIBUTES
        self._process = subprocess.Popen(
            ["git", *stated, "-c", f"merge.conflictStyle={style}", *_COMMAND, self._onto, self._patch],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=git.environment(extra={"GIT_DIR": str(objects.repository), **ROOMY}),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdout is not None
        # Where the result is not wanted any more, git ends by the closed pipe.
        self._process.stdout.close()
        self._process.wait()
        self._said.close()
        if self._attributes is not None:
            self._attributes.close()

    def result(self) -> Result:
        """Wait for git.

        Raises:
            GitError: git could not merge at all.

        """
        assert self._process.stdout is not None
        out = self._process.stdout.read()
        status = self._process.wait()
        if status not in (0, 1):
            self._said.seek(0)
            raise git.GitError(["merge-tree"], status, self._said.read().decode("utf-8", "replace"))
        result = _result(status == 0, iter([*out.decode("utf-8", "surrogateescape").split("\0"), ""]))
        # The two commits say nothing to a person, and are others in every merge.
        said = tuple(
            replace(one, text=one.text.replace(self._onto, "the new base").replace(self._patch, "the patch"))
            for one in result.messages
        )
        return replace(result, messages=said)


def merge_trees(
    objects: Objects, base: TreeId, ours: TreeId, theirs: TreeId, attributes: bytes = b"", style: str = "merge"
) -> Result:
    """Three-way merge of whole trees.

    Raises:
        GitError: git could not merge at all.

    """
    with Merging(objects, base, ours, theirs, attributes, style) as merging:
        return merging.result()


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
