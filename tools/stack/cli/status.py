# SPDX-License-Identifier: Apache-2.0
"""`stack status`: show pins, series, patches and states."""

import click

from stack.cli.common import Options, json_option, print_json, print_table
from stack.model import digest
from stack.model.diff import counts
from stack.model.patch import files


@click.command("status")
@json_option
@click.pass_obj
def command(options: Options, as_json: bool) -> None:
    """Show pins, series, patches and their states. Needs no network."""

    stack = options.load()
    sizes = {ref: counts(files(patch)) for ref, patch in stack.patches.items()}
    if as_json:
        print_json(
            {
                "digest": digest.of(stack),
                "pins": [{"upstream": pin.upstream, "tag": pin.tag, "commit": pin.commit} for pin in stack.pins],
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
                            }
                            for ref in series.patches
                        ],
                    }
                    for series in stack.series
                ],
            }
        )
        return
    click.echo(f"stack {digest.of(stack)}")
    print_table(
        ("pin", "tag", "commit"),
        [(pin.upstream, pin.tag or ("vendored" if pin.within else ""), pin.commit[:12]) for pin in stack.pins],
    )
    rows: list[tuple[str, str, str, str]] = []
    for series in stack.series:
        rows.append((series.name, series.state, "", series.title))
        rows += [("", ref.upstream, "+{} -{}".format(*sizes[ref]), stack.patches[ref].subject) for ref in series.patches]
    click.echo()
    print_table(("series", "state", "lines", "title"), rows)
