# SPDX-License-Identifier: Apache-2.0
"""A view of a clone that somebody else may have made: its objects and references, and none of its settings and hooks.

A clone's settings can name programs for git to run: filters, a file system monitor, a transport, a program for a remote that lends
missing objects. In the view git finds the objects through `alternates` and has a configuration of its own.
"""

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.model import document
from stack.store import git

SECONDS = 60.0
"""Time limit for each question: a named pipe in the place of a file would never answer."""
_MOST = 256 * 2**20
"""Bytes of the longest list of references."""
_LARGEST = 16 * 2**20
_REPLACED = "refs/replace/"
_ODD = re.compile("[\ud800-\udfff]")
"""The characters that stand for bytes outside of UTF-8."""
_NO_OBJECT = f"{'0' * 39}1"


@dataclass(frozen=True, slots=True)
class PlainView:
    """A repository that shows a clone. `replaced` counts the objects that the clone replaces (`git replace`, grafts)."""

    repository: Path
    replaced: int


@contextmanager
def view(folder: Path) -> Iterator[PlainView]:
    """Make a temporary repository with the objects and references of a clone, as they are without `git replace` and grafts.

    Raises:
        StackError: It is not a repository, or cannot be read within the limits.

    """
    with tempfile.TemporaryDirectory(prefix="stack-") as place:
        own = Path(place) / "git"
        objects, shallow, grafts = _paths(folder)
        git.run(["init", "--quiet", "--bare", "--template=", str(own)])
        (own / "objects/info").mkdir(exist_ok=True)
        (own / "objects/info/alternates").write_bytes(os.fsencode(objects) + b"\n")
        if shallow.is_file():
            (own / "shallow").write_bytes(_read(shallow))
        refs = _refs(folder)
        (own / "packed-refs").write_text(
            "".join(
                f"{commit} {name}\n"
                for name, commit in sorted(refs.items())
                # GitPython reads names in UTF-8 only: it would find none of the branches beside one in another encoding.
                if name.startswith("refs/") and not name.startswith(_REPLACED) and not _ODD.search(name)
            ),
            encoding="utf-8",
        )
        if "HEAD" in refs:
            (own / "HEAD").write_text(f"{refs['HEAD']}\n")
        # An object that nobody has: git opens every index and every list of alternates. Later reads have no time limit.
        bounded(["cat-file", "-e", _NO_OBJECT], own, env={"GIT_DIR": str(own)}, accept=(0, 1, 128))
        yield PlainView(own, sum(name.startswith(_REPLACED) for name in refs) + _grafts(grafts))


def bounded(
    args: Sequence[str],
    folder: Path,
    *,
    stdin: bytes = b"",
    env: dict[str, str] | None = None,
    accept: Sequence[int] = (0,),
) -> bytes | None:
    """Return what git prints about an untrusted repository; None if it ended with another exit code than 0.

    Raises:
        StackError: It gave no answer, or printed too much.
        GitError: The exit code is not in `accept`.

    """
    variables = {**git.HERE_ONLY, **(env or {})}
    try:
        done = git.bounded(args, cwd=folder, most=_MOST, seconds=SECONDS, stdin=stdin, env=variables, accept=accept)
    except git.Unanswered as late:
        raise StackError(f"{folder}: {late.problem}", "look for named pipes and files without end in its .git") from late
    return done.stdout if done.returncode == 0 else None


def _paths(folder: Path) -> tuple[Path, Path, Path]:
    """Return where a clone keeps its objects, its list of shallow commits, and its grafts."""
    names = ("objects", "shallow", "info/grafts")
    asked = ["rev-parse", "--path-format=absolute", *(word for name in names for word in ("--git-path", name))]
    found = bounded(asked, folder, accept=(0, 128))
    if found is None:
        raise StackError(f"{folder} is not a git repository", "name a clone, and a branch of it")
    paths = [Path(os.fsdecode(line)) for line in found.removesuffix(b"\n").split(b"\n")]
    if len(paths) != len(names):
        raise StackError(f"{str(folder)!r:.200} has a line break in its path", "move the clone, or name it by a link")
    return paths[0], paths[1], paths[2]


def _refs(folder: Path) -> dict[str, str]:
    """Return the references of a clone with their objects, and HEAD if it has a commit."""
    listed = bounded(["for-each-ref", "--format=%(objectname) %(refname)"], folder) or b""
    lines = os.fsdecode(listed).splitlines()
    refs = {name: commit for commit, _, name in (line.partition(" ") for line in lines)}
    head = bounded(["rev-parse", "--quiet", "--verify", "HEAD"], folder, accept=(0, 1, 128))
    return refs if head is None else refs | {"HEAD": head.decode("ascii").strip()}


def _read(file: Path) -> bytes:
    return document.read_bytes(file, missing="run it again", largest=_LARGEST)


def _grafts(file: Path) -> int:
    """Return the number of commits whose parents a clone replaces in its grafts file."""
    if not file.is_file():
        return 0
    return sum(bool(line.strip()) and not line.startswith(b"#") for line in _read(file).splitlines())
