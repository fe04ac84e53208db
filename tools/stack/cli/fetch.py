# SPDX-License-Identifier: Apache-2.0
"""`stack fetch`: download upstream trees into the store."""

from pathlib import Path

import click

from stack.base.errors import StackError
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, print_json, print_table, reference_option, source_option
from stack.cli.completing import complete_tags, complete_upstreams


@click.command("fetch")
@click.argument("upstream", required=False, shell_complete=complete_upstreams)
@click.argument("tags", nargs=-1, metavar="[TAG]...", shell_complete=complete_tags)
@reference_option
@json_option
@source_option
@click.pass_obj
def command(
    options: Options, upstream: str | None, tags: tuple[str, ...], reference: Path | None, as_json: bool, source: str | None
) -> None:
    """Download source trees into the store.

    Without arguments: every pinned upstream. With UPSTREAM: its pinned tag, or the given ones. Trees that are already there are not
    downloaded again.
    """

    if reference is not None and upstream is None:
        raise click.UsageError("--reference is a clone of one upstream: name it")
    stack = options.load()
    names = [upstream] if upstream else [pin.upstream for pin in stack.pins if pin.within is None]
    with options.place(source, kept=True) as place, Stores(stack, place) as stores:
        if upstream is not None and reference is not None and stores.source(upstream) != "git":
            raise StackError(f"the trees of {upstream} come from archives", "add --source git, or leave --reference out")
        trees = [stores.obtain(name, tag, reference=reference) for name in names for tag in (tags or (None,))]
    if as_json:
        fields = ("upstream", "tag", "version", "source", "commit", "tree", "names_commit")
        print_json({"trees": [{name: getattr(tree, name) for name in fields} for tree in trees]})
    else:
        rows = [(tree.upstream, tree.tag, tree.source, tree.tree[:12], (tree.names_commit or "")[:12]) for tree in trees]
        print_table(("upstream", "tag", "from", "tree", "commit"), rows)
