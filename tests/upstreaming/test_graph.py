# SPDX-License-Identifier: Apache-2.0
"""Knots, waves and what a search by trying finds."""

import graphlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.upstreaming import graph
from stack.upstreaming.minimize import smallest

Needs = dict[int, set[int]]


@st.composite
def needs(draw: st.DrawFn) -> Needs:
    count = draw(st.integers(1, 7))
    return {number: draw(st.sets(st.integers(0, count - 1), max_size=3)) - {number} for number in range(count)}


@given(needs())
def test_a_knot_is_what_needs_each_other(given: Needs) -> None:
    reach = graph.closed(given)
    owner = {number: knot for knot in graph.knots(given) for number in knot}
    assert sorted(owner) == sorted(given)
    for one, other in itertools.permutations(given, 2):
        assert (owner[one] == owner[other]) == (other in reach[one] and one in reach[other])


@given(needs())
def test_waves_count_the_longest_way(given: Needs) -> None:
    knots = graph.knots(given)
    owner = {number: knot for knot in knots for number in knot}
    between = {knot: {owner[other] for number in knot for other in given[number]} - {knot} for knot in knots}
    found = graph.waves(between)
    assert all(found[knot] == 1 + max((found[other] for other in between[knot]), default=0) for knot in knots)
    # What is left out of a graph is what the rest says anyway.
    assert graph.closed(graph.reduced(between)) == graph.closed(between)


def test_circles_have_no_waves() -> None:
    with pytest.raises(graphlib.CycleError):
        graph.waves({1: {2}, 2: {1}})


def test_islands() -> None:
    assert graph.islands({1: {2}, 2: set(), 3: set(), 4: {2}}) == ((1, 2, 4), (3,))


@given(st.lists(st.integers(0, 9), unique=True, min_size=1), st.data())
def test_the_search_finds_what_is_needed_and_no_more(candidates: list[int], data: st.DataObject) -> None:
    ways = data.draw(st.lists(st.sets(st.sampled_from(candidates)), min_size=1, max_size=3))
    found = smallest(candidates, lambda chosen: any(chosen >= way for way in ways))
    assert found is not None
    assert any(found >= way for way in ways)
    assert all(not any(found - {one} >= way for way in ways) for one in found)


def test_the_search_knows_when_nothing_helps() -> None:
    assert smallest([1, 2], lambda _: False) is None
