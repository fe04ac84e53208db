# SPDX-License-Identifier: Apache-2.0
"""Refuse a branch that is too large to import, before any of its contents are read into memory."""

from pathlib import Path

from stack.base.errors import StackError
from stack.base.text import shortened
from stack.model import patch
from stack.model.ids import CommitId
from stack.store import plain_view

MOST = 10_000
"""Commits of the longest branch that is imported."""
LARGEST = patch.LARGEST
"""Bytes of the largest file, folder or message of a commit: a few kB of a pack can stand for gigabytes."""


def check(repository: Path, base: CommitId, tip: CommitId) -> None:
    """Refuse a range with too many commits, or with an object that is too large.

    Raises:
        StackError: It has.

    """
    env = {"GIT_DIR": str(repository)}
    count = int(plain_view.bounded(["rev-list", "--count", f"{base}..{tip}"], repository, env=env) or 0)
    if count > MOST:
        raise StackError(f"the branch has {count} commits beyond {base[:12]}, more than {MOST}", "name a range: BASE..TIP")
    listed = plain_view.bounded(["rev-list", "--objects", f"{base}..{tip}"], repository, env=env) or b""
    asked = ["cat-file", "--batch-check=%(objectsize) %(objecttype) %(rest)"]
    sizes = plain_view.bounded(asked, repository, env=env, stdin=listed) or b""
    for line in sizes.splitlines():
        size, _, what = line.partition(b" ")
        if size.isdigit() and int(size) > LARGEST:
            named = shortened(what.decode("utf-8", "replace"), 200)
            raise StackError(
                f"the branch has a {named} of {int(size) / 2**20:,.0f} MiB, more than {LARGEST // 2**20} MiB",
                "import a range without it: BASE..TIP",
            )
