# SPDX-License-Identifier: Apache-2.0
"""`stack image bisect`: which upstream release or which patch it was."""

import platform
import tempfile
from collections.abc import Mapping
from pathlib import Path

import click

from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.cli.common import Options, json_option, print_json, source_option
from stack.images.bisecting import between, ends
from stack.images.bisecting.search import Provide, Search, Trial
from stack.model import digest
from stack.model.stack import Stack
from stack.wheels import building
from stack.wheels.decision import Asked, Mode, decide


@click.command("bisect")
@click.argument("good")
@click.argument("bad")
@click.option(
    "--run",
    "order",
    metavar="CMD",
    required=True,
    help="Tells a good stack from a bad one, by its exit code: 0 good, 1 to 124 bad, 125 cannot be judged.",
)
@click.option(
    "--wheels",
    metavar="UPSTREAM[=PACKAGE]",
    multiple=True,
    help="Build this upstream's wheel for this machine, too, each time: $STACK_WHEELS is its folder; repeatable.",
)
@click.option("--trust", is_flag=True, help="Take GOOD for good and BAD for bad, without running CMD on them first.")
@json_option
@source_option
@click.pass_obj
def command(
    options: Options, good: str, bad: str, order: str, wheels: tuple[str, ...], trust: bool, as_json: bool, source: str
) -> None:
    """Find the upstream release or the patch that made BAD bad.

    GOOD and BAD are images (HOST/NAME:TAG, HOST/NAME@DIGEST, oci:DIR), folders of stacks, or git revisions of the stack at hand.
    The stacks between them are halved: first GOOD's patches are carried from release to release, then they become BAD's, one by
    one. CMD runs in a shell for each, with $STACK_ROOT, the folder of that stack, and $STACK_DIGEST. A stack that cannot be made,
    since patches conflict there, is skipped; where that hides the first bad one, all that it may be are named.
    """

    trials: list[Trial] = []

    def heard(trial: Trial) -> None:
        trials.append(trial)
        if not as_json:
            click.echo(f"{trial.answer:8} {trial.change}{f' ({trial.why})' if trial.why else ''}")

    root = options.load().root
    with tempfile.TemporaryDirectory(prefix="stack-bisect-") as place, options.place(source) as sources:
        work = Path(place)
        first, last = ends.load(good, root, work / "good"), ends.load(bad, root, work / "bad")
        search = Search(order, _provide(wheels, sources, work), heard)
        if not trust:
            search.check_ends(first, last)
        (work / "carried").mkdir()
        way = between.way(first, last, sources, work / "carried")
        if not way.steps:
            raise StackError("GOOD and BAD are the same stack", "name two that differ")
        found = search.first_bad(way, work)
    if as_json:
        print_json(
            {"first_bad": list(found), "between": [one.change for one in way.steps], "trials": [_json(one) for one in trials]}
        )
    elif len(found) == 1:
        click.echo(f"the first bad one: {found[0]}")
    else:
        click.echo(f"one of these, which cannot be told apart: {'; '.join(found)}")


def _provide(wheels: tuple[str, ...], place: Place, work: Path) -> Provide:
    """What builds the wheels that a command is given."""
    named = {name: package for name, _, package in (one.partition("=") for one in wheels)}

    def build(one: Stack) -> Mapping[str, str]:
        if not named:
            return {}

        folder = work / "wheels" / digest.of(one)
        packages = tuple((name, package) for name, package in named.items() if package)
        with Stores(one, place) as stores:
            asked = Asked(tuple(named), Mode.AUTO, packages, (platform.machine(),))
            for _ in building.build(stores, asked, decide(stores, asked), folder):
                pass
        return {"STACK_WHEELS": str(folder)}

    return build


def _json(trial: Trial) -> dict[str, object]:
    return {"change": trial.change, "answer": trial.answer, "why": trial.why, "seconds": round(trial.seconds, 3)}
