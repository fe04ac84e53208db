# SPDX-License-Identifier: Apache-2.0
"""Select the environment variables that a compiled build gets, and those that affect its result.

The names are those that compilers, CMake and cargo read, and that the upstream's build uses, as its project plug-in says.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from stack.base.addresses import redacted
from stack.projects import WheelRules

_LIKE_PYTHON = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CMAKE_PREFIX_PATH")
"""Variables of the user's shell that would bring another Python into the build."""
_DECIDES = (
    r"CC|CXX|(?:C|CXX|CPP|LD|CUDA|RUST)FLAGS|CUDACXX|CUDAHOSTCXX|CMAKE_\w+|CUDA_(?!VISIBLE_DEVICES|CACHE_)\w+|NVCC_(?!THREADS)\w+"
    r"|CPATH|C_INCLUDE_PATH|CPLUS_INCLUDE_PATH|LIBRARY_PATH|LD_LIBRARY_PATH|COMPILER_PATH|GCC_EXEC_PREFIX"
    r"|CARGO_(?:BUILD|PROFILE|ENCODED)_\w+|RUSTC\w*|RUSTUP_TOOLCHAIN"
    r"|FETCHCONTENT_\w+|\w+_SRC_DIR"
)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD")
_FOLDER = re.compile(r"\w+_SRC_DIR|FETCHCONTENT_SOURCE_DIR_\w+")
_URL = re.compile(r"\w+://[^\s;,\"']+")


def passed(environment: Mapping[str, str], rules: WheelRules) -> dict[str, str]:
    """Return the variables that a build gets."""
    left_out = {*_LIKE_PYTHON, *dropped(environment, rules)}
    return {name: value for name, value in environment.items() if name not in left_out}


def dropped(environment: Mapping[str, str], rules: WheelRules) -> tuple[str, ...]:
    """Return the names of variables that are not passed because they would bring precompiled files into the build."""
    return tuple(sorted(name for name in environment if rules.ready_made and rules.ready_made in name))


def deciding(environment: Mapping[str, str], rules: WheelRules) -> dict[str, str]:
    """Return the variables that affect the result, without secrets: they are written into statements."""
    decides = re.compile(f"{_DECIDES}|{rules.decides}" if rules.decides else _DECIDES)
    given = sorted(passed(environment, rules).items())
    return {name: _public(value) for name, value in given if decides.fullmatch(name) and not _SECRET.search(name)}


def contents(environment: Mapping[str, str]) -> str:
    """Hash the paths, sizes and times of the files in folders that variables name as replacements for repositories."""
    hash_ = hashlib.sha256()
    for name in sorted(filter(_FOLDER.fullmatch, environment)):
        for path in _files(Path(environment[name])):
            about = path.lstat()
            hash_.update(f"{name}\0{path}\0{about.st_size}\0{about.st_mtime_ns}\0".encode(errors="surrogateescape"))
    return hash_.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - {".git"})  # git status alone rewrites its index
        yield from (Path(place) / name for name in sorted(names))


def _public(text: str) -> str:
    return _URL.sub(lambda match: redacted(match[0]), text)
