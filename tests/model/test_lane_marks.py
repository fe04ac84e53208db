# SPDX-License-Identifier: Apache-2.0
"""The mark of a lane in a version: valid, and another one for every lane."""

import itertools

import pytest
from packaging.version import Version

from stack.model import lane_marks

NAMES = ["1.27", "1-27", "1_27", "01.27", "1.027", "LTS", "lts", "Lts", "lts-1", "lts.1", "0", "00", "-", "_", "a" * 64]


@pytest.mark.parametrize(
    ("lane", "mark"), [(None, ""), ("1.27", "lane.1.27"), ("lts", "lane.lts"), ("0.32.1", "lane.0.32.1"), ("0", "lane.0")]
)
def test_a_plain_name_is_its_own_mark(lane: str | None, mark: str) -> None:
    assert lane_marks.mark(lane) == mark


def test_each_lane_has_another_mark_and_a_valid_one() -> None:
    read = {name: Version(f"1.0+stack.g1.{lane_marks.mark(name)}") for name in NAMES}
    for first, second in itertools.combinations(NAMES, 2):
        assert read[first] != read[second], (first, second)
    assert lane_marks.mark("1-27").startswith("lane.1.27.h")


def test_a_name_says_its_lane() -> None:
    assert lane_marks.named("up/one", None) == "up/one"
    assert lane_marks.named("up/one", "1.27") == "up/one@1.27"
