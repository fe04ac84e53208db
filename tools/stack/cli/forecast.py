# SPDX-License-Identifier: Apache-2.0
"""`stack forecast`: show what would break on upstream's unreleased code."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from stack.base.text import counted
from stack.carry import tried
from stack.carry.forecast import Forecast, forecast
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, leg_json, print_legs, source_option, through_names
from stack.cli.completing import complete_upstreams
from stack.cli.lane_options import all_lanes_option, in_lanes, lane_option
from stack.cli.rendering import patches
from stack.cli.rendering.guards import guarded_json, print_guards
from stack.cli.reports import report_forecasts, report_option
from stack.cli.sentences import say


@click.command("forecast")
@click.argument("upstream", required=False, shell_complete=complete_upstreams)
@click.option(
    "--against",
    required=True,
    metavar="REV|nightly",
    help="A tag, branch or commit of UPSTREAM; nightly: the newest one, of every upstream unless one is named.",
)
@click.option("--through", metavar="auto|TAG,...", help="Carry over these releases one by one, as in a rebase.")
@report_option
@patches.all_option()
@lane_option
@all_lanes_option
@json_option
@source_option
@click.pass_context
def command(
    context: click.Context,
    upstream: str | None,
    against: str,
    through: str | None,
    report: Path | None,
    all_lanes: bool,
    as_json: bool,
    source: str | None,
) -> None:
    """Carry the patches onto a moving branch and show their outcomes; nothing is written.

    With --source git this is the remote's branch, and the commits that would break a patch are named. With archives it is the
    newest release in the registry, including pre-releases. Exit code 1 if a patch or a guard would need a
    person.
    """

    if report is not None and all_lanes:
        raise click.UsageError("--report shows one lane: name it with --lane")

    def run(options: Options) -> tuple[int, Mapping[str, object]]:
        with options.place(source) as place, Stores(options.load(), place) as stores:
            forecasts = forecast(stores, upstream, against, through=through_names(through))
            report_forecasts(report, stores.stack, forecasts)
            for each in forecasts:
                tried.keep(place.cache, each.work)
            if not as_json:
                _print(forecasts)
            return 1 if any(each.breaks for each in forecasts) else 0, _as_json(forecasts, against) if as_json else {}

    context.exit(in_lanes(context.obj, all_lanes, as_json, run))


def _as_json(forecasts: Sequence[Forecast], against: str) -> dict[str, object]:
    return {
        "against": against,
        "breaks": any(each.breaks for each in forecasts),
        "upstreams": [
            {
                "upstream": each.upstream,
                "revision": each.revision,
                "breaks": each.breaks,
                "unmet": [need.sentence(each.work.pins().get(need.needs)) for need in each.work.unmet],
                "legs": [leg_json(leg) for leg in each.work.legs],
                "guards": [guarded_json(found) for found in each.work.guards],
            }
            for each in forecasts
        ],
    }


def _print(forecasts: Sequence[Forecast]) -> None:
    for each in forecasts:
        print_legs(each.work)
        for need in each.work.unmet:
            say(need.sentence(each.work.pins().get(need.needs)))
        print_guards(each.work.guards)
        say(f"{each.upstream} {each.revision}: {_end(each)}")


def _end(forecast: Forecast) -> str:
    patches, guards = len(forecast.work.open), len(forecast.work.broken_guards)
    parts = [*([counted(patches, "patch")] if patches else []), *([counted(guards, "guard")] if guards else [])]
    return f"{' and '.join(parts)} would break" if parts else "all would carry"
