# SPDX-License-Identifier: Apache-2.0
"""Count the tokens that a server generates for the doctor, and keep them below a limit."""

from dataclasses import dataclass

MOST = 2000
"""Tokens that a server generates at most for all questions together."""
_LETTERS = 16
"""Letters of a text for which a server has generated at least one token, whatever it counts."""


@dataclass(slots=True)
class Purse:
    """The tokens that may be generated, and those that were."""

    most: int = MOST
    spent: int = 0

    def allowed(self, wanted: int, reserved: int) -> int:
        """Return how many tokens a request may ask for: `wanted`, or what is left beside `reserved` for later questions."""
        return max(0, min(wanted, self.most - self.spent - reserved))

    def pay(self, allowed: int, counted: int | None, text: str, pieces: int = 0) -> None:
        """Count the tokens of one answer.

        Args:
            allowed: `max_tokens` of the request; it is counted in full if the server does not say how many tokens it generated.
            counted: the server's own count.
            text: the answer: a server that counts too few tokens is not believed.
            pieces: events of a stream that had text.

        """
        least = max(pieces, -(-len(text) // _LETTERS))
        self.spent += max(allowed if counted is None else counted, least)
