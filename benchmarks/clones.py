# SPDX-License-Identifier: Apache-2.0
"""A bare clone of the user's clone, for benchmarks that write objects: the user's stays as it is."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stack.store import git


@contextmanager
def bare(clone: Path) -> Iterator[Path]:
    """Yield a bare clone that borrows the objects of another; its folder goes with the block."""
    repo = git.text(["rev-parse", "--absolute-git-dir"], cwd=clone)
    with tempfile.TemporaryDirectory(prefix="stack-bench-") as folder:
        made = Path(folder) / "bare.git"
        git.run(["clone", "--quiet", "--bare", "--shared", repo, str(made)])
        yield made
