# SPDX-License-Identifier: Apache-2.0
"""`stack image`: the group of image commands, which are modules of `imaging/`."""

import click

from stack.cli.lazy import Command, LazyGroup

_VERBS = {
    "base": ("base", "Make a base image of Debian packages, for any processor."),
    "bisect": ("bisect", "Find the upstream release or the patch that broke something."),
    "build": ("build", "Build an image; the step that installs has no network."),
    "list": ("listing", "List the published images."),
    "load": ("load", "Load an image into Docker or podman."),
    "promote": ("promote", "Move a tag to a published image."),
    "publish": ("publish", "Publish a validated image, signed, under a fixed tag."),
    "rollback": ("rollback", "Move a tag back to the image before."),
    "run": ("run", "Run a command in an image, of any processor."),
    "validate": ("validate", "Run the suites of `stack validate` in an image."),
    "verify": ("verify", "Check an image's signatures, provenance and verdicts."),
}


@click.group(
    "image",
    cls=LazyGroup,
    lazy={name: Command(f"stack.cli.imaging.{module}", text) for name, (module, text) in _VERBS.items()},
)
def command() -> None:
    """Build, publish, verify and bisect container images of a stack."""
