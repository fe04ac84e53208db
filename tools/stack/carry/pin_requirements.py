# SPDX-License-Identifier: Apache-2.0
"""Pins belong together: a release names the version of another upstream that it needs."""

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from stack.model.ids import TreeId
from stack.model.pins import Pin, Pins
from stack.store.objects import Objects

FILES = ("requirements/cuda.txt",)
"""Where a release names them. vLLM: `flashinfer-python==0.7.0.post1` in requirements/cuda.txt."""


@dataclass(frozen=True, slots=True)
class Need:
    """`upstream` at `tag` names `version` of the package of another upstream, in `file`."""

    upstream: str
    tag: str
    needs: str
    package: str
    version: str
    file: str

    def met_by(self, pin: Pin) -> bool:
        """Whether a pin is the named version."""
        return pin.archive is not None and _same(pin.archive.version, self.version)

    def sentence(self, pin: Pin) -> str:
        """What is wrong between this need and the pin."""
        have = pin.archive.version if pin.archive else pin.commit
        return f"{self.upstream} {self.tag} names {self.package}=={self.version} ({self.file}), the pin is {have}"


def needs(objects: Objects, tree: TreeId, pin: Pin, tag: str, pins: Pins) -> tuple[Need, ...]:
    """The needs that the tree of `pin` at `tag` states about the other pins."""
    packages = {canonicalize_name(other.archive.package): other.upstream for other in pins if other.archive is not None}
    found = []
    for file in FILES:
        entry = objects.entry(tree, file)
        for line in objects.read(entry.id).decode("utf-8", "replace").splitlines() if entry is not None else ():
            requirement = _requirement(line)
            if requirement is None:
                continue
            named = packages.get(canonicalize_name(requirement.name))
            exact = [spec.version for spec in requirement.specifier if spec.operator in ("==", "===")]
            if named is not None and named != pin.upstream and exact:
                found.append(Need(pin.upstream, tag, named, requirement.name, exact[0], file))
    return tuple(found)


def unmet(stated: Mapping[str, tuple[Need, ...]], pins: Pins) -> tuple[Need, ...]:
    """The needs that the pins do not meet."""
    return tuple(need for every in stated.values() for need in every if not need.met_by(pins.get(need.needs)))


def tag_of(pin: Pin, version: str) -> str:
    """The tag of another version, spelled as the pin spells its own: `v0.7.0.post1` and 0.7.2.post1 give `v0.7.2.post1`."""
    if pin.tag is not None and pin.archive is not None and pin.tag.endswith(pin.archive.version):
        return pin.tag.removesuffix(pin.archive.version) + version
    return f"v{version}"


def _requirement(line: str) -> Requirement | None:
    try:
        return Requirement(line.partition(" #")[0].strip())
    except InvalidRequirement:  # a comment, an option, a blank line
        return None


def _same(one: str, other: str) -> bool:
    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return one == other
