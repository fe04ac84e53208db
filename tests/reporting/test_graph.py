# SPDX-License-Identifier: Apache-2.0
"""The graph of series: levels, no arrow that another way of arrows says, no box upon another."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from stack.reporting import graph
from stack.reporting.report import SeriesLine


def series(needs: dict[str, tuple[str, ...]]) -> list[SeriesLine]:
    return [SeriesLine(name, name, "pending", its) for name, its in needs.items()]


def test_levels_and_the_arrows_that_are_needed() -> None:
    made = series({"a": (), "alone": (), "b": ("a",), "c": ("a", "b"), "d": ("a", "unknown")})
    assert graph.levels(made) == [["a"], ["b", "d"], ["c"]]
    assert graph.needed_directly(made) == {"a": (), "alone": (), "b": ("a",), "c": ("b",), "d": ("a",)}
    assert graph.draw(series({"a": (), "b": ()}), {}) is None


@st.composite
def acyclic(draw: st.DrawFn) -> list[SeriesLine]:
    count = draw(st.integers(0, 9))
    names = [f"s{number}" for number in range(count)]
    return series({name: tuple(draw(st.sets(st.sampled_from(names[:place] or ["none"])))) for place, name in enumerate(names)})


def reached(needs: dict[str, tuple[str, ...]], name: str) -> set[str]:
    return {below for needed in needs.get(name, ()) for below in (needed, *reached(needs, needed))}


@settings(max_examples=40, deadline=None)
@given(acyclic())
def test_any_graph(made: list[SeriesLine]) -> None:
    known = {each.name for each in made}
    every = {each.name: tuple(known.intersection(each.needs)) for each in made}
    direct = graph.needed_directly(made)
    assert {name: reached(every, name) for name in known} == {name: reached(direct, name) for name in known}
    columns = graph.levels(made)
    level = {name: number for number, names in enumerate(columns) for name in names}
    assert all(level[needed] < level[name] for name in level for needed in direct[name])
    drawn = graph.draw(made, {})
    assert (drawn is None) is (not any(direct.values()))
    if drawn is not None:
        boxes = list(drawn.iter("rect"))
        assert len(boxes) == len(level)
        places = [(int(box.get("x", "")), int(box.get("y", ""))) for box in boxes]
        size = (int(boxes[0].get("width", "")), int(boxes[0].get("height", "")))
        for one, other in itertools.combinations(places, 2):
            assert any(abs(one[axis] - other[axis]) >= size[axis] for axis in (0, 1))
        assert max(x for x, _ in places) + size[0] <= int(drawn.get("width", ""))
        assert max(y for _, y in places) + size[1] <= int(drawn.get("height", ""))
