# SPDX-License-Identifier: Apache-2.0
"""Write planned pull requests as one HTML page: each with its branch, description and diff, and those that are refused."""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from stack.base.text import printable
from stack.reporting.elements import add, element, written
from stack.reporting.html import head

_STYLE = """
pre{overflow-x:auto;max-width:100%;margin:.6rem 0;padding:.7rem .9rem;background:var(--soft);border:1px solid var(--line);
 font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;overflow-wrap:normal}
pre.body{white-space:pre-wrap}
.more{background:rgba(0,158,115,.16)}
.less{background:rgba(213,94,0,.16)}
.place{color:var(--quiet);font-weight:600}
.refused{border-left:4px solid #b84300;padding-left:.8rem}
@media (prefers-color-scheme:dark){.refused{border-color:#ff8a4c}}
"""
_KINDS = {"+": "more", "-": "less", "@": "place"}


@dataclass(frozen=True, slots=True)
class PullRequest:
    """One pull request of the page. `refused` and `notes` are findings: the rule, the place and a text."""

    name: str
    title: str
    branch: str
    base: str
    body: str
    diff: str
    added: int
    removed: int
    commits: tuple[str, ...]
    refused: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[tuple[str, str, str], ...] = ()


def render(title: str, pulls: Sequence[PullRequest], waiting: Sequence[tuple[str, str]] = ()) -> str:
    """Return the page. It loads nothing, runs nothing, and follows the reader's light or dark scheme.

    Args:
        title: The heading.
        pulls: The pull requests that can be opened now, and those that are refused.
        waiting: Names of later ones, each with those that it needs.

    """
    refused = sum(bool(pull.refused) for pull in pulls)
    main = element("main", _overview(pulls), id="main")
    add(main, *(_section(number, pull) for number, pull in enumerate(pulls, 1)), _later(waiting))
    body = element(
        "body",
        element("a", "To the contents", href="#main", class_="skip"),
        element("header", element("h1", title), element("p", _summary(len(pulls), refused, len(waiting)))),
        main,
        element("footer", "Made by stack. This page loads nothing and runs no script."),
    )
    page = element("html", head(title, _STYLE), lang="en")
    add(page, body)
    return written(page)


def _summary(pulls: int, refused: int, waiting: int) -> str:
    return f"In the first wave: {pulls}, of which {refused} refused. In later waves: {waiting}."


def _overview(pulls: Sequence[PullRequest]) -> Element:
    heads = ("pull request", "lines", "commits", "state")
    table = element(
        "table", element("thead", element("tr", *(element("th", name, scope="col") for name in heads))), class_="wide"
    )
    rows = element("tbody")
    for number, pull in enumerate(pulls, 1):
        values = (f"+{pull.added} -{pull.removed}", str(len(pull.commits)), _state(pull))
        cells = [element("td", value, data_label=name) for name, value in zip(heads[1:], values, strict=True)]
        add(rows, element("tr", element("td", element("a", pull.title, href=f"#pull-{number}")), *cells))
    add(table, rows)
    return element("section", element("h2", "Overview"), element("div", table, class_="scroll"), id="overview")


def _state(pull: PullRequest) -> str:
    return f"refused: {len(pull.refused)}" if pull.refused else "ready to be read"


def _section(number: int, pull: PullRequest) -> Element:
    made = element("section", element("h2", pull.title), id=f"pull-{number}", class_="refused" if pull.refused else None)
    add(
        made,
        element("p", "Branch ", element("code", pull.branch), " on ", element("code", pull.base), class_="quiet"),
        _findings("Refused", pull.refused),
        _findings("Notes", pull.notes),
        element("h3", "Description"),
        _lines("pre", pull.body, class_="body"),
        element("h3", "Commits"),
        element("ul", *(element("li", commit) for commit in pull.commits)),
        element("details", element("summary", f"Diff: +{pull.added} -{pull.removed}"), _diff(pull.diff)),
    )
    return made


def _findings(heading: str, findings: Sequence[tuple[str, str, str]]) -> Element | None:
    if not findings:
        return None
    entries = [
        element("li", element("strong", rule), " ", element("code", place), ": ", text) for rule, place, text in findings
    ]
    return element("div", element("h3", heading), element("ul", *entries))


def _lines(tag: str, text: str, class_: str | None = None) -> Element:
    """Make an element whose text keeps its lines; other control characters are replaced, as everywhere."""
    made = element(tag, class_=class_)
    made.text = printable(text, kept="\n\t")
    return made


def _diff(text: str) -> Element:
    made = element("pre")
    for line in text.split("\n"):
        kind = None if line.startswith(("+++", "---")) else _KINDS.get(line[:1])
        add(made, _lines("span", f"{line}\n", class_=kind))
    return made


def _later(waiting: Sequence[tuple[str, str]]) -> Element | None:
    if not waiting:
        return None
    entries = [element("li", element("code", name), f" needs {needs}") for name, needs in waiting]
    return element("section", element("h2", "Later waves"), element("ul", *entries), id="later")
