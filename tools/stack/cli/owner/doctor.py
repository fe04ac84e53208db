# SPDX-License-Identifier: Apache-2.0
"""`spark-stack doctor`: find what keeps this machine from serving a recipe, with the commands that mend it."""

import re
from collections.abc import Sequence

import click

from stack.base.errors import StackError
from stack.base.text import counted
from stack.cli.common import Options, json_option, one_line, print_json, progress
from stack.cli.completing import complete_recipes
from stack.cli.rendering import text
from stack.cli.sentences import fact, say
from stack.deploy import recipes
from stack.owner import engine, state, state_file
from stack.owner.readiness import facts, judging, need
from stack.owner.readiness.remark import Remark, Severity, to_mend
from stack.owner.state import State

DEFAULT = "gpt-oss-120b-spark"
"""The recipe that a machine is judged by, unless another is named or runs."""
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,300}")
_SIGNS = {
    Severity.WRONG: ("✗", "red"),
    Severity.NOTE: ("!", "yellow"),
    Severity.UNKNOWN: ("?", "magenta"),
    Severity.FINE: ("✓", "green"),
}
"""Signs and colours, in the order in which remarks are printed."""


@click.command("doctor")
@click.option(
    "--recipe",
    "name",
    metavar="RECIPE",
    shell_complete=complete_recipes,
    help=f"Judge memory, disk and GPU by this recipe. Default: the one that runs, else {DEFAULT}.",
)
@click.option(
    "--engine",
    "engine_name",
    type=click.Choice(engine.ENGINES),
    help="The container engine. Default: the one that runs the server, else docker or podman, whichever answers.",
)
@click.option("--port", type=click.IntRange(1, 65_535), help=f"The port that the server will use. Default: {need.PORT}.")
@click.option("--try", "tries", is_flag=True, help="Start a container that lists its GPUs, and remove it. It needs an image.")
@click.option("--image", metavar="IMAGE", help="The image for --try, which the engine must have. Default: the one that runs.")
@click.option("--verbose", "-v", is_flag=True, help="Show also what is fine, and the reports behind each claim.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    name: str | None,
    engine_name: str | None,
    port: int | None,
    tries: bool,
    image: str | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Find what keeps this machine from serving a recipe: driver, container engine, memory, disk, port, power, kernel, firmware.

    Each finding has its evidence and the commands that mend it. Nothing is changed. Exit code 1 if something has to be mended first.
    """

    options: Options = context.obj
    known = state_file.read(state.path())
    setup = known.now if known is not None else None
    recipe = recipes.load(name or (setup.recipe if setup is not None else DEFAULT), options.root_if_any())
    wanted = need.of(recipe, port or (setup.port if setup is not None else need.PORT))
    tried = image or (setup.image.id if setup is not None else None) if tries else None
    if tries and tried is None:
        raise StackError("--try has no image to start", "name one that the engine has with --image")
    engine_name = _engine(engine_name, known)
    if tried is not None and not _IMAGE.fullmatch(tried):  # the engine would take some for options
        raise StackError(f"{tried!r:.100} is not the name of an image", "write HOST/NAME:TAG, or an id that the engine lists")
    with progress(lines=True) as tell:
        found = facts.gather(wanted, engine_name, tried, own=_own_port(known), tell=tell)
    remarks = [*judging.judge(found, wanted)]
    if as_json:
        print_json(_as_json(wanted.recipe, remarks))
    else:
        _print(wanted.recipe, remarks, verbose=verbose)
        if setup is None and not to_mend(remarks):
            say("Start it:", f"spark-stack up {wanted.recipe} --image IMAGE")
    context.exit(1 if to_mend(remarks) else 0)


def _engine(given: str | None, known: State | None) -> str | None:
    """Return the engine that `up` would use; None if none answers, and the first that is installed is judged."""
    try:
        return engine.found(engine.wanted(given, known)).name
    except StackError:
        return engine.wanted(given, known)


def _own_port(known: State | None) -> int | None:
    """Return the port of the owner's server if it runs; an engine that does not answer has a remark of its own."""
    if known is None or known.now is None:
        return None
    try:
        container = engine.Engine(known.engine).container(known.container)
    except StackError:
        return None
    return known.now.port if container is not None and container.running else None


def summary(recipe: str, remarks: Sequence[Remark]) -> str:
    """Return the first line: whether the machine is ready, or how much has to be mended."""
    count = to_mend(remarks)
    return f"{counted(count, 'thing')} to mend first, before {recipe}" if count else f"ready for {recipe}"


def _print(recipe: str, remarks: Sequence[Remark], *, verbose: bool) -> None:
    text.echo(text.styled(summary(recipe, remarks), "bold red" if to_mend(remarks) else "bold green"))
    shown = [each for each in remarks if verbose or each.severity is not Severity.FINE]
    for severity in _SIGNS:
        for remark in shown:
            if remark.severity is severity:
                show(remark, verbose=verbose)
    folded = len(remarks) - len(shown)
    if folded:
        text.echo()
        say(f"{counted(folded, 'check is', 'checks are')} fine. -v shows {'it' if folded == 1 else 'them'}.")


def show(remark: Remark, *, verbose: bool = False) -> None:
    """Print a remark: what it is, what shows it, what to do, and each command in a line of its own to be copied."""
    sign, colour = _SIGNS[remark.severity]
    if remark.severity is not Severity.FINE:
        text.echo()
    fact(one_line(f"{sign} {remark.check}: {remark.what}"), mark=sign, fg=colour, bold=True)
    if remark.shown_by:
        fact(one_line(remark.shown_by), indent="    ", below="")
    for line in remark.commands:
        text.echo(f"      {text.styled(one_line(line), 'bold')}")
    if remark.advice:
        fact(one_line(remark.advice), indent="    ", below="")
    if verbose and remark.sources:
        fact(f"seen in {', '.join(remark.sources)}", indent="    ", below="", dim=True)


def as_json(remark: Remark) -> dict[str, object]:
    """Return a remark as JSON."""
    return {
        "check": remark.check,
        "severity": str(remark.severity),
        "what": remark.what,
        "shown_by": remark.shown_by or None,
        "commands": list(remark.commands),
        "advice": remark.advice or None,
        "sources": list(remark.sources),
    }


def _as_json(recipe: str, remarks: Sequence[Remark]) -> dict[str, object]:
    return {
        "ready": not to_mend(remarks),
        "recipe": recipe,
        "to_mend": to_mend(remarks),
        "remarks": [as_json(remark) for remark in remarks],
    }
