# SPDX-License-Identifier: Apache-2.0
"""What needs what, as a graph: knots that cannot be untied, and waves."""

import graphlib
from collections.abc import Hashable, Mapping, Set
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def closed(needs: Mapping[Node, Set[Node]]) -> dict[Node, frozenset[Node]]:
    """For each node all that it needs, directly or through others; itself only where it stands in a circle."""
    found: dict[Node, frozenset[Node]] = {}
    for start in needs:
        seen: set[Node] = set()
        waiting = [*needs[start]]
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting += needs[node]
        found[start] = frozenset(seen)
    return found


def knots(needs: Mapping[Node, Set[Node]]) -> tuple[tuple[Node, ...], ...]:
    """The nodes, each with those that need it and that it needs, in the order of `needs`: none of a knot stands without the rest."""
    reach = closed(needs)
    found: list[tuple[Node, ...]] = []
    done: set[Node] = set()
    for node in needs:
        if node not in done:
            knot = tuple(other for other in needs if other == node or (other in reach[node] and node in reach[other]))
            found.append(knot)
            done |= {*knot}
    return tuple(found)


def waves(needs: Mapping[Node, Set[Node]]) -> dict[Node, int]:
    """The wave of each node, from 1: one more than the last of those that it needs.

    Raises:
        graphlib.CycleError: some need each other: tie them into knots first.

    """
    sorter = graphlib.TopologicalSorter(needs)
    sorter.prepare()
    found: dict[Node, int] = {}
    wave = 0
    while sorter.is_active():
        wave += 1
        ready = sorter.get_ready()
        found |= dict.fromkeys(ready, wave)
        sorter.done(*ready)
    return found


def reduced(needs: Mapping[Node, Set[Node]]) -> dict[Node, frozenset[Node]]:
    """What each node needs directly, without what another of these needs anyway; no circles."""
    reach = closed(needs)
    return {node: frozenset(direct).difference(*(reach[other] for other in direct)) for node, direct in needs.items()}


def islands(needs: Mapping[Node, Set[Node]]) -> tuple[tuple[Node, ...], ...]:
    """The nodes in groups that have nothing to do with each other, in the order of `needs`."""
    both = {node: {*direct, *(other for other in needs if node in needs[other])} for node, direct in needs.items()}
    return knots(both)
