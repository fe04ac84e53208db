# SPDX-License-Identifier: Apache-2.0
"""`stack import`: bring patches from a git branch, a quilt series, patch files or edited sources into the stack."""

from pathlib import Path

import click

from stack.base.text import counted
from stack.carry.importing import assignment, closing, gather, keeping, plan
from stack.carry.importing.assignment import Assignment
from stack.carry.importing.closing import Triage
from stack.carry.importing.plan import Import
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, one_line, paused, print_json, source_option
from stack.cli.completing import complete_series, complete_upstreams
from stack.cli.lane_options import lane_option
from stack.cli.reports import report_import, report_option
from stack.cli.sentences import say
from stack.model import lanes


@click.command("import")
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@click.option(
    "--patched-tree",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Compare an edited copy of the sources with the pin: one patch for each top-level folder or file.",
)
@click.option(
    "--upstream",
    metavar="NAME",
    help="The upstream of the patches, if the stack has several.",
    shell_complete=complete_upstreams,
)
@click.option(
    "--series",
    metavar="NAME",
    help="The series of patches that no --by names. Default: named after the source.",
    shell_complete=complete_series,
)
@click.option(
    "--by",
    "rules",
    multiple=True,
    metavar="RULE",
    help="Choose series: 'NAME=GLOB' (of a subject or path), folder, prefix (of the subject, in brackets), trailer:KEY. Repeatable.",
)
@click.option("--edit", is_flag=True, help="Choose the series in your editor, one line a patch.")
@click.option("--all-or-nothing", is_flag=True, help="Import nothing if one patch does not apply.")
@click.option(
    "--not-imported",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where to put patches that do not apply. Default: ./NAME-not-imported",
)
@click.option("--no-triage", is_flag=True, help="Do not look what became of the patches in the newest release.")
@click.option("--dry-run", is_flag=True, help="Show what would be imported; write nothing.")
@lane_option
@report_option
@json_option
@source_option
@click.pass_context
def command(
    context: click.Context,
    sources: tuple[str, ...],
    patched_tree: Path | None,
    upstream: str | None,
    series: str | None,
    rules: tuple[str, ...],
    edit: bool,
    all_or_nothing: bool,
    not_imported: Path | None,
    no_triage: bool,
    dry_run: bool,
    report: Path | None,
    as_json: bool,
    source: str | None,
) -> None:
    """Import patches from SOURCE into the stack.

    SOURCE is a git clone and a branch (or BASE..TIP), a folder with a quilt `series` file (or with debian/patches), or patch
    files and folders of them: git diffs, mails, mailboxes, plain diffs.

    Patches that have to stay in order across series get it through `needs`. What does not apply is listed with the reason and
    left in a folder; the rest is imported. Then a triage shows what became of the patches in the newest release. Exit code 1 if
    a patch does not apply. `stack undo` takes the import back.
    """
    options: Options = context.obj
    if bool(sources) == (patched_tree is not None):
        raise click.UsageError("name what to import: CLONE BRANCH, a folder, files, or --patched-tree DIR")
    if report is not None and no_triage:
        raise click.UsageError("--report shows the triage: leave --no-triage out")
    assignment.check(rules)
    loaded = options.load(writes=not dry_run)
    with options.place(source) as place, Stores(loaded, place) as stores:
        name = gather.upstream_of(loaded, upstream)
        found = gather.gather(stores, name, sources, patched_tree)
        default = assignment.checked(series) if series is not None else found.name
        ask = _ask if edit else None
        request = plan.Request(name, found.read, found.came_from, Assignment(default, rules), ask, found.notes)
        work = plan.plan(stores, request)
        writes = not dry_run and not (all_or_nothing and work.failed)
        folder = keeping.place(not_imported, default, work.failed) if writes and work.failed else None
        if folder is not None:  # first, since nothing is imported if it cannot be written
            keeping.keep(folder, work.failed)
        plugins = closing.write(stores, work) if writes and work.imported else ()
        looked = None
        if work.imported and not no_triage and (writes or dry_run):
            with Stores(work.stack(loaded), place) as after:
                looked = closing.triage(after, work)
                report_import(report, after.stack, looked.leg, work.request.came_from)
    if as_json:
        print_json({"lane": loaded.lane} | _as_json(work, writes, folder, looked) | {"plugins": plugins})
    else:
        _print(work, folder, dry_run)
        if plugins:
            say(f"note: stacks/stack.toml names {', '.join(plugins)} now: the plug-in knows {work.request.upstream}")
        for line in _last_lines(work, looked, lanes.option(loaded), refused=not writes and not dry_run):
            say(line)
    context.exit(1 if work.failed else 0)


def _ask(text: str) -> str | None:
    with paused():
        return click.edit(text, extension=".txt")


def _print(work: Import, folder: Path | None, dry_run: bool) -> None:
    for name in work.series:
        needs = f" (needs {', '.join(work.needs[name])})" if work.needs.get(name) else ""
        count = sum(ref.series == name for ref in work.imported)
        say(f"{name}: {counted(count, 'patch')}{needs}")
    for note in work.notes:
        say(f"note: {one_line(note)}")
    failed = work.failed
    landed = [one for one in work.left if one.landed]
    for title, lines in (
        ("in the stack already:", [f"{one.candidate.name}: as {one.known}" for one in work.left if one.known]),
        ("left out:", [f"{one.candidate.name}: {one.reason}" for one in landed]),
        ("do not apply:", [line for one in failed for line in (one.candidate.name, f"  {one.reason}")]),
    ):
        if lines:
            click.echo(title)
        for line in lines:
            say(one_line(line.strip()), indent="    " if line.startswith(" ") else "  ")
    if failed and folder is not None:
        say(f"they are in {folder}, as they were")
    if dry_run:
        click.echo("dry run: nothing was written")


def _last_lines(work: Import, looked: Triage | None, lane: str, *, refused: bool) -> list[str]:
    """Return the result of the import, what became of the patches in the newest release, and the next command."""
    failed = f", {len(work.failed)} {'does' if len(work.failed) == 1 else 'do'} not apply" if work.failed else ""
    if refused:
        return [f"nothing was imported{failed}: leave --all-or-nothing out to import the rest"]
    upstream = work.request.upstream
    known, gone = sum(bool(one.known) for one in work.left), sum(one.landed for one in work.left)
    there = f", {known} in the stack already" if known else ""
    there += f", {gone} in the pin already" if gone else ""
    line = f"{len(work.imported)} imported in {len(work.series)} series{failed}{there}"
    if not work.imported:
        return [line]
    if looked is None:
        return [line, f"next: stack lint{lane}"]
    if looked.why:
        return [line, f"no triage: {one_line(looked.why)}"]
    landed = f"{looked.landed} {'has' if looked.landed == 1 else 'have'} landed in {looked.release}"
    partly = f" ({looked.partly} in part)" if looked.partly else ""
    person = (
        f", {looked.needs_person} {'needs' if looked.needs_person == 1 else 'need'} a person there"
        if looked.needs_person
        else ""
    )
    return [line, f"{landed}{partly}{person}", f"next: stack rebase {upstream} --onto {looked.release}{lane} --dry-run"]


def _as_json(work: Import, written: bool, folder: Path | None, looked: Triage | None) -> dict[str, object]:
    return {
        "upstream": work.request.upstream,
        "written": written,
        "imported": [
            {"series": ref.series, "file": ref.file, "name": one.name, "subject": one.subject}
            for ref, one in work.imported.items()
        ],
        "needs": {name: list(needs) for name, needs in work.needs.items() if name in work.series},
        "left": [
            {"name": one.candidate.name, "reason": one.reason, "known": one.known or None, "landed": one.landed}
            for one in work.left
        ],
        "directory": None if folder is None else str(folder),
        "notes": list(work.notes),
        "triage": None
        if looked is None
        else {
            "release": looked.release or None,
            "landed": looked.landed,
            "partly": looked.partly,
            "needs_person": looked.needs_person,
            "problem": looked.why or None,
        },
    }
