# SPDX-License-Identifier: Apache-2.0
"""`stack compile-check`: compile what a series touches for SM121, and look for required instructions."""

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, interpreter, json_option, print_json, source_option
from stack.cli.completing import complete_series
from stack.cli.lane_options import lane_option
from stack.model.series import SASS, Compiles
from stack.proof.compiling import architecture, check
from stack.proof.compiling.check import Report, Result

_COLOURS = {"compiles": "green"}
_KERNELS = 16
"""Up to this many kernels of a unit are listed."""


@click.command("compile-check")
@click.argument("series", nargs=-1, metavar="[SERIES]...", shell_complete=complete_series)
@click.option(
    "--all", "everything", is_flag=True, help="Compile every unit that the patches touch, whole. This can take hours."
)
@click.option("--pristine", is_flag=True, help="Compile upstream's own tree without any patch, for comparison.")
@click.option("--unit", metavar="MODULE/SOURCE", help="Compile this unit (* for any text) instead of those that SERIES touch.")
@click.option("--instantiation", metavar="WORDS", help="With --unit: the template instantiation with these words.")
@click.option("--sass", metavar="NAME", multiple=True, help="With --unit: a required instruction, such as QMMA.SF.")
@click.option(
    "--arch",
    "architectures",
    multiple=True,
    default=("sm_121a",),
    metavar="NAME",
    show_default=True,
    help="Compile for this GPU architecture that nvcc knows, such as sm_90a; may be repeated.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Number of parallel compilers. Default: as many as fit into memory.")
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    callback=interpreter,
    help="Query upstream's JIT with this interpreter; no environment is made.",
)
@json_option
@source_option
@lane_option
@click.pass_context
def command(
    context: click.Context,
    series: tuple[str, ...],
    everything: bool,
    pristine: bool,
    unit: str | None,
    instantiation: str | None,
    sass: tuple[str, ...],
    architectures: tuple[str, ...],
    jobs: int | None,
    python: Path | None,
    as_json: bool,
    source: str | None,
) -> None:
    """Compile what the patches of SERIES (default: all) touch for SM121 or --arch, on any machine; no GPU is needed.

    The units are those of an upstream's JIT in the carried tree, if a plug-in knows it (FlashInfer's). For each unit that a
    patch names in its series.toml (`compiles`), one instantiation is compiled; for other patches, one of the first unit that
    they touch. The machine code must contain the instructions that the patch names. nvcc and cuobjdump are those on PATH,
    else the registry's, kept in the cache. Exit code 1 if a unit does not compile, lacks an instruction, or is not touched by
    its patch.
    """

    if unit is None and (instantiation or sass):
        raise click.UsageError("--instantiation and --sass go with --unit")
    if unit is not None and series:
        raise click.UsageError("--unit stands in place of SERIES")
    odd = next((name for name in architectures if not re.fullmatch(architecture.ARCHITECTURE, name)), None)
    if odd is not None:
        raise click.UsageError(f"--arch {odd}: a GPU is named as the compiler does: sm_80, sm_90a")
    odd = next((name for name in architectures if not architecture.is_known(name)), None)
    if odd is not None:
        known = ", ".join(f"sm_{number}" for number in architecture.KNOWN)
        raise click.UsageError(
            f"--arch {odd}: nvcc knows no such GPU. Known: {known}; from 90 on also with the suffix a, from 100 on with f"
        )
    wanted = _wanted(unit, instantiation, sass) if unit is not None else None
    options: Options = context.obj
    with options.place(source) as place, Stores(options.load(), place) as stores:
        report = check.check(stores, check.CompileRequest(series, everything, pristine, wanted, jobs, python, architectures))
    if as_json:
        print_json({"lane": options.lane_key, **_as_json(report)})
    else:
        _print(report, several=len(set(architectures)) > 1)
    context.exit(0 if report.sound else 1)


def _wanted(unit: str, instantiation: str | None, sass: tuple[str, ...]) -> Compiles:

    odd = [name for name in sass if not re.fullmatch(SASS, name)]
    if odd:
        raise click.UsageError(f"--sass {odd[0]}: an instruction is named as the disassembler does: QMMA.SF, LDG.128")
    return Compiles(None, unit, instantiation, sass=sass)


def _print(report: Report, *, several: bool) -> None:
    if report.compiler:
        click.echo(report.compiler)
    for result in report.results:
        measured = f"  {result.seconds:.0f} s, {result.peak / 1e9:.1f} GB" if result.seconds else ""
        target = f"  {result.architecture}" if several else ""
        state = click.style(result.state.value, fg=_COLOURS.get(result.state.value, "red"))
        click.echo(f"{state}{target}  {result.unit}{measured}")
        for line in _lines(result):
            click.echo(f"    {line}")
    for ref, path in report.uncovered:
        remedy = f"`stack build wheels {ref.upstream} --plan` says how to compile it"
        click.echo(f"{ref.path}: not covered: {path} is built by upstream's CMake: {remedy}")
    for ref in report.idle:
        click.echo(f"{ref.path}: touches no unit")
    if report.unlisted and report.results:
        click.echo(f"not checked, because upstream's JIT does not list them here: {', '.join(sorted(report.unlisted))}")


def _lines(result: Result) -> Iterator[str]:
    if result.problem:
        yield result.problem
    if result.instantiation:
        yield result.instantiation
    if result.named:
        yield ", ".join(f"{times} {name}" for name, times in result.named.items())
    if len(result.kernels) <= _KERNELS:
        yield from map(str, result.kernels)
    else:
        yield f"{len(result.kernels)} kernels: --json shows the resources of each"
    yield from (ref.path for ref in result.patches)


def _as_json(report: Report) -> dict[str, object]:
    return {
        "sound": report.sound,
        "compiler": report.compiler,
        "units": [
            {
                "unit": result.unit,
                "architecture": result.architecture,
                "instantiation": result.instantiation,
                "patches": [ref.path for ref in result.patches],
                "state": result.state.value,
                "problem": result.problem,
                "seconds": round(result.seconds, 1),
                "peak": result.peak,
                "sass": dict(result.named),
                "instructions": dict(sorted(result.instructions.items())),
                "kernels": [asdict(kernel) for kernel in result.kernels],
            }
            for result in report.results
        ],
        "idle": [ref.path for ref in report.idle],
        "uncovered": [{"patch": ref.path, "path": path} for ref, path in report.uncovered],
        "unlisted": dict(report.unlisted),
    }
