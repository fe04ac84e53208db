# SPDX-License-Identifier: Apache-2.0
"""`stack prove`: run the proofs of patches, and find releases that no longer need them."""

from collections.abc import Mapping
from pathlib import Path

import click

from stack.base.text import counted, printable
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, interpreter, json_option, print_table, source_option
from stack.cli.completing import complete_series
from stack.cli.lane_options import all_lanes_option, in_lanes, lane_option
from stack.cli.rendering import settings, text
from stack.cli.sentences import say
from stack.model.series import PatchRef
from stack.proof import series_proofs
from stack.proof.runner import Runner
from stack.proof.series_proofs import Kept, PatchProof, Result

_COLOURS = {"passes": "green", "fails": "red", "not run": "yellow"}


@click.command("prove")
@click.argument("series", nargs=-1, metavar="[SERIES]...", shell_complete=complete_series)
@click.option(
    "--onto",
    multiple=True,
    metavar="[UPSTREAM=]TAG",
    help="Run the proofs on that release without the patches: a patch whose proof passes has landed. One per upstream; TAG alone: the first.",
)
@click.option(
    "--through", is_flag=True, help="With --onto: find the first release that passes, by bisecting the releases between."
)
@click.option(
    "--ablate", is_flag=True, help="Leave out one patch at a time, and list the patches without which everything still passes."
)
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    callback=interpreter,
    help="Run the proofs with this interpreter; no environment is made.",
)
@click.option("--again", is_flag=True, help="Run everything anew; ignore kept results.")
@lane_option
@all_lanes_option
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
    all_lanes: bool,
    as_json: bool,
    source: str | None,
) -> None:
    """Run the tests that SERIES (default: all) name in `proves` on the real upstream trees.

    With all patches they must pass, and without a patch one of its tests must fail: a proof that cannot fail is an error. Merged
    changes are checked, too: their tests pass, and fail on an earlier release. The first run makes an environment with upstream's
    torch in the cache. Exit code 1 if a proof does not hold.

    Results are kept in the cache under the hash of the tree, the proof and what it imports, the environment, the machine and the
    tests. A run with the same inputs is not repeated.
    """

    if through and not onto:
        raise click.UsageError("--through goes with --onto TAG")

    def run(options: Options) -> tuple[int, Mapping[str, object]]:
        with (
            options.place(source) as place,
            Stores(options.load(), place) as stores,
            Runner(stores, again=again) as runner,
        ):
            asked = series_proofs.ProofRequest(series, series_proofs.ways(stores, onto, through=through), python)
            if ablate:
                idle = [ref.path for ref in series_proofs.idle(runner, asked, stores.tell)]
                if not as_json:
                    _print_idle(idle)
                return 1 if idle else 0, {"idle": idle}
            verdicts = list(series_proofs.verdicts(runner, asked, stores.tell))
            kept = list(series_proofs.kept(runner, asked, stores.tell))
            unnamed = series_proofs.unnamed(stores, series)
        if not as_json:
            _print_all(verdicts, kept, onto, runner)
            _print_outputs([each for each in verdicts if not each.sound])
            _print_unnamed(unnamed)
        sound = all(each.sound for each in verdicts) and all(each.sound for each in kept)
        patches, merged = [_as_json(each) for each in verdicts], [_kept_json(each) for each in kept]
        document = {
            "sound": sound,
            "patches": patches,
            "merged": merged,
            "unnamed": [{"series": ref.series, "file": ref.file, "tests": list(paths)} for ref, paths in unnamed.items()],
            "ran": runner.ran,
            "cached": runner.cached,
        }
        return 0 if sound else 1, document

    context.exit(in_lanes(context.obj, all_lanes, as_json, run, "prove-ablate" if ablate else None))


def _print_all(verdicts: list[PatchProof], kept: list[Kept], onto: tuple[str, ...], runner: Runner) -> None:
    if verdicts:
        _print(verdicts, " ".join(onto))
    if verdicts and kept:
        click.echo()
    if kept:
        _print_kept(kept, " ".join(onto))
    click.echo()
    say(f"{counted(runner.ran, 'run')}, {runner.cached} cached" + (" (--again runs them anew)" if runner.cached else ""))


def _print_outputs(wrong: list[PatchProof]) -> None:
    """Print what pytest said of each proof that does not hold, or how to see it."""
    said = {each.ref.path: each.with_patch.output or each.without.output for each in wrong}
    if any(said.values()) and not settings.current().verbose:
        say(f"`stack prove {' '.join(dict.fromkeys(each.ref.series for each in wrong))} -v` shows what pytest said")
        return
    for path, output in said.items():
        click.echo()
        text.echo(f"{path}:")
        text.echo(printable(output.rstrip(), kept="\n\t"))


def _print_unnamed(unnamed: Mapping[PatchRef, tuple[str, ...]]) -> None:
    """Print the test files that patches change and no proof names: nothing shows that their tests can fail."""
    for ref, paths in unnamed.items():
        text.echo(f"{ref.path} changes {', '.join(paths)}: no proof names a test there")


def _print(verdicts: list[PatchProof], onto: str) -> None:
    wrong = sum(not verdict.sound for verdict in verdicts)
    text.echo(f"{counted(len(verdicts), 'proof')}: {len(verdicts) - wrong} hold, {wrong} need a person")
    rows = []
    for verdict in sorted(verdicts, key=lambda verdict: verdict.sound):
        tried = [verdict.onto.state.value if verdict.onto else "-"] if onto else []
        rows.append(
            (
                verdict.ref.path.removesuffix(".patch"),
                verdict.with_patch.state.value,
                verdict.without.state.value,
                *tried,
                _says(verdict),
            )
        )
    columns = ("patch", "with it", "without it", *([f"on {onto}"] if onto else []), "")
    print_table(columns, rows, colour=_COLOURS.get)


def _says(verdict: PatchProof) -> str:
    if verdict.with_patch.state.value != "passes":
        return f"does not hold: {verdict.with_patch.reason}"
    if verdict.without.state.value != "fails":
        return (
            "proves nothing: it passes without the patch" if verdict.without.state.value == "passes" else verdict.without.reason
        )
    if verdict.landed:
        return f"landed by behaviour in {verdict.landed}"
    return verdict.onto.reason if verdict.onto is not None else verdict.without.reason


def _print_kept(kept: list[Kept], onto: str) -> None:
    rows = []
    for change in kept:
        tried = [change.onto.state.value if change.onto else "-"] if onto else []
        before = f"{change.before.state.value} on {change.release}"
        rows.append((change.series, change.address, change.here.state.value, before, *tried, _says_of_kept(change)))
    columns = ("series", "merged upstream", "at the pins", "before", *([f"on {onto}"] if onto else []), "")
    print_table(columns, rows, colour=_COLOURS.get)


def _says_of_kept(change: Kept) -> str:
    if change.here.state.value != "passes":
        return f"lost: {change.here.reason}"
    if change.before.state.value != "fails":
        return f"proves nothing: {change.before.reason or f'it passes on {change.release}, too'}"
    return change.onto.reason if change.onto is not None else change.before.reason


def _as_json(verdict: PatchProof) -> dict[str, object]:
    return {
        "series": verdict.ref.series,
        "file": verdict.ref.file,
        "proof": verdict.proof,
        "tests": list(verdict.tests),
        "sound": verdict.sound,
        "with": _result_json(verdict.with_patch),
        "without": _result_json(verdict.without),
        "onto": _result_json(verdict.onto) if verdict.onto is not None else None,
        "landed": verdict.landed,
    }


def _kept_json(change: Kept) -> dict[str, object]:
    return {
        "series": change.series,
        "address": change.address,
        "proof": change.proof,
        "tests": list(change.tests),
        "sound": change.sound,
        "here": _result_json(change.here),
        "release": change.release,
        "before": _result_json(change.before),
        "onto": _result_json(change.onto) if change.onto is not None else None,
    }


def _result_json(result: Result) -> dict[str, str | bool]:
    return {"state": result.state.value, "reason": result.reason, "cached": result.cached}


def _print_idle(paths: list[str]) -> None:
    if paths:
        for path in paths:
            say(f"{path}: everything still passes without it")
    else:
        click.echo("each patch has a test that fails without it")
