# SPDX-License-Identifier: Apache-2.0
"""The labels that bind an image to a stack."""

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from types import MappingProxyType

from stack.model import digest
from stack.model.stack import Stack

SOURCES = PurePosixPath("/opt/stack/share/stack")
"""The folder in an image with the stack that it was built from."""
STACK = "stack.digest"
PINS = "stack.pins"
LANE = "stack.lane"
"""Names the lane that an image is of; an image that is of none has no such label, or an empty one."""
BASE_DIGEST = "org.opencontainers.image.base.digest"


def of(stack: Stack) -> Mapping[str, str]:
    """Return the labels for the image of a stack; the base's label only if its digest was resolved."""
    values = {STACK: str(digest.of(stack)), PINS: pins(stack)}
    if stack.lane is not None:
        values[LANE] = stack.lane
    base = stack.pins.base
    if base is not None and base.digest is not None:
        values[BASE_DIGEST] = base.digest
    return MappingProxyType(values)


def pins(stack: Stack) -> str:
    """Encode the pins as one line of JSON: upstream names with tag and commit."""
    values = {pin.upstream: {"tag": pin.tag, "commit": pin.commit} for pin in stack.pins}
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def differing(found: Mapping[str, str], stack: Stack) -> tuple[str, ...]:
    """Describe each label of an image that differs from the stack's pins, a sentence for each."""
    other = (
        ()
        if stack.lane is not None or not found.get(LANE)
        else (f"it is of the lane {found[LANE]!r:.100}: name it with --lane",)
    )
    return (
        *other,
        *(
            f"its label {name} is {found[name]!r:.100}, the stack says {wanted!r}"
            if name in found
            else f"it has no label {name}"
            for name, wanted in of(stack).items()
            if found.get(name) != wanted
        ),
    )
