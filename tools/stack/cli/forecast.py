# SPDX-License-Identifier: Apache-2.0
"""`stack forecast`: what would break on what upstream has not released yet?"""

import click

from stack.carry.forecast import forecast
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, leg_json, print_json, print_legs, source_option, through_names


@click.command("forecast")
@click.argument("upstream", required=False)
@click.option(
    "--against",
    required=True,
    metavar="REV|nightly",
    help="A tag, branch or commit of UPSTREAM; nightly: the newest that there is, of every upstream unless one is named.",
)
@click.option("--through", metavar="auto|TAG,...", help="Climb over these releases, as in a rebase.")
@json_option
@source_option
@click.pass_context
def command(
    context: click.Context, upstream: str | None, against: str, through: str | None, as_json: bool, source: str
) -> None:
    """Carry the patches onto a moving branch, and show what would become of them; nothing is written.

    With --source git that is the remote's branch, and the commits that would break a patch are named; with archives it is the
    newest release in the registry, pre-releases among them. Exit code 1 when a patch would need a person.
    """

    options: Options = context.obj
    with options.place(source) as place, Stores(options.load(), place) as stores:
        found = forecast(stores, upstream, against, through=through_names(through))
        if as_json:
            print_json(
                {
                    "against": against,
                    "breaks": any(one.breaks for one in found),
                    "upstreams": [
                        {
                            "upstream": one.upstream,
                            "revision": one.revision,
                            "breaks": one.breaks,
                            "unmet": [need.sentence(one.work.pins().get(need.needs)) for need in one.work.unmet],
                            "legs": [leg_json(leg) for leg in one.work.legs],
                        }
                        for one in found
                    ],
                }
            )
        else:
            for one in found:
                print_legs(one.work)
                for need in one.work.unmet:
                    click.echo(need.sentence(one.work.pins().get(need.needs)))
                broken = len(one.work.open)
                click.echo(
                    f"{one.upstream} {one.revision}: " + (f"{broken} patch(es) would break" if broken else "all would carry")
                )
    context.exit(1 if any(one.breaks for one in found) else 0)
