# SPDX-License-Identifier: Apache-2.0
"""A list of requirements, and the lock file that pins it by hash.

The lock of `requirements.txt` is `requirements.lock` in the same folder. It has pip's format, one exact version with its hashes
per line, and names everything to be installed.
"""

import hashlib
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from stack.base.errors import StackError

SUFFIX = ".lock"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The file that pip installs for a list of requirements, and whether it is a lock."""

    file: Path
    locked: bool

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of `pip install`."""
        return ("--require-hashes", "--no-deps", "-r", str(self.file)) if self.locked else ("-r", str(self.file))

    def key(self, *more: str) -> str:
        """Return twelve hexadecimal digits that change with the file, the Python version or `more`."""
        parts = [str(sys.version_info[:2]), *more, self.file.read_text(encoding="utf-8")]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]


def wanted(file: Path, apart: Collection[str] = ()) -> Wanted:
    """Choose the lock of a list of requirements if there is one, else the list itself.

    `apart`: packages that are installed first, in the version that the upstream names, so that no lock pins them.

    Raises:
        StackError: The lock lacks a version for this machine that the list asks for.

    """
    lock = file.with_suffix(SUFFIX)
    if not lock.is_file():
        return Wanted(file, locked=False)
    missing = unpinned(file.read_text(encoding="utf-8"), lock.read_text(encoding="utf-8"), apart=apart)
    if missing:
        raise StackError(f"{lock} pins no version of {missing[0]}, which {file.name} asks for", "make the lock again")
    return Wanted(lock, locked=True)


def unpinned(
    requirements: str, lock: str, machine: Mapping[str, str] | None = None, apart: Collection[str] = ()
) -> tuple[Requirement, ...]:
    """Return the requirements, without those `apart`, that no pin of a lock satisfies.

    `machine` overrides this machine's environment markers.
    """
    marks = {key: str(value) for key, value in {**default_environment(), **(machine or {})}.items()}
    pins = [pin for pin in parsed(lock) if _applies(pin, marks)]
    return tuple(
        requirement
        for requirement in parsed(requirements)
        if canonicalize_name(requirement.name) not in apart
        and _applies(requirement, marks)
        and not any(_pins(pin, requirement) for pin in pins)
    )


def parsed(text: str) -> Iterator[Requirement]:
    """Parse the requirements of a list or a lock; options and comments are skipped."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        try:
            yield Requirement(re.split(r"(?:^|\s)(?:#|--hash=)", line, maxsplit=1)[0].strip())
        except InvalidRequirement:
            continue


def _applies(requirement: Requirement, marks: Mapping[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(dict(marks))


def _pins(pin: Requirement, requirement: Requirement) -> bool:
    versions = [spec.version for spec in pin.specifier if spec.operator == "=="]
    same = canonicalize_name(pin.name) == canonicalize_name(requirement.name)
    return same and any(requirement.specifier.contains(version, prereleases=True) for version in versions)
