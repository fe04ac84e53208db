# SPDX-License-Identifier: Apache-2.0
"""Export commits as patch files, with the same bytes from `git format-patch` on every machine."""

import contextlib
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
from stack.store.objects import ROOMY, Objects

# The user's own attributes could change the hunk headers or the merge driver, or mark a file as binary.
NO_ATTRIBUTES = ("-c", "core.attributesFile=/dev/null")
_FORMAT = ["--full-index", "--no-stat", "--no-signature", "--zero-commit", "--no-numbered", "--quiet"]
_DIFF_TREE = [
    *(*NO_ATTRIBUTES, "-c", "core.quotePath=false", "diff-tree", "--stdin", "--always"),
    *("-p", "-M", "--full-index", "--binary"),
]

_SENDER = re.compile(rb"^From:[^\n]*\n(?:[ \t][^\n]*\n)*", re.MULTILINE)
_TAKEN = re.compile(rb"(?:From|Subject|Date):|>From\s|\[PATCH\]\s", re.IGNORECASE)

_AT_ONCE = 10


def export(objects: Objects, base: CommitId, commits: Sequence[CommitId], *, borrowed: Path | None = None) -> tuple[bytes, ...]:
    """Return the patch file of each commit; `commits` is the whole chain on `base`, oldest first, without merges.

    `borrowed` is the objects folder of another repository with commits that `objects` lacks; its settings and attributes have
    no effect.
    """
    if not commits:
        return ()
    with tempfile.TemporaryDirectory(prefix="stack-") as folder:
        command = [
            *NO_ATTRIBUTES,
            "-c",
            "core.quotePath=false",
            "format-patch",
            *_FORMAT,
            "--output-directory",
            folder,
            f"{base}..{commits[-1]}",
        ]
        env = {"GIT_DIR": str(objects.repository)}
        if borrowed is not None:
            quoted = str(borrowed).replace("\\", "\\\\").replace('"', '\\"')
            env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = f'"{quoted}"'
        git.run(command, env=env)
        # format-patch numbers files with four digits, but with five from number 10,000 on: sort by number, not by name.
        files = sorted(Path(folder).iterdir(), key=lambda file: int(file.name.partition("-")[0]))
        return tuple(_with_sender(file.read_bytes()) for file in files)


def _with_sender(mail: bytes) -> bytes:
    """Repeat the sender above a message that begins like a header field, since git would take that line as the author or subject.

    `git am` reads header fields at the start of the text, up to a blank line.
    """
    head, blank, text = mail.partition(b"\n\n")
    sender = _SENDER.search(head + b"\n")
    return head + blank + sender[0] + b"\n" + text if sender and _TAKEN.match(text) else mail


class Diffs:
    """Computes the diffs of commits in one git process, while more commits are written.

    A carried patch keeps its header and message byte for byte; only its diff is replaced.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._waiting: list[CommitId] = []
        self._output = tempfile.TemporaryFile(prefix="stack-")  # noqa: SIM115  (closed by __exit__)
        self._said = tempfile.TemporaryFile(prefix="stack-")  # noqa: SIM115  (closed by __exit__)
        self._process = subprocess.Popen(
            ["git", *_DIFF_TREE],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._said,
            env=git.environment(extra={"GIT_DIR": str(objects.repository), **ROOMY}),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()
        self._output.close()
        self._said.close()

    def add(self, commit: CommitId) -> None:
        """Add a commit; git gets them in batches, since their objects have to be flushed to disk before each batch."""
        self._waiting.append(commit)
        if len(self._waiting) >= _AT_ONCE:
            self._send()

    def _send(self) -> None:
        assert self._process.stdin is not None
        if self._waiting:
            self._objects.flush()
            # If git has exited, `finish` reports its exit status.
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write("".join(f"{commit}\n" for commit in self._waiting).encode("ascii"))
                self._process.stdin.flush()
            self._waiting.clear()

    def finish(self, carried: Sequence[tuple[Patch, CommitId]]) -> dict[str, bytes]:
        """Return the patch files of all added commits, by their paths below `stacks/`.

        Raises:
            GitError: git could not read one of them.

        """
        self._send()
        if self._stop() != 0:
            self._said.seek(0)
            error = (
                self._said.read().decode("utf-8", "replace") or "a commit could not be read, or a temporary file not written"
            )
            raise git.GitError(["diff-tree"], self._process.returncode, error)
        self._output.seek(0)
        parts = re.split(rb"(?m)^([0-9a-f]{40})\n", self._output.read())
        diffs = dict(zip(parts[1::2], parts[2::2], strict=True))
        return {patch.ref.path: patch.with_diff(diffs[commit.encode("ascii")]) for patch, commit in carried}

    def _stop(self) -> int:
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            self._process.stdin.close()
        return self._process.wait()
