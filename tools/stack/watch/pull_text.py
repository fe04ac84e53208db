# SPDX-License-Identifier: Apache-2.0
"""Write the pull request that carries the stack to a release, as Markdown."""

from collections.abc import Iterator

from stack.base.markdown import code, table_row
from stack.base.text import printable
from stack.carry.outcome import Outcome
from stack.model.pins import MAIN
from stack.watch import marks
from stack.watch.marks import PullMark
from stack.watch.night import CarriedRelease

LARGEST = 60_000
"""Characters of the longest text: GitHub refuses more than 65,536."""
_GONE = (Outcome.LANDED, Outcome.LEFT_OUT)


def title(carried: CarriedRelease) -> str:
    """Return the title."""
    what = "the stack" if carried.lane == MAIN else f"lane {carried.lane}"
    return printable(f"Carry {what} to {carried.upstream} {carried.release}")


def name(release: str) -> str:
    """Return a release as Markdown."""
    return code(release)


def body(carried: CarriedRelease, mark: PullMark) -> str:
    """Return the text, with its mark. If it would be too long, its last sections are left out, and the text says so."""
    text = marks.of_pull(carried.key, mark) + "\n"
    for section in _sections(carried):
        if len(text) + len(section) > LARGEST:
            return f"{text}\nThe rest is left out, since it is too long for a pull request.\n"
        text += f"{section}\n"
    return text


def _sections(carried: CarriedRelease) -> Iterator[str]:
    yield "\n".join(_summary(carried))
    yield "\n".join(_outcomes(carried))
    if dropped := [row for row in carried.rows if row.outcome in _GONE]:
        lines = [f"- {code(row.name)}: {'; '.join(map(code, row.why)) or row.outcome.value}" for row in dropped]
        emptied = [f"- Series {code(each)} carries no patch any more." for each in carried.emptied]
        yield "\n".join(("## Dropped, since upstream has it", "", *lines, *emptied, ""))
    if carried.proofs:
        yield "\n".join(("## Proofs", "", *(f"- {code(line)}" for line in carried.proofs), ""))
    yield "The label `hold` keeps `stack watch` from changing this pull request. So does a commit of yours on its branch.\n"
    for upstream, text in carried.range_diffs:
        fence = _fence(text)
        yield (
            f"<details><summary>range-diff of {code(upstream)}</summary>\n\n{fence}diff\n{text.rstrip()}\n{fence}\n\n</details>\n"
        )


def _summary(carried: CarriedRelease) -> Iterator[str]:
    lane = "" if carried.lane == MAIN else f" in lane {code(carried.lane)}"
    ends = f"from {code(carried.pinned)} to {code(carried.release)}"
    yield f"`stack watch` carried all patches for {code(carried.upstream)}{lane} {ends}."
    if carried.newest != carried.release:
        yield f"The newest release is {code(carried.newest)}. Not all patches carry to it: the issue says which."
    if len(carried.moved) > 1:
        yield from ("", "These pins move together:", "")
        yield from (f"- {code(upstream)}: {code(old)} to {code(new)}" for upstream, old, new in carried.moved)
    yield ""


def _outcomes(carried: CarriedRelease) -> Iterator[str]:
    yield from ("## Outcomes", "", table_row(("patch", "outcome")), table_row(["---"] * 2))
    for row in carried.rows:
        yield table_row((code(row.name), row.outcome.value))
    yield ""


def _fence(text: str) -> str:
    """Return a fence for a code block that no line of the text ends."""
    longest = max((len(line) - len(line.lstrip("`")) for line in map(str.lstrip, text.splitlines())), default=0)
    return "`" * max(3, longest + 1)
