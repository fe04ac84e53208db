# SPDX-License-Identifier: Apache-2.0
"""`stack checkout`: write the patches as commits of an ordinary git working tree."""

from pathlib import Path

import click

from stack.base.text import counted
from stack.carry import worktree
from stack.carry.commits import BASE_TAG
from stack.carry.remotes import read
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, print_json, source_option
from stack.cli.completing import complete_upstreams
from stack.cli.sentences import say


@click.command("checkout")
@click.argument("upstream", shell_complete=complete_upstreams)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--remote", "remotes", multiple=True, metavar="NAME=URL", help="Add a remote of yours to the working tree. Repeatable."
)
@json_option
@source_option
@click.pass_obj
def command(
    options: Options, upstream: str, directory: Path, remotes: tuple[str, ...], as_json: bool, source: str | None
) -> None:
    """Make DIRECTORY a git working tree of UPSTREAM with one commit per patch.

    The trailers Stack-Series and Stack-Patch name the patch of a commit. Edit, amend, reorder or drop commits (`git rebase -i
    stack-base`), add some with `git commit --trailer "Stack-Series: NAME"`, then run `stack refresh`. The tag stack-base
    names the commit below them. With the git source, the tags of upstream's releases are there, too.
    """

    given = read(remotes)
    with options.place(source) as place, Stores(options.load(), place) as stores:
        tip = worktree.checkout(stores, upstream, directory, given)
        count = len(stores.stack.order(upstream))
    if as_json:
        print_json({"upstream": upstream, "directory": str(directory), "commits": count, "head": tip})
    else:
        say(f"{directory}: {upstream} with {counted(count, 'commit')} on {BASE_TAG}; `stack refresh` writes them back")
