# SPDX-License-Identifier: Apache-2.0
"""The search for what something needs, where trying is all that can be done."""

from collections.abc import Callable, Sequence


def smallest(candidates: Sequence[int], holds: Callable[[frozenset[int]], bool]) -> frozenset[int] | None:
    """Candidates that something needs to hold, none of them idle as far as more never hurts; None where all are not enough.

    By bisection: the last of the shortest beginning of the list with which it holds is needed; then the same with it, until that
    beginning is empty.
    """
    if not holds(frozenset(candidates)):
        return None
    needed: frozenset[int] = frozenset()
    rest = list(candidates)
    while not holds(needed):
        low, high = 1, len(rest)
        while low < high:
            middle = (low + high) // 2
            if holds(needed | {*rest[:middle]}):
                high = middle
            else:
                low = middle + 1
        needed |= {rest[low - 1]}
        rest = rest[: low - 1]
    return needed
