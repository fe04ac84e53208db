# SPDX-License-Identifier: Apache-2.0
"""The option `--report FILE` of verbs that carry patches."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stack.cli.sentences import tell

if TYPE_CHECKING:
    from stack.carry.forecast import Forecast
    from stack.carry.rebase import Leg, Rebase
    from stack.carry.triage import Triage
    from stack.model.stack import Stack
    from stack.reporting.report import Report


def _checked(_context: click.Context, _option: click.Parameter, file: Path | None) -> Path | None:
    if file is not None:
        from stack.reporting import formats  # noqa: PLC0415  (few calls need it)

        formats.check(file)
    return file


report_option = click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=_checked,
    help="Also write a report: a page (.html), text for a pull request (.md), or data (.json). See `stack report`.",
)


def report_rebase(file: Path | None, work: "Rebase") -> None:
    """Write a report on a rebase if a file was named."""
    if file is not None:
        from stack.reporting import collect, history  # noqa: PLC0415

        _write(file, history.included(collect.of_rebase(work, made=int(time.time())), work.stack.root, work.stack.lane))


def report_forecasts(file: Path | None, stack: "Stack", forecasts: "Sequence[Forecast]") -> None:
    """Write a report on forecasts if a file was named."""
    if file is not None:
        from stack.reporting import collect, history  # noqa: PLC0415

        _write(file, history.included(collect.of_forecasts(stack, forecasts, made=int(time.time())), stack.root, stack.lane))


def report_import(file: Path | None, stack: "Stack", leg: "Leg | None", came_from: str) -> None:
    """Write a report on an import if a file was named; `leg` is the upstream carried to its newest release, if it was."""
    if file is not None:
        from stack.reporting import collect, history  # noqa: PLC0415

        legs = () if leg is None else (leg,)
        report = collect.of_stack(stack, made=int(time.time()), legs=legs, title=f"Import of {came_from}")
        _write(file, history.included(report, stack.root, stack.lane))


def report_triage(file: Path | None, result: "Triage", base: str) -> None:
    """Write a report on a triage if a file was named; `base` is the user's name of the old base."""
    if file is not None:
        from stack.reporting import collect  # noqa: PLC0415

        _write(file, collect.of_triage(result, base=base, made=int(time.time())))


def _write(file: Path, report: "Report") -> None:
    from stack.reporting import formats  # noqa: PLC0415

    formats.write(file, report)
    tell(f"wrote {file}")
