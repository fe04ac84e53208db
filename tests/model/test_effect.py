# SPDX-License-Identifier: Apache-2.0
"""Effects of single diffs that git seldom writes; tests/carry/test_effects.py has random ones."""

import pytest

from stack.model import effect
from stack.model.effect import Content, Effect
from stack.model.patch import parse
from stack.model.series import PatchRef

from .factories import patch

EDIT = patch()[patch().index(b"diff --git") :].decode()
MOVE = "diff --git a/one.py b/two.py\nsimilarity index 100%\nrename from one.py\nrename to two.py\n"
BACK = MOVE.replace("one.py", "x").replace("two.py", "one.py").replace("/x", "/two.py").replace(" x\n", " two.py\n")
COPY = MOVE.replace("rename", "copy")
MODE = "diff --git a/one.py b/one.py\nold mode 100644\nnew mode 100755\n"
OLD, NEW = Content(0o100644, "1" * 40), Content(0o100644, "2" * 40)


def along(*diffs: str) -> Effect:
    head = patch()[: patch().index(b"diff --git")]
    return effect.along(
        ("", parse(head + diff.encode(), PatchRef("one", "up", f"up/{number}.patch"), name="x"))
        for number, diff in enumerate(diffs)
    )


@pytest.mark.parametrize(
    ("diffs", "changed"),
    [
        ((EDIT,), {"one.py": NEW}),
        ((MOVE,), {"one.py": None, "two.py": Content(None, "base:one.py")}),
        ((MOVE, BACK), {}),
        ((COPY,), {"two.py": Content(None, "base:one.py")}),
        ((COPY, EDIT), {"one.py": NEW, "two.py": OLD}),
        ((EDIT, COPY), {"one.py": NEW, "two.py": NEW}),
        ((MODE,), {"one.py": Content(0o100755, "base:one.py")}),
        ((MODE, EDIT.replace("100644", "100755")), {"one.py": Content(0o100755, "2" * 40)}),
    ],
)
def test_the_effect(diffs: tuple[str, ...], changed: dict[str, Content | None]) -> None:
    assert dict(along(*diffs).changed) == changed


def test_the_id_of_a_moved_file_is_known_once_a_patch_states_it() -> None:
    found = along(MOVE, EDIT.replace("one.py", "two.py"))
    assert dict(found.changed) == {"one.py": None, "two.py": NEW}
    assert found.before["one.py"] == OLD


def test_without_whole_ids_all_that_went_in_counts() -> None:
    short = EDIT.replace("1" * 40, "1" * 9).replace("2" * 40, "2" * 9)
    one, other = along(short).changed["one.py"], along(short.replace("+new", "+newer")).changed["one.py"]
    assert one is not None
    assert other is not None
    assert not one.is_stated
    assert one != other
