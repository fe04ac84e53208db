# SPDX-License-Identifier: Apache-2.0
"""`stack refresh`: the commits of a working tree back into patch files."""

from pathlib import Path

import click

from stack.carry import worktree
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, print_json, source_option
from stack.model import switch


@click.command("refresh")
@click.argument("upstream")
@click.argument("directory", type=click.Path(path_type=Path), required=False)
@click.option("--dry-run", is_flag=True, help="Say what would change, write nothing.")
@json_option
@source_option
@click.pass_obj
def command(options: Options, upstream: str, directory: Path | None, dry_run: bool, as_json: bool, source: str) -> None:
    """Write the commits of DIRECTORY (made by `stack checkout`) back as the patches of UPSTREAM.

    A commit that did not change keeps its file's bytes; a new one becomes a patch of the series that its trailer names; one
    that is gone takes its patch along. Uncommitted changes and commits without a series are refused. `stack undo` takes it back.

    Without DIRECTORY, write the files that patches have in folders of the stack (`from` in series.toml) into these patches.
    """

    with options.place(source) as place, Stores(options.load(writes=not dry_run), place) as stores:
        title = f"refresh {upstream}"
        if directory is None:
            found = worktree.refresh_from_sources(stores, upstream)
            if not dry_run:
                switch.apply(stores.stack.root, found.files, title=title, expected=found.expected)
        else:
            found = worktree.refresh(stores, upstream, directory)
            if not dry_run:
                worktree.write_back(stores.stack, directory, found, title=title)
    groups = {name: [ref.path for ref in getattr(found, name)] for name in ("kept", "changed", "added", "dropped")}
    if as_json:
        print_json({"upstream": upstream, "written": not dry_run, **groups})
        return
    for name in ("changed", "added", "dropped"):
        for path in groups[name]:
            click.echo(f"{name:8} {path}")
    click.echo(", ".join(f"{len(paths)} {name}" for name, paths in groups.items()) + (" (dry run)" if dry_run else ""))
