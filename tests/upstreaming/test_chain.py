# SPDX-License-Identifier: Apache-2.0
"""Which patches of random chains commute: what each stands on alone, merged again in order, gives the chain's own tree."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from stack.upstreaming.chain import Chain

from ..carry.conftest import scratch
from ..carry.trees import FILE, PROPERTY, Scratch, Tree, changed, trees

__all__ = ["scratch"]


@st.composite
def chains(draw: st.DrawFn) -> list[Tree]:
    found = [draw(trees())]
    for _ in range(draw(st.integers(2, 5))):
        found.append(draw(changed(found[-1], most=2)))
    return found


def chain(scratch: Scratch, found: list[Tree]) -> Chain:
    commits = scratch.commits(*((tree, place - 1 if place else None, str(place)) for place, tree in enumerate(found)))
    ids = [scratch.tree(commit) for commit in commits]
    return Chain(scratch.objects, ids[0], [after for before, after in itertools.pairwise(ids) if before != after])


@given(chains())
@PROPERTY
def test_all_that_stands_alone_merges_to_the_chain(scratch: Scratch, found: list[Tree]) -> None:
    made = chain(scratch, found)
    assert made.tree(frozenset(range(len(made)))) == made.trees[-1]
    for number in range(len(made)):
        needs = made.needs(number)
        assert all(made.needs(other) <= needs for other in needs)
        before, after = made.alone(number)
        assert made.tree(needs) == before
        assert made.tree(needs | {number}) == after
    # Whichever are chosen, with what they stand on, git merges them.
    assert all(made.tree(frozenset(pair)) is not None for pair in itertools.combinations(range(len(made)), 2))


def test_what_is_far_apart_commutes_and_what_is_near_does_not(scratch: Scratch) -> None:
    def file(**lines: str) -> Tree:
        return {"a": (FILE, "".join(f"{lines.get(f'at_{number}', number)}\n" for number in range(20)).encode())}

    made = chain(
        scratch,
        [file(), file(at_3="x"), file(at_3="x", at_15="y"), file(at_3="z", at_15="y"), file(at_3="z", at_15="y", at_4="w")],
    )
    assert [made.needs(number) for number in range(4)] == [frozenset(), frozenset(), {0}, {0, 2}]
