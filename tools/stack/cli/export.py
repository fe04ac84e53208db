# SPDX-License-Identifier: Apache-2.0
"""`stack export`: write the patches for quilt, for `git am`, or as a branch."""

from pathlib import Path

import click

from stack.base.text import counted
from stack.carry.exporting import branch as branches
from stack.carry.exporting import files
from stack.carry.exporting.branch import BranchState, Exported, Target
from stack.carry.exporting.files import Form, Written
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, one_line, print_json, source_option
from stack.cli.completing import complete_upstreams
from stack.cli.lane_options import lane_option
from stack.cli.sentences import fact, say

_NEXT: dict[Form, tuple[str, str]] = {
    "quilt": ("in the source tree:", "QUILT_PATCHES={place} quilt push -a"),
    "am": ("on {base}:", "git am --keep-cr --keep-non-patch {place}/*.patch"),
    "mbox": ("on {base}:", "git am --keep-cr --keep-non-patch {place}"),
}


@click.command("export")
@click.argument("upstream", shell_complete=complete_upstreams)
@click.option("--quilt", type=click.Path(path_type=Path), metavar="DIR", help="A folder for quilt: `series` and patch files.")
@click.option("--am", type=click.Path(path_type=Path), metavar="DIR", help="A folder of numbered mails for `git am`.")
@click.option("--mbox", type=click.Path(path_type=Path), metavar="FILE", help="One mailbox for `git am`.")
@click.option("--branch", metavar="NAME", help="A branch with one commit per patch; needs --to.")
@click.option("--to", metavar="CLONE|REMOTE", help="With --branch: your clone's folder, or an address to push to.")
@click.option(
    "--force-with-lease",
    "over",
    metavar="COMMIT",
    help="With --branch: replace the branch although it is not from here, if it is at this commit.",
)
@click.option("--plain", is_flag=True, help="Leave out the trailers Stack-Series and Stack-Patch.")
@lane_option
@json_option
@source_option
@click.pass_context
def command(
    context: click.Context,
    upstream: str,
    quilt: Path | None,
    am: Path | None,
    mbox: Path | None,
    branch: str | None,
    to: str | None,
    over: str | None,
    plain: bool,
    as_json: bool,
    source: str | None,
) -> None:
    """Write the patches of UPSTREAM for other tools. Nothing that exists is overwritten.

    Trailers in each message name its series and patch file, so that `stack import` makes the same stack of it. A branch is replaced
    only where an earlier export put it. Otherwise it is refused with exit code 1, unless --force-with-lease names its commit.
    """

    options: Options = context.obj
    places: dict[Form, Path | None] = {"quilt": quilt, "am": am, "mbox": mbox}
    given = [(form, place) for form, place in places.items() if place is not None]
    if len(given) + (branch is not None) != 1:
        raise click.UsageError("name one of --quilt DIR, --am DIR, --mbox FILE and --branch NAME")
    if (branch is None) != (to is None) or (over is not None and branch is None):
        raise click.UsageError("--branch NAME and --to CLONE|REMOTE go together, and --force-with-lease goes with them")
    with options.place(source) as place, Stores(options.load(), place) as stores:
        if branch is None or to is None:
            [(form, target)] = given
            written = files.export(stores, upstream, form, target, plain=plain)
            _print_files(stores, upstream, form, target, written, as_json=as_json)
            return
        exported = branches.export(stores, upstream, Target(branch, to, over), plain=plain)
    _print_branch(upstream, exported, options.lane_key, as_json=as_json)
    context.exit(1 if exported.state is BranchState.REFUSED else 0)


def _print_files(stores: Stores, upstream: str, form: Form, place: Path, written: Written, *, as_json: bool) -> None:
    if as_json:
        patches = [{"series": ref.series, "file": ref.file, "name": name} for ref, name in written.names.items()]
        needs_git = [ref.path for ref in written.needs_git]
        document = {"lane": stores.stack.lane, "upstream": upstream, "form": form, "place": str(place), "base": written.base}
        print_json(document | {"patches": patches, "needs_git": needs_git})
        return
    fact(f"{place}: {counted(len(written.names), 'patch')} of {upstream} on {stores.stack.pins.get(upstream).shown}")
    if form == "quilt":
        for ref in written.needs_git:
            say(f"only git can apply {ref.path}: it changes a binary file or a submodule")
    where, command = (text.format(place=place.resolve(), base=stores.stack.pins.get(upstream).shown) for text in _NEXT[form])
    say(where, command)


def _print_branch(upstream: str, exported: Exported, lane: str | None, *, as_json: bool) -> None:
    chain, state = exported.chain, exported.state.value
    if as_json:
        commits = [
            {"series": patch.ref.series, "file": patch.ref.file, "commit": commit}
            for patch, commit in zip(chain.patches, chain.commits, strict=True)
        ]
        document: dict[str, object] = {
            "lane": lane,
            "upstream": upstream,
            "branch": exported.branch,
            "to": exported.where,
            "state": state,
        }
        document |= {"base": chain.base, "head": chain.tip, "before": exported.before, "reason": exported.reason or None}
        print_json(document | {"patches": commits}, "export-branch")
        return
    if exported.state is BranchState.REFUSED:
        say(one_line(f"refused: {exported.reason}"))
        return
    was = f", was {exported.before[:12]}" if exported.before and exported.before != chain.tip else ""
    fact(f"{exported.where}: {exported.branch} is {state}: {counted(len(chain.commits), 'commit')}, {chain.tip[:12]}{was}")
