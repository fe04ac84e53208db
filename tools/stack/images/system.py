# SPDX-License-Identifier: Apache-2.0
"""Read what an image's Debian or Ubuntu has from its files, without running anything: it may be for another processor."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.parser import Parser

from packaging.version import Version

from stack.base.errors import StackError

STATUS, RELEASE = "/var/lib/dpkg/status", "/usr/lib/os-release"
_LEAST = Version("3.11")
"""The oldest Python that this tool supports."""
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Debian's names of processors, which are those of images, too, and the kernel's."""
_UPSTREAM = re.compile(r"(?:\d+:)?(\d+(?:\.\d+)*)")

Read = Callable[[str], bytes]
"""Reads a file of an image by its absolute path; raises StackError if there is none."""


@dataclass(frozen=True, slots=True)
class Python:
    """An image's interpreter: its version, the machine, and the version of glibc."""

    version: Version
    machine: str
    libc: Version

    @property
    def short(self) -> str:
        """The version as `3.12`."""
        return f"{self.version.major}.{self.version.minor}"


@dataclass(frozen=True, slots=True)
class System:
    """A Debian or Ubuntu system: its package database, its os-release, and the versions of its installed packages."""

    status: str
    release: str
    architecture: str
    packages: Mapping[str, str]

    def lacking(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """Name the wanted packages that are not installed."""
        return tuple(name for name in wanted if name not in self.packages)

    @property
    def python(self) -> Python:
        """The system's own Python, /usr/bin/python3.

        Raises:
            StackError: There is none, or it is too old.

        """
        version = self._version("python3")
        if version < _LEAST:
            raise StackError(f"the base image has Python {version}", f"{_LEAST} or newer is needed: use a newer base")
        return Python(version, MACHINES.get(self.architecture, self.architecture), self._version("libc6"))

    def _version(self, package: str) -> Version:
        """Return upstream's part of a package's version: `3.11.2` of `3.11.2-1+b1`."""
        match = _UPSTREAM.match(self.packages.get(package, ""))
        if match is None:
            raise StackError(f"the base image has no package {package}", "use Debian or Ubuntu with Python")
        return Version(match[1])


def read(file: Read) -> System:
    """Read an image's system.

    Raises:
        StackError: The image is neither Debian nor Ubuntu.

    """
    try:
        status, release = file(STATUS).decode(), file(RELEASE).decode()
    except (StackError, UnicodeDecodeError) as missing:
        raise StackError(
            "the base image is neither Debian nor Ubuntu", "wheels need their C library: use one of them"
        ) from missing
    # The first paragraph of a message is its header, and so is each paragraph of the database.
    paragraphs = [Parser().parsestr(text, headersonly=True) for text in status.split("\n\n") if text.strip()]
    installed = [one for one in paragraphs if one["Status"] == "install ok installed"]
    architecture = next((str(one["Architecture"]) for one in installed if one["Package"] == "libc6"), "")
    return System(status, release, architecture, {str(one["Package"]): str(one["Version"]) for one in installed})
