# SPDX-License-Identifier: Apache-2.0
"""Collect the content of an archive: wheels as installed, without what the target does not need, and the stack's own files."""

import os
import zipfile
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import stack
from stack.base.errors import StackError
from stack.base.progress import Count
from stack.deploy.data import DATA
from stack.model import pins
from stack.model.stack import FOLDER, Stack
from stack.validation import laboratory
from stack.validation.pack import fatbin
from stack.validation.pack.targets import Target

SITE = "site"
"""The folder of the archive that is put on Python's path."""
PLUGIN = "stack_dummy_weights"
EMULATED = "sm120-on-sm90.so"
"""The library with FlashInfer's kernels for SM120, compiled for SM90."""
_ENTRY_POINTS = f"[vllm.general_plugins]\n{PLUGIN} = laboratory.target.weights:register\n"
"""Makes vLLM find our weights: it finds plugins by the entry points of installed packages."""
_LIBRARIES = (".data/purelib/", ".data/platlib/")
_OURS = (".py", ".toml", ".txt", ".cu", ".h", ".hpp", ".cpp", ".cuh")

Files = dict[str, bytes]


def installed(wheels: Sequence[Path], target: Target, tell: Count) -> Files:
    """Read the files of wheels by their installed paths; libraries keep only the target's images.

    Raises:
        StackError: a wheel cannot be read, or two wheels have different files under one path.

    """
    files: Files = {}
    for place, wheel in enumerate(wheels):
        tell(place, len(wheels))
        for path, data in _members(wheel, target):
            if files.setdefault(path, data) != data:
                raise StackError(f"{wheel.name} has another {path} than a wheel before it", "leave one of them out")
    return files


def _members(wheel: Path, target: Target) -> Iterator[tuple[str, bytes]]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                path = _place(info.filename)
                if path is None or any(fnmatchcase(path, pattern) for pattern in target.left_out):
                    continue
                data = archive.read(info)
                if ".so" in Path(path).suffixes:
                    data = fatbin.thin(data, target.gpu, path, target.kernels.get(path)).data
                yield f"{SITE}/{path}", data
    except (zipfile.BadZipFile, OSError) as bad:
        raise StackError(f"{wheel.name} cannot be read ({bad})", "fetch it again") from bad


def _place(member: str) -> str | None:
    """Return the installed path of a wheel's member; None for folders, scripts, and RECORD, which would list files left out here."""
    for folder in _LIBRARIES:
        if folder in member:
            member = member.partition(folder)[2]
    if member.endswith(("/", ".dist-info/RECORD")) or ".data/" in member.partition("/")[0] + "/":
        return None
    return member


def plugin() -> Files:
    """Make the metadata of a package without code that makes vLLM load our plugin."""
    folder = f"{SITE}/{PLUGIN}-{stack.__version__}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {PLUGIN}\nVersion: {stack.__version__}\n"
    return {f"{folder}/METADATA": metadata.encode(), f"{folder}/entry_points.txt": _ENTRY_POINTS.encode()}


def own(carried: Stack) -> Files:
    """Read the stack (pins, series, patches), its laboratory and the code that validates it."""
    files = {pins.FILE: (carried.root / pins.FILE).read_bytes()}
    files |= _below(carried.root / FOLDER, FOLDER, None)
    files |= _below(Path(stack.__file__).parent, "tools/stack", _OURS)
    files |= _below(laboratory.folder(carried.root), laboratory.PLACE, _OURS)
    return files | _below(DATA, "validation", _OURS)


def python_path(root: Path) -> str:
    """Return the value of PYTHONPATH for processes of an unpacked archive."""
    return os.pathsep.join(str(root / folder) for folder in (SITE, "tools", laboratory.HOME))


def _below(folder: Path, name: str, suffixes: tuple[str, ...] | None) -> Files:
    paths = (path for path in folder.rglob("*") if path.is_file() and (suffixes is None or path.suffix in suffixes))
    return {f"{name}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in paths}
