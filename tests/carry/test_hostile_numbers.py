# SPDX-License-Identifier: Apache-2.0
"""Patches with numbers and names that no project has: a clear error, not a defect."""

import pytest

from stack.base.errors import StackError
from stack.carry import apply
from stack.model import paths
from stack.model.diff import DiffError, parse, places
from stack.model.patch import Author, Patch
from stack.model.series import PatchRef

DIGITS = b"9" * 5000
"""More than Python reads as a number."""


@pytest.mark.parametrize(
    "numbers", [b"-%b,1 +1,1" % DIGITS, b"-1,%b +1,1" % DIGITS, b"-1,1 +%b,1" % DIGITS, b"-1,1 +1,%b" % DIGITS]
)
def test_numbers_of_thousands_of_digits(numbers: bytes) -> None:
    diff = b"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ " + numbers + b" @@\n-b\n+c\n"
    with pytest.raises(DiffError, match="is not a hunk header"):
        parse(diff)
    places(diff)


def adding(path: str) -> Patch:
    diff = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n".encode()
    return Patch(PatchRef("one", "up", "up/one.patch"), diff, Author("A", "a@b", "0 +0000"), "one", "one\n", diff)


def test_a_path_deeper_than_any_project_has() -> None:
    deepest = "d/" * (paths.MAX_DEPTH - 1) + "x"
    assert apply.touched(adding(deepest)) == (deepest,)
    with pytest.raises(StackError, match=r"one\.patch changes 'd/d/.*…, which is deeper than 128 folders: refuse this patch"):
        apply.touched(adding(f"d/{deepest}"))
