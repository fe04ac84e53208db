# SPDX-License-Identifier: Apache-2.0
"""`stack image list`: list the published images."""

from dataclasses import asdict

import click

from stack.cli.common import json_option, one_line, print_json, print_table
from stack.cli.imaging.common import insecure_option, trust_options
from stack.images import listing, reference
from stack.images.trust import Trusted


@click.command("list")
@click.argument("repository", metavar="HOST/NAME")
@trust_options()
@insecure_option
@json_option
def command(repository: str, trusted: Trusted | None, tls: bool, as_json: bool) -> None:
    """List the images of a repository that have tags, the newest first: digest, stack, gates, date.

    Without a key, the attestations are shown unchecked. With a key, only attestations that it has signed are used, and they are
    verified.
    """

    listed = listing.of(reference.parse(repository), trusted, tls=tls)
    if as_json:
        print_json({"images": [asdict(image) for image in listed]})
        return
    rows = [
        (
            image.digest[:19],
            " ".join(image.tags),
            one_line((image.stack or "-")[:12]),
            one_line(" ".join(image.gates) or "-"),
            one_line(image.published or "-"),
            {None: "not checked", True: "holds", False: "does not hold"}[image.holds],
            one_line(image.problem or ""),
        )
        for image in listed
    ]
    header = ("digest", "tags", "stack", "gates", "published", "signed", "")
    print_table(header, rows, colour={"holds": "green", "does not hold": "bold red"}.get)
