# SPDX-License-Identifier: Apache-2.0
"""The stack digest: what wheels, images and verdicts carry to say which stack they are of."""

import hashlib
import json

from stack.model.ids import Sha256
from stack.model.pins import Pin
from stack.model.stack import Stack


def of(stack: Stack) -> Sha256:
    """SHA-256 over pins (commit, tree and subtree ids, archive hashes, base image), the order of series, and every patch's bytes.

    `why`, `state`, `pull`, comments and resolutions do not count: they change what is said, not what is carried.
    """
    content = {
        "pins": {pin.upstream: _pin(pin) for pin in stack.pins},
        "base": [stack.pins.base.image, stack.pins.base.tag, stack.pins.base.digest] if stack.pins.base else None,
        "series": [
            [one.name, [[ref.upstream, hashlib.sha256(stack.patches[ref].raw).hexdigest()] for ref in one.patches]]
            for one in stack.series
        ],
    }
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
