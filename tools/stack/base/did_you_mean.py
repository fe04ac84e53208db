# SPDX-License-Identifier: Apache-2.0
"""Names that a user types: suggest similar ones, and word the error for an unknown name the same way everywhere."""

import difflib
from collections.abc import Iterable, Sequence

from stack.base.errors import StackError


class UnknownName(StackError):
    """Raised for a name that does not exist."""


_SUGGESTED = 3
_LONGEST = 200
"""Upper bound of the characters of a list of names in an error."""
_NEAR = 0.7
_MUCH = 0.15
_SHORTEST = 3
"""Letters of the shortest name in which one may be wrong: of two, every other pair would be near."""


def similar(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that are most similar to a name, best first; at most three.

    A path is also compared by its last part, since people type only that. Letter case does not count.
    """
    by_lower = {each.lower(): each for each in known}
    shorter = {key.rpartition("/")[2]: key for key in by_lower}
    wanted = name.lower()
    matches = [
        *difflib.get_close_matches(wanted, by_lower, _SUGGESTED, _NEAR),
        *(shorter[key] for key in difflib.get_close_matches(wanted.rpartition("/")[2], shorter, _SUGGESTED, _NEAR)),
        *(key for key in by_lower if len(wanted) > 2 and wanted in key),
    ]
    scores = {key: max(_ratio(wanted, key), _ratio(wanted.rpartition("/")[2], key.rpartition("/")[2])) for key in matches}
    # Others beside a much better match only distract.
    best = sorted((key for key in scores if scores[key] > max(scores.values()) - _MUCH), key=lambda key: -scores[key])
    return [by_lower[key] for key in best][:_SUGGESTED]


def _ratio(typed: str, known: str) -> float:
    """Return how similar two names are; somebody who stops early means a name that begins like this."""
    return difflib.SequenceMatcher(None, typed, known).ratio() + (_MUCH if known.startswith(typed) else 0)


def slip(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was certainly meant: only case and punctuation differ, or one letter is wrong, missing or swapped.

    Digits have to be the same: `fp8` is not a slip of `fp4`.
    """
    wanted = _bare(name)
    for limit in (0, 1):
        for each in known:
            bare = _bare(each)
            if _digits(wanted) == _digits(bare) and _is_within_one(wanted, bare, limit):
                return each
    return None


def _bare(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _digits(name: str) -> str:
    return "".join(letter for letter in name if letter.isdigit())


def _is_within_one(left: str, right: str, limit: int) -> bool:
    """Tell whether two texts are equal, or, with a limit of 1, whether one insertion, deletion, replacement or swap makes them equal."""
    if left == right or not limit or min(len(left), len(right)) < _SHORTEST:
        return left == right
    start = next((place for place, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), None)
    if start is None:
        return abs(len(left) - len(right)) == 1
    first, second = left[start:], right[start:]
    swapped = first[1:2] + first[:1] + first[2:]
    return first[1:] == second[1:] or first[1:] == second or first == second[1:] or swapped == second


def unknown_name(
    kind: str, name: str, known: Iterable[str], *, holder: str = "", remedy: str = "", lister: str = ""
) -> UnknownName:
    """Make the error for a name that does not exist: suggest similar names, else list those that exist.

    Args:
        kind: What the name should name, such as `upstream`.
        name: The name that the user typed.
        known: The names that exist.
        holder: The file or folder that has the names; it starts the list.
        remedy: What to do if there are no names at all.
        lister: The command that lists all names, for a list that is too long for an error.

    """
    names = list(dict.fromkeys(known))
    near = similar(name, names)
    if near:
        return UnknownName(f"unknown {kind} {name!r}", suggestion(near))
    if not names:
        return UnknownName(f"unknown {kind} {name!r}", remedy or f"there is none{f' in {holder}' if holder else ''}")
    listed = f"{holder or 'there'} {'has' if holder else 'is'} {', '.join(names)}"
    if len(listed) > _LONGEST:
        listed = f"`{lister}` lists all {len(names)}" if lister else f"{listed[:_LONGEST].rpartition(', ')[0]}, …"
    return UnknownName(f"unknown {kind} {name!r}", listed)


def suggestion(near: Sequence[str]) -> str:
    """Return the question that suggests similar names: `did you mean 'vllm'?`."""
    quoted = [repr(name) for name in near]
    return f"did you mean {' or '.join(filter(None, (', '.join(quoted[:-1]), quoted[-1])))}?"
