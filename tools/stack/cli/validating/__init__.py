# SPDX-License-Identifier: Apache-2.0
"""The verbs of `stack validate`, one module each, and their shared code: options, and running a suite to its verdict."""

from collections.abc import Callable, Iterable
from pathlib import Path

import click

from stack.base.text import counted
from stack.cli.common import json_option, print_json, progress
from stack.cli.verdict import print_cases
from stack.model import digest
from stack.model import verdict as verdicts
from stack.model.stack import Stack
from stack.model.verdict import Outcome, Verdict
from stack.validation import suite as suites
from stack.validation.suite import Suite, ValidatedSubject

FOLDER = Path(".stack/verdicts")
"""Default folder of verdicts, below the stack."""

_KEPT = (FOLDER, Path("validation/verdicts"))
"""Where --stale looks for verdicts, below the stack."""

_OPTIONS = (
    click.option("--only", multiple=True, metavar="GLOB", help="Run only cases with matching names; repeatable."),
    click.option(
        "--resume",
        is_flag=True,
        help="Keep the finished cases of an earlier run of the same stack on this machine; run the rest. Other verdicts are refused.",
    ),
    click.option(
        "--stale",
        is_flag=True,
        help="Skip each case that passed in an earlier verdict (.stack/verdicts, validation/verdicts) with the same inputs; run the rest. "
        "The verdict goes to a new file VERB-DIGEST.json.",
    ),
    click.option(
        "--out", type=click.Path(path_type=Path, dir_okay=False), help=f"The verdict's file. Default: {FOLDER}/VERB.json."
    ),
    json_option,
)


def suite_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every suite: `only`, `resume`, `stale`, `out`, `as_json`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def look_ahead(
    stack: Stack,
    name: str,
    names: Iterable[str],
    *,
    only: tuple[str, ...],
    resume: bool,
    stale: bool,
    out: Path | None,
    as_json: bool,  # noqa: ARG001 (one of the options of every suite)
) -> None:
    """Refuse before preparing a suite what `conclude` would refuse later. `names`: see `stack.validation.suite.look_ahead`."""

    suites.look_ahead(stack, suites.RunOptions(_target(stack, name, out, stale=stale, resume=resume), only, resume), names)


def conclude(
    context: click.Context,
    stack: Stack,
    suite: Suite,
    name: str,
    *,
    only: tuple[str, ...],
    resume: bool,
    stale: bool,
    out: Path | None,
    as_json: bool,
    subject: ValidatedSubject | None = None,
    after: Callable[[Verdict], str] | None = None,
) -> None:
    """Run a suite, show progress and a table of its cases, write the verdict, and exit: with 1 if a case failed.

    `stack` must be the one that the suite was made from, since the verdict names it. `after` is called with the verdict; its result
    is printed below the table.
    """

    subject = subject or suites.ValidatedSubject()
    target = _target(stack, name, out, stale=stale, resume=resume)
    standing = _standing(stack, name, target, subject) if stale else frozenset()
    try:
        with progress() as tell:
            request = suites.RunOptions(target, only, resume, tell, standing)
            verdict = suites.run(stack, suite, subject, request)
    except suites.NothingToRun:
        if as_json:
            print_json({"stale": 0, "standing": sorted(standing)}, "validate-stale")
        else:
            click.echo(f"nothing has fallen out: {counted(len(standing), 'case stands', 'cases stand')}")
        context.exit(0)
    summary = after(verdict) if after is not None else ""
    if as_json:
        print_json({"verdict": verdicts.as_json(verdict)})
    else:
        print_cases(verdict.cases)
        click.echo("\n".join(filter(None, (summary, f"verdict: {target}"))))
    context.exit(1 if any(case.outcome is Outcome.FAILED for case in verdict.cases) else 0)


def _standing(stack: Stack, name: str, target: Path, subject: ValidatedSubject) -> frozenset[str]:
    """Return the cases of a suite that passed in an earlier verdict for the same subject, with unchanged inputs."""
    from stack.validation import standing  # noqa: PLC0415  (needs what every suite is made of, for --stale only)

    files = [file for place in _KEPT for file in standing.files(stack.root / place) if file != target]
    return standing.names(stack, verdicts.load_files(files)[0], name, subject)


def _target(stack: Stack, name: str, out: Path | None, *, stale: bool, resume: bool) -> Path:
    """Return the path of a suite's verdict; with `stale`, a new file beside the verdicts whose cases still count."""
    if out is not None or not stale:
        return out or stack.root / FOLDER / f"{name}.json"
    from stack.validation import standing  # noqa: PLC0415  (see `_standing`)

    target = stack.root / FOLDER / f"{name}-{digest.of(stack)[:12]}.json"
    return standing.newest(target) if resume else standing.free(target)
