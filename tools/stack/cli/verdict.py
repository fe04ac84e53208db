# SPDX-License-Identifier: Apache-2.0
"""`stack verdict`: show the results of validations, and judge whether they suffice for a release."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.decorators import FC

from stack.base.text import counted
from stack.cli.common import Options, json_option, print_json, print_table, source_option
from stack.model import verdict
from stack.model.verdict import Case, Outcome, Verdict, case_json
from stack.validation.numerics import NOT_COMPILED

if TYPE_CHECKING:
    from stack.validation.gates import Judgement, Standing
    from stack.validation.verdict_diff import Difference
    from stack.validation.verdict_table import Row

COLOURS = {"passed": "green", "failed": "bold red", "not-run": "yellow"}
_ALIKE = 3
"""Parts of a name, such as kernels/moe/marlin, that group cases: those not run for the same reason share a row."""
_WHOLE = 10**9
"""Smaller whole numbers are shown with all digits."""
files_argument = click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path, exists=True, dir_okay=False)
)


def _file(name: str, metavar: str) -> Callable[[FC], FC]:
    return click.argument(name, metavar=metavar, type=click.Path(path_type=Path, exists=True, dir_okay=False))


@click.group("verdict")
def command() -> None:
    """Show and compare the verdicts of `stack validate`, and require them for a release."""


@command.command("show", short_help="Show verdicts and their cases.")
@files_argument
@json_option
def show(files: tuple[Path, ...], as_json: bool) -> None:
    """Show verdicts: stack, machine, versions, and every case with its numbers. --json also lists each case that was not run."""

    verdicts = [(file, verdict.load(file)) for file in files]
    if as_json:
        print_json({"verdicts": [{"file": str(file), **verdict.as_json(each)} for file, each in verdicts]})
        return
    for place, (_, each) in enumerate(verdicts):
        if place:
            click.echo()
        print_verdict(each)


def print_verdict(read: Verdict) -> None:
    """Print a verdict: the subject and the machine, a table of the cases, and counts of outcomes."""
    machine = read.machine
    click.echo(f"stack {read.stack}")
    if read.image is not None:
        click.echo(f"image {read.image}")
    click.echo(f"pins {', '.join(f'{name} {pin.tag or pin.commit[:12]}' for name, pin in read.pins.items())}")
    click.echo(f"{read.made} on {machine.cpu}, {machine.cores} cores, {machine.memory / 1e9:.0f} GB, {machine.system}")
    for gpu in machine.gpus:
        click.echo(f"GPU {gpu.name} (compute capability {gpu.capability}), driver {gpu.driver}, CUDA {machine.cuda}")
    click.echo(", ".join(f"{name} {version}" for name, version in read.versions.items()))
    if read.recipe or read.weights:
        click.echo(f"recipe {read.recipe or '-'}, weights {read.weights or '-'}")
    print_cases(read.cases)
    if not read.whole:
        click.echo("the run did not come to its end: --resume continues it")


def print_cases(cases: Sequence[Case]) -> None:
    """Print a table of cases and counts of outcomes; cases not run for the same reason share rows at the end."""

    ran = [case for case in cases if case.outcome is not Outcome.NOT_RUN]
    rows = [row for case in ran for row in _rows(case)]
    rows += [row for some in _alike([case for case in cases if case.outcome is Outcome.NOT_RUN]) for row in _not_run(some)]
    print_table(("case", "outcome", "seconds", ""), rows, colour=COLOURS.get)
    ended = {outcome: sum(case.outcome is outcome for case in cases) for outcome in Outcome}
    click.echo(", ".join(f"{count} {outcome}" for outcome, count in ended.items() if count))
    for unseen, count in Counter(str(case.measured[NOT_COMPILED]) for case in ran if NOT_COMPILED in case.measured).items():
        click.echo(f"{count} cases ran kernels on the CPU; {NOT_COMPILED}: {unseen}")


def _rows(case: Case) -> Iterator[tuple[str, str, str, str]]:
    lines = [*case.why.splitlines()]
    # The single runs behind a mean are shown by --json only.
    # The files that a CPU does not compile are the same for each case: they stand once, below the table.
    shown = {name: value for name, value in case.measured.items() if not name.endswith(" runs") and name != NOT_COMPILED}
    numbers = ", ".join(f"{name} {_number(value)}" for name, value in shown.items())
    if numbers:
        lines.append(numbers + (f" (bar {_number(case.bar)})" if case.bar is not None else ""))
    if case.margins:
        lines.append("margins " + ", ".join(f"{name} {_number(value)}" for name, value in case.margins.items()))
    first, *rest = lines or [""]
    yield case.name, case.outcome.value, f"{case.seconds:.1f}", first
    for line in rest:
        yield "", "", "", line


def _alike(cases: Sequence[Case]) -> list[list[Case]]:
    """Group cases by the beginning of their name and their reason, in order of appearance."""
    groups: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        groups.setdefault((*case.name.split("/")[:-1][:_ALIKE], case.why), []).append(case)
    return list(groups.values())


def _not_run(cases: Sequence[Case]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the row of one case, or of a group: `kernels/moe/marlin/*`."""
    first, *others = cases
    reason, *rest = first.why.splitlines()
    name = f"{'/'.join(first.name.split('/')[:-1][:_ALIKE])}/*" if others else first.name
    yield name, first.outcome.value, "", f"{counted(len(cases), 'case')}: {reason}" if others else reason
    for line in rest:
        yield "", "", "", line


def _number(value: float | str | None) -> str:
    if not isinstance(value, int | float):
        return value or "-"
    return f"{value:.0f}" if value == round(value) and abs(value) < _WHOLE else f"{value:.4g}"


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


@command.command("diff", short_help="Compare a verdict with an earlier one.")
@_file("before", "A")
@_file("after", "B")
@json_option
@click.pass_context
def diff(context: click.Context, before: Path, after: Path, as_json: bool) -> None:
    """Compare verdict B with the earlier verdict A: their subjects, and the outcomes of their cases.

    Exit code 1 if a case that passed in A did not pass in B.
    """

    from stack.validation import verdict_diff  # noqa: PLC0415  (`show` and the suites, which print cases, do without)

    difference = verdict_diff.between(verdict.load(before), verdict.load(after))
    if as_json:
        print_json(_difference_json(difference))
    else:
        _print_difference(difference)
    context.exit(1 if difference.lost else 0)


def _print_difference(difference: "Difference") -> None:
    for name, (was, now) in difference.subject.items():
        click.echo(f"{name}: {_short(was)} -> {_short(now)}")
    rows = []
    for change in difference.cases:
        was, now = (case.outcome.value if case else "-" for case in (change.before, change.after))
        numbers = [f"{name} {_number(old)} -> {_number(new)}" for name, old, new in change.numbers()]
        why = change.after.why.splitlines()[:1] if change.after else []
        rows.append((change.name, change.way.value, was, now, "; ".join([*why, *numbers])))
    if rows:
        print_table(("case", "", "A", "B", ""), rows, colour={"lost": "bold red", "won": "green"}.get)
    elif not difference.subject:
        click.echo("no difference")


def _difference_json(difference: "Difference") -> dict[str, object]:

    return {
        "lost": difference.lost,
        "subject": {name: {"before": was, "after": now} for name, (was, now) in difference.subject.items()},
        "cases": [
            {
                "name": change.name,
                "way": change.way.value,
                "before": case_json(change.before) if change.before else None,
                "after": case_json(change.after) if change.after else None,
            }
            for change in difference.cases
        ],
    }


@command.command("sign", short_help="Sign a verdict with an OpenSSH key.")
@_file("file", "FILE")
@click.option(
    "--key", type=click.Path(path_type=Path), required=True, help="OpenSSH key: a private one, or an agent's public one."
)
@json_option
def sign(file: Path, key: Path, as_json: bool) -> None:
    """Sign a verdict with an OpenSSH key (ssh-keygen -Y); the signature is FILE.sig."""

    verdict.load(file)
    from stack.validation import signing  # noqa: PLC0415  (see `diff`)

    signature = signing.sign(file, key)
    if as_json:
        print_json({"signature": str(signature)})
    else:
        click.echo(f"signed: {signature}")


@command.command("table", short_help="Show verdicts as one table.")
@click.argument("files", nargs=-1, metavar="[FILE...]", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--markdown", is_flag=True, help="Print the table in Markdown, as the README has it.")
@click.option("--speeds", is_flag=True, help="Leave out verdicts in which no server's speed was measured.")
@click.option("--newest", is_flag=True, help="Show only the newest verdict of each server on each machine.")
@click.option("--server", "servers", multiple=True, metavar="TITLE", help="Show only this server; may be repeated.")
@json_option
@click.pass_obj
def table(
    options: Options,
    files: tuple[Path, ...],
    markdown: bool,
    speeds: bool,
    newest: bool,
    servers: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show verdicts as one table: machine, server, stack, date, tokens per second, and what passed. Default: all kept verdicts."""

    from stack.validation import verdict_table  # noqa: PLC0415  (see `diff`)

    kept = [] if files else sorted((options.find_root() / "validation/verdicts").rglob("*.json"))
    found = verdict_table.rows(verdict.load_file(file) for file in files or kept)
    found = [row for row in found if (row.speeds or not speeds) and (not servers or row.title in servers)]
    found = verdict_table.newest(found) if newest else found
    if as_json:
        print_json({"rows": [_row_json(row) for row in found]})
    elif markdown:
        click.echo(verdict_table.markdown(found), nl=False)
    elif found:
        contexts = verdict_table.contexts(found)
        head = ("machine", "stack", "date", *(f"after {context}" for context in contexts), "server")
        print_table(head, [_table_row(row, contexts) for row in found])
    else:
        click.echo("no verdict is kept")


def _table_row(row: "Row", contexts: Sequence[int]) -> tuple[str, ...]:
    speeds = (f"{row.speeds[context]:.1f}" if context in row.speeds else "-" for context in contexts)
    return row.machine, row.stack[:8], row.date[:10], *speeds, ": ".join(filter(None, (row.title, row.proof)))


def _row_json(row: "Row") -> dict[str, object]:
    return {
        "file": str(row.file),
        "machine": row.machine,
        "stack": row.stack,
        "pins": dict(row.pins),
        "made": row.date,
        "server": row.server or None,
        "title": row.title or None,
        "weights": row.weights.value if row.weights is not None else None,
        "speeds": {str(context): round(speed, 3) for context, speed in row.speeds.items()},
        "passed": row.passed,
        "ran": row.ran,
        "suites": list(row.suites),
    }


@command.command("require", short_help="Judge whether verdicts pass a gate.")
@files_argument
@click.option("--gate", required=True, help="The gate's name in validation/gates.toml, which lists what a release needs.")
@click.option(
    "--signers",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Require each verdict to be signed by one of these (OpenSSH's allowed_signers).",
)
@click.option("--cases", "each", is_flag=True, help="Show for each case which verdict counts.")
@source_option
@json_option
@click.pass_context
def require(
    context: click.Context,
    files: tuple[Path, ...],
    gate: str,
    signers: Path | None,
    each: bool,
    source: str | None,
    as_json: bool,
) -> None:
    """Judge whether FILES, together, are enough for a release of exactly this stack.

    Exit code 1 if they are not. A case may have failed, not been run, be missing, or miss the bar that this validation sets. A
    verdict may be of another stack, incomplete, edited by hand, or not signed as required. Its pins, versions, machine or date may not
    be those of a validation of this stack.

    A case of an earlier stack counts if its inputs are the same here: the files that it depends on, and the validation's code that
    judged it. The others fell out, and the output names the changed input; `stack validate … --stale` runs them.

    The pinned sources have to be available: a patch that states a false result is refused.
    """
    from stack.carry import effects  # noqa: PLC0415  (half a second: judging needs what every suite is made of)
    from stack.carry.upstream_stores import Stores  # noqa: PLC0415
    from stack.validation import gates  # noqa: PLC0415

    options: Options = context.obj
    stack = options.load()
    with options.place(source) as place, Stores(stack, place) as stores:
        effects.check(stores)
    judgement = gates.judge_files(gates.load(stack.root / gates.FILE, gate), gates.release(stack), files, signers)
    if as_json:
        print_json(_judgement_json(judgement))
    else:
        for problem in judgement.problems:
            click.echo(problem)
        for judged in judgement.standing:
            _print_standing(judged, each=each)
        for count in judgement.counts:
            if count.missed:
                click.echo(f"{count.wanted.names}: missed speed goals (these fail no gate): {count.missed}")
        if not judgement.signed:
            click.echo("no signature was checked: anyone may have written these verdicts (see --signers)")
        click.echo(f"gate {gate}: {'not passed' if judgement.problems else 'passed'}")
    context.exit(1 if judgement.problems else 0)


def _print_standing(judged: "Standing", *, each: bool) -> None:
    """Print how many cases of a verdict count, and which inputs made the others fall out."""
    if judged.fallen:
        click.echo(f"{judged.file}: {len(judged.counts)} of {len(judged.counts) + len(judged.fallen)} cases count")
    reasons = [str(fall) for fall in judged.fallen.values()]
    for reason in dict.fromkeys(reasons):
        click.echo(f"  fell out by {reason}: {reasons.count(reason)}")
    if each and (judged.counts or judged.fallen):
        counted = [(name, "counts", "") for name in judged.counts]
        fallen = [(name, "fell out", str(fall)) for name, fall in judged.fallen.items()]
        print_table((str(judged.file), "", ""), [*counted, *fallen], colour={"fell out": "yellow"}.get)


def _judgement_json(judgement: "Judgement") -> dict[str, object]:
    return {
        "gate": judgement.gate.name,
        "passed": not judgement.problems,
        "signed": judgement.signed,
        "problems": list(judgement.problems),
        "cases": [
            {
                "names": count.wanted.names,
                "needs": count.wanted.needs,
                "weights": [each.value for each in count.wanted.weights],
                "least": count.wanted.least,
                "passed": count.passed,
                "missed": count.missed,
            }
            for count in judgement.counts
        ],
        "verdicts": [
            {
                "file": str(judged.file),
                "stack": judged.stack,
                "counts": list(judged.counts),
                "fallen": [{"name": name, "input": fall.input, "why": fall.why} for name, fall in judged.fallen.items()],
            }
            for judged in judgement.standing
        ],
    }
