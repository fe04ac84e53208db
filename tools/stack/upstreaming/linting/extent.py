# SPDX-License-Identifier: Apache-2.0
"""Check a pull request's size and base, and the number of open pull requests."""

import re
from collections.abc import Iterator, Sequence

from stack.base.text import counted
from stack.upstreaming.change import Change
from stack.upstreaming.linting.finding import LintFinding, error, warning
from stack.upstreaming.proposal import Proposal
from stack.upstreaming.rules import Rules
from stack.upstreaming.titles import tags

_RFC = re.compile(r"\brfc\b[^\n]{0,60}(?:#\d+|/issues/\d+)|(?:#\d+|/issues/\d+)[^\n]{0,60}\brfc\b", re.IGNORECASE)
_TRIFLE = 2
"""Changes of at most this many lines look like a typo or one default: a removed and an added line."""


def size(rules: Rules, change: Change, title: str, texts: Sequence[str]) -> Iterator[LintFinding]:
    """Check the number of changed lines; `texts` are the messages and the description, which may name an RFC issue."""
    if rules.size is not None:
        lines = change.lines(rules.size.uncounted)
        fix = rules.title is not None and any(tag in rules.title.fixes for tag in tags(title))
        if fix and rules.size.fixes is not None and lines > rules.size.fixes:
            yield error(
                "size", "change", f"{counted(lines, 'line')} for a bug fix, {rules.size.fixes} at most", "split it: --split"
            )
        elif lines > rules.size.high:
            yield warning(
                "size",
                "change",
                f"{lines} lines, more than {rules.size.high}: large",
                "split it if it has independent parts: --split",
            )
        elif 0 < lines <= _TRIFLE:
            yield warning(
                "size",
                "change",
                f"{counted(lines, 'line')}: it may be taken for busywork",
                "say in the description what it is for",
            )
    if rules.rfc is not None:
        lines = change.lines(rules.rfc.uncounted)
        if lines > rules.rfc.lines and not any(_RFC.search(text) for text in texts):
            yield error(
                "rfc", "change", f"{lines} lines, more than {rules.rfc.lines}", "open an RFC issue first, and name it: RFC #123"
            )


def at_once(rules: Rules, wanted: Sequence[Proposal], opened: int) -> Iterator[LintFinding]:
    """Check that the upstream allows `wanted` pull requests in addition to the `opened` ones."""
    most = rules.most_open
    if most is None or not wanted or opened + len(wanted) <= most:
        return
    problem = f"{len(wanted)} can be opened now, and {opened} are open already: {rules.upstream} allows {most}"
    make = error if opened >= most else warning
    yield make(
        "open", rules.upstream, problem, "name those that come first with --only" if opened < most else "wait for one of them"
    )


def standing(proposal: Proposal, behind: int | None) -> Iterator[LintFinding]:
    """Check that a proposal is based on upstream's newest commit; `behind` is the number of commits it lacks, None if unknown."""
    if not proposal.real:
        yield warning(
            "base", "base", f"{proposal.onto} is an archive, not a commit of upstream", "--source git plans on real commits"
        )
    elif behind is None:
        yield warning("base", "base", f"it is unknown how far {proposal.onto} is behind upstream", "plan without --onto")
    elif behind:
        yield error("base", "base", f"{counted(behind, 'commit')} behind upstream", "plan again without --onto")
