# SPDX-License-Identifier: Apache-2.0
"""`stack status`: show pins, series, patches and states."""

from collections.abc import Mapping

import click

from stack.cli.common import Options, json_option, print_table
from stack.cli.lane_options import all_lanes_option, in_lanes, lane_option
from stack.model import digest
from stack.model.diff import counts
from stack.model.patch import files
from stack.model.series import PatchRef
from stack.model.stack import Stack


@click.command("status")
@lane_option
@all_lanes_option
@json_option
@click.pass_context
def command(context: click.Context, all_lanes: bool, as_json: bool) -> None:
    """Show pins, series, patches and their states. Needs no network."""

    def run(options: Options) -> tuple[int, Mapping[str, object]]:
        stack = options.load()
        sizes = {ref: counts(files(patch)) for ref, patch in stack.patches.items()}
        if not as_json:
            _print(stack, sizes)
        return 0, _as_json(stack, sizes) if as_json else {}

    context.exit(in_lanes(context.obj, all_lanes, as_json, run))


def _as_json(stack: Stack, sizes: Mapping[PatchRef, tuple[int, int]]) -> dict[str, object]:
    return {
        "digest": digest.of(stack),
        "pins": [{"upstream": pin.upstream, "tag": pin.tag, "commit": pin.commit} for pin in stack.pins],
        "lanes": list(stack.pins.lanes),
        "series": [
            {
                "name": series.name,
                "title": series.title,
                "state": series.state,
                "pull": series.pull,
                "needs": list(series.needs),
                "patches": [
                    {
                        "upstream": ref.upstream,
                        "file": ref.file,
                        "subject": stack.patches[ref].subject,
                        "added": sizes[ref][0],
                        "removed": sizes[ref][1],
                        "pulls": [pulled.address for pulled in series.pulls if pulled.ref == ref],
                        "own": stack.owns(ref.path),
                    }
                    for ref in series.patches
                ],
            }
            for series in stack.series
        ],
    }


def _print(stack: Stack, sizes: Mapping[PatchRef, tuple[int, int]]) -> None:
    click.echo(f"stack {digest.of(stack)}" + (f" (lane {stack.lane})" if stack.lane is not None else ""))
    print_table(
        ("pin", "tag", "commit"),
        [(pin.upstream, pin.tag or ("vendored" if pin.within else ""), pin.commit[:12]) for pin in stack.pins],
    )
    rows: list[tuple[str, str, str, str]] = []
    for series in stack.series:
        rows.append((series.name, series.state, "", series.title))
        for ref in series.patches:
            subject = stack.patches[ref].subject
            own = " (the lane's own)" if stack.owns(ref.path) else ""
            rows.append(("", ref.upstream, "+{} -{}".format(*sizes[ref]), f"{subject}{own}"))
    click.echo()
    print_table(("series", "state", "lines", "title"), rows)
    if stack.lane is None and stack.pins.lanes:
        click.echo(f"\nlanes: {', '.join(stack.pins.lanes)} (--lane NAME, --all-lanes)")
