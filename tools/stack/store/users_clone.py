# SPDX-License-Identifier: Apache-2.0
"""Read a clone of the user without any connection: a partial clone would fetch what it lacks, with a program that it names."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stack.base.errors import StackError
from stack.store import git, plain_view
from stack.store.git import GitError
from stack.store.objects import MissingError


@contextmanager
def read_only_here(folder: Path) -> Iterator[None]:
    """Let git read the clone within the block, and never connect.

    Raises:
        StackError: The clone is a partial one, and lacks an object that is needed.

    """
    with git.here_only():
        try:
            yield
        except (GitError, MissingError) as failed:
            if not is_partial(folder):
                raise
            raise StackError(
                f"{folder} is a partial clone, and lacks contents that are needed",
                f"fetch them: git -C {folder} fetch --refetch --no-filter",
            ) from failed


def is_partial(folder: Path) -> bool:
    """Return whether a clone leaves objects to a remote that has promised them."""
    setting = r"^(remote\..*\.(promisor|partialclonefilter)|extensions\.partialclone)$"
    return plain_view.bounded(["config", "--get-regexp", setting], folder, accept=(0, 1)) is not None
