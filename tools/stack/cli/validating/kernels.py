# SPDX-License-Identifier: Apache-2.0
"""`stack validate kernels`: do formats and kernels compute what they should, by bars that reject what is wrong?"""

from pathlib import Path
from typing import Any

import click

from stack.cli.common import Options, interpreter, progress, source_option
from stack.cli.validating import conclude, look_ahead, suite_options
from stack.store import cache
from stack.store.sources import Source
from stack.validation.kernels import Kernels


@click.command("kernels")
@click.option(
    "--compile/--no-compile", "compiling", default=True, help="Compile for SM121 and look for the instructions, too: minutes."
)
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    callback=interpreter,
    help="Run the kernels that are installed for this interpreter, such as the stack's on a GPU machine; no environment is made.",
)
@click.option(
    "--emulate",
    type=click.Choice(["sm120"]),
    help="Run FlashInfer's grouped MXFP8 x MXFP4 kernels for SM120 on a GPU of SM90, too; compiling them takes ten minutes once.",
)
@source_option
@suite_options
@click.pass_context
def command(
    context: click.Context, /, compiling: bool, python: Path | None, emulate: str | None, source: str, **common: Any
) -> None:
    """Hold kernels against references in float64, and every bar against wrong outputs that it has to reject.

    The first run makes an environment with torch for CPUs, in the cache, and takes vLLM's operators out of its wheel for CPUs.
    What needs a GPU that is not here is reported as not run.
    """

    options: Options = context.obj
    stack = options.load()
    with progress() as tell:
        trees: Source = "git" if source == "git" else "archive"
        suite = Kernels(stack, cache.root(options.cache), trees, python, compiling=compiling, emulate=emulate is not None)
        look_ahead(stack, "kernels", suite.names(), **common)
        subject = suite.prepare(tell)
    conclude(context, stack, suite, "kernels", subject=subject, **common)
