# SPDX-License-Identifier: Apache-2.0
"""Find the gates and signers that decide about publishing, in a place that a pull request cannot change.

The checkout may be somebody else's branch, with a weaker gate or an additional signer. So both come from files outside of the
checkout, or from a protected branch as the remote has it.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from stack.base.errors import StackError
from stack.store import git
from stack.validation import gates

SIGNERS = Path("validation/allowed_signers")
"""Path of the signers in a branch, below the stack."""
_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)+")


@dataclass(frozen=True, slots=True)
class Policy:
    """The file with the gates, and the file with the signers whose verdicts count (OpenSSH's allowed_signers)."""

    gates: Path
    signers: Path


def folder() -> Path:
    """Return the user's configuration folder, the default place for both."""
    return platformdirs.user_config_path("stack")


@contextmanager
def trusted(root: Path, gates_file: Path | None, signers: Path | None, protected: str | None) -> Iterator[Policy]:
    """Provide gates and signers for a stack while the block runs; `protected` is a remote's branch such as `origin/main`.

    Raises:
        StackError: a file is missing or in the checkout, or the branch is unknown here or lacks it.

    """
    with tempfile.TemporaryDirectory(prefix="stack-policy-") as place:
        yield Policy(
            _found(root, gates_file, "--gates", gates.FILE, protected, Path(place)),
            _found(root, signers, "--signers", SIGNERS, protected, Path(place)),
        )


def _found(root: Path, named: Path | None, option: str, path: Path, protected: str | None, place: Path) -> Path:
    if named is None and protected is not None:
        return _of_branch(root, protected, path, place)
    file = named or folder() / path.name
    if not file.is_file():
        raise StackError(
            f"{file} is missing", f"put a reviewed copy of {path} there, name one with {option}, or use --protected"
        )
    checkout = _checkout(root)
    if file.resolve().is_relative_to(checkout):
        raise StackError(
            f"{file} is in the checkout, where a pull request can change it",
            f"name a file outside with {option}, or a remote's branch with --protected",
        )
    return file


def _checkout(root: Path) -> Path:
    toplevel = git.run(["rev-parse", "--show-toplevel"], cwd=root, accept=(0, 128))
    return Path(toplevel.stdout.decode("utf-8", "surrogateescape").rstrip("\n") if toplevel.returncode == 0 else root).resolve()


def _of_branch(root: Path, protected: str, path: Path, place: Path) -> Path:
    if not _BRANCH.fullmatch(protected) or ".." in protected:
        raise StackError(f"--protected {protected!r} is not a remote's branch", "write REMOTE/BRANCH, such as origin/main")
    shown = git.run(["cat-file", "blob", f"refs/remotes/{protected}:./{path.as_posix()}"], cwd=root, accept=(0, 128))
    if shown.returncode:
        raise StackError(f"{protected} has no {path} here", f"git fetch it, or commit {path} there")
    (place / path.name).write_bytes(shown.stdout)
    return place / path.name
