# SPDX-License-Identifier: Apache-2.0
"""Find out which stack a running server is of: by the labels of its image, or by the stack at hand if its version names that."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from stack.deploy import server_version_check
from stack.images import labels
from stack.model import digest
from stack.model.ids import Sha256
from stack.model.stack import Stack
from stack.model.verdict import Pinned

_DIGEST = re.compile(r"[0-9a-f]{64}")
_IMAGE = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,60}")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_TAG = re.compile(r"[\w.+/-]{1,100}")
_MOST = 50


@dataclass(frozen=True, slots=True)
class ServedStack:
    """The stack that a server is of. `image`: the digest of the manifest of its image, if it runs in one."""

    digest: Sha256
    pins: Mapping[str, Pinned] = field(default_factory=lambda: MappingProxyType({}))
    image: str | None = None


def of_labels(given: Mapping[str, Any], image: str | None = None) -> ServedStack | None:
    """Read the stack from an image's labels; None if they do not name one. Labels are whatever the image's maker wrote."""
    named = given.get(labels.STACK)
    if not isinstance(named, str) or not _DIGEST.fullmatch(named):
        return None
    known = image if image is not None and _IMAGE.fullmatch(image) else None
    return ServedStack(Sha256(named), _pins(given.get(labels.PINS)), known)


def of_stack(carried: Stack, version: str | None) -> ServedStack | None:
    """Return the stack at hand if a server's version names its digest."""
    own = digest.of(carried)
    named = server_version_check.label(version) if version is not None else None
    if named is None or not own.startswith(named):
        return None
    return ServedStack(own, MappingProxyType({pin.upstream: Pinned(pin.commit, pin.tag) for pin in carried.pins}))


def _pins(text: Any) -> Mapping[str, Pinned]:
    try:
        content = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        content = {}
    found = {}
    for name, pin in [*content.items()][:_MOST] if isinstance(content, dict) else ():
        commit, tag = (pin.get("commit"), pin.get("tag")) if isinstance(pin, dict) else (None, None)
        if _NAME.fullmatch(name) and isinstance(commit, str) and _COMMIT.fullmatch(commit):
            found[name] = Pinned(commit, tag if isinstance(tag, str) and _TAG.fullmatch(tag) else None)
    return MappingProxyType(found)
