# SPDX-License-Identifier: Apache-2.0
"""`stack validate pack`: make the archive for a GPU machine without network."""

import tempfile
from pathlib import Path

import click

from stack.base.text import counted
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, print_json, source_option
from stack.validation import suite as suites
from stack.validation.pack import archive_builder, targets
from stack.wheels import building
from stack.wheels.building import Built
from stack.wheels.decision import Mode, WheelRequest, decide


@click.command("pack")
@click.option(
    "--gpu", default="sm90", show_default=True, help="The GPU of the target machine; the archive holds binaries for no other."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The archive. Default: .stack/pack-GPU.tar.xz below the stack.",
)
@json_option
@source_option
@click.pass_obj
def command(options: Options, gpu: str, out: Path | None, as_json: bool, source: str | None) -> None:
    """Make one archive that validates the stack on a GPU machine without network.

    It holds the stack's wheels without code for other GPUs, their dependencies, and a script: unpack it there and run
    `python3 pack-GPU/validate.py`. The script refuses a damaged archive and a machine of another kind. It runs kernels and servers,
    measures memory and speed with dummy weights of gpt-oss-120b's dimensions, and writes a verdict. The same stack gives the same bytes.
    --gpu sm121 is for a DGX Spark (aarch64).
    """

    target = targets.named(gpu)
    stack = options.load()
    archive = out or stack.root / ".stack" / f"pack-{gpu}.tar.xz"
    suites.look_at(archive, "archive")
    with options.place(source) as place, Stores(stack, place) as stores, tempfile.TemporaryDirectory() as folder:
        wheels = []
        for decision in decide(stores, WheelRequest(archive_builder.UPSTREAMS)):
            # A wheel built from its sources fits every platform.
            request = WheelRequest((decision.upstream,), platforms=(target.platform,) if decision.mode is Mode.OVERLAY else ())
            made = building.build(stores, request, (decision,), Path(folder))
            wheels += [each.path for each in made if isinstance(each, Built)]
        packed = archive_builder.make(stores, target, wheels, archive)
    if as_json:
        print_json({"file": str(packed.path), "sha256": packed.sha256, "bytes": packed.size, "files": packed.files})
        return
    click.echo(f"{packed.path}: {packed.size / 1e6:.1f} MB, {counted(packed.files, 'file')}, SHA-256 {packed.sha256}")
    click.echo(f"on the GPU machine: tar xf {packed.path.name} && python3 {packed.path.name.partition('.')[0]}/validate.py")
