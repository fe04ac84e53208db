# SPDX-License-Identifier: Apache-2.0
"""`stack show`: show one patch, what it is for and what it changes."""

import datetime

import click

from stack.base.text import counted
from stack.carry.patch_facts import PatchFacts, body, facts, totals
from stack.cli.common import Options, json_option, print_json
from stack.cli.completing import complete_patches
from stack.cli.lane_options import lane_option
from stack.cli.rendering import called, text
from stack.model.patch import Author

_LABEL = len("upstream")
"""Columns of the names of fields, the same above the message and below it."""


@click.command("show")
@click.argument("patch", metavar="PATCH", shell_complete=complete_patches)
@click.option("-p", "--patch", "with_diff", is_flag=True, help="Also print the diff, as `stack diff PATCH` does.")
@lane_option
@json_option
@click.pass_obj
def command(options: Options, patch: str, with_diff: bool, as_json: bool) -> None:
    """Show a patch: its message, why its series exists, the series' state, the files that it changes, its proofs. Needs no network.

    PATCH is the path of a patch file, or any part of it that no other patch has: `series/upstream/name`, `name`, or the beginning
    of the name.
    """

    stack = options.load()
    known = facts(stack, patch)
    if as_json:
        print_json(facts_json(known))
        return
    print_facts(known, stack.pins.get(known.ref.upstream).shown, "Message")
    text.heading("Files")
    for file in known.files:
        text.echo(f"  {text.one_line(file.path)}  +{file.added} -{file.removed}" + _kind(file.change))
    if with_diff:
        text.echo()
        text.diff(known.patch.diff)


def print_facts(known: PatchFacts, pin: str, title: str) -> None:
    """Print what a patch says of itself, then what its series says; `title` stands above the patch's message."""
    series, author = known.series, known.patch.author
    text.echo(text.styled(text.one_line(known.patch.subject), "bold"))
    added, removed = totals(known.files)
    text.fields(
        [
            ("patch", known.name),
            ("author", f"{author.name} <{author.mail}>, {_day(author)}"),
            ("upstream", f"{known.ref.upstream} {pin}, patch {known.number} of {known.of}"),
            ("size", f"+{added} -{removed} lines in {counted(len(known.files), 'file')}"),
        ],
        _LABEL,
    )
    if message := body(known.patch):
        text.heading(title)
        text.paragraphs(message, "  ")
        text.echo()
    text.fields(
        [
            ("series", f"{series.name}: {series.title}"),
            ("why", series.why),
            ("state", f"{series.state}{f': {series.reason}' if series.reason else ''}"),
            ("pull", "\n".join(known.pulls)),
            ("needs", ", ".join(series.needs)),
            ("drop when", series.drop_when or ""),
            ("proofs", "\n".join(known.proofs) or "none: nothing shows that it works"),
            ("resolved", "\n".join(f"{called.name()} resolutions show {key}" for key in known.resolutions)),
        ],
        _LABEL,
    )


def facts_json(known: PatchFacts) -> dict[str, object]:
    """Return the facts about a patch as JSON."""
    series, author = known.series, known.patch.author
    return {
        "series": series.name,
        "upstream": known.ref.upstream,
        "file": known.ref.file,
        "subject": known.patch.subject,
        "message": body(known.patch),
        "author": {"name": author.name, "mail": author.mail, "date": author.date},
        "number": known.number,
        "of": known.of,
        "title": series.title,
        "why": series.why,
        "state": series.state,
        "reason": series.reason,
        "pulls": list(known.pulls),
        "needs": list(series.needs),
        "drop_when": series.drop_when,
        "proofs": list(known.proofs),
        "resolutions": list(known.resolutions),
        "files": [
            {"path": file.path, "change": file.change, "added": file.added, "removed": file.removed} for file in known.files
        ],
    }


def _kind(change: str) -> str:
    return "" if change == "changed" else f" ({change})"


def _day(author: Author) -> str:
    seconds = author.date.split()[0]
    return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC).strftime("%Y-%m-%d")
