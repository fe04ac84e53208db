# SPDX-License-Identifier: Apache-2.0
"""`stack explain`: explain a patch or a conflict, for a person or an assistant."""

from dataclasses import asdict, replace
from pathlib import Path

import click

from stack.base.errors import StackError
from stack.base.text import counted
from stack.carry import explaining, resolutions
from stack.carry import workspace as workspaces
from stack.carry.explaining import Explanation, Sides, UpstreamChange
from stack.carry.resolutions import Resolution
from stack.carry.upstream_stores import Stores
from stack.cli import show
from stack.cli.common import Options, json_option, outcome_json, print_json, short_ids, source_option, through_names
from stack.cli.completing import complete_patches, complete_tags
from stack.cli.lane_options import lane_option
from stack.cli.rendering import called, text
from stack.cli.sentences import say
from stack.model import lanes

_ROLES = {
    "landed": "brought the patch or a part of it",
    "conflict": "caused a conflict",
    "drift": "changed what the patch relies on",
    "lines": "changed the same lines",
}
_SHOWN = 8
"""Upper bound of the upstream commits that the text explains; JSON has all."""
_LINES = 200
"""Upper bound of the lines of the patch in the text."""


@click.command("explain")
@click.argument("what", metavar="PATCH|CONFLICT", shell_complete=complete_patches)
@click.option(
    "--onto",
    "tag",
    metavar="REV",
    shell_complete=complete_tags,
    help="The tag to explain it on; with the git source, also a branch or commit.",
)
@click.option("--through", metavar="auto|TAG,...", help="Carry over these releases one by one, as in a rebase.")
@lane_option
@json_option
@source_option
@click.pass_obj
def command(options: Options, what: str, tag: str | None, through: str | None, as_json: bool, source: str | None) -> None:
    """Explain a patch: what it is for, what upstream did to the same lines and why, both sides, and the proof to run.

    CONFLICT is the folder in which `stack rebase --workspace` has stopped, or the key of a kept resolution. With --onto, the patch
    is carried to that release, and nothing is written. With --source git the upstream commits and their messages are named; a
    release archive has neither. The text is complete enough to hand to somebody else.
    """

    folder = Path(what)
    if (folder / ".git").exists():
        if tag is not None or through is not None:
            raise click.UsageError("--onto and --through go with a PATCH: the working tree knows its release")
        session = workspaces.load(folder)
        options.require_root(session.root)
        if options.lane is not None and options.lane_key != session.lane:
            of = f"lane {session.lane}" if session.lane is not None else "no lane"
            raise StackError(f"{folder} belongs to a rebase of {of}", "leave --lane out, or name the same")
        stack = replace(options, root=session.root, lane=session.lane).load()
        with options.place(session.source) as place, Stores(stack, place) as stores:
            explanation = explaining.of_workspace(stores, session, folder)
    else:
        if tag is None and (resolution := _resolution(options, what)) is not None:
            _explain_resolution(*resolution, as_json)
            return
        stack = options.load()
        with options.place(source) as place, Stores(stack, place) as stores:
            explanation = explaining.of_patch(stores, what, tag, through_names(through))
    if as_json:
        print_json(_as_json(explanation))
    else:
        _print(explanation, lanes.option(stack))


def _resolution(options: Options, key: str) -> tuple[str, Resolution] | None:
    known = resolutions.standing(options.find_root())
    try:
        name = known.find(key)
    except StackError:
        return None
    return name, known.named[name]


def _explain_resolution(name: str, resolution: Resolution, as_json: bool) -> None:
    sides = explaining.of_resolution(resolution)
    if as_json:
        print_json(
            {"resolution": name, "patch": resolution.patch, "rung": resolution.rung}
            | {"resolved": resolution.resolved, "sides": [_sides_json(sides)]},
            "explain-resolution",
        )
        return
    text.echo(text.styled(f"resolution {name}", "bold"))
    text.fields([("patch", resolution.patch.removesuffix(".patch")), ("on", resolution.rung), ("file", resolution.path)])
    _print_sides(sides)
    text.heading("The person made of it")
    for line in resolutions.shown(resolution.resolved):
        text.echo(f"  {line}")


def _print(explanation: Explanation, lane: str) -> None:
    facts = explanation.facts
    show.print_facts(facts, explanation.old, "What the patch is for")
    if explanation.new is not None:
        _print_outcome(explanation)
    for sides in explanation.sides:
        _print_sides(sides)
    text.heading("The patch")
    lines = facts.patch.diff.splitlines(keepends=True)
    text.diff(b"".join(lines[:_LINES]), "  ")
    if len(lines) > _LINES:
        say(f"and {counted(len(lines) - _LINES, 'more line')}:", f"stack diff {facts.name}{lane}", indent="  ")
    if explanation.unknown:
        text.heading("What is not known")
        for sentence in explanation.unknown:
            _item(sentence)
    if explanation.next:
        text.heading("Next")
        for step in explanation.next:
            text.echo(f"  {called.renamed(step.command)}")
            say(step.purpose, indent="      ", below="")


def _print_outcome(explanation: Explanation) -> None:
    row = explanation.row
    assert row is not None
    text.heading(f"On {explanation.facts.ref.upstream} {explanation.new}: {row.outcome.value}")
    for evidence in row.evidence:
        _item(short_ids(evidence))
    for conflict in row.conflicts:
        place = f":{conflict.lines[0]}" if conflict.lines else ""
        _item(f"conflict in {conflict.path}{place} ({conflict.reason})")
    for drift in row.drifts:
        _item(f"{drift.path}{f':{drift.line}' if drift.line else ''}: {drift.problem}")
    text.heading(f"What upstream did between {explanation.old} and {explanation.new}")
    kind = "commit" if explanation.history else "release"
    if not explanation.steps:
        _item("it changed none of the files that the patch changes")
    else:
        _item(f"{counted(explanation.steps, kind)} changed the files that the patch changes")
        if not any("lines" in change.roles for change in explanation.changes):
            _item("none of them changed the lines around the patch's changes")
    for change in explanation.changes[:_SHOWN]:
        _print_change(change)
    if len(explanation.changes) > _SHOWN:
        text.echo(f"\n  and {counted(len(explanation.changes) - _SHOWN, 'more commit')}: --json lists them")


def _print_change(change: UpstreamChange) -> None:
    name = change.subject if change.release else f"{change.commit[:12]} {change.subject}"
    text.echo()
    text.echo("  " + text.styled(text.one_line(name), "bold"))
    by = f"{change.author}, {change.date}: " if change.author else ""
    about = f" ({', '.join(change.paths)})" if change.paths else ""
    for line in text.filled(text.one_line(f"{by}{' and '.join(_ROLES[role] for role in change.roles)}{about}"), "    "):
        text.echo(line)
    if change.pull is not None:
        text.echo(f"    {change.pull}")
    if change.message:
        text.echo()
        text.paragraphs(change.message, "    ")
    if change.diff:
        text.echo()
        text.diff(change.diff.encode("utf-8", "surrogateescape"), "    ")


def _print_sides(sides: Sides) -> None:
    place = f":{sides.lines[0]}" if sides.lines else ""
    text.heading(f"Both sides of {text.one_line(sides.path)}{place}")
    if sides.note:
        _item(sides.note)
    for hunk in sides.hunks:
        for name, side in (("upstream", hunk.upstream), ("the patch", hunk.patch)):
            text.echo(f"  {name}:")
            text.diff("\n".join(hunk.diff(side)).encode("utf-8", "backslashreplace"), "    ")


def _item(sentence: str) -> None:
    for line in text.filled(text.one_line(called.renamed(sentence)), "    ", "  - "):
        text.echo(line)


def _as_json(explanation: Explanation) -> dict[str, object]:
    facts, row = explanation.facts, explanation.row
    return {
        "patch": show.facts_json(facts) | {"diff": facts.patch.diff.decode("utf-8", "backslashreplace")},
        "from": explanation.old,
        "onto": explanation.new,
        "source": explanation.source,
        "history": explanation.history,
        "result": None if row is None else outcome_json(row),
        "steps": explanation.steps,
        "changes": [
            {"commit": change.commit, "subject": change.subject, "release": change.release, "roles": list(change.roles)}
            | {"paths": list(change.paths), "message": change.message, "author": change.author or None}
            | {"date": change.date or None, "pull": change.pull, "diff": change.diff}
            for change in explanation.changes
        ],
        "sides": [_sides_json(sides) for sides in explanation.sides],
        "carried": None if explanation.carried is None else explanation.carried.decode("utf-8", "backslashreplace"),
        "unknown": list(explanation.unknown),
        "next": [asdict(step) for step in explanation.next],
    }


def _sides_json(sides: Sides) -> dict[str, object]:
    return {
        "path": sides.path,
        "lines": list(sides.lines) if sides.lines else None,
        "reason": sides.reason,
        "note": sides.note,
        "hunks": [asdict(hunk) for hunk in sides.hunks],
    }
