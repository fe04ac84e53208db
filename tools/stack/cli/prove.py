# SPDX-License-Identifier: Apache-2.0
"""`stack prove`: does each patch do what it says, and does a release do it by itself?"""

from pathlib import Path

import click

from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, interpreter, json_option, print_json, print_table, source_option
from stack.proof import series_proofs
from stack.proof.runner import Runner
from stack.proof.series_proofs import Kept, Result, Verdict

_COLOURS = {"passes": "green", "fails": "red", "not run": "yellow"}


@click.command("prove")
@click.argument("series", nargs=-1, metavar="[SERIES]...")
@click.option(
    "--onto",
    multiple=True,
    metavar="[UPSTREAM=]TAG",
    help="Try the proofs on that release, without the patches: what passes has landed. Once an upstream; TAG alone: the first.",
)
@click.option(
    "--through", is_flag=True, help="With --onto: find the first release that passes, by bisection over those between."
)
@click.option(
    "--ablate", is_flag=True, help="Leave out one patch at a time, and list those without which everything still passes."
)
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    callback=interpreter,
    help="Run them with this interpreter; no environment is made.",
)
@click.option("--again", is_flag=True, help="Run everything anew, whatever earlier runs have shown.")
@json_option
@source_option
@click.pass_context
def command(
    context: click.Context,
    series: tuple[str, ...],
    onto: tuple[str, ...],
    through: bool,
    ablate: bool,
    python: Path | None,
    again: bool,
    as_json: bool,
    source: str,
) -> None:
    """Run the tests that SERIES name in `proves` (all series, unless named) on the real upstream trees.

    With all patches they have to pass, and without a patch one of its tests has to fail: a proof that cannot fail is an error.
    What upstream has merged is seen after, too: its tests pass, and fail on an earlier release. The first run makes an
    environment with the torch that upstream names, in the cache. Exit code 1 when a proof does not hold.

    Results are kept in the cache under the hash of the tree, the proof and what it imports, the environment, the machine and the
    tests. A run with the same inputs is not repeated.
    """

    if through and not onto:
        raise click.UsageError("--through goes with --onto TAG")
    options: Options = context.obj
    with (
        options.place(source) as place,
        Stores(options.load(), place) as stores,
        Runner(stores, again=again) as runner,
    ):
        asked = series_proofs.Asked(series, series_proofs.ways(stores, onto, through=through), python)
        if ablate:
            idle = list(series_proofs.idle(runner, asked, stores.tell))
            _print_idle([ref.path for ref in idle], as_json)
            context.exit(1 if idle else 0)
        verdicts = list(series_proofs.verdicts(runner, asked, stores.tell))
        kept = list(series_proofs.kept(runner, asked, stores.tell))
    sound = all(one.sound for one in verdicts) and all(one.sound for one in kept)
    if as_json:
        patches, merged = [_as_json(one) for one in verdicts], [_kept_json(one) for one in kept]
        print_json({"sound": sound, "patches": patches, "merged": merged, "ran": runner.ran, "cached": runner.cached})
    else:
        if verdicts:
            _print(verdicts, " ".join(onto))
        if verdicts and kept:
            click.echo()
        if kept:
            _print_kept(kept, " ".join(onto))
        click.echo(f"\n{_count(runner.ran)}, {runner.cached} cached" + (" (--again runs them anew)" if runner.cached else ""))
    context.exit(0 if sound else 1)


def _count(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"


def _print(verdicts: list[Verdict], onto: str) -> None:
    rows = []
    for one in verdicts:
        tried = [one.onto.state.value if one.onto else "-"] if onto else []
        rows.append(
            (one.ref.path.removesuffix(".patch"), one.with_patch.state.value, one.without.state.value, *tried, _says(one))
        )
    columns = ("patch", "with it", "without it", *([f"on {onto}"] if onto else []), "")
    print_table(columns, rows, colour=_COLOURS.get)


def _says(one: Verdict) -> str:
    if one.with_patch.state.value != "passes":
        return f"does not hold: {one.with_patch.reason}"
    if one.without.state.value != "fails":
        return "proves nothing: it passes without the patch" if one.without.state.value == "passes" else one.without.reason
    if one.landed:
        return f"landed by behaviour in {one.landed}"
    return one.onto.reason if one.onto is not None else one.without.reason


def _print_kept(kept: list[Kept], onto: str) -> None:
    rows = []
    for one in kept:
        tried = [one.onto.state.value if one.onto else "-"] if onto else []
        before = f"{one.before.state.value} on {one.release}"
        rows.append((one.series, one.address, one.here.state.value, before, *tried, _says_of_kept(one)))
    columns = ("series", "merged upstream", "at the pins", "before", *([f"on {onto}"] if onto else []), "")
    print_table(columns, rows, colour=_COLOURS.get)


def _says_of_kept(one: Kept) -> str:
    if one.here.state.value != "passes":
        return f"lost: {one.here.reason}"
    if one.before.state.value != "fails":
        return f"proves nothing: {one.before.reason or f'it passes on {one.release}, too'}"
    return one.onto.reason if one.onto is not None else one.before.reason


def _as_json(one: Verdict) -> dict[str, object]:
    return {
        "series": one.ref.series,
        "file": one.ref.file,
        "proof": one.proof,
        "tests": list(one.tests),
        "sound": one.sound,
        "with": _result_json(one.with_patch),
        "without": _result_json(one.without),
        "onto": _result_json(one.onto) if one.onto is not None else None,
        "landed": one.landed,
    }


def _kept_json(one: Kept) -> dict[str, object]:
    return {
        "series": one.series,
        "address": one.address,
        "proof": one.proof,
        "tests": list(one.tests),
        "sound": one.sound,
        "here": _result_json(one.here),
        "release": one.release,
        "before": _result_json(one.before),
        "onto": _result_json(one.onto) if one.onto is not None else None,
    }


def _result_json(result: Result) -> dict[str, str | bool]:
    return {"state": result.state.value, "reason": result.reason, "cached": result.cached}


def _print_idle(paths: list[str], as_json: bool) -> None:
    if as_json:
        print_json({"idle": paths})
    elif paths:
        for path in paths:
            click.echo(f"{path}: everything still passes without it")
    else:
        click.echo("every patch is missed by a test when it is left out")
