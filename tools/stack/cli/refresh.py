# SPDX-License-Identifier: Apache-2.0
"""`stack refresh`: write the commits of a working tree back into patch files."""

from dataclasses import replace
from pathlib import Path

import click

from stack.carry import person, worktree
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, print_json, source_option
from stack.cli.completing import complete_upstreams
from stack.cli.lane_options import lane_option
from stack.model import lanes


@click.command("refresh")
@click.argument("upstream", shell_complete=complete_upstreams)
@click.argument("directory", type=click.Path(path_type=Path), required=False)
@click.option("--dry-run", is_flag=True, help="Show what would change; write nothing.")
@click.option("--signoff", is_flag=True, help="Add your Signed-off-by to every patch that nobody has signed off.")
@lane_option
@click.option(
    "--all-lanes", is_flag=True, help="Lanes that use the same patch files change with them. Default: they keep what they have."
)
@json_option
@source_option
@click.pass_obj
def command(
    options: Options,
    upstream: str,
    directory: Path | None,
    dry_run: bool,
    signoff: bool,
    all_lanes: bool,
    as_json: bool,
    source: str | None,
) -> None:
    """Write the commits of DIRECTORY (made by `stack checkout`) back as the patches of UPSTREAM.

    An unchanged commit keeps its file's bytes. A new one becomes a patch of the series named in its trailer. A removed one removes
    its patch. Uncommitted changes and commits without a series are refused. `stack undo` takes it back.

    The working tree knows its lane. Other lanes keep what they carry, unless --all-lanes is given.

    Without DIRECTORY, update patches from their files in folders of the stack (`from` in series.toml), or sign off with --signoff.
    The name and address are those of your git configuration. With DIRECTORY, its commits are signed off, too.
    """

    if directory is not None:
        options.find_root(writes=not dry_run)  # a switch that was interrupted is finished before anything is judged
        options = replace(options, lane=worktree.recorded_lane(directory, upstream, options.lane))
    if all_lanes and options.lane_key is not None:
        raise click.UsageError("--all-lanes changes the common files, --lane only those of one lane: choose one")
    loaded = options.load(writes=not dry_run)
    if source is None and directory is not None:
        source = worktree.recorded_source(directory, upstream)
    with options.place(source) as place, Stores(loaded, place) as stores:
        title = f"refresh {upstream}{' --all-lanes' if all_lanes else ''}"
        signer = person.configured(directory or stores.stack.root) if signoff else None
        if directory is None:
            refreshed = (
                worktree.refresh_from_sources(stores, upstream)
                if signer is None
                else worktree.signed_off(stores, upstream, signer)
            )
            if not dry_run:
                lanes.apply(stores.stack, refreshed.files, title=title, expected=refreshed.expected, follow=all_lanes)
        else:
            refreshed = worktree.refresh(stores, upstream, directory, signer=signer)
            if not dry_run:
                worktree.write_back(stores.stack, directory, refreshed, title=title, follow=all_lanes)
    groups = {name: [ref.path for ref in getattr(refreshed, name)] for name in ("kept", "changed", "added", "dropped")}
    if as_json:
        print_json({"lane": options.lane_key, "upstream": upstream, "written": not dry_run, **groups})
        return
    for name in ("changed", "added", "dropped"):
        for path in groups[name]:
            click.echo(f"{name:8} {path}")
    click.echo(", ".join(f"{len(paths)} {name}" for name, paths in groups.items()) + (" (dry run)" if dry_run else ""))
