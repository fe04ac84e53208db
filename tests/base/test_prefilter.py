# SPDX-License-Identifier: Apache-2.0
"""Searching by forms misses no word that stands in a line, however lines repeat."""

from hypothesis import given
from hypothesis import strategies as st

from stack.base import prefilter
from stack.base.prefilter import Prefilter

WORDS = ("Error 803", "803", "rank1", "pid=12", "out of memory", "a")
LINES = st.lists(st.text("a180 Erpidno=", max_size=30).map(lambda text: f"{text}803{text}" if len(text) % 3 == 0 else text))


@given(LINES, LINES)
def test_no_word_is_missed(first: list[str], second: list[str]) -> None:
    words = Prefilter(WORDS)
    for lines in (first, second):
        for line, possible in zip(lines, words.possible([*map(prefilter.form, lines)]), strict=True):
            assert {word for word in WORDS if word in line} <= {*possible}


def test_a_word_that_differs_by_its_number_only_is_possible_and_no_other() -> None:
    words = Prefilter(["Error 803", "killed", "out of memory"])
    assert words.possible([*map(prefilter.form, ["Error 804", "skilled", "Errer", ""])]) == [
        ("Error 803",),
        ("killed",),
        (),
        (),
    ]


def test_what_is_kept_has_a_bound() -> None:
    words = Prefilter(["end"])
    for start in range(0, 3 * prefilter._KEPT, 1000):
        lines = [f"{'x' * (at % 3000)} {chr(1000 + at)} end" for at in range(start, start + 1000)]
        assert {*words.possible(lines)} == {("end",)}
    assert len(words._known) <= prefilter._KEPT
    assert max(map(len, words._known), default=0) <= prefilter._LONGEST
