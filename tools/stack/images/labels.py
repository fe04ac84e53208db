# SPDX-License-Identifier: Apache-2.0
"""The labels of an image that say of which stack it is."""

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from types import MappingProxyType

from stack.model import digest
from stack.model.stack import Stack

SOURCES = PurePosixPath("/opt/stack/share/stack")
"""Where an image has the stack that it was built of."""
STACK = "stack.digest"
PINS = "stack.pins"
BASE_DIGEST = "org.opencontainers.image.base.digest"


def of(stack: Stack) -> Mapping[str, str]:
    """What the image of a stack has to say; without its base where that was never resolved."""
    found = {STACK: str(digest.of(stack)), PINS: pins(stack)}
    base = stack.pins.base
    if base is not None and base.digest is not None:
        found[BASE_DIGEST] = base.digest
    return MappingProxyType(found)


def pins(stack: Stack) -> str:
    """The pins as one line of JSON: by upstream its tag and commit."""
    found = {pin.upstream: {"tag": pin.tag, "commit": pin.commit} for pin in stack.pins}
    return json.dumps(found, sort_keys=True, separators=(",", ":"))


def differing(found: Mapping[str, str], stack: Stack) -> tuple[str, ...]:
    """What an image's labels say otherwise than the stack's pins, a sentence each."""
    return tuple(
        f"its label {name} is {found[name]!r:.100}, the stack says {wanted!r}" if name in found else f"it has no label {name}"
        for name, wanted in of(stack).items()
        if found.get(name) != wanted
    )
