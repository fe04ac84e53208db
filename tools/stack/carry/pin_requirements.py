# SPDX-License-Identifier: Apache-2.0
"""Read the versions of other upstreams that a release requires, and compare them with the pins."""

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from stack.model.ids import TreeId
from stack.model.pins import Pin, Pins
from stack.store.objects import Objects

FILES = ("requirements/cuda.txt",)
"""The files with these requirements. vLLM: `flashinfer-python==0.7.0.post1` in requirements/cuda.txt."""


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
        return pin.archive is not None and _same(pin.archive.version, self.version)

    def sentence(self, pin: Pin) -> str:
        """Describe the mismatch between this requirement and the pin."""
        have = pin.archive.version if pin.archive else pin.commit
        return f"{self.upstream} {self.tag} names {self.package}=={self.version} ({self.file}), the pin is {have}"


def needs(objects: Objects, tree: TreeId, pin: Pin, tag: str, pins: Pins) -> tuple[Need, ...]:
    """Return the requirements on the other pins that the tree of `pin` at `tag` states."""
    packages = {canonicalize_name(other.archive.package): other.upstream for other in pins if other.archive is not None}
    required = []
    for file in FILES:
        entry = objects.entry(tree, file)
        for line in objects.read(entry.id).decode("utf-8", "replace").splitlines() if entry is not None else ():
            requirement = _requirement(line)
            if requirement is None:
                continue
            named = packages.get(canonicalize_name(requirement.name))
            exact = [spec.version for spec in requirement.specifier if spec.operator in ("==", "===")]
            if named is not None and named != pin.upstream and exact:
                required.append(Need(pin.upstream, tag, named, requirement.name, exact[0], file))
    return tuple(required)


def unmet(stated: Mapping[str, tuple[Need, ...]], pins: Pins) -> tuple[Need, ...]:
    """Return the requirements that the pins do not meet."""
    return tuple(need for every in stated.values() for need in every if not need.met_by(pins.get(need.needs)))


def tag_of(pin: Pin, version: str) -> str:
    """Return the tag of another version in the spelling of the pin's tag: `v0.7.0.post1` and 0.7.2.post1 give `v0.7.2.post1`."""
    if pin.tag is not None and pin.archive is not None and pin.tag.endswith(pin.archive.version):
        return pin.tag.removesuffix(pin.archive.version) + version
    return f"v{version}"


def _requirement(line: str) -> Requirement | None:
    try:
        return Requirement(line.partition(" #")[0].strip())
    except InvalidRequirement:  # A comment, an option or a blank line.
        return None


def _same(version: str, other: str) -> bool:
    try:
        return Version(version) == Version(other)
    except InvalidVersion:
        return version == other
