# SPDX-License-Identifier: Apache-2.0
"""`stack validate kernels`: check that formats and kernels compute the right numbers."""

from pathlib import Path
from typing import Any

import click

from stack.cli.common import Options, interpreter, progress, source_option
from stack.cli.validating import conclude, look_ahead, suite_options
from stack.model.pins import Source
from stack.store import cache
from stack.validation.kernels import Kernels


@click.command("kernels")
@click.option(
    "--compile/--no-compile", "compiling", default=True, help="Also compile for SM121 and look for the instructions (minutes)."
)
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    callback=interpreter,
    help="Run the kernels installed for this interpreter, such as the stack's on a GPU machine; no environment is made.",
)
@click.option(
    "--emulate",
    type=click.Choice(["sm120"]),
    help="Also run FlashInfer's grouped MXFP8 x MXFP4 kernels for SM120 on an SM90 GPU; the first run compiles for ten minutes.",
)
@source_option
@suite_options
@click.pass_context
def command(
    context: click.Context, /, compiling: bool, python: Path | None, emulate: str | None, source: str | None, **common: Any
) -> None:
    """Compare kernels with references in float64, and check that every bar rejects wrong outputs.

    The first run makes an environment with torch for CPUs in the cache, and takes vLLM's operators from its CPU wheel. Cases for a
    GPU that is not here are reported as not run.
    """

    options: Options = context.obj
    stack = options.load()
    with progress() as tell:
        trees: Source | None = None if source is None else "git" if source == "git" else "archive"
        suite = Kernels(stack, cache.root(options.cache), trees, python, compiling=compiling, emulate=emulate is not None)
        look_ahead(stack, "kernels", suite.names(), **common)
        subject = suite.prepare(tell)
    conclude(context, stack, suite, "kernels", subject=subject, **common)
