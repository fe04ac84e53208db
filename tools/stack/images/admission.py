# SPDX-License-Identifier: Apache-2.0
"""What lets an image out: it is of this very stack, on a resolved base, and each of its platforms has passed the gate by itself."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from stack.base.errors import StackError
from stack.images import labels
from stack.images.image import Image
from stack.model import verdict
from stack.model.stack import Stack
from stack.model.verdict import Verdict
from stack.validation import gates
from stack.validation.gates import Gate, Release


def problems(image: Image, stack: Stack, gate: Gate, files: Sequence[Path], signers: Path | None) -> tuple[str, ...]:
    """Why an image may not be published, a sentence each.

    With `signers` (OpenSSH's allowed_signers) each verdict has to be signed by one of them.
    """
    return (*unlike(image, stack), *verdict_problems(image, gates.release(stack), gate, files, signers))


def unlike(image: Image, stack: Stack) -> tuple[str, ...]:
    """Why an image is not of this stack."""
    base = stack.pins.base
    unresolved = () if base is not None and base.digest is not None else ("the pins have no base image with a digest",)
    said = [f"{one.name}: {problem}" for one in image.platforms for problem in labels.differing(one.labels, stack)]
    return (*unresolved, *said)


def verdict_problems(image: Image, release: Release, gate: Gate, files: Sequence[Path], signers: Path | None) -> Iterator[str]:
    """Why verdicts are not enough for an image."""
    verdicts: list[tuple[Path, Verdict]] = []
    for file in files:
        try:
            one = verdict.load(file)
        except StackError as refused:
            yield str(refused)
            continue
        verdicts.append((file, one))
        yield from (f"{file}: {problem}" for problem in _unbound(one, image, gate))
        # At other gates an earlier stack's cases may count. An image holds one stack.
        if release.carried is not None and one.stack != release.stack:
            yield f"{file}: it is of the stack {one.stack[:12]}, this one is {release.stack[:12]}"
    for platform in image.platforms:
        own = [file for file, one in verdicts if one.image == platform.digest]
        for problem in gates.judge(gate, release, own, signers).problems:
            yield f"{platform.name}: {problem}"


def _unbound(one: Verdict, image: Image, gate: Gate) -> Iterator[str]:
    if one.image is None:
        yield "it is of no image: validate inside the one that shall be published"
    elif one.image not in {platform.digest for platform in image.platforms}:
        yield f"it is of the image {one.image}, this is {image.digest}"
    if one.gates.get(gate.name) != gates.digest(gate):
        yield f"the gate {gate.name} was another one when it was made: validate again"
