# SPDX-License-Identifier: Apache-2.0
"""`stack validate`: the group of suites, which are modules of `validating/`."""

import click

from stack.cli.lazy import Command, LazyGroup

_VERBS = {
    "bench": "Measure the speed of a server, and compare it with a baseline.",
    "kernels": "Check that formats and kernels compute the right numbers.",
    "pack": "Make an archive for a GPU machine without network.",
    "quality": "Measure what quantizing qkv, o and lm_head costs.",
    "serve": "Check a real server that has the stack's patches.",
}


@click.group(
    "validate",
    cls=LazyGroup,
    lazy={name: Command(f"stack.cli.validating.{name}", text) for name, text in _VERBS.items()},
)
def command() -> None:
    """Validate the stack on this machine. A case that cannot run here is reported as not run, never as passed.

    Each command writes a verdict. `stack verdict` shows and compares verdicts, and judges whether they suffice for a release.
    """
