# SPDX-License-Identifier: Apache-2.0
"""Choose the JIT modules that an image has compiled, and the cross compiler that compiles them for the image's processor."""

import json
import os
import platform
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from stack.base.errors import StackError
from stack.deploy import hardware
from stack.deploy.recipes import Recipe
from stack.proof.compiling import listing

DEFAULT = ("norm", "page")
"""Modules that every server on a DGX Spark uses, and that a cross compiler compiles in a minute each."""
NONE = "none"
"""The name that leaves all modules to the JIT."""
_CAPABILITY = listing.SASS_ARCHITECTURE.removeprefix("sm_").rstrip("a")
_ABOUT = "about.json"


def wanted(named: Sequence[str], recipe: Recipe | None) -> tuple[str, ...]:
    """Return the modules to compile: the named ones; without names those of `DEFAULT`, for a recipe whose GPU they are compiled for.

    Raises:
        StackError: `none` stands beside names.

    """
    if NONE in named:
        if len(set(named)) > 1:
            raise StackError(f"--aot {NONE} stands beside other modules", "write one or the other")
        return ()
    if named or recipe is None or recipe.hardware is None:
        return tuple(named)
    fits = hardware.load(recipe.hardware.name).capability.replace(".", "") == _CAPABILITY
    return DEFAULT if fits else ()


def compiler(machine: str) -> str | None:
    """Return the C++ compiler for a processor: the user's own in CXX, this machine's g++, or a cross compiler; None if there is none."""
    if os.environ.get("CXX"):
        return os.environ["CXX"]
    name = "g++" if machine == platform.machine() else f"{machine}-linux-gnu-g++"
    return name if shutil.which(name) else None


@contextmanager
def compiling(cxx: str | None) -> Iterator[None]:
    """Let the build's compilers be that one for the duration of the block."""
    before = os.environ.get("CXX")
    if cxx is not None:
        os.environ["CXX"] = cxx
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("CXX", None)
        else:
            os.environ["CXX"] = before


def modules(wheels: Mapping[str, Path]) -> Mapping[str, tuple[str, ...]]:
    """Return the compiled modules that wheels have, by package."""
    return {package: found for package, wheel in wheels.items() if (found := _modules(wheel))}


def _modules(wheel: Path) -> tuple[str, ...]:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.count("/") == 1 and name.endswith(f"/{_ABOUT}"):
                content = json.loads(archive.read(name))
                listed = content.get("modules") if isinstance(content, dict) else None
                return tuple(map(str, listed)) if isinstance(listed, list) else ()
    return ()


def noted(bill: bytes, compiled: Mapping[str, tuple[str, ...]], left: Sequence[str]) -> bytes:
    """Write into a bill of materials (CycloneDX) which modules a package has compiled, and which its JIT compiles on the machine."""
    document = json.loads(bill)
    for component in document.get("components", ()):
        for name in compiled.get(component.get("name"), ()):
            component.setdefault("properties", []).append({"name": "stack:compiled-module", "value": name})
    for name in left:
        document.setdefault("properties", []).append({"name": "stack:jit-module", "value": name})
    return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
