# SPDX-License-Identifier: Apache-2.0
"""`stack build wheels`: build the upstreams' wheels with the patches in them."""

from collections.abc import Sequence
from pathlib import Path

import click

from stack.base.errors import StackError
from stack.carry.upstream_stores import Stores
from stack.cli.common import (
    Options,
    interpreter,
    json_option,
    packages_from,
    packages_option,
    print_json,
    print_table,
    source_option,
)
from stack.cli.completing import complete_upstreams
from stack.cli.lane_options import lane_option
from stack.cli.sentences import fact, say
from stack.wheels import building, inspection
from stack.wheels.building import Built, Library
from stack.wheels.decision import Decision, Mode, WheelRequest, decide
from stack.wheels.native import CompileOrder, CompilePlan


def _processor(name: str) -> str:
    """Return a processor as wheels name it; images name some otherwise."""
    architecture = name.removeprefix("linux/")
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(architecture, architecture)


@click.group("build")
def command() -> None:
    """Build what users install: wheels of the upstreams with the patches in them."""


@command.command("wheels")
@click.argument("upstreams", nargs=-1, metavar="[UPSTREAM]...", shell_complete=complete_upstreams)
@click.option(
    "--mode",
    type=click.Choice(["auto", "overlay", "source"]),
    default="auto",
    show_default=True,
    help="overlay: replace patched files in the published wheel; source: build it; auto: the cheapest correct mode.",
)
@packages_option
@click.option("--python-tag", "python", metavar="TAG", help="Only wheels for this Python, such as cp38.")
@click.option(
    "--platform",
    "platforms",
    multiple=True,
    metavar="NAME",
    callback=lambda _context, _option, named: tuple(map(_processor, named)),
    help="Only wheels for it, such as x86_64 or aarch64 (linux/arm64 is the same); may be repeated.",
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("dist"), show_default=True, help="Output folder."
)
@click.option(
    "--plan", "only_plan", is_flag=True, help="Show how each wheel would be made, why, and what is missing; build nothing."
)
@click.option("--verify", is_flag=True, help="Read each finished wheel again, and compare its files with its RECORD.")
@click.option(
    "--device",
    default="",
    metavar="NAME",
    help="Device to compile for, by upstream's name. For vLLM: cuda (default), cpu, or empty (nothing for a device).",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="NAME",
    help="Build only this CMake target, into --out, without a wheel; may be repeated.",
)
@click.option(
    "--aot",
    "ahead",
    multiple=True,
    metavar="MODULE",
    help="Compile this module of upstream's JIT (FlashInfer's) ahead of time (* matches any text), into a separate wheel; may be repeated.",
)
@click.option(
    "--python",
    "interpreter",
    type=click.Path(path_type=Path),
    callback=interpreter,
    metavar="FILE",
    help="Compile in this interpreter's environment instead of one in the cache.",
)
@json_option
@source_option
@lane_option
@click.pass_context
def wheels(
    context: click.Context,
    upstreams: tuple[str, ...],
    mode: str,
    packages: tuple[str, ...],
    python: str | None,
    platforms: tuple[str, ...],
    out: Path,
    only_plan: bool,
    verify: bool,
    device: str,
    targets: tuple[str, ...],
    ahead: tuple[str, ...],
    interpreter: Path | None,
    as_json: bool,
    source: str | None,
) -> None:
    """Build the wheels of UPSTREAM (default: all with patches).

    If the patches change no compiled code, the wheel is a copy of the published one with the patched files, made in seconds.
    Only a file that equals the pin's is replaced. The version contains the stack's digest and, with --lane, the lane. The dist-info folder contains a
    description of the stack and a bill of materials; a statement of how the wheel was made is written next to it. Equal stacks
    give equal bytes.
    """

    options: Options = context.obj
    with options.place(source) as place, Stores(options.load(), place) as stores:
        order = CompileOrder(device, targets, interpreter)
        request = WheelRequest(upstreams, Mode(mode), packages_from(packages, upstreams), platforms, python, order, ahead)
        decisions = decide(stores, request)
        chosen = building.chosen(stores, request, decisions) if only_plan else None
        made = [] if only_plan else list(building.build(stores, request, decisions, out))
    built = [item for item in made if isinstance(item, Built)]
    libraries = [item for item in made if isinstance(item, Library)]
    if verify:
        _verify(built)
    if as_json:
        print_json(
            {
                "lane": options.lane_key,
                "plan": [_plan_json(decision) for decision in decisions],
                "wheels": building.as_json(built),
                "libraries": [
                    {"upstream": library.upstream, "file": str(library.path), "sha256": library.sha256} for library in libraries
                ],
            }
        )
    else:
        for decision in decisions:
            _print_decision(decision, only_plan)
        if chosen is not None:
            fact(f"compiled ahead of time, into a separate wheel: {', '.join(module.name for module in chosen.modules)}")
        _print(built, libraries, out)
    context.exit(1 if only_plan and any(decision.plan and decision.plan.lacking for decision in decisions) else 0)


def _verify(built: Sequence[Built]) -> None:

    for wheel in built:
        problems = inspection.wheel(wheel.path).problems
        if problems:
            raise StackError(f"{wheel.path}: {problems[0]}", "`stack wheel inspect` shows all problems: its input is broken")


def _print_decision(decision: Decision, only_plan: bool) -> None:
    fact(f"{decision.upstream}: {decision.mode.value}: {decision.why}")
    for path in decision.change.odd:
        fact(f"{decision.upstream}: {path} is changed, and may affect compiled files")
    plan = decision.plan
    if plan is not None and plan.dropped:
        fact(f"{decision.upstream}: {', '.join(plan.dropped)} would add precompiled files: not passed to the build")
    if plan is None or not only_plan:
        return
    for name, value in {**plan.decided, **plan.environment}.items():
        click.echo(f"  {name}={value}")
    here = plan.machine
    say(
        f"{plan.jobs} compilers at once: {here.processors} processors, {here.memory / 1e9:.0f} GB of memory are free",
        indent="  ",
    )
    click.echo(f"  compilers start through {here.launcher}" if here.launcher else "  no sccache or ccache: nothing is reused")
    for program, part in plan.build.parts.items():
        found = f"is on PATH: the {part} is built" if program in here.programs else f"is not on PATH: no {part}"
        fact(f"{program} {found}", indent="  ")
    python = plan.order.python or "an environment of the cache"
    click.echo(f"  in {python} with {', '.join(plan.requirements)}")
    for clone in plan.clones:
        click.echo(f"  clones {clone.repository} {clone.revision}{f' (or {clone.instead})' if clone.instead else ''}")
    for lack in plan.lacking:
        fact(f"MISSING {lack}")


def _print(built: Sequence[Built], libraries: Sequence[Library], out: Path) -> None:
    for path in dict.fromkeys(path for wheel in built for path in wheel.left_out):
        fact(f"left out, as the published wheel does not contain it: {path}")
    if built:
        rows = [(own.path.name, f"{own.path.stat().st_size / 1e6:.1f} MB", "as before" if own.reused else "") for own in built]
        print_table(("wheel", "size", ""), rows)
        say(f"in {out}: install one with pip, inspect it with `stack wheel inspect`")
    for library in libraries:
        click.echo(f"{library.path} ({library.path.stat().st_size / 1e6:.1f} MB)")


def _plan_json(decision: Decision) -> dict[str, object]:
    return {
        "upstream": decision.upstream,
        "mode": decision.mode.value,
        "why": decision.why,
        "odd": list(decision.change.odd),
        "build": _build_json(decision.plan) if decision.plan is not None else None,
    }


def _build_json(plan: CompilePlan) -> dict[str, object]:
    return {
        "device": plan.order.device,
        "targets": list(plan.order.targets),
        "environment": dict(plan.environment),
        "decided": dict(plan.decided),
        "dropped": list(plan.dropped),
        "jobs": plan.jobs,
        "launcher": plan.machine.launcher,
        "requires": list(plan.requirements),
        "clones": [
            {"repository": clone.repository, "revision": clone.revision, "instead": clone.instead} for clone in plan.clones
        ],
        "lacking": list(plan.lacking),
    }
