# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr --preview`: write the first wave as a maintainer would see it, with one page of all."""

import click

from stack.base.text import counted
from stack.cli.common import one_line, print_json
from stack.cli.exporting import Work
from stack.cli.exporting.lint import finding_json
from stack.cli.exporting.plan import counted as lines_of
from stack.reporting import pulls
from stack.upstreaming import preview
from stack.upstreaming.linting import Desk, LintFinding
from stack.upstreaming.preparing import Preparation
from stack.upstreaming.preview import Preview

_TITLE = "Pull requests of the first wave"


def run(work: Work) -> int:
    """Check, write and print; return 1 if a pull request is refused."""
    folder = work.options.preview
    assert folder is not None
    preparation = Preparation(work.stores, work.plans)
    if work.options.tests:
        preparation.record()
    with Desk(work.stores.place.cache, work.stores.tell) as desk:
        made = list(preview.previews(work.stores, preparation, work.plans, work.chosen, desk, tested=work.options.tests))
    waiting = [(proposal.name, ", ".join(proposal.needs)) for proposal in work.chosen if proposal.wave != 1]
    written = preview.write(made, pulls.render(_TITLE, [_pull(each) for each in made], waiting), folder)
    if work.options.as_json:
        print_json(
            {
                "lane": work.lane,
                "page": str(folder / preview.PAGE),
                "written": [str(file) for file in written],
                "pulls": [_as_json(each) for each in made],
                "waiting": [name for name, _ in waiting],
            },
            "export-pr-preview",
        )
    else:
        _print(made, str(folder / preview.PAGE), len(waiting))
    return 1 if any(each.refused for each in made) else 0


def _pull(made: Preview) -> pulls.PullRequest:
    added, removed = lines_of(made.proposal)
    return pulls.PullRequest(
        made.proposal.name,
        made.title,
        made.proposal.branch,
        f"{made.proposal.upstream} {made.proposal.onto}",
        made.body,
        made.diff.decode("utf-8", "replace"),
        added,
        removed,
        tuple(part.patch.subject for part in made.proposal.parts),
        tuple(_row(finding) for finding in made.refused),
        tuple(_row(finding) for finding in made.notes),
    )


def _row(finding: LintFinding) -> tuple[str, str, str]:
    text = f"{finding.problem}: {finding.remedy}" if finding.remedy else finding.problem
    return finding.rule, finding.place, text


def _as_json(made: Preview) -> dict[str, object]:
    added, removed = lines_of(made.proposal)
    return {
        "name": made.proposal.name,
        "title": made.title,
        "branch": made.proposal.branch,
        "added": added,
        "removed": removed,
        "folder": None if made.refused else str(made.folder),
        "refused": [finding_json(finding) for finding in made.refused],
        "notes": [finding_json(finding) for finding in made.notes],
    }


def _print(made: list[Preview], page: str, waiting: int) -> None:
    refused = [each for each in made if each.refused]
    click.echo(
        f"{counted(len(made) - len(refused), 'pull request')} written, {len(refused)} refused, {waiting} wait for another one"
    )
    for each in refused:
        click.echo(f"\n{each.proposal.name} is refused\n{one_line(each.title)}")
        for finding in each.refused:
            rule, place, text = _row(finding)
            click.echo(f"  {rule}: {one_line(place)}: {one_line(text)}")
    click.echo(f"\n{page}")
