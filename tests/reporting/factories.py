# SPDX-License-Identifier: Apache-2.0
"""Reports and ladders to render: a real ladder with each outcome, and a report whose every text is given."""

from collections.abc import Callable
from pathlib import Path

from stack.carry import triage
from stack.carry.outcome import Outcome
from stack.carry.triage import Range, Triage
from stack.reporting.report import Cell, Ladder, Landing, PatchLine, PinLine, Point, Report, Row, SeriesLine
from stack.store import git
from tests.carry.test_every_outcome import CASES, Case
from tests.store.factories import Remote

MADE = 1_790_000_000
DAY = 86400
RELEASES: dict[str, Callable[[Case], bytes]] = {
    "v1": lambda one: one.base,
    "v2": lambda one: one.first,
    "v3": lambda one: one.second,
    "v4": lambda one: one.onto,
}


def carried(place: Path) -> Triage:
    """Carry one patch of each outcome over three releases of a real repository."""
    remote = Remote(place / "up")
    for name, content in RELEASES.items():
        more = {path: data for one in CASES.values() for release, path, data in one.more if release == name}
        files = {path: content(one) for path, one in CASES.items()} | more | {"VERSION": name.encode()}
        remote.commit(files, f"release {name}")
        remote.tag(name)
    patches = []
    for path, one in CASES.items():
        remote.git("checkout", "--quiet", "--detach", "v1")
        remote.commit({path: one.ours}, f"change {path}")
        patches.append(place / f"{path}.patch")
        patches[-1].write_bytes(git.run(["format-patch", "-1", "--stdout", "--full-index"], cwd=remote.path).stdout)
    return triage.triage(remote.path, Range("v1", "v4", ("auto",)), patches, cache=place / "cache")


def told(text: Callable[[str], str] = lambda name: name, address: str = "https://example.org/pull/7") -> Report:
    """Return a report with every kind of content; `text` gives each of its texts, from a name."""
    releases = (text("v2"), text("v3"))
    rows = tuple(
        Row(
            name=text(f"first/up/{outcome.value}"),
            subject=text(f"Subject {number}"),
            outcome=outcome,
            open=outcome in (Outcome.CONFLICT, Outcome.DRIFTED),
            cells=(None, Cell(releases[1], outcome, outcome in (Outcome.CONFLICT, Outcome.DRIFTED))),
            evidence=(text(f"evidence {number}"), f"  {text(f'cause {number}')}"),
            decided=releases[1],
        )
        for number, outcome in enumerate(Outcome)
    )
    return Report(
        title=text("A title"),
        made=MADE,
        digest="ab" * 32,
        pins=(PinLine(text("up"), text("v1"), text("abcdef012345"), address), PinLine("bare", None, "123456789abc")),
        series=(
            SeriesLine("first", text("First series"), "pending", (), (address,)),
            SeriesLine("second", text("Second series"), "merged", ("first",)),
            SeriesLine("third", text("Third series"), "draft", ("first", "second")),
        ),
        patches=tuple(
            PatchLine(text(f"first/up/{name}"), text(f"Subject of {name}"), "first", "up", 12, 3, MADE - days * DAY)
            for name, days in (("young", 3), ("older", 200), ("oldest", 3000))
        ),
        ladders=(Ladder(text("up"), text("v1"), releases[1], releases, rows),),
        landings=(
            Landing(
                text("first/up/landed"), text("up"), text("v2"), text("0123456789ab"), text("Bring it"), address, carried=True
            ),
            Landing(text("first/up/before"), text("up"), text("v1")),
        ),
        points=tuple(Point(MADE - (40 - days) * DAY, 1 + days // 20, 100 + 7 * days) for days in range(0, 40, 5)),
        notes=(text("A note"),),
    )
