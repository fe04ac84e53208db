# SPDX-License-Identifier: Apache-2.0
"""`stack matrix init`: write the files with which a CI or a rented GPU runs the jobs of a stack."""

from pathlib import Path
from typing import Any

import click

from stack.cli.common import Options, json_option, print_json
from stack.cli.matrix_options import IMAGE, RUNNER, choice_of, choice_options, grouped_words, listed_jobs
from stack.cli.sentences import say, tell
from stack.matrix import ci, sky


@click.command("init", short_help="Write a file with which a CI runs the jobs.")
@choice_options
@click.option("--github", "forge", flag_value="github", default="github", help="A reusable workflow of GitHub (default).")
@click.option("--gitlab", "forge", flag_value="gitlab", help="A template of GitLab.")
@click.option(
    "--sky",
    "gpu",
    metavar="GPU",
    help="A task of SkyPilot that runs the archive of `stack validate pack --gpu GPU` on a rented one: sm90.",
)
@click.option(
    "--runner",
    multiple=True,
    metavar="LABEL",
    help=f"With --github: a label of the runner for jobs that need no hardware; repeatable. Default: {RUNNER}.",
)
@click.option("--image", default=IMAGE, show_default=True, help="With --gitlab: the container for jobs that need no hardware.")
@click.option(
    "--gate",
    "gates",
    multiple=True,
    metavar="NAME",
    help="A gate of validation/gates.toml that the collected verdicts have to pass; repeatable.",
)
@click.option("--force", is_flag=True, help="Replace the file if it differs.")
@json_option
@click.pass_obj
def init(
    options: Options,
    /,
    forge: str,
    gpu: str | None,
    runner: tuple[str, ...],
    image: str,
    gates: tuple[str, ...],
    force: bool,
    as_json: bool,
    **choice: Any,
) -> None:
    """Write the file with which a CI runs the jobs, one machine for each.

    It runs nothing on hardware of your own for a pull request: a stranger's code would run there. At the end, `stack verdict require`
    judges the verdicts by each --gate. Commit the file, and call it from a workflow of yours.
    """
    if gpu is not None:
        path, changed = sky.write(options.find_root(), gpu, force=force)
        _print_written(path, changed, "run the commands in its first lines", as_json=as_json)
        return
    _, listed = listed_jobs(options, choice)
    if (listed.grouped or 1) > choice["group"] and not as_json:
        tell(grouped_words(listed))
    if not listed.jobs and not as_json:
        tell("the stack has no job yet; to see why: stack matrix")
    plan = ci.Plan(choice_of(choice), runner or (RUNNER,), image, gates)
    written = ci.write(options.find_root(), ci.Forge(forge), plan, force=force)
    _print_written(written.path, written.changed, "commit it, and call it as its first lines show", as_json=as_json)


def _print_written(path: Path, changed: bool, then: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"path": str(path), "changed": changed})
    elif changed:
        say(f"wrote {path}")
        say(f"next: {then}")
    else:
        say(f"{path} is up to date")
