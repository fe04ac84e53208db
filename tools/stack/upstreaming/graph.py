# SPDX-License-Identifier: Apache-2.0
"""Dependency graph: transitive closure and reduction, strongly connected components, and topological levels (waves)."""

import graphlib
from collections.abc import Hashable, Mapping, Set
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def closed(needs: Mapping[Node, Set[Node]]) -> dict[Node, frozenset[Node]]:
    """Transitive closure: all nodes that each node needs, directly or through others; itself only if it is on a cycle."""
    reach: dict[Node, frozenset[Node]] = {}
    for start in needs:
        seen: set[Node] = set()
        waiting = [*needs[start]]
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting += needs[node]
        reach[start] = frozenset(seen)
    return reach


def knots(needs: Mapping[Node, Set[Node]]) -> tuple[tuple[Node, ...], ...]:
    """Strongly connected components in the order of `needs`: each node with those that it needs and that need it."""
    reach = closed(needs)
    components: list[tuple[Node, ...]] = []
    done: set[Node] = set()
    for node in needs:
        if node not in done:
            component = tuple(other for other in needs if other == node or (other in reach[node] and node in reach[other]))
            components.append(component)
            done |= {*component}
    return tuple(components)


def waves(needs: Mapping[Node, Set[Node]]) -> dict[Node, int]:
    """Topological levels: each node's wave, one more than the latest wave that it needs, from 1.

    Raises:
        graphlib.CycleError: there is a cycle; reduce it with `knots` first.

    """
    sorter = graphlib.TopologicalSorter(needs)
    sorter.prepare()
    levels: dict[Node, int] = {}
    wave = 0
    while sorter.is_active():
        wave += 1
        ready = sorter.get_ready()
        levels |= dict.fromkeys(ready, wave)
        sorter.done(*ready)
    return levels


def reduced(needs: Mapping[Node, Set[Node]]) -> dict[Node, frozenset[Node]]:
    """Transitive reduction of an acyclic graph: direct needs, without those that another direct need implies."""
    reach = closed(needs)
    return {node: frozenset(direct).difference(*(reach[other] for other in direct)) for node, direct in needs.items()}


def islands(needs: Mapping[Node, Set[Node]]) -> tuple[tuple[Node, ...], ...]:
    """Connected components, in the order of `needs`."""
    both = {node: {*direct, *(other for other in needs if node in needs[other])} for node, direct in needs.items()}
    return knots(both)
