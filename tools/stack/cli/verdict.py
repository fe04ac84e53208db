# SPDX-License-Identifier: Apache-2.0
"""`stack verdict`: what validations have found, and whether it is enough for a release."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stack.cli.common import json_option, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stack.model.verdict import Case, Verdict

COLOURS = {"passed": "green", "failed": "bold red", "not-run": "yellow"}
files_argument = click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path, exists=True, dir_okay=False)
)


@click.group("verdict")
def command() -> None:
    """Show and compare the verdicts of `stack validate`, and require them for a release."""


@command.command("show")
@files_argument
@json_option
def show(files: tuple[Path, ...], as_json: bool) -> None:
    """Show verdicts: stack, machine, versions, and every case with its numbers."""
    from stack.model import verdict  # noqa: PLC0415

    verdicts = [(file, verdict.load(file)) for file in files]
    if as_json:
        print_json({"verdicts": [{"file": str(file), **verdict.as_json(one)} for file, one in verdicts]})
        return
    for place, (_, one) in enumerate(verdicts):
        if place:
            click.echo()
        print_verdict(one)


def print_verdict(one: "Verdict") -> None:
    """Print a verdict: what was validated and where, a table of the cases, how many ended how."""
    machine = one.machine
    click.echo(f"stack {one.stack}")
    click.echo(f"pins {', '.join(f'{name} {pin.tag or pin.commit[:12]}' for name, pin in one.pins.items())}")
    click.echo(f"{one.made} on {machine.cpu}, {machine.cores} cores, {machine.memory / 1e9:.0f} GB, {machine.system}")
    for gpu in machine.gpus:
        click.echo(f"GPU {gpu.name} (compute capability {gpu.capability}), driver {gpu.driver}, CUDA {machine.cuda}")
    click.echo(", ".join(f"{name} {version}" for name, version in one.versions.items()))
    if one.recipe or one.weights:
        click.echo(f"recipe {one.recipe or '-'}, weights {one.weights or '-'}")
    print_cases(one.cases)
    if not one.whole:
        click.echo("the run did not come to its end: --resume continues it")


def print_cases(cases: "Sequence[Case]") -> None:
    """Print a table of cases, and how many ended how."""
    from stack.model.verdict import Outcome  # noqa: PLC0415

    print_table(("case", "outcome", "seconds", ""), [row for one in cases for row in _rows(one)], colour=COLOURS.get)
    ended = {outcome: sum(one.outcome is outcome for one in cases) for outcome in Outcome}
    click.echo(", ".join(f"{count} {outcome}" for outcome, count in ended.items() if count))


def _rows(one: "Case") -> "Iterator[tuple[str, str, str, str]]":
    said = [*one.why.splitlines()]
    numbers = ", ".join(f"{name} {_number(value)}" for name, value in one.measured.items())
    if numbers:
        said.append(numbers + (f" (bar {_number(one.bar)})" if one.bar is not None else ""))
    if one.margins:
        said.append("margins " + ", ".join(f"{name} {_number(value)}" for name, value in one.margins.items()))
    first, *rest = said or [""]
    yield one.name, one.outcome.value, f"{one.seconds:.1f}", first
    for line in rest:
        yield "", "", "", line


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"
