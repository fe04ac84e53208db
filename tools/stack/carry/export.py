# SPDX-License-Identifier: Apache-2.0
"""Commits out to patch files: the bytes that `git format-patch` gives everywhere."""

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from stack.model.ids import CommitId
from stack.model.patch import Patch
from stack.store import git
from stack.store.objects import Objects

_FORMAT = ["--full-index", "--no-stat", "--no-signature", "--zero-commit", "--no-numbered", "--quiet"]


def export(objects: Objects, base: CommitId, commits: Sequence[CommitId]) -> tuple[bytes, ...]:
    """The patch file of each commit; `commits` is the whole chain on `base`, oldest first, without merges."""
    if not commits:
        return ()
    with tempfile.TemporaryDirectory(prefix="stack-") as folder:
        command = [
            "-c",
            "core.quotePath=false",
            "format-patch",
            *_FORMAT,
            "--output-directory",
            folder,
            f"{base}..{commits[-1]}",
        ]
        git.run(command, env={"GIT_DIR": str(objects.repository)})
        # format-patch numbers them with four digits, five from the ten thousandth on.
        files = sorted(Path(folder).iterdir(), key=lambda file: int(file.name.partition("-")[0]))
        return tuple(file.read_bytes() for file in files)


class Diffs:
    """The diffs of commits, worked out by one git process on the side while more commits are written.

    A carried patch keeps its header and message to the byte; only its diff is made anew.
    """

    def __init__(self, objects: Objects) -> None:
        self._output = tempfile.TemporaryFile(prefix="stack-")  # noqa: SIM115  (closed by __exit__)
        self._process = subprocess.Popen(
            ["git", "-c", "core.quotePath=false", "diff-tree", "--stdin", "--always", "-p", "-M", "--full-index"],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.DEVNULL,
            env=git.environment(extra={"GIT_DIR": str(objects.repository)}),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()
        self._output.close()

    def add(self, commit: CommitId) -> None:
        """Begin with one more commit."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{commit}\n".encode("ascii"))
        self._process.stdin.flush()

    def finish(self, carried: Sequence[tuple[Patch, CommitId]]) -> dict[str, bytes]:
        """The patch files of all commits that were added, in that order, by their paths below `stacks/`.

        Raises:
            GitError: git could not read one of them.

        """
        if self._stop() != 0:
            raise git.GitError(["diff-tree"], self._process.returncode, "a commit could not be read")
        self._output.seek(0)
        parts = re.split(rb"(?m)^([0-9a-f]{40})\n", self._output.read())
        found = dict(zip(parts[1::2], parts[2::2], strict=True))
        return {
            patch.ref.path: patch.raw[: len(patch.raw) - len(patch.diff)] + found[commit.encode("ascii")]
            for patch, commit in carried
        }

    def _stop(self) -> int:
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            self._process.stdin.close()
        return self._process.wait()
