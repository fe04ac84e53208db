# SPDX-License-Identifier: Apache-2.0
"""`stack build wheels`: the upstreams' wheels with the patches in them."""

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
from stack.wheels import building, inspection
from stack.wheels.building import Built, Library
from stack.wheels.decision import Asked, Decision, Mode, decide
from stack.wheels.native import Order, Plan


@click.group("build")
def command() -> None:
    """Build what users install: wheels of the upstreams with the patches in them."""


@command.command("wheels")
@click.argument("upstreams", nargs=-1, metavar="[UPSTREAM]...")
@click.option(
    "--mode",
    type=click.Choice(["auto", "overlay", "source"]),
    default="auto",
    show_default=True,
    help="overlay: the published wheel with the patched files laid over it; source: a build; auto: the cheapest that is right.",
)
@packages_option
@click.option("--python-tag", "python", metavar="TAG", help="Only wheels for this Python, such as cp38.")
@click.option(
    "--platform", "platforms", multiple=True, metavar="NAME", help="Only wheels for it, such as x86_64 or aarch64; repeatable."
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("dist"), show_default=True, help="Where they go."
)
@click.option(
    "--plan", "only_plan", is_flag=True, help="Say how each wheel would be made, why, and what is missing; build nothing."
)
@click.option("--verify", is_flag=True, help="Read each wheel once more, and compare every file in it with what it lists.")
@click.option(
    "--device",
    type=click.Choice(["cuda", "cpu", "empty"]),
    default="cuda",
    show_default=True,
    help="What vLLM is compiled for, in its own words; empty: what is for no device.",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="NAME",
    help="Only this CMake target of vLLM, into --out, no wheel; repeatable.",
)
@click.option(
    "--aot",
    "ahead",
    multiple=True,
    metavar="MODULE",
    help="Compile this module of FlashInfer's JIT ahead of time (* for any text), into a wheel of its own; repeatable.",
)
@click.option(
    "--python",
    "interpreter",
    type=click.Path(path_type=Path),
    callback=interpreter,
    metavar="FILE",
    help="Compile in this interpreter's environment, in place of one in the cache.",
)
@json_option
@source_option
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
    source: str,
) -> None:
    """Build the wheels of UPSTREAM (all that have patches, unless named).

    Where the patches change no compiled code, a wheel is the published one with the patched files in it, made in seconds: only a
    file that is the pin's own there is replaced. Its version names the stack's digest; in its dist-info it holds the stack, a bill
    of materials, and beside it lies a statement of how it was made. The same stack makes the same bytes.
    """

    options: Options = context.obj
    with options.place(source) as place, Stores(options.load(), place) as stores:
        order = Order(device, targets, interpreter)
        asked = Asked(upstreams, Mode(mode), packages_from(packages, upstreams), platforms, python, order, ahead)
        decisions = decide(stores, asked)
        chosen = building.chosen(stores, asked, decisions) if only_plan else None
        made = [] if only_plan else list(building.build(stores, asked, decisions, out))
    built = [one for one in made if isinstance(one, Built)]
    libraries = [one for one in made if isinstance(one, Library)]
    if verify:
        _verify(built)
    if as_json:
        print_json(
            {
                "plan": [_plan_json(one) for one in decisions],
                "wheels": building.as_json(built),
                "libraries": [{"upstream": one.upstream, "file": str(one.path), "sha256": one.sha256} for one in libraries],
            }
        )
    else:
        for one in decisions:
            _print_decision(one, only_plan)
        if chosen is not None:
            click.echo(f"compiled ahead of time, into a wheel of their own: {', '.join(one.name for one in chosen.modules)}")
        _print(built, libraries, out)
    context.exit(1 if only_plan and any(one.plan and one.plan.lacking for one in decisions) else 0)


def _verify(built: Sequence[Built]) -> None:

    for one in built:
        problems = inspection.wheel(one.path).problems
        if problems:
            raise StackError(f"{one.path}: {problems[0]}", "`stack wheel inspect` shows all: what it was made of is broken")


def _print_decision(one: Decision, only_plan: bool) -> None:
    click.echo(f"{one.upstream}: {one.mode.value}: {one.why}")
    for path in one.change.odd:
        click.echo(f"{one.upstream}: {path} is changed, and may matter to what is compiled")
    plan = one.plan
    if plan is not None and plan.dropped:
        click.echo(f"{one.upstream}: {', '.join(plan.dropped)} would put ready-made files into it: the build does not get it")
    if plan is None or not only_plan:
        return
    for name, value in {**plan.decided, **plan.environment}.items():
        click.echo(f"  {name}={value}")
    here = plan.machine
    click.echo(f"  {plan.jobs} compilers at once: {here.processors} processors, {here.memory / 1e9:.0f} GB of memory are free")
    click.echo(f"  compilers start through {here.launcher}" if here.launcher else "  no sccache or ccache: nothing is reused")
    rust = "is on PATH: the Rust frontend is built" if "cargo" in here.programs else "is not on PATH: no Rust frontend"
    click.echo(f"  cargo {rust}")
    python = plan.order.python or "an environment of the cache"
    click.echo(f"  in {python} with {', '.join(plan.requirements)}")
    for clone in plan.clones:
        click.echo(f"  clones {clone.repository} {clone.revision}{f' (or {clone.instead})' if clone.instead else ''}")
    for lack in plan.lacking:
        click.echo(f"MISSING {lack}")


def _print(built: Sequence[Built], libraries: Sequence[Library], out: Path) -> None:
    for path in dict.fromkeys(path for one in built for path in one.left_out):
        click.echo(f"not in the wheel, as it is not in the published one: {path}")
    if built:
        rows = [(own.path.name, f"{own.path.stat().st_size / 1e6:.1f} MB", "as before" if own.reused else "") for own in built]
        print_table(("wheel", "size", ""), rows)
        click.echo(f"in {out}: install one with pip, look into it with `stack wheel inspect`")
    for one in libraries:
        click.echo(f"{one.path} ({one.path.stat().st_size / 1e6:.1f} MB)")


def _plan_json(one: Decision) -> dict[str, object]:
    return {
        "upstream": one.upstream,
        "mode": one.mode.value,
        "why": one.why,
        "odd": list(one.change.odd),
        "build": _build_json(one.plan) if one.plan is not None else None,
    }


def _build_json(plan: Plan) -> dict[str, object]:
    return {
        "device": plan.order.device,
        "targets": list(plan.order.targets),
        "environment": dict(plan.environment),
        "decided": dict(plan.decided),
        "dropped": list(plan.dropped),
        "jobs": plan.jobs,
        "launcher": plan.machine.launcher,
        "requires": list(plan.requirements),
        "clones": [{"repository": one.repository, "revision": one.revision, "instead": one.instead} for one in plan.clones],
        "lacking": list(plan.lacking),
    }
