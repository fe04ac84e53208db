# SPDX-License-Identifier: Apache-2.0
"""The stack digest, which ties wheels, images and verdicts to a stack."""

import hashlib
import json

from stack.model import effect
from stack.model.ids import Sha256
from stack.model.pins import Pin
from stack.model.stack import Stack


def of(stack: Stack) -> Sha256:
    """Hash the effect of a stack: its pins, and each changed file with its resulting mode and blob id.

    Of a pin, the commit, tree and subtree ids and the archive hash count. Names, messages, order and splitting of patches do not
    count, nor do `why`, `state`, `pull`, comments, resolutions and the base image: none of these changes a source tree.

    Raises:
        StackError: A patch's diff cannot be read.

    """
    changed = {name: list(effect.listed(upstream_effect)) for name, upstream_effect in effect.of(stack).items()}
    content = {
        "pins": {pin.upstream: _pin(pin) for pin in stack.pins},
        "changed": {name: files for name, files in changed.items() if files},
    }
    return _hash(content)


def of_pins(stack: Stack, upstream: str) -> Sha256:
    """Hash the pin of an upstream and the pins vendored in it.

    Raises:
        StackError: The upstream is unknown.

    """
    pin = stack.pins.get(upstream)
    return _hash({each.upstream: _pin(each) for each in (pin, *stack.pins.vendored_in(upstream))})


def exact(stack: Stack) -> Sha256:
    """Hash the values of `pins.toml`, the order of the series, and the bytes of all patches.

    Unlike `of`, it changes with every corrected word, too: for users that depend on the exact files.
    """
    content = {
        "pins": {pin.upstream: [*_pin(pin), pin.git, pin.tag] for pin in stack.pins},
        "base": [stack.pins.base.image, stack.pins.base.tag, stack.pins.base.digest] if stack.pins.base else None,
        "series": [
            [
                series.name,
                [[ref.upstream, ref.file, hashlib.sha256(stack.patches[ref].raw).hexdigest()] for ref in series.patches],
            ]
            for series in stack.series
        ],
    }
    return _hash(content)


def _hash(content: object) -> Sha256:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return Sha256(hashlib.sha256(canonical.encode("ascii")).hexdigest())


def _pin(pin: Pin) -> list[object]:
    return [
        pin.commit,
        pin.tree,
        sorted(pin.subtrees.items()),
        [pin.archive.package, pin.archive.version, pin.archive.sha256] if pin.archive else None,
        [pin.within.upstream, pin.within.path] if pin.within else None,
    ]
