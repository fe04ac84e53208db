# SPDX-License-Identifier: Apache-2.0
"""`stack guard`: watch what code beside the patches relies on upstream."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from stack.base.text import counted
from stack.carry.guards import proposals, recording, standing
from stack.carry.guards.recording import Wanted
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, print_json, print_table, source_option
from stack.cli.completing import complete_upstreams
from stack.cli.lane_options import all_lanes_option, in_lanes, lane_option
from stack.cli.rendering.guards import guard_json, guarded_json, print_guards
from stack.cli.rendering.text import echo, one_line
from stack.cli.sentences import say
from stack.model import lanes
from stack.model.guards import PLACE, Guard, Kind


@click.group("guard")
def command() -> None:
    """Watch what code beside the patches relies on upstream: add, list, check, accept, drop or find guards.

    A guard names a definition or a text that has to exist, a file that was copied, or an attribute that is replaced at run time.
    `stack check`, `rebase`, `forecast` and `report --onto` judge it. Guards are kept in stacks/guards.toml. Nothing of upstream is imported.
    """


@command.command()
@click.argument("name")
@click.option(
    "--definition", metavar="FILE::NAME", help="A class or function of a Python file has to exist: FILE::Class.method."
)
@click.option("--text", nargs=2, metavar="FILE TEXT", help="FILE has to contain TEXT.")
@click.option(
    "--pattern", nargs=2, metavar="FILE PATTERN", help="A line of FILE has to fit PATTERN: * is any text, <n> a number."
)
@click.option(
    "--copied",
    nargs=2,
    metavar="OURS THEIRS",
    help="OURS, a file of your repository, is a copy of upstream's THEIRS, or of one definition in it: FILE::NAME.",
)
@click.option(
    "--patched", metavar="MODULE:NAME", help="Your code replaces this attribute at run time: package.module:Class.method."
)
@click.option("--reason", required=True, help="Why your code relies on it.")
@click.option("--upstream", help="The upstream. Default: the only one that has the target.", shell_complete=complete_upstreams)
@click.option("--at", "revision", metavar="REV", help="With --copied: the revision that was copied. Default: the pinned one.")
@lane_option
@json_option
@source_option
@click.pass_obj
def add(
    options: Options,
    name: str,
    definition: str | None,
    text: tuple[str, str] | None,
    pattern: tuple[str, str] | None,
    copied: tuple[str, str] | None,
    patched: str | None,
    reason: str,
    upstream: str | None,
    revision: str | None,
    as_json: bool,
    source: str | None,
) -> None:
    """Add the guard NAME. Hashes and signatures are read from the pinned tree. `stack undo` takes it back."""
    targets = {
        Kind.DEFINITION: (definition, "", "") if definition else None,
        Kind.TEXT: (text[0], text[1], "") if text else None,
        Kind.PATTERN: (pattern[0], pattern[1], "") if pattern else None,
        Kind.COPIED: (copied[1], "", copied[0]) if copied else None,
        Kind.PATCHED: (patched, "", "") if patched else None,
    }
    given = {kind: parts for kind, parts in targets.items() if parts is not None}
    if len(given) != 1:
        raise click.UsageError("give exactly one of --definition, --text, --pattern, --copied and --patched")
    if revision is not None and not copied:
        raise click.UsageError("--at goes with --copied")
    [(kind, (target, wanted_text, file))] = given.items()
    wanted = Wanted(name, kind, target, reason, upstream, wanted_text, file)
    recording.check(wanted)
    with options.place(source) as place, Stores(options.load(writes=True), place) as stores:
        [made] = recording.added(stores, [wanted], revision)
    if as_json:
        print_json({"lane": options.lane_key, "guard": guard_json(made)})
        return
    say(one_line(f"added {made.name}: {made.shown} of {made.upstream}; `stack undo` takes it back"))
    if made.signature:
        say(one_line(f"its signature: {made.signature}"))


@command.command("list", short_help="List the guards with their targets and reasons.")
@lane_option
@json_option
@click.pass_obj
def list_(options: Options, as_json: bool) -> None:
    """List the guards with their targets and reasons; no tree is read."""
    stack = options.load()
    if as_json:
        print_json({"lane": options.lane_key, "guards": [guard_json(guard) for guard in stack.guards]})
    elif not stack.guards:
        say("no guards; to look for what your code relies on:", "stack guard find")
    else:
        rows = [
            (guard.name, guard.kind.value, one_line(f"{guard.upstream} {guard.shown}"), one_line(guard.reason))
            for guard in stack.guards
        ]
        print_table(("guard", "kind", "target", "reason"), rows)


@command.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@lane_option
@all_lanes_option
@json_option
@source_option
@click.pass_context
def check(context: click.Context, names: tuple[str, ...], all_lanes: bool, as_json: bool, source: str | None) -> None:
    """Judge guards at the pins, all of them or those named. Exit code 1 if one is broken."""

    def run(options: Options) -> tuple[int, Mapping[str, object]]:
        with options.place(source) as place, Stores(options.load(), place) as stores:
            recording.chosen(stores.stack, names)
            found = standing.at_pins(stores, names)
            if not as_json:
                print_guards(found, lanes.option(stores.stack))
                if not found:
                    say("no guards; to look for what your code relies on:", "stack guard find")
        broken = any(each.needs_person for each in found)
        return 1 if broken else 0, {"broken": broken, "guards": [guarded_json(each) for each in found]}

    context.exit(in_lanes(context.obj, all_lanes, as_json, run))


@command.command(short_help="Take over what the pinned tree has now.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--dry-run", is_flag=True, help="Show what has changed; write nothing.")
@lane_option
@json_option
@source_option
@click.pass_obj
def accept(options: Options, names: tuple[str, ...], dry_run: bool, as_json: bool, source: str | None) -> None:
    """Take over what the pinned tree has now, after you have corrected your code: show the change, then write it."""
    with options.place(source) as place, Stores(options.load(writes=not dry_run), place) as stores:
        recording.chosen(stores.stack, names)
        found = standing.at_pins(stores, names)
        made = recording.accepted(stores, found, dry_run=True)
        if not as_json:
            for each in found:
                say(one_line(f"{each.guard.name}: {each.judgement.problem or 'held: nothing has changed'}"))
                for line in each.judgement.diff.splitlines():
                    echo(f"    {one_line(line)}")
        if not dry_run:
            made = recording.accepted(stores, found)
    if as_json:
        document = {"dry_run": dry_run, "accepted": [guard_json(guard) for guard in made]}
        print_json({"lane": options.lane_key, **document, "guards": [guarded_json(each) for each in found]})
    elif dry_run:
        say("dry run: nothing was written; to accept it:", f"stack guard accept {' '.join(names)}")
    else:
        say(f"accepted {counted(len(made), 'guard')}; `stack undo` takes it back")


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@lane_option
@json_option
@click.pass_obj
def drop(options: Options, names: tuple[str, ...], as_json: bool) -> None:
    """Remove guards. `stack undo` takes it back."""
    gone = recording.dropped(options.load(writes=True), names)
    if as_json:
        print_json({"lane": options.lane_key, "dropped": [guard.name for guard in gone]})
    else:
        say(f"dropped {counted(len(gone), 'guard')}; `stack undo` takes it back")


@command.command(short_help="Propose guards for the attributes and files that you took.")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@click.option("--add", "write", is_flag=True, help=f"Add all of them to {PLACE}, with the place in your code as the reason.")
@lane_option
@json_option
@source_option
@click.pass_obj
def find(options: Options, paths: Sequence[Path], write: bool, as_json: bool, source: str | None) -> None:
    """Look for what your code relies on: attributes that it replaces, and files that were copied from upstream.

    The Python files below PATH are read, by default those of your whole repository. Nothing is imported.
    """
    with options.place(source) as place, Stores(options.load(writes=write), place) as stores:
        found = proposals.find(stores, paths)
        if write and found:
            recording.written(stores, [each.guard for each in found])
    if as_json:
        listed = [{"guard": guard_json(each.guard), "place": each.place, "alike": _rounded(each.alike)} for each in found]
        print_json({"lane": options.lane_key, "added": write, "proposals": listed})
        return
    if found:
        print_table(("guard", "kind", "target", "your code"), [_row(each) for each in found])
    say(_end(len(found), write=write), "stack guard find --add" if found and not write else "")


def _row(each: proposals.Proposal) -> tuple[str, str, str, str]:
    alike = f" ({round(100 * each.alike)} % of its lines)" if each.alike is not None else ""
    guard: Guard = each.guard
    return guard.name, guard.kind.value, one_line(f"{guard.upstream} {guard.target}"), one_line(f"{each.place}{alike}")


def _rounded(alike: float | None) -> float | None:
    return None if alike is None else round(alike, 4)


def _end(number: int, *, write: bool) -> str:
    if not number:
        return "found nothing that is not guarded"
    if write:
        return f"added {counted(number, 'guard')} to {PLACE}; `stack undo` takes it back"
    return f"{counted(number, 'guard')} proposed; to add all of them:"
