# SPDX-License-Identifier: Apache-2.0
"""Which lines patches added: one diff, a series of them, two trees."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.carry.drift import added_between, added_lines
from stack.model.diff import parse

from .trees import FILE, LINK, PROPERTY, Scratch, Tree


def text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@PROPERTY
@given(st.data())
def test_the_lines_of_a_series_are_those_that_the_base_lacks(scratch: Scratch, data: st.DataObject) -> None:
    fresh = (f"mine {number}" for number in itertools.count())
    lines = [f"base {number}" for number in range(data.draw(st.integers(0, 12)))]
    chain: list[Tree] = [{"a": (FILE, text(lines)), "b": (FILE, b"")}]
    for _ in range(data.draw(st.integers(1, 4))):
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.integers(0, len(lines)))
            lines[place : place + data.draw(st.integers(0, 3))] = [next(fresh) for _ in range(data.draw(st.integers(0, 3)))]
        chain.append({"a": (FILE, text(lines)), "b": (FILE, b"")})
    commits = scratch.commits(*((tree, number - 1 if number else None, "x") for number, tree in enumerate(chain)))
    context = data.draw(st.sampled_from(("-U0", "-U3")))
    diffs = [scratch.git("diff", context, "--full-index", one, other) for one, other in itertools.pairwise(commits)]
    files = [file for diff in diffs if diff for file in parse(diff)]
    wanted = frozenset(number for number, line in enumerate(lines, 1) if line.startswith("mine"))
    assert added_lines(files) == ({"a": wanted} if wanted else {})
    assert added_between(scratch.objects, scratch.tree(commits[0]), scratch.tree(commits[-1])) == (
        {"a": wanted} if wanted else {}
    )


LONG = [f"line {number}" for number in range(20)]


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ({}, {"new": (FILE, b"1\n2\n")}, {"new": frozenset({1, 2})}),
        ({"old": (FILE, b"1\n")}, {}, {}),
        ({"old": (FILE, text(LONG))}, {"moved": (FILE, text(["x", *LONG]))}, {"moved": frozenset({1})}),
        ({"x": (FILE, b"1")}, {"x": (FILE, b"1\n2")}, {"x": frozenset({1, 2})}),
        ({"x": (FILE, b"\0")}, {"x": (FILE, b"\0\0")}, {}),
        ({"x": (FILE, b"1\n")}, {"x": (FILE, b"1\n")}, {}),
        ({}, {'q"uote': (FILE, b"1\n"), "ü": (LINK, b"a")}, {'q"uote': frozenset({1}), "ü": frozenset({1})}),
    ],
)
def test_two_trees(scratch: Scratch, before: Tree, after: Tree, wanted: dict[str, frozenset[int]]) -> None:
    one, other = scratch.commits((before, None, "a"), (after, None, "b"))
    assert added_between(scratch.objects, scratch.tree(one), scratch.tree(other)) == wanted


def test_a_renamed_file_keeps_its_added_lines(scratch: Scratch) -> None:
    first = {"a": (FILE, text([*LONG[:10], "mine", *LONG[10:]]))}
    second = {"b": (FILE, text(["mine too", *LONG[:10], "mine", *LONG[10:]]))}
    commits = scratch.commits(({"a": (FILE, text(LONG))}, None, "x"), (first, 0, "y"), (second, 1, "z"))
    diffs = [scratch.git("diff", "-M", "--full-index", one, other) for one, other in itertools.pairwise(commits)]
    assert added_lines([file for diff in diffs for file in parse(diff)]) == {"b": frozenset({1, 12})}
