# SPDX-License-Identifier: Apache-2.0
"""`stack refresh`: write the commits of a working tree back into patch files."""

from pathlib import Path

import click

from stack.carry import person, worktree
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, print_json, source_option
from stack.cli.completing import complete_upstreams
from stack.model import switch


@click.command("refresh")
@click.argument("upstream", shell_complete=complete_upstreams)
@click.argument("directory", type=click.Path(path_type=Path), required=False)
@click.option("--dry-run", is_flag=True, help="Show what would change; write nothing.")
@click.option("--signoff", is_flag=True, help="Add your Signed-off-by to every patch that nobody has signed off.")
@json_option
@source_option
@click.pass_obj
def command(
    options: Options,
    upstream: str,
    directory: Path | None,
    dry_run: bool,
    signoff: bool,
    as_json: bool,
    source: str | None,
) -> None:
    """Write the commits of DIRECTORY (made by `stack checkout`) back as the patches of UPSTREAM.

    An unchanged commit keeps its file's bytes. A new one becomes a patch of the series named in its trailer. A removed one removes
    its patch. Uncommitted changes and commits without a series are refused. `stack undo` takes it back.

    Without DIRECTORY, update patches from their files in folders of the stack (`from` in series.toml), or sign off with --signoff.
    The name and address are those of your git configuration. With DIRECTORY, its commits are signed off, too.
    """

    loaded = options.load(writes=not dry_run)
    if source is None and directory is not None:
        source = worktree.recorded_source(directory, upstream)
    with options.place(source) as place, Stores(loaded, place) as stores:
        title = f"refresh {upstream}"
        signer = person.configured(directory or stores.stack.root) if signoff else None
        if directory is None:
            refreshed = (
                worktree.refresh_from_sources(stores, upstream)
                if signer is None
                else worktree.signed_off(stores, upstream, signer)
            )
            if not dry_run:
                switch.apply(stores.stack.root, refreshed.files, title=title, expected=refreshed.expected)
        else:
            refreshed = worktree.refresh(stores, upstream, directory, signer=signer)
            if not dry_run:
                worktree.write_back(stores.stack, directory, refreshed, title=title)
    groups = {name: [ref.path for ref in getattr(refreshed, name)] for name in ("kept", "changed", "added", "dropped")}
    if as_json:
        print_json({"upstream": upstream, "written": not dry_run, **groups})
        return
    for name in ("changed", "added", "dropped"):
        for path in groups[name]:
            click.echo(f"{name:8} {path}")
    click.echo(", ".join(f"{len(paths)} {name}" for name, paths in groups.items()) + (" (dry run)" if dry_run else ""))
