# SPDX-License-Identifier: Apache-2.0
"""`stack triage`: what would become of patches on another base, in any repository."""

from pathlib import Path

import click

from stack.base.errors import StackError
from stack.carry import triage
from stack.carry.resolutions import Resolutions
from stack.carry.triage import Triage
from stack.cli.common import (
    COLOURS,
    Options,
    json_option,
    outcome_json,
    outcome_rows,
    print_json,
    print_table,
    through_names,
)


@click.command("triage")
@click.option("--repo", type=click.Path(path_type=Path), required=True, help="A clone of any project. It is only read.")
@click.option("--base", required=True, metavar="REV", help="Where the patches apply.")
@click.option("--onto", required=True, metavar="REV", help="Where they should go.")
@click.option(
    "--through",
    metavar="auto|REV,...",
    help="Climb over these revisions, in order; auto: the release tags between the two. What breaks is met where it broke.",
)
@click.option("--independent", is_flag=True, help="Each patch alone on the base; else they are a series in the order given.")
@click.option(
    "--resolutions",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Conflicts resolved before: a stack's stacks/resolutions.",
)
@click.option("--output", type=click.Path(path_type=Path), metavar="DIR", help="Write the carried patches there.")
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
    as_json: bool,
    patches: tuple[Path, ...],
) -> None:
    """Tell for each PATCH file what would become of it on another revision; a file may hold several mails.

    clean, moved (at other lines), landed (a commit on the way brought it, under whatever name), partly-landed (what is left is
    carried), resolved (a conflict that was none), relocated (the code moved), drifted (applies, and is wrong), dropped-upstream
    (upstream had it and took it out again), conflict. Each with its evidence: the commits that brought or broke it. The
    repository is only read. Exit code 1 when a patch needs a person.
    """

    options: Options = context.obj
    span = triage.Range(base, onto, through_names(through))
    known = _known(resolutions) if resolutions is not None else None
    if output is not None:
        triage.require_empty(output)
    with options.usable_cache() as home:
        found = triage.triage(repo, span, patches, cache=home, independent=independent, resolutions=known)
    if output is not None:
        triage.write(output, found)
    if as_json:
        print_json(_as_json(found))
    else:
        rows = [line for row in found.rows for line in outcome_rows(row.name, row.carried)]
        print_table(("patch", "outcome", ""), rows, colour=COLOURS.get)
    context.exit(1 if any(row.carried.needs_person for row in found.rows) else 0)


def _known(folder: Path) -> Resolutions:

    if not folder.is_dir():
        raise StackError(f"{folder} is no folder", "name a stack's stacks/resolutions")
    return Resolutions.load(folder)


def _as_json(found: Triage) -> dict[str, object]:
    return {
        "base": found.base,
        "onto": found.onto,
        "rungs": [{"name": rung.name, "commit": rung.commit} for rung in found.rungs],
        "patches": [{"file": str(row.file), "mail": row.mail, **outcome_json(row.carried)} for row in found.rows],
    }
