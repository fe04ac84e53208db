# SPDX-License-Identifier: Apache-2.0
"""The title of a pull request: what its maintainer wrote, with the tags that series.toml names for its patches."""

import re

from stack.model.series import Series
from stack.upstreaming.proposal import Proposal

_TAGGED = re.compile(r"((?:\[[^\]\[]+\])+)\s*(.*)")


def title(proposal: Proposal, series: Series) -> str:
    """The subject of its one commit, or the series' title where it has several; before it the tags of its patches.

    Nothing is made up: without tags in `series.toml` or in a subject, there are none.
    """
    subjects = [part.patch.subject for part in proposal.parts]
    tags = [tag for part in proposal.parts for tag in series.tags.get(part.patch.ref, ())]
    for subject in subjects:
        found = _TAGGED.fullmatch(subject)
        tags += re.findall(r"\[([^\]\[]+)\]", found[1]) if found else []
    words = subjects[0] if len(subjects) == 1 else series.title
    tagged = _TAGGED.fullmatch(words)
    brackets = "".join(f"[{tag}]" for tag in dict.fromkeys(tags))
    return " ".join(filter(None, (brackets, tagged[2] if tagged else words)))


def tags(written: str) -> tuple[str, ...]:
    """The tags at the start of a title."""
    found = _TAGGED.fullmatch(written)
    return tuple(re.findall(r"\[([^\]\[]+)\]", found[1])) if found else ()
