# SPDX-License-Identifier: Apache-2.0
"""Make the title of a pull request from its subject and the tags that `series.toml` names for its patches."""

import re

from stack.model.series import Series
from stack.upstreaming.proposal import Proposal

_TAGGED = re.compile(r"((?:\[[^\]\[]+\])+)\s*(.*)")


def title(proposal: Proposal, series: Series) -> str:
    """Return the subject of a single commit, or the series' title for several, preceded by the patches' tags.

    Tags come from `series.toml` and from the subjects only.
    """
    subjects = [part.patch.subject for part in proposal.parts]
    tags = [tag for part in proposal.parts for tag in series.tags.get(part.patch.ref, ())]
    for subject in subjects:
        match = _TAGGED.fullmatch(subject)
        tags += re.findall(r"\[([^\]\[]+)\]", match[1]) if match else []
    words = subjects[0] if len(subjects) == 1 else series.title
    tagged = _TAGGED.fullmatch(words)
    brackets = "".join(f"[{tag}]" for tag in dict.fromkeys(tags))
    return " ".join(filter(None, (brackets, tagged[2] if tagged else words)))


def tags(written: str) -> tuple[str, ...]:
    """Return the tags at the start of a title."""
    match = _TAGGED.fullmatch(written)
    return tuple(re.findall(r"\[([^\]\[]+)\]", match[1])) if match else ()
