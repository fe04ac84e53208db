# SPDX-License-Identifier: Apache-2.0
"""Search for the smallest set of candidates that a condition needs, by trying."""

from collections.abc import Callable, Sequence


def smallest(candidates: Sequence[int], holds: Callable[[frozenset[int]], bool]) -> frozenset[int] | None:
    """Find candidates that a condition needs to hold; None if it does not hold with all of them.

    No candidate of the result is superfluous, provided that more candidates never make the condition fail. Bisection finds the
    shortest prefix of the list with which the condition holds: its last element is needed. The search goes on in the rest of
    that prefix, with the needed elements given, until they suffice.
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
