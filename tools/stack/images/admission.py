# SPDX-License-Identifier: Apache-2.0
"""Decide whether an image may be published: it is of this stack, its base has a digest, and each platform has passed the gate."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from stack.images import labels
from stack.images.image import Image
from stack.model.stack import Stack
from stack.model.verdict import Verdict, VerdictFile
from stack.validation import gates
from stack.validation.gates import Gate, Release


def problems(image: Image, stack: Stack, gate: Gate, verdicts: Sequence[VerdictFile], signers: Path | None) -> tuple[str, ...]:
    """Return the reasons why an image may not be published, a sentence for each.

    With `signers` (OpenSSH's allowed_signers), each verdict has to be signed by one of them.
    """
    return (*unlike(image, stack), *verdict_problems(image, gates.release(stack), gate, verdicts, signers))


def unlike(image: Image, stack: Stack) -> tuple[str, ...]:
    """Return the reasons why an image is not of this stack."""
    base = stack.pins.base
    unresolved = () if base is not None and base.digest is not None else ("the pins have no base image with a digest",)
    differences = [f"{one.name}: {problem}" for one in image.platforms for problem in labels.differing(one.labels, stack)]
    return (*unresolved, *differences)


def verdict_problems(
    image: Image, release: Release, gate: Gate, verdicts: Sequence[VerdictFile], signers: Path | None
) -> Iterator[str]:
    """Yield the reasons why the verdicts do not suffice for an image."""
    for each in verdicts:
        yield from (f"{each.file}: {problem}" for problem in _unbound(each.verdict, image, gate))
        # Other gates may accept cases of an earlier stack, but an image contains exactly one stack.
        if release.carried is not None and each.verdict.stack != release.stack:
            yield f"{each.file}: it is for the stack {each.verdict.stack[:12]}, this one is {release.stack[:12]}"
    for platform in image.platforms:
        own = [each for each in verdicts if each.verdict.image == platform.digest]
        for problem in gates.judge(gate, release, own, signers).problems:
            yield f"{platform.name}: {problem}"


def _unbound(loaded: Verdict, image: Image, gate: Gate) -> Iterator[str]:
    if loaded.image is None:
        yield "it is not for an image: validate inside the image that shall be published"
    elif loaded.image not in {platform.digest for platform in image.platforms}:
        yield f"it is for the image {loaded.image}, this is {image.digest}"
    if loaded.gates.get(gate.name) != gates.digest(gate):
        yield f"the gate {gate.name} has changed since it was made: validate again"
