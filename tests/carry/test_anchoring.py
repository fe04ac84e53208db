# SPDX-License-Identifier: Apache-2.0
"""A hunk's lines are found beside lines that are there only once, and nowhere else."""

import pytest

from stack.carry.anchoring import Text, stands
from stack.model.diff import Hunk

OLD = "first_line second_line third_line guard_line fourth_line guard_line fifth_line"


def _lines(words: str) -> bytes:
    return "".join(f"{word}\n" for word in words.split()).encode()


def _stands(place: int, gone: int, added: str, have: str) -> bool:
    """Whether `have` stands for OLD with some words in place of `gone` others, from the one after `place` on."""
    removed = [b"-" + line for line in _lines(OLD).splitlines()[place : place + gone]]
    new = [b"+" + line for line in _lines(added).splitlines()]
    hunk = Hunk(place + (1 if gone else 0), gone, place + 1, len(new), (*removed, *new))
    return stands(hunk, Text.of(_lines(OLD)), Text.of(_lines(have)))


@pytest.mark.parametrize(
    ("place", "gone", "added", "have", "expected"),
    [
        (6, 0, "mine", f"{OLD[:-10]}mine fifth_line other_line", True),
        (6, 0, "mine", "second_line guard_line mine fourth_line fifth_line", False),
        (1, 1, "mine", "first_line mine third_line", True),
        (1, 1, "mine", "first_line mine second_line third_line", False),
        (1, 1, "mine", "third_line first_line mine other_line", True),
        (1, 1, "mine", "first_line other_line mine third_line first_line", True),
        (1, 1, "mine", "first_line other_line mine other_line third_line", False),
        (1, 1, "", "first_line third_line", True),
        (1, 1, "", "second_line first_line third_line", False),
    ],
    ids=[
        "below",
        "beside a line that the old file has twice",
        "in place of another",
        "beside the one that it replaces",
        "the line below it moved",
        "beside the line below it",
        "between others",
        "removed",
        "moved",
    ],
)
def test_a_hunk_stands_beside_unique_lines(place: int, gone: int, added: str, have: str, expected: bool) -> None:
    assert _stands(place, gone, added, have) is expected


def test_a_hunk_stands_where_all_of_it_is_indented_alike() -> None:
    hunk = Hunk(1, 0, 2, 1, (b"+mine",))
    old = Text.of(b"first_line\nlast_line\n")
    assert stands(hunk, old, Text.of(b"    first_line\n    mine\n    last_line\n"))
    assert not stands(hunk, old, Text.of(b"    first_line\n        mine\n    last_line\n"))
