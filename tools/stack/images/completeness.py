# SPDX-License-Identifier: Apache-2.0
"""Check that wheels bring everything that they need, as the resolver of the image's Python sees it."""

import zipfile
from collections.abc import Mapping, Sequence
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from stack.images.system import Python


def unmet(wheels: Sequence[Path], python: Python) -> tuple[str, ...]:
    """Return what the wheels need and do not bring, a sentence for each, in order."""
    paths = {str(canonicalize_name(parse_wheel_filename(path.name)[0])): path for path in wheels}
    versions = {name: parse_wheel_filename(path.name)[1] for name, path in paths.items()}
    needs = {name: _needs(path) for name, path in paths.items()}
    waiting = [(name, "") for name in paths]
    seen, problems = set(waiting), set[str]()
    while waiting:
        name, extra = waiting.pop()
        for need in needs[name]:
            if need.marker is not None and not need.marker.evaluate(_environment(python, extra)):
                continue
            found = canonicalize_name(need.name)
            if problem := _problem(need, versions.get(found)):
                problems.add(f"{name} needs {need.name}{need.specifier}, {problem}")
                continue
            further = {(str(found), wanted) for wanted in need.extras} - seen
            seen |= further
            waiting += sorted(further)
    return tuple(sorted(problems))


def _needs(wheel: Path) -> tuple[Requirement, ...]:
    with zipfile.ZipFile(wheel) as archive:
        [about] = (name for name in archive.namelist() if name.count("/") == 1 and name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(about).decode(), headersonly=True)
    return tuple(Requirement(text) for text in metadata.get_all("Requires-Dist") or ())


def _problem(need: Requirement, version: Version | None) -> str:
    if version is None:
        return "which is not there"
    return "" if need.specifier.contains(version, prereleases=True) else f"but there is {version}"


def _environment(python: Python, extra: str) -> Mapping[str, str]:
    """Return the values of markers in the image."""
    full = str(python.version)
    return {
        "extra": extra,
        "implementation_name": "cpython",
        "implementation_version": full,
        "os_name": "posix",
        "platform_machine": python.machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": full,
        "python_version": python.short,
        "sys_platform": "linux",
    }
