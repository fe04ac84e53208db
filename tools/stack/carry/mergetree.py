# SPDX-License-Identifier: Apache-2.0
"""Run `git merge-tree --write-tree` and parse its output."""

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
    """One of git's messages about a merge: the paths concerned, its kind (`CONFLICT (contents)`, `Auto-merging`), its text."""

    paths: tuple[str, ...]
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Result:
    """The merged tree (with conflict markers), the paths with conflict stages, and git's messages."""

    clean: bool
    tree: TreeId
    stages: Mapping[str, tuple[int, ...]]
    messages: tuple[Message, ...]


class Merging:
    """A running three-way merge of whole trees. Use it as a context manager.

    The merge base is given to git as the common parent of two temporary commits. That works from git 2.38 on; `--merge-base`
    needs 2.40. One process for many merges (`--stdin`) is not possible: git buffers its answers, and the next merge needs the
    last answer. `attributes` is a gitattributes file with merge attributes; it replaces the user's own. `style` is git's
    `merge.conflictStyle`.
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
        # If the result is not needed any more, closing the pipe ends git.
        self._process.stdout.close()
        self._process.wait()
        self._said.close()
        if self._attributes is not None:
            self._attributes.close()

    def result(self) -> Result:
        """Wait for git and return the result.

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
        # The ids of the two temporary commits mean nothing to a person, and change with every merge.
        messages = tuple(
            replace(message, text=message.text.replace(self._onto, "the new base").replace(self._patch, "the patch"))
            for message in result.messages
        )
        return replace(result, messages=messages)


def merge_trees(
    objects: Objects, base: TreeId, ours: TreeId, theirs: TreeId, attributes: bytes = b"", style: str = "merge"
) -> Result:
    """Merge whole trees three-way.

    Raises:
        GitError: git could not merge at all.

    """
    with Merging(objects, base, ours, theirs, attributes, style) as merging:
        return merging.result()


def _result(clean: bool, fields: Iterator[str]) -> Result:
    """Parse git's output: the tree, `<mode> <id> <stage>\\t<path>` fields and an empty one, then messages and an empty field."""
    tree = TreeId(next(fields))
    stages: dict[str, tuple[int, ...]] = {}
    while field := next(fields):
        head, _, path = field.partition("\t")
        stages[path] = (*stages.get(path, ()), int(head.split(" ")[2]))
    messages = []
    # After the last message, git may print advice in plain text, on submodules that cannot be merged.
    while (count := next(fields)).isdigit():
        paths = tuple(next(fields) for _ in range(int(count)))
        kind = next(fields)
        messages.append(Message(paths, kind, " ".join(next(fields).split())))
    return Result(clean, tree, stages, tuple(messages))
