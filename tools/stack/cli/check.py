# SPDX-License-Identifier: Apache-2.0
"""`stack check`: find missing code that the stack relies on."""

from collections.abc import Mapping
from pathlib import Path

import click

from stack.base.text import counted
from stack.carry.check import check
from stack.carry.guards import standing
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, print_table, source_option
from stack.cli.lane_options import all_lanes_option, in_lanes, lane_option
from stack.cli.rendering.guards import guarded_json, print_guards
from stack.cli.sentences import say
from stack.model import lanes


@click.command("check")
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path))
@lane_option
@all_lanes_option
@json_option
@source_option
@click.pass_context
def command(context: click.Context, files: tuple[Path, ...], all_lanes: bool, as_json: bool, source: str | None) -> None:
    """Check that what patches, recipes and compose files rely on exists in the trees at the pins.

    This covers imports, attributes of imported modules, includes, calls, environment variables and flags of `vllm serve`. They are
    read from the sources; nothing is imported or built. The stack's own recipes and compose files are checked (validation/recipes,
    docker); name others as FILE. Guards of code beside the patches are judged, too (`stack guard`). Exit code 1 if something is missing
    or a guard is broken.
    """

    def run(options: Options) -> tuple[int, Mapping[str, object]]:
        with options.place(source) as place, Stores(options.load(), place) as stores:
            findings = check(stores, files)
            guarded = standing.at_pins(stores)
            lane = lanes.option(stores.stack)
            patches = len(stores.stack.patches)
        if not as_json and findings:
            print_table(
                ("from", "place", "problem"), [(finding.source, finding.place, finding.problem) for finding in findings]
            )
        elif not as_json and not any(each.needs_person for each in guarded):
            say(f"in order: everything that {counted(patches, 'patch relies', 'patches rely')} on exists")
        if not as_json:
            print_guards(guarded, lane)
        broken = any(each.needs_person for each in guarded)
        fields = ("source", "upstream", "path", "line", "problem")
        listed = [{name: getattr(finding, name) for name in fields} for finding in findings]
        document = {
            "clean": not findings and not broken,
            "findings": listed,
            "guards": [guarded_json(each) for each in guarded],
        }
        return 1 if findings or broken else 0, document

    context.exit(in_lanes(context.obj, all_lanes, as_json, run))
