# SPDX-License-Identifier: Apache-2.0
"""How large a pull request is, and how many are open at once."""

import re
from collections.abc import Iterator, Sequence

from stack.upstreaming.change import Change
from stack.upstreaming.linting.finding import Finding, error, warning
from stack.upstreaming.proposal import Proposal
from stack.upstreaming.rules import Rules
from stack.upstreaming.titles import tags

_RFC = re.compile(r"\brfc\b[^\n]{0,60}(?:#\d+|/issues/\d+)|(?:#\d+|/issues/\d+)[^\n]{0,60}\brfc\b", re.IGNORECASE)
_TRIFLE = 2
"""Changed lines that look like a typo or one default; a removed and an added one."""


def size(rules: Rules, change: Change, title: str, said: Sequence[str]) -> Iterator[Finding]:
    """How many lines it changes; `said` are the texts in which an issue may be named: messages and description."""
    if rules.size is not None:
        lines = change.lines(rules.size.uncounted)
        fix = rules.title is not None and any(tag in rules.title.fixes for tag in tags(title))
        if fix and rules.size.fixes is not None and lines > rules.size.fixes:
            yield error("size", "change", f"{lines} lines for a bug fix, {rules.size.fixes} at most", "split it: --split")
        elif lines > rules.size.high:
            yield warning(
                "size",
                "change",
                f"{lines} lines, more than {rules.size.high}: large",
                "split it if it falls into parts: --split",
            )
        elif 0 < lines <= _TRIFLE:
            yield warning(
                "size", "change", f"{lines} line(s): it may be taken for busywork", "say in the description what it is for"
            )
    if rules.rfc is not None:
        lines = change.lines(rules.rfc.uncounted)
        if lines > rules.rfc.lines and not any(_RFC.search(text) for text in said):
            yield error(
                "rfc", "change", f"{lines} lines, more than {rules.rfc.lines}", "open an RFC issue first, and name it: RFC #123"
            )


def at_once(rules: Rules, wanted: Sequence[Proposal], opened: int) -> Iterator[Finding]:
    """Whether so many may be open: `opened` are, `wanted` shall be."""
    most = rules.most_open
    if most is None or not wanted or opened + len(wanted) <= most:
        return
    problem = f"{len(wanted)} can be opened now, and {opened} are open: {rules.upstream} lets you have {most}"
    make = error if opened >= most else warning
    yield make(
        "open", rules.upstream, problem, "name those that come first with --only" if opened < most else "wait for one of them"
    )


def standing(proposal: Proposal, behind: int | None) -> Iterator[Finding]:
    """Whether it stands on what upstream has newest; `behind` is the number of commits that it lacks, None where nobody knows."""
    if not proposal.real:
        yield warning(
            "base", "base", f"{proposal.onto} is an archive, no commit of upstream's", "--source git plans on real commits"
        )
    elif behind is None:
        yield warning("base", "base", f"nobody knows how far {proposal.onto} is behind upstream", "plan without --onto")
    elif behind:
        yield error("base", "base", f"{behind} commit(s) behind upstream", "plan again without --onto")
