# SPDX-License-Identifier: Apache-2.0
"""Refuse an image that is older than the one that runs: a registry, or whoever can write to it, may serve an old one under a tag."""

import re
from collections.abc import Mapping
from datetime import datetime
from enum import Enum, auto
from typing import Any

from stack.base.errors import StackError
from stack.images import reference
from stack.owner.engine import Engine
from stack.owner.state import Image

_CREATED = "org.opencontainers.image.created"
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)")


class Permission(Enum):
    """Whether an older image may take the place of a newer one: no; yes; or yes, since an interrupted command has asked for it."""

    NONE = auto()
    GIVEN = auto()
    ASKED = auto()


def demand(engine: Engine, image: Image, now: Image, older: Permission) -> None:
    """Refuse an image that was made before the one that runs, unless its digest was named.

    Raises:
        StackError: It is older.

    """
    if older is not Permission.NONE or reference.parse(image.name).digest is not None:
        return
    made, before = (_created(engine.image(each.id)) for each in (image, now))
    if made is not None and before is not None and made < before:
        raise StackError(
            f"{image.name} is older than the image that runs: of {made:%Y-%m-%d %H:%M}, and that one of {before:%Y-%m-%d %H:%M}",
            f"to take it all the same: --older, or --image {reference.parse(image.name).place}@{image.digest}",
        )


def _created(described: Mapping[str, Any] | None) -> datetime | None:
    """Return the time of an image: that of its label, which is part of what its digest covers, else the engine's."""
    values = described or {}
    labels = (values.get("Config") or {}).get("Labels") or {}
    for text in (labels.get(_CREATED), values.get("Created")):
        if isinstance(text, str) and (found := _TIME.match(text)):
            return datetime.fromisoformat(found[1] + found[2].replace("Z", "+00:00"))
    return None
