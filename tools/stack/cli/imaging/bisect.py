# SPDX-License-Identifier: Apache-2.0
"""`stack image bisect`: find the upstream release or the patch that made a stack bad."""

import platform
import tempfile
from collections.abc import Mapping
from pathlib import Path

import click

from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.cli.common import Options, json_option, print_json, source_option
from stack.cli.lane_options import lane_option
from stack.images.bisecting import between, ends
from stack.images.bisecting.search import Provide, Search, Trial
from stack.model import digest
from stack.model.stack import Stack
from stack.wheels import building
from stack.wheels.decision import Mode, WheelRequest, decide


@click.command("bisect")
@click.argument("good")
@click.argument("bad")
@click.option(
    "--run",
    "order",
    metavar="CMD",
    required=True,
    help="Judges a stack by its exit code: 0 good, 1 to 124 bad, 125 cannot be judged.",
)
@click.option(
    "--wheels",
    metavar="UPSTREAM[=PACKAGE]",
    multiple=True,
    help="Also build this upstream's wheel of each stack for this machine; $STACK_WHEELS is its folder. May be repeated.",
)
@click.option("--trust", is_flag=True, help="Assume that GOOD is good and BAD is bad, without running CMD on them first.")
@json_option
@source_option
@lane_option
@click.pass_obj
def command(
    options: Options, good: str, bad: str, order: str, wheels: tuple[str, ...], trust: bool, as_json: bool, source: str | None
) -> None:
    """Find the upstream release or the patch that made BAD bad.

    GOOD and BAD are images (HOST/NAME:TAG, HOST/NAME@DIGEST, oci:DIR), folders of stacks, or git revisions of the stack at
    hand. The stacks between them are bisected: first GOOD's patches are carried from release to release, then they are replaced
    by BAD's, one by one. CMD runs in a shell for each stack; $STACK_ROOT is the stack's folder, $STACK_DIGEST its digest. A
    stack whose patches conflict is skipped. If that hides the first bad stack, all candidates are shown.
    """

    trials: list[Trial] = []

    def heard(trial: Trial) -> None:
        trials.append(trial)
        if not as_json:
            click.echo(f"{trial.answer:8} {trial.change}{f' ({trial.why})' if trial.why else ''}")

    root = options.find_root()
    with tempfile.TemporaryDirectory(prefix="stack-bisect-") as place, options.place(source) as sources:
        work = Path(place)
        first, last = (ends.load(name, root, work / kind, options.lane_key) for name, kind in ((good, "good"), (bad, "bad")))
        search = Search(order, _provide(wheels, sources, work), heard)
        if not trust:
            search.check_ends(first, last)
        (work / "carried").mkdir()
        way = between.way(first, last, sources, work / "carried")
        if not way.steps:
            raise StackError("GOOD and BAD are the same stack", "name two that differ")
        changes = search.first_bad(way, work)
    if as_json:
        print_json(
            {
                "first_bad": list(changes),
                "between": [step.change for step in way.steps],
                "trials": [_json(one) for one in trials],
            }
        )
    elif len(changes) == 1:
        click.echo(f"the first bad change: {changes[0]}")
    else:
        click.echo(f"one of these, which could not be judged separately: {'; '.join(changes)}")


def _provide(wheels: tuple[str, ...], place: Place, work: Path) -> Provide:
    """Return the function that builds the wheels for the command."""
    named = {name: package for name, _, package in (value.partition("=") for value in wheels)}

    def build(stack: Stack) -> Mapping[str, str]:
        if not named:
            return {}

        folder = work / "wheels" / digest.of(stack)
        packages = tuple((name, package) for name, package in named.items() if package)
        with Stores(stack, place) as stores:
            request = WheelRequest(tuple(named), Mode.AUTO, packages, (platform.machine(),))
            for _ in building.build(stores, request, decide(stores, request), folder):
                pass
        return {"STACK_WHEELS": str(folder)}

    return build


def _json(trial: Trial) -> dict[str, object]:
    return {"change": trial.change, "answer": trial.answer, "why": trial.why, "seconds": round(trial.seconds, 3)}
