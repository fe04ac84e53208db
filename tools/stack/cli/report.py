# SPDX-License-Identifier: Apache-2.0
"""`stack report`: show the stack, or a planned rebase, as a page, as Markdown or as JSON."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stack.carry.rebase import Request, rebase
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, print_json, source_option, through_names
from stack.cli.completing import complete_tags, complete_upstreams
from stack.reporting import formats, history, markdown
from stack.reporting.collect import of_rebase, of_stack

if TYPE_CHECKING:
    from stack.reporting.report import Report


@click.command("report")
@click.argument("upstream", required=False, shell_complete=complete_upstreams)
@click.option(
    "--onto",
    "tag",
    metavar="REV",
    help="Also show what would become of UPSTREAM's patches on this release.",
    shell_complete=complete_tags,
)
@click.option(
    "--through",
    metavar="auto|TAG,...",
    default="auto",
    show_default=True,
    help="With --onto: carry over these releases one by one; auto: all between.",
)
@click.option("--html", "page", type=click.Path(path_type=Path), metavar="FILE", help="Write one HTML page to FILE.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown, for a pull request or a job summary (default).")
@json_option
@source_option
@click.pass_context
def command(
    context: click.Context,
    upstream: str | None,
    tag: str | None,
    through: str,
    page: Path | None,
    as_markdown: bool,
    as_json: bool,
    source: str | None,
) -> None:
    """Show series, what needs what, ages, lines over time, and what landed; with --onto, every patch at every release.

    Without --onto, this needs no network. Nothing of the stack is changed. The HTML page is one file that loads nothing and runs
    no script. `stack rebase`, `triage`, `forecast` and `import` write the same with --report FILE. Exit code 1 if a patch would need a
    person.
    """

    options: Options = context.obj
    if (page is not None) + as_markdown + as_json > 1:
        raise click.UsageError("choose one of --html, --markdown and --json")
    if (upstream is None) != (tag is None):
        raise click.UsageError("name both an upstream and --onto REV, or neither")
    if page is not None:
        formats.check(page, (".html", ".htm"))
    made = _made(options, upstream, tag, through, source)
    if page is not None:
        formats.write(page, made)
        click.echo(f"wrote {page}")
    elif as_json:
        print_json(formats.as_json(made))
    else:
        click.echo(markdown.render(made), nl=False)
    context.exit(1 if made.open else 0)


def _made(options: Options, upstream: str | None, tag: str | None, through: str, source: str | None) -> "Report":
    stack = options.load()
    now = int(time.time())
    if upstream is None or tag is None:
        return history.included(of_stack(stack, made=now), stack.root, stack.lane)
    with options.place(source) as place, Stores(stack, place) as stores:
        request = Request(upstream, stores.resolve(upstream, tag), through=through_names(through))
        return history.included(of_rebase(rebase(stores, request), made=now), stack.root, stack.lane)
