# SPDX-License-Identifier: Apache-2.0
"""The options `--lane` and `--all-lanes`, and how a verb runs in several lanes."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from stack.base.errors import StackError
from stack.cli import documents
from stack.cli.common import Options, print_json
from stack.cli.sentences import tell

if TYPE_CHECKING:
    from collections.abc import Mapping


def _take(context: click.Context, _option: click.Parameter, name: str | None) -> None:
    if name is not None:
        context.obj = replace(context.obj, lane=name)


lane_option = click.option(
    "--lane",
    metavar="NAME",
    expose_value=False,
    callback=_take,
    help="Work in this lane of pins.toml; main: in none, which is the default.",
)
all_lanes_option = click.option("--all-lanes", is_flag=True, help="Do it in every lane, one after the other, and in none.")


def in_lanes(
    options: Options,
    all_lanes: bool,
    as_json: bool,
    run: "Callable[[Options], tuple[int, Mapping[str, object]]]",
    schema: str | None = None,
) -> int:
    """Run a verb in one lane or in all of them; return the highest exit code.

    Args:
        options: The options before the verb, with the lane.
        all_lanes: Run it in every lane. An error in one is reported, and the others run.
        as_json: Print the document that `run` returns, with its lane; `run` prints nothing then.
        run: Runs the verb in the lane of its options, prints unless `as_json`, and returns the exit code and the document.
        schema: The name of the document's schema if that is not the one of the running command.

    Raises:
        StackError: The verb fails in the only lane.

    """
    if not all_lanes:
        code, document = run(options)
        if as_json:
            print_json({"lane": options.lane_key, **document}, schema)
        return code
    printed: list[Mapping[str, object]] = []
    codes: list[int] = []
    for each in every(options):
        name = str(each.lane)
        if not as_json:
            click.echo(f"{'' if not codes else chr(10)}== {name} ==")
        try:
            code, document = run(each)
            printed.append(documents.document({"lane": each.lane_key, **document}, schema))
        except StackError as failed:
            code = 2
            printed.append({"lane": each.lane_key, "error": str(failed)})
            tell(f"{name}: {failed}")
        codes.append(code)
    if as_json:
        print_json({"lanes": printed}, documents.of_lanes(schema))
    return max(codes)


def every(options: Options) -> list[Options]:
    """Return the options for each lane, first for none.

    Raises:
        StackError: The stack is not found, or its pins are invalid.
        click.UsageError: One lane is named, too.

    """
    from stack.model import lanes  # noqa: PLC0415

    if options.lane is not None:
        raise click.UsageError("--lane names one lane, --all-lanes means all: choose one")
    return [replace(options, lane=lanes.named(lane)) for lane in lanes.of_every(options.find_root())]
