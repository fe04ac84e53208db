# SPDX-License-Identifier: Apache-2.0
"""`stack triage`: show what would become of patches on another base, in any repository."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stack.base.errors import StackError
from stack.carry import triage
from stack.carry.outcome import Outcome
from stack.carry.triage import Triage
from stack.cli.common import (
    COLOURS,
    Options,
    json_option,
    outcome_json,
    patch_line,
    print_json,
    through_names,
)
from stack.cli.rendering import patches as patches_
from stack.cli.rendering import text
from stack.cli.reports import report_option, report_triage
from stack.cli.sentences import say, tell

if TYPE_CHECKING:
    from stack.carry.resolutions import Resolutions


@click.command("triage")
@click.option("--repo", type=click.Path(path_type=Path), required=True, help="A clone of any project. It is only read.")
@click.option("--base", required=True, metavar="REV", help="The revision to which the patches apply.")
@click.option("--onto", required=True, metavar="REV", help="The revision onto which to carry them.")
@click.option(
    "--through",
    metavar="auto|REV,...",
    help="Carry over these revisions one by one; auto: the release tags between. A conflict then appears where it was caused.",
)
@click.option(
    "--independent", is_flag=True, help="Judge each patch alone on the base. Default: they are a series, in this order."
)
@click.option(
    "--resolutions",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Reuse resolved conflicts: a stack's stacks/resolutions.",
)
@click.option("--output", type=click.Path(path_type=Path), metavar="DIR", help="Write the carried patches there.")
@report_option
@patches_.all_option()
@json_option
@click.argument("patches", nargs=-1, required=True, metavar="PATCH...", type=click.Path(path_type=Path))
@click.pass_context
def command(
    context: click.Context,
    repo: Path,
    base: str,
    onto: str,
    through: str | None,
    independent: bool,
    resolutions: Path | None,
    output: Path | None,
    report: Path | None,
    as_json: bool,
    patches: tuple[Path, ...],
) -> None:
    """Show for each PATCH file what would become of it on another revision; a file may hold several mails.

    Outcomes: clean, moved (to other lines), landed (a commit on the way contains it, under any subject), partly-landed (the rest is
    carried), resolved (the conflict was only apparent), relocated (the code moved), drifted (applies, but is wrong),
    dropped-upstream (upstream had it and removed it again), conflict. Each comes with its evidence: the commits that brought or
    broke it. The repository is only read. Exit code 1 if a patch needs a person.
    """

    options: Options = context.obj
    span = triage.Range(base, onto, through_names(through))
    known = _known(resolutions) if resolutions is not None else None
    if output is not None:
        triage.require_empty(output)
    with options.usable_cache() as home:
        result = triage.triage(repo, span, patches, cache=home, independent=independent, resolutions=known)
    if output is not None:
        triage.write(output, result)
    report_triage(report, result, base)
    if result.back:
        tell(f"{onto} is older than {base}: the patches are carried back (or are --base and --onto swapped?)")
    if as_json:
        print_json(_as_json(result))
    else:
        climbed = len(result.rungs) > 1
        if through == "auto" and not climbed:
            click.echo("--through auto: no release lies between the two revisions")
        lines = tuple(patch_line(row.name, row.carried, climbed=climbed, series="") for row in result.rows)
        text.echo(patches_.summary(lines, onto))
        patches_.print_sections([patches_.Section((), lines)], COLOURS.get)
        _print_end(result, output)
    context.exit(1 if any(row.carried.needs_person for row in result.rows) else 0)


def _print_end(result: Triage, output: Path | None) -> None:
    """Name the patches that were not written, and what to do about conflicts."""
    left = [row for row in result.rows if row.exported is None and row.carried.outcome is not Outcome.LANDED]
    if output is not None and left:
        say(f"not written to {output}: {', '.join(row.name for row in left)}")
    if any(row.carried.outcome is Outcome.CONFLICT for row in result.rows):
        say("to resolve conflicts, keep the patches in a stack (`stack init`):", "stack rebase … --workspace DIR")


def _known(folder: Path) -> "Resolutions":
    from stack.carry.resolutions import Resolutions  # noqa: PLC0415  (a twentieth of a second that few calls need)

    if not folder.is_dir():
        raise StackError(f"{folder} is no folder", "name a stack's stacks/resolutions")
    return Resolutions.load(folder)


def _as_json(result: Triage) -> dict[str, object]:
    return {
        "base": result.base,
        "onto": result.onto,
        "rungs": [{"name": rung.name, "commit": rung.commit} for rung in result.rungs],
        "patches": [{"file": str(row.file), "mail": row.mail, **outcome_json(row.carried)} for row in result.rows],
    }
