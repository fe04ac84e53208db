# SPDX-License-Identifier: Apache-2.0
"""Read the versions of other upstreams that a release requires, and compare them with the pins."""

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from stack.model.ids import TreeId
from stack.model.pins import Pin, Pins
from stack.projects import known
from stack.store.objects import FOLDER, SUBMODULE, Objects


@dataclass(frozen=True, slots=True)
class Need:
    """A requirement: `upstream` at `tag` names `version` of the package of the upstream `needs`, in `file`."""

    upstream: str
    tag: str
    needs: str
    package: str
    version: str
    file: str

    def met_by(self, pin: Pin) -> bool:
        """Return whether a pin is at the required version."""
        version = pin.archive.version if pin.archive is not None else pin.releases.version(pin.revision)
        return version is not None and _same(str(version), self.version)

    def sentence(self, pin: Pin) -> str:
        """Describe the mismatch between this requirement and the pin."""
        have = pin.archive.version if pin.archive else pin.revision
        return f"{self.upstream} {self.tag} names {self.package}=={self.version} ({self.file}), the pin is {have}"


def needs(objects: Objects, tree: TreeId, pin: Pin, tag: str, pins: Pins) -> tuple[Need, ...]:
    """Return the requirements on the other pins that the tree of `pin` at `tag` states."""
    names = {canonicalize_name(other.upstream): other.upstream for other in pins if other.within is None}
    names |= {canonicalize_name(other.archive.package): other.upstream for other in pins if other.archive is not None}

    def read(path: str) -> bytes | None:
        entry = objects.entry(tree, path)
        return objects.read(entry.id) if entry is not None and entry.mode not in (FOLDER, SUBMODULE) else None

    stated = [(names.get(canonicalize_name(one.name)), one) for one in known.required(read)]
    return tuple(
        Need(pin.upstream, tag, named, one.name, one.version, one.file)
        for named, one in stated
        if named is not None and named != pin.upstream
    )


def unmet(stated: Mapping[str, tuple[Need, ...]], pins: Pins) -> tuple[Need, ...]:
    """Return the requirements that the pins do not meet."""
    return tuple(need for every in stated.values() for need in every if not need.met_by(pins.get(need.needs)))


def tag_of(pin: Pin, version: str) -> str:
    """Return the tag of another version in the spelling of the pin's tag: `v0.7.0.post1` and 0.7.2.post1 give `v0.7.2.post1`."""
    if pin.tag is not None and pin.archive is not None and pin.tag.endswith(pin.archive.version):
        return pin.tag.removesuffix(pin.archive.version) + version
    return pin.releases.tag_of(version) or f"v{version}"


def _same(version: str, other: str) -> bool:
    try:
        return Version(version) == Version(other)
    except InvalidVersion:
        return version == other
