# SPDX-License-Identifier: Apache-2.0
"""`stack verdict`: what validations have found, and whether it is enough for a release."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
from click.decorators import FC

from stack.carry import effects
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, print_json, print_table, source_option
from stack.model import verdict
from stack.model.verdict import Case, Outcome, Verdict, case_json
from stack.validation import gates, signing, verdict_diff
from stack.validation.gates import Judgement, Standing
from stack.validation.verdict_diff import Difference

COLOURS = {"passed": "green", "failed": "bold red", "not-run": "yellow"}
_ALIKE = 3
"""Parts of a name, such as kernels/moe/marlin: cases of it that were not run for one reason are one row."""
_WHOLE = 10**9
"""Whole numbers below it are shown with all digits."""
files_argument = click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path, exists=True, dir_okay=False)
)


def _file(name: str, metavar: str) -> Callable[[FC], FC]:
    return click.argument(name, metavar=metavar, type=click.Path(path_type=Path, exists=True, dir_okay=False))


@click.group("verdict")
def command() -> None:
    """Show and compare the verdicts of `stack validate`, and require them for a release."""


@command.command("show")
@files_argument
@json_option
def show(files: tuple[Path, ...], as_json: bool) -> None:
    """Show verdicts: stack, machine, versions, and every case with its numbers; --json has each that was not run, too."""

    verdicts = [(file, verdict.load(file)) for file in files]
    if as_json:
        print_json({"verdicts": [{"file": str(file), **verdict.as_json(one)} for file, one in verdicts]})
        return
    for place, (_, one) in enumerate(verdicts):
        if place:
            click.echo()
        print_verdict(one)


def print_verdict(one: Verdict) -> None:
    """Print a verdict: what was validated and where, a table of the cases, how many ended how."""
    machine = one.machine
    click.echo(f"stack {one.stack}")
    if one.image is not None:
        click.echo(f"image {one.image}")
    click.echo(f"pins {', '.join(f'{name} {pin.tag or pin.commit[:12]}' for name, pin in one.pins.items())}")
    click.echo(f"{one.made} on {machine.cpu}, {machine.cores} cores, {machine.memory / 1e9:.0f} GB, {machine.system}")
    for gpu in machine.gpus:
        click.echo(f"GPU {gpu.name} (compute capability {gpu.capability}), driver {gpu.driver}, CUDA {machine.cuda}")
    click.echo(", ".join(f"{name} {version}" for name, version in one.versions.items()))
    if one.recipe or one.weights:
        click.echo(f"recipe {one.recipe or '-'}, weights {one.weights or '-'}")
    print_cases(one.cases)
    if not one.whole:
        click.echo("the run did not come to its end: --resume continues it")


def print_cases(cases: Sequence[Case]) -> None:
    """Print a table of cases, and how many ended how; what was not run for one reason comes last, in one row for each kernel or so."""

    ran = [one for one in cases if one.outcome is not Outcome.NOT_RUN]
    rows = [row for one in ran for row in _rows(one)]
    rows += [row for some in _alike([one for one in cases if one.outcome is Outcome.NOT_RUN]) for row in _not_run(some)]
    print_table(("case", "outcome", "seconds", ""), rows, colour=COLOURS.get)
    ended = {outcome: sum(one.outcome is outcome for one in cases) for outcome in Outcome}
    click.echo(", ".join(f"{count} {outcome}" for outcome, count in ended.items() if count))


def _rows(one: Case) -> Iterator[tuple[str, str, str, str]]:
    said = [*one.why.splitlines()]
    # The runs behind a mean are for --json.
    shown = {name: value for name, value in one.measured.items() if not name.endswith(" runs")}
    numbers = ", ".join(f"{name} {_number(value)}" for name, value in shown.items())
    if numbers:
        said.append(numbers + (f" (bar {_number(one.bar)})" if one.bar is not None else ""))
    if one.margins:
        said.append("margins " + ", ".join(f"{name} {_number(value)}" for name, value in one.margins.items()))
    first, *rest = said or [""]
    yield one.name, one.outcome.value, f"{one.seconds:.1f}", first
    for line in rest:
        yield "", "", "", line


def _alike(cases: Sequence[Case]) -> list[list[Case]]:
    """Cases that begin alike and give one reason, together, in the order in which they come."""
    found: dict[tuple[str, ...], list[Case]] = {}
    for one in cases:
        found.setdefault((*one.name.split("/")[:-1][:_ALIKE], one.why), []).append(one)
    return list(found.values())


def _not_run(cases: Sequence[Case]) -> Iterator[tuple[str, str, str, str]]:
    """The row of one case, or of several: `kernels/moe/marlin/*`."""
    first, *others = cases
    reason, *rest = first.why.splitlines()
    name = f"{'/'.join(first.name.split('/')[:-1][:_ALIKE])}/*" if others else first.name
    yield name, first.outcome.value, "", f"{len(cases)} cases: {reason}" if others else reason
    for line in rest:
        yield "", "", "", line


def _number(value: float | str | None) -> str:
    if not isinstance(value, int | float):
        return value or "-"
    return f"{value:.0f}" if value == round(value) and abs(value) < _WHOLE else f"{value:.4g}"


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


@command.command("diff")
@_file("before", "A")
@_file("after", "B")
@json_option
@click.pass_context
def diff(context: click.Context, before: Path, after: Path, as_json: bool) -> None:
    """Compare verdict B with the earlier one A: what they are of, and how their cases ended.

    Exit code 1 when something that passed in A did not pass in B.
    """

    found = verdict_diff.between(verdict.load(before), verdict.load(after))
    if as_json:
        print_json(_difference_json(found))
    else:
        _print_difference(found)
    context.exit(1 if found.lost else 0)


def _print_difference(found: Difference) -> None:
    for name, (was, now) in found.subject.items():
        click.echo(f"{name}: {_short(was)} -> {_short(now)}")
    rows = []
    for one in found.cases:
        was, now = (case.outcome.value if case else "-" for case in (one.before, one.after))
        numbers = [f"{name} {_number(old)} -> {_number(new)}" for name, old, new in one.numbers()]
        why = one.after.why.splitlines()[:1] if one.after else []
        rows.append((one.name, one.way.value, was, now, "; ".join([*why, *numbers])))
    if rows:
        print_table(("case", "", "A", "B", ""), rows, colour={"lost": "bold red", "won": "green"}.get)
    elif not found.subject:
        click.echo("no difference")


def _difference_json(found: Difference) -> dict[str, object]:

    return {
        "lost": found.lost,
        "subject": {name: {"before": was, "after": now} for name, (was, now) in found.subject.items()},
        "cases": [
            {
                "name": one.name,
                "way": one.way.value,
                "before": case_json(one.before) if one.before else None,
                "after": case_json(one.after) if one.after else None,
            }
            for one in found.cases
        ],
    }


@command.command("sign")
@_file("file", "FILE")
@click.option(
    "--key", type=click.Path(path_type=Path), required=True, help="OpenSSH key: a private one, or an agent's public one."
)
@json_option
def sign(file: Path, key: Path, as_json: bool) -> None:
    """Sign a verdict with an OpenSSH key (ssh-keygen -Y); the signature is FILE.sig."""

    verdict.load(file)
    signature = signing.sign(file, key)
    if as_json:
        print_json({"signature": str(signature)})
    else:
        click.echo(f"signed: {signature}")


@command.command("require")
@files_argument
@click.option("--gate", required=True, help="What a release needs, by its name in validation/gates.toml.")
@click.option(
    "--signers",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Each verdict has to be signed by one of these (OpenSSH's allowed_signers).",
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
    source: str,
    as_json: bool,
) -> None:
    """Say whether FILES, together, are enough for a release of this very stack.

    Exit code 1 when they are not: a case failed, was not run or is missing; a verdict is of another stack, of a run that did
    not come to its end, was edited by hand, or is not signed as asked; its pins, versions, machine or date are not those of a
    validation of this stack; or what a case has measured does not pass the bar that this validation has for it.

    A case of an earlier stack counts if its inputs are the same here: the files that it depends on, and the validation's code that
    judged it. The others fell out, and the output says by which input; `stack validate … --stale` runs them.

    The pinned sources have to be at hand: a patch that states another result than it has is refused.
    """

    options: Options = context.obj
    stack = options.load()
    with options.place(source) as place, Stores(stack, place) as stores:
        effects.check(stores)
    found = gates.judge(gates.load(stack.root / gates.FILE, gate), gates.release(stack), files, signers)
    if as_json:
        print_json(_judgement_json(found))
    else:
        for problem in found.problems:
            click.echo(problem)
        for one in found.standing:
            _print_standing(one, each=each)
        for count in found.counts:
            if count.missed:
                click.echo(f"{count.wanted.names}: goals of speed that were missed, which fails no gate: {count.missed}")
        if not found.signed:
            click.echo("no signature was checked: anyone may have written these verdicts (see --signers)")
        click.echo(f"gate {gate}: {'not passed' if found.problems else 'passed'}")
    context.exit(1 if found.problems else 0)


def _print_standing(one: Standing, *, each: bool) -> None:
    """Say of a verdict how many cases count, and how many fell out by which input."""
    if one.fallen:
        click.echo(f"{one.file}: {len(one.counts)} of {len(one.counts) + len(one.fallen)} cases count")
    reasons = [str(fall) for fall in one.fallen.values()]
    for reason in dict.fromkeys(reasons):
        click.echo(f"  fell out by {reason}: {reasons.count(reason)}")
    if each and (one.counts or one.fallen):
        counted = [(name, "counts", "") for name in one.counts]
        fallen = [(name, "fell out", str(fall)) for name, fall in one.fallen.items()]
        print_table((str(one.file), "", ""), [*counted, *fallen], colour={"fell out": "yellow"}.get)


def _judgement_json(found: Judgement) -> dict[str, object]:
    return {
        "gate": found.gate.name,
        "passed": not found.problems,
        "signed": found.signed,
        "problems": list(found.problems),
        "cases": [
            {
                "names": one.wanted.names,
                "needs": one.wanted.needs,
                "weights": [each.value for each in one.wanted.weights],
                "least": one.wanted.least,
                "passed": one.passed,
                "missed": one.missed,
            }
            for one in found.counts
        ],
        "verdicts": [
            {
                "file": str(one.file),
                "stack": one.stack,
                "counts": list(one.counts),
                "fallen": [{"name": name, "input": fall.input, "why": fall.why} for name, fall in one.fallen.items()],
            }
            for one in found.standing
        ],
    }
