# SPDX-License-Identifier: Apache-2.0
"""`stack image list`: what is published."""

from dataclasses import asdict
from pathlib import Path

import click

from stack.cli.common import json_option, one_line, print_json, print_table
from stack.cli.imaging.common import insecure_option, public, public_option
from stack.images import listing, reference


@click.command("list")
@click.argument("repository", metavar="HOST/NAME")
@public_option
@insecure_option
@json_option
def command(repository: str, key: Path | None, tls: bool, as_json: bool) -> None:
    """List the images of a repository that have tags, the newest first: digest, stack, gates, date.

    Without a key this is what somebody says; with one, what its owner has signed, and whether it holds.
    """

    found = listing.of(reference.parse(repository), public(key), tls=tls)
    if as_json:
        print_json({"images": [asdict(one) for one in found]})
        return
    rows = [
        (
            one.digest[:19],
            " ".join(one.tags),
            one_line((one.stack or "-")[:12]),
            one_line(" ".join(one.gates) or "-"),
            one_line(one.published or "-"),
            {None: "not checked", True: "holds", False: "does not hold"}[one.holds],
            one_line(one.problem or ""),
        )
        for one in found
    ]
    header = ("digest", "tags", "stack", "gates", "published", "signed", "")
    print_table(header, rows, colour={"holds": "green", "does not hold": "bold red"}.get)
