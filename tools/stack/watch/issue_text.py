# SPDX-License-Identifier: Apache-2.0
"""Write the issue of an upstream, and the comments on it, as Markdown."""

import hashlib
from collections.abc import Iterator
from datetime import date, timedelta

from stack.base.markdown import code, table_row, words
from stack.watch import marks
from stack.watch.marks import IssueMark
from stack.watch.night import Aim, Night, PatchRow, Trial, counted_rows

LARGEST = 60_000
"""Characters of the longest text: GitHub refuses more than 65,536."""
LATE = 9
"""Days after which the date in the text means that the run has stopped, where it is renewed: every 7 days, and a night may fail."""
_MOST = 50
"""Patches that a list names."""


def title(night: Night) -> str:
    """Return the title: which upstream, and whether a person is needed."""
    names = {row.name for _, row in night.open}
    if names:
        return f"{night.upstream}: {counted_rows(names)} need{'s' if len(names) == 1 else ''} a person"
    return f"{night.upstream}: {'a requirement is not met' if night.needs_person else 'all patches carry'}"


def body(night: Night, mark: IssueMark, pull: str = "", page: str = "") -> str:
    """Return the text of the issue, with its mark. If it would be too long, it leaves out the report, and says so.

    Args:
        night: The findings.
        mark: The hidden values.
        pull: A sentence on each pull request.
        page: The address where the forge shows when the workflow ran; empty if it does not, so that the date is renewed.

    """
    head = "\n".join([marks.of_issue(night.upstream, mark), *_lines(night, mark, pull, page)])
    details = f"\n\n<details><summary>The whole report</summary>\n\n{night.report.strip()}\n\n</details>\n"
    if night.report and len(head) + len(details) <= LARGEST:
        return head + details
    if len(head) > LARGEST:
        head = f"{head[: LARGEST - 100].rpartition(chr(10))[0]}\n\nThis text was cut, since it is too long for an issue."
    return head + ("\n\nThe report is left out, since it is too long: run `stack report`.\n" if night.report else "\n")


def comment(night: Night) -> str:
    """Return the text of a comment: the outcome has changed."""
    lines = ["The outcome has changed.", "", *_table(night)]
    lines += ["", *_open(night)] if night.open else []
    if not night.needs_person:
        lines += ["", "Nothing needs a person."]
    return "\n".join(lines)[:LARGEST] + "\n"


def digest(text: str) -> str:
    """Return a short hash of a sentence; empty for an empty one."""
    return hashlib.sha256(text.encode()).hexdigest()[:8] if text else ""


def _lines(night: Night, mark: IssueMark, pull: str, page: str) -> Iterator[str]:
    yield f"`stack watch` carries the patches for {code(night.upstream)} to its newest release and to its main branch every night."
    yield ""
    yield from _table(night)
    if pull:
        yield from ("", pull)
    if night.open:
        yield from ("", "## Needs a person", "")
        yield from _open(night)
    unmet = dict.fromkeys(need for trial in night.trials for need in trial.unmet)
    if unmet:
        yield from ("", "## Requirements that are not met", "")
        yield from (f"- {code(need)}" for need in unmet)
    landed = [(trial, row) for trial in night.trials for row in trial.rows if row.outcome.value.endswith("landed")]
    if landed:
        yield from ("", "## Landed upstream", "")
        yield from _named((f"- {code(row.name)} at {_where(trial)}" for trial, row in landed), len(landed))
    yield from ("", _heartbeat(mark, page))
    yield ""
    yield "The label `hold` keeps `stack watch` from changing this issue. The label `retry` asks for a new run of everything."


def _heartbeat(mark: IssueMark, page: str) -> str:
    if page:
        return (
            f"Last written on {mark.day}, since nothing has changed since then. [The forge]({page}) and `stack watch status` "
            "say when the nightly run last ran."
        )
    late = date.fromisoformat(mark.day) + timedelta(days=LATE)
    return (
        f"Last written on {mark.day}. This date is renewed at least every week. "
        f"If nothing here changes before {late.isoformat()}, the nightly run has stopped: see `stack watch status`."
    )


def _table(night: Night) -> Iterator[str]:
    if not night.trials:
        yield "The stack stands on upstream's newest release and on the newest commit that is known."
        return
    yield table_row(("lane", "stands on", "carried to", "outcome"))
    yield table_row(["---"] * 4)
    for trial in night.trials:
        yield table_row((code(trial.lane), code(trial.pinned), _where(trial), _outcome(trial)))


def _outcome(trial: Trial) -> str:
    counts = ", ".join(f"{number} {outcome.value}" for outcome, number in trial.counts.items())
    if not trial.open:
        return counts or "no patches"
    return f"{counts}; **{counted_rows([row.name for row in trial.open])} for a person**"


def _where(trial: Trial) -> str:
    return f"{code(trial.revision)} ({'release' if trial.aim is Aim.RELEASE else 'main'})"


def _open(night: Night) -> Iterator[str]:
    """List the patches that need a person, once for each outcome and evidence, with the places where it is so."""
    places: dict[PatchRow, list[str]] = {}
    for trial, row in night.open:
        places.setdefault(row, []).append(f"{_where(trial)} in lane {code(trial.lane)}")
    yield from _named((line for row, where in places.items() for line in _reasons(row, where)), len(places))


def _reasons(row: PatchRow, where: list[str]) -> Iterator[str]:
    yield f"- {code(row.name)}: **{words(row.outcome.value)}** at {', '.join(where)}"
    yield from (f"  - {code(line)}" for line in row.why[:10])


def _named(lines: Iterator[str], number: int) -> Iterator[str]:
    """Yield the lines of a list, cut after a number of entries."""
    seen = 0
    for line in lines:
        seen += line.startswith("- ")
        if seen > _MOST:
            yield f"- and {number - _MOST} more"
            return
        yield line
