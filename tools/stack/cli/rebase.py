# SPDX-License-Identifier: Apache-2.0
"""`stack rebase`: move pins and patches to another release."""

from dataclasses import replace
from pathlib import Path

import click
from click.core import ParameterSource

from stack.base.errors import StackError
from stack.carry import tried
from stack.carry import workspace as workspaces
from stack.carry.rebase import Conclusion, Rebase, Request, conclude, range_diff, rebase
from stack.carry.upstream_stores import Stores
from stack.carry.workspace import Session
from stack.cli.common import (
    Options,
    interpreter,
    json_option,
    leg_json,
    print_json,
    print_legs,
    short_ids,
    source_option,
    through_names,
)
from stack.cli.completing import complete_tags, complete_upstreams
from stack.cli.lane_options import all_lanes_option, lane_option
from stack.cli.rendering import patches, terminal
from stack.cli.rendering.guards import guarded_json, print_guards
from stack.cli.reports import report_option, report_rebase
from stack.cli.sentences import say, tell
from stack.model import digest, lanes
from stack.model.pins import MAIN
from stack.model.stack import Stack
from stack.proof import series_proofs
from stack.proof.runner import Runner


@click.command("rebase")
@click.argument("upstream", required=False, shell_complete=complete_upstreams)
@lane_option
@all_lanes_option
@click.option(
    "--onto",
    "onto",
    multiple=True,
    metavar="[LANE=]REV",
    help="The tag to move to; with the git source, also a branch or commit. With --all-lanes: one for each lane.",
    shell_complete=complete_tags,
)
@click.option("--with-required", is_flag=True, help="Also move the other pins that this release names, in one transaction.")
@click.option("--allow-mismatch", is_flag=True, help="Switch even if upstream names another combination of pins.")
@click.option("--allow-drift", is_flag=True, help="Switch even if code that a patch or a guard relies on has changed.")
@click.option(
    "--through",
    metavar="auto|TAG,...",
    help="Carry over these releases one by one; auto: all between. A conflict then appears at the release that caused it.",
)
@click.option(
    "--prove",
    is_flag=True,
    help="Also run the series' proofs on the new release: a patch whose tests pass without it has landed by behaviour.",
)
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    callback=interpreter,
    help="With --prove: run the proofs with this interpreter; no environment is made.",
)
@click.option("--dry-run", is_flag=True, help="Show what would happen; write nothing.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "range-diff"]),
    default="table",
    show_default=True,
    help="Print a table with a row per patch, or `git range-diff` of the patches before and after, for review.",
)
@click.option(
    "--workspace", type=click.Path(path_type=Path), metavar="DIR", help="Resolve conflicts in a working tree, one by one."
)
@click.option(
    "--rerere",
    "clone",
    type=click.Path(path_type=Path),
    metavar="CLONE",
    help="With --workspace: share recorded resolutions of git's rerere with your CLONE, in both directions.",
)
@click.option("--continue", "go_on", type=click.Path(path_type=Path), metavar="DIR", help="Continue after resolving in DIR.")
@click.option(
    "--skip", type=click.Path(path_type=Path), metavar="DIR", help="Drop the patch at which DIR stopped, and continue."
)
@click.option(
    "--abort", type=click.Path(path_type=Path), metavar="DIR", help="Give up: remove DIR and leave the stack as it was."
)
@report_option
@patches.all_option()
@json_option
@source_option
@click.pass_context
def command(
    context: click.Context,
    upstream: str | None,
    all_lanes: bool,
    onto: tuple[str, ...],
    with_required: bool,
    allow_mismatch: bool,
    allow_drift: bool,
    through: str | None,
    prove: bool,
    python: Path | None,
    dry_run: bool,
    form: str,
    workspace: Path | None,
    clone: Path | None,
    go_on: Path | None,
    skip: Path | None,
    abort: Path | None,
    report: Path | None,
    as_json: bool,
    source: str | None,
) -> None:
    """Carry every patch of UPSTREAM onto TAG; if all are carried, switch pins and patch files at once.

    Outcomes: clean, moved (to other lines), landed (the release has it), partly-landed (the rest is carried), left-out (by a
    person), resolved (the conflict was only apparent), relocated (the code moved), drifted (applies, but is wrong),
    dropped-upstream (upstream had it and removed it again), conflict. For drifted, dropped-upstream or conflict, also in the rest
    of a partly landed patch, and for a broken guard, nothing is changed and the exit code is 1. --workspace makes a working tree
    that stops at each of these patches: --continue keeps the patch as it is there, --skip drops it, --abort gives up. Resolutions
    are kept in stacks/resolutions, for later and for everyone.
    """

    options: Options = context.obj
    _check_together(context, {"--abort": abort, "--skip": skip, "--continue": go_on})
    if abort is not None or all_lanes:
        context.exit(_apart(context, options, abort))
    going = go_on if go_on is not None else skip
    session = workspaces.load(going) if going is not None else None
    if session is not None:
        options.require_root(session.root)
        source, allow_mismatch, allow_drift = session.source, session.allow_mismatch, session.allow_drift
    elif upstream is None or len(onto) != 1:
        several = upstream is not None and len(onto) > 1 and all("=" in target for target in onto)
        usage = (
            "--onto LANE=REV for several lanes goes with --all-lanes: add it" if several else "name an upstream and --onto REV"
        )
        raise click.UsageError(usage)
    loaded = (options if session is None else replace(options, root=session.root, lane=session.lane)).load(writes=not dry_run)
    # Later commands on this workspace need what this one writes into the cache.
    kept = workspace is not None or going is not None
    with options.place(source, kept=kept) as place, Stores(loaded, place) as stores:
        stopped = None
        if session is not None and going is not None:
            work, stopped = workspaces.proceed(going, stores, session, digest=digest.exact(loaded), skip=skip is not None)
        else:
            assert upstream is not None
            _check_target(loaded, upstream, onto[0])
            request = Request(upstream, stores.resolve(upstream, onto[0]), with_required, through_names(through))
            work = _proved(stores, rebase(stores, request), python) if prove else rebase(stores, request)
        report_rebase(report, work)
        # Guards stop no rebase that is continued: nothing in its working tree can mend them.
        allowed_guards = going is not None
        ended = conclude(
            work, allow_mismatch=allow_mismatch, allow_drift=allow_drift, allow_guards=allowed_guards, dry_run=dry_run
        )
        if workspace is not None and ended in (Conclusion.CONFLICT, Conclusion.DRIFT):
            allowed = {"allow_mismatch": allow_mismatch, "allow_drift": allow_drift}
            stopped = workspaces.start(workspace, stores, work, **allowed, digest=digest.exact(loaded), clone=clone)
        if going is not None and ended in (Conclusion.SWITCHED, Conclusion.UNCHANGED):
            _finish(going)
        folder = workspace or going
        tried.keep(place.cache, work, folder if stopped is not None and work.open else None)
        if as_json:
            print_json(as_document(work, ended) | {"stopped": _stopped_json(work, stopped, folder) if work.open else None})
        else:
            if form == "range-diff":
                print_range_diff(stores, work)
            else:
                print_legs(work, session.shown if session is not None else None)
            for reason in stopped.not_recorded if stopped else ():
                say(f"not kept as a resolution: {reason}")
            print_end(work, ended, stopped if work.open else None, folder)
    unseen = bool(work.broken_guards) and not allow_drift
    context.exit(0 if ended in (Conclusion.SWITCHED, Conclusion.UNCHANGED, Conclusion.DRY_RUN) and not unseen else 1)


def _proved(stores: Stores, work: Rebase, python: Path | None) -> Rebase:
    """Run the proofs on the new releases; repeat the rebase with the patches that landed by behaviour."""

    rungs = {leg.upstream: {rung.name: rung.commit for rung in leg.carry.rungs} for leg in work.legs if leg.moves}
    request = series_proofs.ProofRequest(onto={name: tuple(way) for name, way in rungs.items()}, python=python)
    with Runner(stores) as runner:
        behaviours = list(series_proofs.behaviour(runner, request, stores.tell))
    for each in behaviours:
        if each.unclear:
            tell(f"{each.ref.path}: whether it has landed by behaviour is not known: {each.reason}")
    behaviour = series_proofs.landings(behaviours, rungs)
    return rebase(stores, replace(work.request, behaviour=behaviour)) if behaviour else work


def _stopped_json(work: Rebase, stopped: Session | None, folder: Path | None) -> dict[str, object] | None:
    if stopped is None:
        return None
    number, of = _progress(work)
    place = {"upstream": stopped.upstream, "patch": stopped.patch, "rung": stopped.rung}
    return {"directory": str(folder), **place, "number": number, "of": of}


def _progress(work: Rebase) -> tuple[int, int]:
    """Return the number of the stop, and how many stops are known by now."""
    done = len(work.request.resolved)
    return done + 1, done + len(work.open)


def _finish(folder: Path) -> None:
    if not workspaces.finish(folder):
        # On stderr, since it may stand beside JSON.
        place = folder.resolve()
        tell(f"{place} is left there, since your shell stands in it: cd out of it, then rm -r {place}")


def _apart(context: click.Context, options: Options, abort: Path | None) -> int:
    """Give up a rebase, or rebase several lanes; return the exit code."""
    if abort is not None:
        _give_up(abort, as_json=context.params["as_json"])
        return 0
    from stack.cli import rebase_lanes  # noqa: PLC0415  (it uses this module)

    return rebase_lanes.run(context, options)


def _give_up(folder: Path, *, as_json: bool) -> None:
    _finish(folder)
    if as_json:
        print_json({"aborted": str(folder)}, "rebase-abort")
    else:
        click.echo("aborted: the stack is unchanged")


def _check_together(context: click.Context, alone: dict[str, Path | None]) -> None:
    for option, folder in alone.items():
        if folder is not None:
            _only(context, option)
    if context.params["python"] is not None and not context.params["prove"]:
        raise click.UsageError("--python goes with --prove")
    if context.params["clone"] is not None and context.params["workspace"] is None:
        raise click.UsageError("--rerere goes with --workspace")
    if context.params["workspace"] is not None and context.params["dry_run"]:
        raise click.UsageError("--dry-run writes nothing, --workspace does: choose one")
    if context.params["form"] == "range-diff" and context.params["as_json"]:
        raise click.UsageError("--format range-diff cannot be combined with --json")


def _check_target(stack: Stack, upstream: str, onto: str) -> None:
    """Refuse `--onto LANE=REV` in a rebase of one lane.

    Raises:
        StackError: The target begins with the name of a lane.

    """
    lane, named, revision = onto.partition("=")
    if named and lane in (MAIN, *stack.pins.lanes):
        alone = f"stack rebase {upstream} --onto {revision} --lane {lane}"
        raise StackError(f"--onto {onto} names a lane", f"add --all-lanes, or move only this lane: {alone}")


def _only(context: click.Context, option: str) -> None:
    """Refuse further options with --continue, --skip and --abort: the recorded rebase holds them."""
    own = {"--continue": "go_on", "--skip": "skip", "--abort": "abort"}[option]
    allowed = (own, "as_json", "form", *(("report",) if option != "--abort" else ()))
    given = [
        name
        for name in context.params
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE and name not in allowed
    ]
    if given or context.get_parameter_source("lane") is ParameterSource.COMMANDLINE:
        raise StackError(f"{option} stands alone", "the working tree knows what was asked when the rebase began")


def print_range_diff(stores: Stores, work: Rebase) -> None:
    """Print `git range-diff` of the patches before and after, for each upstream."""
    for leg in work.legs:
        text = range_diff(stores, leg, colour=terminal.is_coloured())
        if text:
            click.echo(f"# {leg.upstream} {leg.old.tag or leg.old.commit[:12]} -> {leg.new.tag or leg.new.commit[:12]}")
            click.echo(text)


def print_unmet(work: Rebase) -> None:
    """Print the requirements of upstreams that the new pins do not meet."""
    for need in work.unmet:
        say(need.sentence(work.pins().get(need.needs)))


def print_end(work: Rebase, ended: Conclusion, stopped: Session | None, folder: Path | None) -> None:
    """Print how a rebase ended, and what to do next. `stopped` is the stop in the working tree `folder`, if it stopped there."""
    print_unmet(work)
    print_guards(work.guards, lanes.option(work.stack))
    if ended.value in ("conflict", "drift") and stopped is None:
        first = work.open[0][1].patch.ref.path.removesuffix(".patch")
        say("why, and both sides:", f"stack explain {first} --onto {work.request.tag}{lanes.option(work.stack)}")
    if stopped is None:
        say(*_ending(work, ended))
    elif work.open[0][1].outcome.value == "dropped-upstream":
        say(f"{_stop(work, stopped)}: upstream had it and dropped it again")
        say(f"to keep it (resolve conflicts in {folder} first, if any):", f"stack rebase --continue {folder}")
        say("to drop it:", f"stack rebase --skip {folder}")
    elif work.open[0][1].outcome.value == "drifted":
        say(f"{_stop(work, stopped)}: nothing is in conflict there, look at the evidence above")
        say(f"to keep the patch (correct and `git add` it in {folder} first, if need be):", f"stack rebase --continue {folder}")
        say("to leave it out:", f"stack rebase --skip {folder}")
    else:
        say(f"{_stop(work, stopped)}: resolve it in {folder}, `git add` it, then:", f"stack rebase --continue {folder}")
    for name in work.emptied if ended.value == "switched" else ():
        _print_emptied(work, name)


def _print_emptied(work: Rebase, name: str) -> None:
    """Print that a series carries no patch any more, and what to do with it."""
    say(f"{name} carries no patch any more: `stack prove{lanes.option(work.stack)}` still looks after what has landed")
    needed = lanes.carriers(work.stack, name)
    if needed:
        say(f"keep it in stacks/stack.toml: lane {', '.join(needed)} still needs it")
    else:
        folders = " and ".join(lanes.folders(work.stack, name))
        say(f"to let go of it, take it out of stacks/stack.toml and remove {folders}")


def _ending(work: Rebase, ended: Conclusion) -> tuple[str, str]:
    """Return how a rebase ended, and the command that helps, if there is one."""
    moved = ", ".join(leg.upstream for leg in work.legs if leg.moves)
    command, allowing = f"{again(work)} --workspace DIR", f"{again(work)} --allow-drift"
    return {
        "switched": (f"switched: {moved or 'patches'}; `stack undo` takes it back", ""),
        "unchanged": ("nothing to do: the stack stands there already", ""),
        "dry-run": ("dry run: nothing was written; next: the same without --dry-run", ""),
        "conflict": ("nothing was changed: resolve the conflicts one by one in a working tree:", command),
        "drift": ("nothing was changed: --allow-drift switches all the same; to correct the patches:", command),
        "guard": ("nothing was changed: a guard is broken; to switch all the same, and correct your code after it:", allowing),
        "mismatch": (
            "nothing was changed: --with-required moves what upstream names, too; --allow-mismatch switches all the same",
            "",
        ),
    }[ended.value]


def _stop(work: Rebase, stopped: Session) -> str:
    number, of = _progress(work)
    return f"stopped at {number} of {of}, {stopped.patch} on {short_ids(stopped.rung)}"


def again(work: Rebase) -> str:
    """Return the command that began a rebase."""
    request = work.request
    through = f" --through {','.join(request.through)}" if request.through else ""
    required = " --with-required" if request.with_required else ""
    lane = lanes.option(work.stack)
    return f"stack rebase {request.upstream} --onto {request.tag}{lane}{required}{through}"


def as_document(work: Rebase, ended: Conclusion) -> dict[str, object]:
    """Return a rebase as JSON."""
    return {
        "lane": work.stack.lane,
        "upstream": work.request.upstream,
        "onto": work.request.tag,
        "conclusion": ended.value,
        "unmet": [need.sentence(work.pins().get(need.needs)) for need in work.unmet],
        "legs": [leg_json(leg) for leg in work.legs],
        "emptied": list(work.emptied),
        "guards": [guarded_json(each) for each in work.guards],
    }
