# SPDX-License-Identifier: Apache-2.0
"""`stack image validate`: run the suites of `stack validate` in the image to be published."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from stack.base.text import counted
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, print_json, source_option
from stack.cli.completing import complete_recipes
from stack.cli.imaging.common import file_path
from stack.cli.imaging.common import layout as layout_of
from stack.cli.lane_options import lane_option
from stack.cli.validating import FOLDER
from stack.cli.verdict import print_cases
from stack.images import engine as engines
from stack.images import validating
from stack.images.validating import Checkpoint, Done
from stack.model import verdict as verdicts
from stack.model.verdict import Outcome, Weights
from stack.validation import gates, signing, standing
from stack.validation.gates import Judgement

_SUITES = ("kernels", "serve", "bench")
"""A copy of `stack.images.validating.SUITES`: importing that is too slow for `--help`."""


@click.command("validate")
@click.argument("suites", nargs=-1, type=click.Choice(_SUITES), metavar="[kernels] [serve] [bench]")
@click.option(
    "--gate",
    metavar="NAME",
    help="Judge by this gate of validation/gates.toml, and run the suites it requires unless suites are named.",
)
@click.option(
    "--image", "source_image", metavar="oci:DIR", help="The image. Default: the only one in the stack's .stack/images."
)
@click.option(
    "--recipe",
    "recipes",
    shell_complete=complete_recipes,
    multiple=True,
    metavar="NAME",
    help="Recipe for serving the tiny models; may be repeated.",
)
@click.option(
    "--model",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Serve this gpt-oss instead of the tiny models: a folder on this machine, which is mounted into the container.",
)
@click.option("--weights", type=click.Choice(["real", "dummy"]), help="With --model: its kind of weights.")
@click.option("--flags", default="", metavar="TEXT", help="With --model: arguments of `vllm serve`, quoted as in a shell.")
@click.option(
    "--device", "devices", multiple=True, help="A device for the container, as the engine names it: nvidia.com/gpu=all."
)
@click.option("--engine", type=click.Choice(engines.ENGINES), help="Engine to run it with. Default: the first that works.")
@click.option(
    "--compile/--no-compile", "compiling", default=True, help="Also compile for SM121, outside the image: takes minutes."
)
@click.option("--no-prove", is_flag=True, help="Skip the proofs of the series, which `stack prove` also runs.")
@click.option("--only", multiple=True, metavar="GLOB", help="Run only the cases whose names match; may be repeated.")
@click.option(
    "--resume",
    is_flag=True,
    help="Keep the finished cases of an earlier run of the same image on this machine; another image's verdict is refused.",
)
@click.option(
    "--stale",
    is_flag=True,
    help="Skip each case that passed in a verdict of this image in the folder of --out, under the same gates and with the same inputs. "
    "New verdicts go to new files there, and the gate is judged by all.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"Folder for the verdicts. Default: {FOLDER}/DIGEST, with the image's digest.",
)
@click.option("--sign", "key", type=file_path, help="Sign the verdicts with this SSH key, as `stack verdict sign` does.")
@json_option
@source_option
@lane_option
@click.pass_context
def command(
    context: click.Context,
    suites: tuple[str, ...],
    gate: str | None,
    source_image: str | None,
    recipes: tuple[str, ...],
    model: Path | None,
    weights: str | None,
    flags: str,
    devices: tuple[str, ...],
    engine: str | None,
    compiling: bool,
    no_prove: bool,
    only: tuple[str, ...],
    resume: bool,
    stale: bool,
    out: Path | None,
    key: Path | None,
    as_json: bool,
    source: str | None,
) -> None:
    """Validate the image to be published, on this machine's hardware.

    Kernels and servers run in a container of the image as its own user, and the image's entry point starts the servers. The
    validation itself comes from this checkout, not from the image. The verdicts contain the image's digest and the current
    gates, which `stack image publish` requires. The exit code is 1 if a case failed or the gate is not passed.
    """

    if model is not None and recipes:
        raise click.UsageError("--recipe serves the tiny models, --model another one: give only one of them")
    options: Options = context.obj
    stack = options.load()
    chosen_gate = gates.load(stack.root / gates.FILE, gate) if gate is not None else None
    layout = layout_of(source_image, stack.root)
    digest = validating.of(layout, stack).digest
    order = validating.ValidationOrder(
        engine=engines.found(engine),
        layout=layout,
        suites=suites or (validating.needed(chosen_gate) if chosen_gate is not None else validating.SUITES),
        out=out or stack.root / FOLDER / digest.removeprefix("sha256:")[:12],
        recipes=recipes,
        checkpoint=_checkpoint(model, weights, flags),
        devices=devices,
        compiling=compiling,
        prove=not no_prove,
        only=only,
        resume=resume,
        stale=stale,
    )
    done: list[Done] = []
    with options.place(source) as place, Stores(stack, place) as stores:
        for one in validating.validate(order, stores):
            if key is not None and one.verdict is not None:
                signing.sign(one.file, key)
            done.append(one)
    given = [verdicts.load_file(one.file) for one in done if one.verdict is not None]
    if stale:
        given = standing.of_image(order.out, digest, gates.digests(stack.root / gates.FILE))
    judged = gates.judge(chosen_gate, gates.release(stack), given) if chosen_gate is not None else None
    if as_json:
        print_json(_json(digest, done, judged))
    else:
        _print(digest, done, judged)
    failed = any(case.outcome is Outcome.FAILED for one in done if one.verdict is not None for case in one.verdict.cases)
    context.exit(1 if failed or (judged is not None and judged.problems) else 0)


def _checkpoint(model: Path | None, weights: str | None, flags: str) -> Checkpoint | None:

    if model is None:
        if weights is not None or flags:
            raise click.UsageError("--weights and --flags go with --model")
        return None
    if weights is None:
        raise click.UsageError("--model goes with --weights: real or dummy")
    try:
        return Checkpoint(model.resolve(), Weights(weights), tuple(shlex.split(flags)))
    except ValueError as odd:
        raise click.UsageError(f"--flags {flags!r} cannot be read ({odd})") from odd


def _print(digest: str, done: Sequence[Done], judged: Judgement | None) -> None:
    click.echo(f"image {digest}")
    for one in done:
        click.echo()
        if one.verdict is None:
            click.echo(f"{one.suite}: nothing has fallen out: {counted(len(one.standing), 'case stands', 'cases stand')}")
            continue
        print_cases(one.verdict.cases)
        click.echo(f"verdict: {one.file}")
    if judged is not None:
        click.echo()
        for problem in judged.problems:
            click.echo(problem)
        click.echo(f"gate {judged.gate.name}: {'not passed' if judged.problems else 'passed'}")


def _json(digest: str, done: Sequence[Done], judged: Judgement | None) -> dict[str, object]:

    made = [{"file": str(one.file), **verdicts.as_json(one.verdict)} for one in done if one.verdict is not None]
    gate = {"gate": {"name": judged.gate.name, "problems": list(judged.problems)}} if judged is not None else {}
    return {"image": digest, "verdicts": made, "standing": sorted(name for one in done for name in one.standing), **gate}
