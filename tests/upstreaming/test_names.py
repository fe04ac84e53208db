# SPDX-License-Identifier: Apache-2.0
"""Names that changes add and use, and which of them a tree has nowhere."""

import pytest

from stack.carry.drift.tree import Files
from stack.upstreaming.names import Names, absent, absent_from, names

from ..carry.conftest import scratch
from ..carry.trees import FILE, Scratch

__all__ = ["scratch"]


def change(scratch: Scratch, before: dict[str, str], after: dict[str, str]) -> Names:
    one, other = scratch.commits(
        ({path: (FILE, text.encode()) for path, text in before.items()}, None, "a"),
        ({path: (FILE, text.encode()) for path, text in after.items()}, 0, "b"),
    )
    return names(scratch.objects, scratch.tree(one), scratch.tree(other))


OLD = {"a.py": "class Old:\n    kept = 1\n"}


@pytest.mark.parametrize(
    ("after", "added", "used"),
    [
        ({"a.py": OLD["a.py"] + "\n    def shrink(self, factor): ...\n"}, {"shrink", "self", "factor"}, set()),
        (
            {"a.py": OLD["a.py"] + "\n    other = Literal['some-way', 'another']\n"},
            {"other", "some-way", "another"},
            {"Literal", "some-way"},
        ),
        ({"a.py": OLD["a.py"] + "\nparser.add_argument('--wide-load')\n"}, {"--wide-load"}, {"parser", "--wide-load"}),
        ({"a.py": OLD["a.py"] + "\nshrink(thing, factor=2)\n"}, set(), {"shrink", "thing", "factor"}),
        (
            {
                **OLD,
                "k.cuh": "#define WIDE_LOAD 1\nstruct Tile {};\nvoid launch(int a) {\ninline int rounded(int a) { return a; }\n",
            },
            {"k.cuh", "WIDE_LOAD", "Tile", "launch", "rounded"},
            {"Tile"},
        ),
        ({**OLD, "use.sh": "serve --wide-load\n"}, {"use.sh"}, {"serve", "--wide-load"}),
        ({**OLD, "broken.py": "def (:\n    shrink()\n"}, {"broken.py"}, {"shrink"}),
    ],
)
def test_what_a_change_adds_and_uses(scratch: Scratch, after: dict[str, str], added: set[str], used: set[str]) -> None:
    found = change(scratch, OLD, after)
    assert found.added == added
    assert used <= found.used


def test_lines_that_were_there_count_for_nothing(scratch: Scratch) -> None:
    found = change(scratch, {"a.py": "def shrink(): ...\n"}, {"a.py": "# said\ndef shrink(): ...\n"})
    assert found == Names(frozenset(), frozenset())


def test_what_a_tree_has_nowhere(scratch: Scratch) -> None:
    (commit,) = scratch.commits(
        ({"a.py": (FILE, b"shrink = '--wide'\n"), "b.py": (FILE, b"other\n"), "c.md": (FILE, b"told\n")}, None, "x")
    )
    wanted, tree = frozenset({"shrink", "--wide", "other", "told", "shrink2"}), scratch.tree(commit)
    assert not Files(scratch.objects, tree).promised
    assert absent(scratch.objects, tree, wanted) == {"told", "shrink2"}
    assert absent(scratch.objects, tree, frozenset()) == frozenset()
    assert absent_from(scratch.objects, tree, wanted, ["a.py", "gone.py"]) == {"other", "told", "shrink2"}


def test_only_whole_words_of_what_is_no_binary_count(scratch: Scratch) -> None:
    held = {"a.h": b"wider, x_tall, load_16x; matrix.cuh\n", "b.bin": b"\0binary\n", "c.py": b"low(\nhigh"}
    (commit,) = scratch.commits(({path: (FILE, data) for path, data in held.items()}, None, "x"))
    wanted = frozenset({"wide", "tall", "load_16", "matrix.cuh", "matrix", "binary", "low", "high"})
    assert absent(scratch.objects, scratch.tree(commit), wanted) == {"wide", "tall", "load_16", "binary"}
