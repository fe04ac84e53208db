# SPDX-License-Identifier: Apache-2.0
"""`stack image verify`: verify a published image."""

from pathlib import Path

import click

from stack.base.errors import StackError
from stack.cli.common import Options, json_option, one_line, print_json, print_table
from stack.cli.imaging.common import insecure_option, trust_options
from stack.cli.lane_options import lane_option
from stack.images import pulling, reference, verify
from stack.images.trust import Trusted
from stack.images.verify import Report

_COLOURS = {"holds": "green", "fails": "bold red", "unchecked": "yellow"}


@click.command("verify")
@click.argument("name", metavar="HOST/NAME:TAG|oci:DIR")
@trust_options()
@click.option("--gate", help="The gate that it has to have passed. Default: any.")
@click.option("--save", metavar="oci:DIR", help="First fetch it with its attestations into a new layout, and verify that.")
@insecure_option
@json_option
@lane_option
@click.pass_context
def command(
    context: click.Context, name: str, trusted: Trusted | None, gate: str | None, save: str | None, tls: bool, as_json: bool
) -> None:
    """Verify an image: digest, signatures, provenance, gates, and labels against the pins of the stack at hand.

    A layout that --save wrote is verified without network. The exit code is 1 if something does not hold, or if no key was
    given.
    """

    options: Options = context.obj
    stack, where = options.load(), reference.parse(name)
    if save is not None:
        target = reference.parse(save)
        if not target.layout or where.layout:
            raise StackError(f"{where.shown} cannot be saved as {target.shown}", "save an image of a registry as oci:DIR")
        where = pulling.save(where, Path(target.place), tls=tls)
    report = verify.verify(where, stack, trusted, gate, tls=tls)
    if as_json:
        print_json(_report_json(report))
    else:
        print_table(
            ("", "", ""),
            [(check.name, check.state.value, one_line(check.said)) for check in report.checks],
            colour=_COLOURS.get,
        )
        for published in report.claims.names:
            click.echo(f"published as {one_line(published)}, {one_line(report.claims.time)}")
        click.echo("verified" if report.holds else "not verified")
    context.exit(0 if report.holds else 1)


def _report_json(report: Report) -> dict[str, object]:
    return {
        "verified": report.holds,
        "digest": report.image.digest,
        "platforms": [{"name": platform.name, "digest": platform.digest} for platform in report.image.platforms],
        "checks": [{"name": check.name, "state": check.state.value, "said": check.said} for check in report.checks],
        "gates": list(report.claims.gates),
        "names": list(report.claims.names),
        "published": report.claims.time or None,
    }
