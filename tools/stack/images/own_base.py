# SPDX-License-Identifier: Apache-2.0
"""Make the base image of several platforms of Debian's packages, as one index in the cache, named by its digest."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.images import base, combining, debian, layout, skopeo
from stack.images.system import MACHINES
from stack.model.pins import Base
from stack.store import cache as places

PLATFORMS = tuple(f"linux/{architecture}" for architecture in MACHINES)


@dataclass(frozen=True, slots=True)
class BaseOrder:
    """A base image to be made: the suite (`bookworm`), packages, platforms, and mirrors, as of `DebianOrder`."""

    suite: str
    packages: tuple[str, ...]
    platforms: tuple[str, ...] = PLATFORMS
    mirrors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnBase:
    """A base image that was made here: how `pins.toml` names it, and whether its packages' scripts could not reach this machine."""

    pin: Base
    confined: bool


def make(order: BaseOrder, cache: Path, tell: Progress) -> OwnBase:
    """Make a base image; `pins.toml` names it `localhost/debian`, with suite and day, and the index's digest.

    Raises:
        StackError: A platform is unknown, or an image cannot be made.

    """
    folder = base.folder(cache)
    folder.mkdir(parents=True, exist_ok=True)
    with places.lock(folder, lambda: tell("waiting for another base image")), tempfile.TemporaryDirectory(dir=folder) as work:
        made = [
            debian.make(
                debian.DebianOrder(order.suite, architecture, order.packages, order.mirrors), Path(work) / architecture, tell
            )
            for architecture in _architectures(order.platforms)
        ]
        index = combining.combine([one.layout for one in made], Path(work) / "index")
        digest = skopeo.digest(layout.manifest(Path(index.place), index.tag))
        target = base.made(cache, digest)
        if not target.exists():
            Path(index.place).rename(target)
    pin = Base(base.MADE_HERE, f"{order.suite}-{max(one.day for one in made)}", digest)
    return OwnBase(pin, all(one.confined for one in made))


def _architectures(platforms: Sequence[str]) -> tuple[str, ...]:
    unknown = [name for name in platforms if name not in PLATFORMS]
    if unknown:
        raise StackError(f"no base image is made for {unknown[0]}", f"name {' or '.join(PLATFORMS)}")
    return tuple(name.partition("/")[2] for name in dict.fromkeys(platforms))


def suite(pinned: Base | None) -> str | None:
    """Return the suite of a base in `pins.toml` that was made here."""
    return pinned.tag.rpartition("-")[0] or None if pinned is not None and pinned.image == base.MADE_HERE else None
