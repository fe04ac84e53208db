# SPDX-License-Identifier: Apache-2.0
"""How wheels, images, branches and records say of which lane they are, so that nothing of one lane passes for another's."""

import hashlib
import re

from packaging.version import Version


def mark(lane: str | None) -> str:
    """Return the part of a wheel's version that names a lane, such as `lane.1.27`; empty for no lane.

    A local version has lower-case letters, digits and dots only. A lane whose name has others, or would be read as another
    number, gets a part of a hash, so that two lanes never have the same mark.
    """
    if lane is None:
        return ""
    plain = re.sub(r"[^a-z0-9]+", ".", lane.lower()).strip(".")
    named = f"lane.{plain}" if plain else "lane"
    if plain == lane and Version(f"0+{named}").local == named:
        return named
    return f"{named}.h{hashlib.sha256(lane.encode()).hexdigest()[:8]}"


def named(name: str, lane: str | None) -> str:
    """Return a name that says its lane, such as `alpha/one-hook@1.27`; the name alone for no lane."""
    return name if lane is None else f"{name}@{lane}"
