# SPDX-License-Identifier: Apache-2.0
"""The stack digest: what wheels, images and verdicts carry to say which stack they are of."""

import hashlib
import json

from stack.model import effect
from stack.model.ids import Sha256
from stack.model.pins import Pin
from stack.model.stack import Stack


def of(stack: Stack) -> Sha256:
    """Hash the effect of a stack: its pins, and the files that its patches change with the modes and blob ids that come out.

    The pins count with commit, tree and subtree ids and archive hashes. Names, messages and the order of patches, the way in which
    they are split, `why`, `state`, `pull`, comments, resolutions and the base image do not count: they do not change a source tree.

    Raises:
        StackError: a patch holds a diff that cannot be read.

    """
    changed = {name: list(effect.listed(one)) for name, one in effect.of(stack).items()}
    content = {
        "pins": {pin.upstream: _pin(pin) for pin in stack.pins},
        "changed": {name: files for name, files in changed.items() if files},
    }
    return _hash(content)


def of_pins(stack: Stack, upstream: str) -> Sha256:
    """Hash the pins of an upstream and of those that it vendors.

    Raises:
        StackError: there is no such upstream.

    """
    pin = stack.pins.get(upstream)
    return _hash({one.upstream: _pin(one) for one in (pin, *stack.pins.vendored_in(upstream))})


def exact(stack: Stack) -> Sha256:
    """Hash all that a stack says in `pins.toml`, in the order of its series, and in the bytes of its patches.

    It changes with a corrected word, too: what stands on the very files compares this one.
    """
    content = {
        "pins": {pin.upstream: [*_pin(pin), pin.git, pin.tag] for pin in stack.pins},
        "base": [stack.pins.base.image, stack.pins.base.tag, stack.pins.base.digest] if stack.pins.base else None,
        "series": [
            [one.name, [[ref.upstream, ref.file, hashlib.sha256(stack.patches[ref].raw).hexdigest()] for ref in one.patches]]
            for one in stack.series
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
