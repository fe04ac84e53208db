# SPDX-License-Identifier: Apache-2.0
"""`stack diff`: print what patches change."""

import click

from stack.carry import patch_diffs
from stack.carry.patch_diffs import NamedDiff
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, print_json, source_option
from stack.cli.completing import complete_patches
from stack.cli.rendering import text


@click.command("diff")
@click.argument("name", required=False, metavar="[PATCH|SERIES|UPSTREAM]", shell_complete=complete_patches)
@click.option("--stat", is_flag=True, help="Print only the changed files and how many lines each gains and loses.")
@json_option
@source_option
@click.pass_obj
def command(options: Options, name: str | None, stat: bool, as_json: bool, source: str | None) -> None:
    """Print a patch's diff, the diffs of a series' patches, or everything that changes in UPSTREAM from its pin.

    Without a name: everything that changes, in every upstream. For a patch or a series only patch files are read; otherwise the
    source trees at the pins are needed.
    """

    stack = options.load()
    diffs = patch_diffs.of_patches(stack, name) if name is not None else None
    if diffs is None:
        with options.place(source) as place, Stores(stack, place) as stores:
            diffs = patch_diffs.combined(stores, name)
    if as_json:
        print_json({"diffs": [_as_json(each, stat=stat) for each in diffs]})
    elif stat:
        for each in diffs:
            _print_stat(each)
    else:
        for each in diffs:
            text.diff(each.data)


def _print_stat(diff: NamedDiff) -> None:
    text.echo(text.styled((diff.patch or diff.upstream).removesuffix(".patch"), "bold"))
    for file in diff.files:
        text.echo(f"  {text.one_line(file.path)}  +{file.added} -{file.removed}")


def _as_json(diff: NamedDiff, *, stat: bool) -> dict[str, object]:
    return {
        "upstream": diff.upstream,
        "patch": diff.patch,
        "files": [
            {"path": file.path, "change": file.change, "added": file.added, "removed": file.removed} for file in diff.files
        ],
        "diff": None if stat else diff.data.decode("utf-8", "backslashreplace"),
    }
