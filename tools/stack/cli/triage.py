# SPDX-License-Identifier: Apache-2.0
"""`stack triage`: what would become of patches on another base, in any repository."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stack.cli.common import COLOURS, Options, json_option, outcome_json, outcome_rows, print_json, print_table

if TYPE_CHECKING:
    from stack.carry.triage import Triage


@click.command("triage")
@click.option("--repo", type=click.Path(path_type=Path), required=True, help="A clone of any project. It is only read.")
@click.option("--base", required=True, metavar="REV", help="Where the patches apply.")
@click.option("--onto", required=True, metavar="REV", help="Where they should go.")
@click.option("--independent", is_flag=True, help="Each patch alone on the base; else they are a series in the order given.")
@json_option
@click.argument("patches", nargs=-1, required=True, metavar="PATCH...", type=click.Path(path_type=Path))
@click.pass_context
def command(
    context: click.Context, repo: Path, base: str, onto: str, independent: bool, as_json: bool, patches: tuple[Path, ...]
) -> None:
    """Tell for each PATCH file what would become of it: clean, moved, landed, partly-landed or conflict.

    Landed means that a commit between the two revisions brought the change, under whatever name and reworked or not; the table
    names it. Nothing is written to the repository. Exit code 1 when a patch needs a person.
    """
    from stack.carry import triage  # noqa: PLC0415
    from stack.carry.outcome import Outcome  # noqa: PLC0415
    from stack.store import cache  # noqa: PLC0415

    options: Options = context.obj
    found = triage.triage(repo, base, onto, patches, cache=cache.root(options.cache), independent=independent)
    if as_json:
        print_json(_as_json(found))
    else:
        rows = [line for row in found.rows for line in outcome_rows(row.file.name, row.carried)]
        print_table(("patch", "outcome", ""), rows, colour=COLOURS.get)
    needs = {Outcome.CONFLICT, Outcome.PARTLY_LANDED}
    context.exit(1 if any(row.carried.outcome in needs for row in found.rows) else 0)


def _as_json(found: "Triage") -> dict[str, object]:
    return {
        "base": found.base,
        "onto": found.onto,
        "patches": [
            {
                "file": str(row.file),
                **outcome_json(row.carried),
                "landed": {
                    "commit": row.landed.commit,
                    "subject": row.landed.subject,
                    "score": round(row.landed.score, 3),
                }
                if row.landed is not None
                else None,
            }
            for row in found.rows
        ],
    }
