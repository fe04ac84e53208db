# SPDX-License-Identifier: Apache-2.0
"""`stack watch`: the night's work for a fork, its workflow, and its state."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stack.cli.common import Options, interpreter, json_option, print_json, progress, source_option
from stack.cli.completing import complete_upstreams
from stack.cli.sentences import tell

if TYPE_CHECKING:
    from stack.carry.forecast import Forecast
    from stack.forge.services import Service
    from stack.forge.threads import Threads
    from stack.model.stack import Stack
    from stack.watch.own_repository import OwnRepository

_RUNS = 30
"""Runs of the workflow that `status` looks at."""

_remote_option = click.option(
    "--remote",
    default="origin",
    show_default=True,
    metavar="NAME",
    help="The remote of the stack's git that is your repository.",
)
_lanes_option = click.option(
    "--lane",
    "lane",
    multiple=True,
    metavar="NAME",
    help="A lane that gets a pull request, too; repeat it for several. Default: only main.",
)
_all_lanes_option = click.option("--all-lanes", is_flag=True, help="Every lane gets a pull request.")
_python_option = click.option(
    "--python",
    type=click.Path(path_type=Path),
    callback=interpreter,
    metavar="FILE",
    help="Run the proofs with this interpreter. Default: an environment in the cache.",
)


def _forge_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name the kind of forge; the parameter is `named`."""
    titles = {"forgejo": "Forgejo", "gitlab": "GitLab", "github": "GitHub"}
    for name, title in titles.items():
        verb = click.option(f"--{name}", "named", flag_value=name, default=None, help=f"Your repository is at a {title}.")(verb)
    return verb


@click.group("watch")
def command() -> None:
    """Carry the stack to new releases every night; keep an issue for each upstream, and a draft pull request for a new release.

    `init` writes the workflow into your repository, `run` does the night's work, and `status` says when it last ran. The forge is
    GitHub, GitLab or Forgejo: it is found by the host of your repository, by an option, or by git's setting `stack.forge`.
    """


@command.command(short_help="Carry the stack once, and write what was found.")
@click.argument("upstream", nargs=-1, shell_complete=complete_upstreams)
@_remote_option
@_forge_options
@click.option("--dry-run", is_flag=True, help="Show what would be written first, and write nothing.")
@_lanes_option
@_all_lanes_option
@click.option("--prove", is_flag=True, help="Run the proofs on the release of the pull request.")
@click.option(
    "--proofs",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Take the results of the proofs from a file of `stack watch prove`.",
)
@_python_option
@json_option
@source_option
@click.pass_context
def run(
    context: click.Context,
    upstream: tuple[str, ...],
    remote: str,
    named: str | None,
    dry_run: bool,
    lane: tuple[str, ...],
    all_lanes: bool,
    prove: bool,
    proofs: Path | None,
    python: Path | None,
    as_json: bool,
    source: str | None,
) -> None:
    """Carry each lane to upstream's newest release and to its main branch, and write what was found to your repository.

    It works on the default branch as your forge has it, not on this checkout. Each upstream gets one issue, which is updated in place. A
    release that takes all patches gets one draft pull request. The labels `hold` and `retry` on an issue or a pull request steer it.
    Exit code 1 if a patch needs a person, 2 if an upstream could not be examined.
    """
    from stack.cli.watching import showing  # noqa: PLC0415
    from stack.watch import own_repository, proof_file, running  # noqa: PLC0415

    if python is not None and not prove:
        raise click.UsageError("--python goes with --prove")
    if proofs is not None and prove:
        raise click.UsageError("--proofs names results, so it does not go with --prove")
    options: Options = context.obj
    root = options.find_root()
    own = own_repository.locate(root, remote)
    taken = proof_file.ProofFile(proofs) if proofs is not None else None
    with options.place(source) as place, _forge(own, root, named) as (_, forge):
        order = running.Order(upstream, datetime.now(UTC), dry_run, prove, python, taken, lane, all_lanes)
        watched = []
        for each in running.run(own, forge, place, order, _report):
            watched.append(each)
            if not as_json:
                showing.print_watched(each, dry_run=dry_run)
    for each in watched:
        if each.problem is not None:
            tell(f"{each.upstream}: {each.problem}")
    if as_json:
        results = [showing.watched_json(each) for each in watched]
        print_json({"repository": own.repository.shown, "dry_run": dry_run, "upstreams": results})
    failed = any(each.problem is not None for each in watched)
    context.exit(2 if failed else 1 if any(each.night and each.night.needs_person for each in watched) else 0)


@command.command(short_help="Run the proofs on the newest release, without a forge and without a token.")
@click.argument("upstream", nargs=-1, shell_complete=complete_upstreams)
@_lanes_option
@_all_lanes_option
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the results here, for `watch run --proofs`."
)
@_python_option
@json_option
@source_option
@click.pass_obj
def prove(
    options: Options,
    upstream: tuple[str, ...],
    lane: tuple[str, ...],
    all_lanes: bool,
    output: Path | None,
    python: Path | None,
    as_json: bool,
    source: str | None,
) -> None:
    """Carry the commit of this checkout to upstream's newest release that takes all patches, and run the proofs there.

    Nothing is written but the file, and no forge is asked. In the nightly workflow this is a job of its own: it runs upstream's code,
    so it has no token. `stack watch run --proofs FILE` takes the results, if the default branch is still at this commit.
    """
    from stack.cli.watching import showing  # noqa: PLC0415
    from stack.watch import proof_file, running  # noqa: PLC0415

    root = options.find_root()
    order = running.Order(upstream, datetime.now(UTC), python=python, lanes=lane, all_lanes=all_lanes)
    found = []
    with options.place(source) as place:
        for each in running.prove(root, place, order):
            found.append(each)
            if not as_json:
                showing.print_proved(each)
    if output is not None:
        proof_file.write(output, found)
    if as_json:
        print_json(proof_file.content(found))


@command.command(short_help="Show when the nightly run last ran, and how it ended.")
@_remote_option
@_forge_options
@json_option
@click.pass_context
def status(context: click.Context, remote: str, named: str | None, as_json: bool) -> None:
    """Show when the nightly run last ran, how it ended, and how old each issue's date is.

    Exit code 1 if the last run began more than 50 hours ago, or failed, or an upstream has no issue.
    """
    from stack.cli.watching import showing  # noqa: PLC0415
    from stack.watch import observing, own_repository, plan, workflow_parts  # noqa: PLC0415
    from stack.watch import status as judging  # noqa: PLC0415

    options: Options = context.obj
    root = options.find_root()
    own = own_repository.locate(root, remote)
    with _forge(own, root, named) as (service, forge):
        names = observing.upstreams(options.load(), ())
        runs = forge.runs(workflow_parts.NAME, _RUNS)
        issues = forge.issues(plan.LABEL)
        found = judging.standing(runs, lambda name: plan.find_issue(issues, name, forge.trusts), names, datetime.now(UTC))
    if as_json:
        print_json(showing.standing_json(own, service, found))
    else:
        showing.print_standing(own, found)
    context.exit(1 if found.needs_person else 0)


@command.command()
@_remote_option
@_forge_options
@click.option(
    "--runner",
    multiple=True,
    metavar="LABEL",
    help="Label of the runner, such as self-hosted; repeat it for several. Default: one that the forge has.",
)
@click.option(
    "--install",
    metavar="SPEC",
    help="What the job installs: a version, https://….whl#sha256=HASH, git+https://…@COMMIT, a .txt file with hashes, or a dot for the "
    "checkout. "
    "Default: this version.",
)
@click.option("--image", metavar="NAME@DIGEST", help="The image of the jobs; with --gitlab only.")
@click.option("--prove", is_flag=True, help="Add a job that runs the proofs. It has no token.")
@click.option("--force", is_flag=True, help="Replace the file if it differs.")
@json_option
@click.pass_obj
def init(
    options: Options,
    remote: str,
    named: str | None,
    runner: tuple[str, ...],
    install: str | None,
    image: str | None,
    prove: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Write the workflow that runs `stack watch run` every night.

    It runs by its schedule and by hand. No pull request starts it, so a stranger's code never runs on your runner. Commit the file and
    push it to your default branch.
    """
    from stack.cli.watching import showing  # noqa: PLC0415
    from stack.watch import forges, workflow  # noqa: PLC0415

    root = options.find_root()
    kind, assumed = forges.kind(root, remote, named)
    written = workflow.write(root, kind, runner=runner, install=install, image=image, prove=prove, force=force)
    if as_json:
        print_json(
            {"path": str(written.path), "forge": kind.value, "changed": written.changed, "include": written.include or None}
        )
    else:
        showing.print_written(written, kind.value)
        if assumed:
            tell(f"{assumed}, so this is for GitHub; for another one: --gitlab or --forgejo")


@contextlib.contextmanager
def _forge(own: "OwnRepository", root: Path, named: str | None) -> "Iterator[tuple[Service, Threads]]":
    from stack.watch import forges  # noqa: PLC0415

    service = forges.service(own.repository.host, root, named)
    with progress() as told:
        forge = forges.connected(own.repository, service, told)
        try:
            forge.require_token()
            yield service, forge
        finally:
            forge.close()


def _report(stack: "Stack", forecasts: "Sequence[Forecast]") -> str:
    from stack.reporting import collect, history, markdown  # noqa: PLC0415

    made = collect.of_forecasts(stack, forecasts, made=int(time.time()))
    return markdown.render(history.included(made, stack.root, stack.lane))
