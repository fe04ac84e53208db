# SPDX-License-Identifier: Apache-2.0
"""`stack compile-check`: does what a series touches compile for SM121, and are the instructions there that it is about?"""

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, interpreter, json_option, print_json, source_option
from stack.model.series import SASS, Compiles
from stack.proof.compiling import check
from stack.proof.compiling.check import Report, Result

_COLOURS = {"compiles": "green"}
_KERNELS = 16
"""Kernels of a unit that are listed."""


@click.command("compile-check")
@click.argument("series", nargs=-1, metavar="[SERIES]...")
@click.option(
    "--all", "everything", is_flag=True, help="Compile every unit that the patches touch, whole: this can take hours."
)
@click.option("--pristine", is_flag=True, help="Compile them in upstream's own tree, without any patch, to compare.")
@click.option("--unit", metavar="MODULE/SOURCE", help="Compile this unit (with * for any text) in place of what SERIES touch.")
@click.option("--instantiation", metavar="WORDS", help="With --unit: the template instantiation with these words.")
@click.option(
    "--sass", metavar="NAME", multiple=True, help="With --unit: an instruction that has to be there, such as QMMA.SF."
)
@click.option(
    "--arch", default="sm_121a", metavar="NAME", show_default=True, help="For another GPU of those that a unit is for: sm_90a."
)
@click.option("--jobs", type=click.IntRange(min=1), help="Compilers beside each other. Default: as many as fit into memory.")
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    callback=interpreter,
    help="Ask upstream's JIT with this interpreter; none is set up.",
)
@json_option
@source_option
@click.pass_context
def command(
    context: click.Context,
    series: tuple[str, ...],
    everything: bool,
    pristine: bool,
    unit: str | None,
    instantiation: str | None,
    sass: tuple[str, ...],
    arch: str,
    jobs: int | None,
    python: Path | None,
    as_json: bool,
    source: str,
) -> None:
    """Compile what the patches of SERIES (all series, unless named) touch for SM121, on any machine; no GPU is needed.

    The units are those of FlashInfer's JIT in the carried tree. Compiled is one instantiation of each that a patch names in
    its series.toml (`compiles`), else of the first that it touches. Their machine code has to have the instructions that the
    patch names. nvcc and cuobjdump are those on PATH, else the registry's, kept in the cache. Exit code 1 when a unit does not
    compile, lacks an instruction, or is not what a patch touches.
    """

    if unit is None and (instantiation or sass):
        raise click.UsageError("--instantiation and --sass go with --unit")
    if unit is not None and series:
        raise click.UsageError("--unit stands in place of SERIES")
    if not re.fullmatch(r"sm_\d{2,3}[af]?", arch):
        raise click.UsageError(f"--arch {arch}: a GPU is named as the compiler does: sm_80, sm_90a")
    wanted = _wanted(unit, instantiation, sass) if unit is not None else None
    options: Options = context.obj
    with options.place(source) as place, Stores(options.load(), place) as stores:
        report = check.check(stores, check.Asked(series, everything, pristine, wanted, jobs, python, arch))
    if as_json:
        print_json(_as_json(report))
    else:
        _print(report)
    context.exit(0 if report.sound else 1)


def _wanted(unit: str, instantiation: str | None, sass: tuple[str, ...]) -> Compiles:

    odd = [name for name in sass if not re.fullmatch(SASS, name)]
    if odd:
        raise click.UsageError(f"--sass {odd[0]}: an instruction is named as the disassembler does: QMMA.SF, LDG.128")
    return Compiles(None, unit, instantiation, sass=sass)


def _print(report: Report) -> None:
    click.echo(report.compiler)
    for one in report.results:
        measured = f"  {one.seconds:.0f} s, {one.peak / 1e9:.1f} GB" if one.seconds else ""
        click.echo(f"{click.style(one.state.value, fg=_COLOURS.get(one.state.value, 'red'))}  {one.unit}{measured}")
        for line in _lines(one):
            click.echo(f"    {line}")
    for ref, path in report.uncovered:
        remedy = f"`stack build wheels {ref.upstream} --plan` says how to compile it"
        click.echo(f"{ref.path}: not covered: {path} is built by upstream's CMake: {remedy}")
    for ref in report.idle:
        click.echo(f"{ref.path}: touches no unit")
    if report.unlisted and report.results:
        click.echo(f"not looked at, since upstream's JIT does not list them here: {', '.join(sorted(report.unlisted))}")


def _lines(one: Result) -> Iterator[str]:
    if one.problem:
        yield one.problem
    if one.instantiation:
        yield one.instantiation
    if one.named:
        yield ", ".join(f"{times} {name}" for name, times in one.named.items())
    if len(one.kernels) <= _KERNELS:
        yield from map(str, one.kernels)
    else:
        yield f"{len(one.kernels)} kernels: --json says what each takes"
    yield from (ref.path for ref in one.patches)


def _as_json(report: Report) -> dict[str, object]:
    return {
        "sound": report.sound,
        "compiler": report.compiler,
        "units": [
            {
                "unit": one.unit,
                "instantiation": one.instantiation,
                "patches": [ref.path for ref in one.patches],
                "state": one.state.value,
                "problem": one.problem,
                "seconds": round(one.seconds, 1),
                "peak": one.peak,
                "sass": dict(one.named),
                "instructions": dict(sorted(one.instructions.items())),
                "kernels": [asdict(kernel) for kernel in one.kernels],
            }
            for one in report.results
        ],
        "idle": [ref.path for ref in report.idle],
        "uncovered": [{"patch": ref.path, "path": path} for ref, path in report.uncovered],
        "unlisted": dict(report.unlisted),
    }
