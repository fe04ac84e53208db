# SPDX-License-Identifier: Apache-2.0
"""Read what a wheel or an installed package says about itself, and compare its files with the list in RECORD."""

import contextlib
import glob
import hashlib
import importlib.metadata
import json
import sys
import zipfile
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from packaging.utils import InvalidName, InvalidWheelFilename, canonicalize_name, canonicalize_version, parse_wheel_filename

from stack.base.errors import StackError
from stack.proof import interpreters
from stack.wheels import metadata, zips

_SUFFIX = "_stack.json"
_CHUNK = 1 << 20
_SHOWN = 1000
_ELSEWHERE = ("", "..", "bin")
"""First parts of paths outside of packages' folders, such as scripts; an absolute path has an empty first part."""


@dataclass(frozen=True, slots=True)
class Report:
    """A report on a wheel or an installed package: name, version, description of its stack, number of files, and problems."""

    name: str
    version: str
    described: dict[str, Any] | None
    files: int
    problems: tuple[str, ...]


def wheel(path: Path) -> Report:
    """Read a wheel, and compare every member with its RECORD.

    Raises:
        StackError: the file is not a wheel.

    """
    with zips.opened(path) as archive:
        folder = _folder(path, archive)
        rows = zips.record(archive, folder)
        fields = metadata.fields(zips.read(archive, f"{folder}/METADATA"))
        names = {name for name in archive.namelist() if not name.endswith("/")}
        described = [name for name in names if name.startswith(f"{folder}/") and name.endswith(_SUFFIX)]
        problems = [*_misnamed(path, fields), *_against_record(archive, names, rows, folder)]
        description = _described(path.name, zips.read(archive, described[0])) if described else None
    return Report(fields.get("Name", ""), fields.get("Version", ""), description, len(names), tuple(problems))


def _misnamed(path: Path, fields: Mapping[str, str]) -> Iterator[str]:
    """Yield reasons why pip would take the file for another package, or reject it."""
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename as bad:
        yield f"the file's name is not one of a wheel ({bad})"
        return
    inside = canonicalize_name(fields.get("Name", "")), canonicalize_version(fields.get("Version", ""))
    if inside != (name, canonicalize_version(version)):
        yield f"the file's name says {name} {version}, its METADATA {' '.join(inside)}"


def _folder(path: Path, archive: zipfile.ZipFile) -> str:
    folders = {name.partition("/")[0] for name in archive.namelist() if name.partition("/")[0].endswith(".dist-info")}
    if len(folders) != 1:
        raise StackError(f"{path.name} has {len(folders)} dist-info folders", "a wheel has one")
    return folders.pop()


def _described(name: str, data: bytes) -> dict[str, Any]:
    try:
        description = json.loads(data)
    except (ValueError, RecursionError) as bad:
        raise StackError(f"{name} has an invalid description ({bad})", "it was not made by `stack build wheels`") from bad
    # Wheels of the first format still exist; their description lists patches instead of changed files.
    parts = "files" if isinstance(description, dict) and "files" in description else "patches"
    shape = (("pins", dict), ("base", dict), (parts, list), ("edited", list), ("left_out", list))
    if (
        not isinstance(description, dict)
        or not all(isinstance(description.get(key), kind) for key, kind in shape)
        or not all(isinstance(entry, dict) for entry in (*description["pins"].values(), *description[parts]))
    ):
        raise StackError(f"{name} has an incomplete description", "it was not made by `stack build wheels`")
    return description


def _against_record(archive: zipfile.ZipFile, names: set[str], rows: dict[str, tuple[str, str]], folder: str) -> Iterator[str]:
    unsigned = {f"{folder}/RECORD", f"{folder}/RECORD.jws", f"{folder}/RECORD.p7s"}
    for name in sorted(names - rows.keys() - unsigned):
        yield f"{name} is not in RECORD"
    for name, (checksum, _) in rows.items():
        if name not in names:
            yield f"{name} is missing"
        elif name not in unsigned:
            try:
                with archive.open(name) as file:
                    actual = _checksum(file)
            except zips.BROKEN as bad:
                yield f"{name} is broken ({bad})"
                continue
            if actual != checksum:
                yield f"{name} does not match RECORD"


def _checksum(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return metadata.checksum(digest.digest())


def installed(name: str, python: Path | None = None, against: Path | None = None, *, bytecode: bool = False) -> Report:
    """Read an installed package, and compare its files with the installer's RECORD and with a wheel.

    Args:
        name: the package.
        python: the interpreter with the package; by default this one.
        against: the wheel that it should have come from.
        bytecode: also check Python's compiled files, by compiling each source again.

    Raises:
        StackError: it is not installed, the interpreter does not answer, or `against` is not a wheel.

    """
    try:
        canonicalize_name(name, validate=True)
    except InvalidName as bad:
        raise StackError(f"{name!r} is not a package name", "name a package, or a wheel's file (it ends in .whl)") from bad
    distributions = list(importlib.metadata.distributions(name=name, path=interpreters.paths(python)) if python else _own(name))
    if not distributions:
        raise StackError(f"{name} is not installed", "name a package, or a wheel's file (it ends in .whl)")
    distribution = distributions[0]
    folder = Path(str(distribution.locate_file("")))
    problems = list(_doubts(distribution))
    wanted: dict[str, str] = {}
    if against is not None:
        problems += [f"{against.name}: {problem}" for problem in wheel(against).problems]
        wanted = _wheel_rows(against)
    files: dict[str, tuple[str, str]] = {}
    try:
        files = metadata.parsed_record((distribution.read_text("RECORD") or "").encode())
    except ValueError as bad:
        problems.append(f"RECORD cannot be read ({bad}): the installed files are unknown")
    problems += [f"{path} is not in RECORD" for path in _unlisted(folder, files.keys())]
    for path, (noted, _) in files.items():
        have = _hash_of(folder / path)
        if not noted and not path.endswith((".dist-info/RECORD", ".pyc")):
            problems.append(f"{path} has no hash in RECORD")
        elif have is None:
            problems.append(f"{path} is missing")
        elif noted and have != noted:
            problems.append(f"{path} is not what was installed")
        elif path in wanted and have != wanted[path]:
            problems.append(f"{path} is not that of {against.name if against else ''}")
    if bytecode:
        problems += [f"{path} is not compiled from its source" for path in _forged(folder, files.keys(), python)]
    if against is not None:
        foreign = (path for path in files.keys() - wanted.keys() if _of_a_wheel(path))
        problems += [f"{path} is not in {against.name}" for path in sorted(foreign)]
    problems += [f"{path} was not installed" for path in sorted(wanted.keys() - files.keys())]
    described_in = next((folder / path for path in files if path.endswith(_SUFFIX) and ".dist-info/" in path), None)
    described = _described(name, described_in.read_bytes()) if described_in is not None and described_in.is_file() else None
    fields = _fields(distribution)
    return Report(fields.get("Name", ""), fields.get("Version", ""), described, len(files), tuple(problems[:_SHOWN]))


def _fields(distribution: importlib.metadata.Distribution) -> dict[str, str]:
    try:
        return metadata.fields((distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or "").encode())
    except ValueError as bad:
        raise StackError(f"the METADATA of the installed package cannot be read ({bad})", "install it again") from bad


def _doubts(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    """Yield the reasons why an installation cannot be checked."""
    with contextlib.suppress(ValueError):  # an unreadable RECORD is reported elsewhere
        if not distribution.read_text("RECORD"):
            yield "there is no RECORD: the installed files are unknown"
    with contextlib.suppress(ValueError, AttributeError, RecursionError):
        if json.loads(distribution.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"):
            yield "it is an editable installation: its files are those of a working tree"


def _unlisted(folder: Path, listed: Set[str]) -> Iterator[str]:
    """Yield importable files in the package's folders that the installer did not record, except for compiled files of Python."""
    tops = {path.partition("/")[0] for path in listed if "/" in path}
    for top in sorted(top for top in tops if not top.endswith(".dist-info") and top not in (*_ELSEWHERE, "__pycache__")):
        for path in sorted((folder / top).rglob("*")):
            name = path.relative_to(folder).as_posix()
            if name not in listed and (path.is_file() or (path.is_symlink() and path.is_dir())) and not _kept(Path(name)):
                yield name


def _kept(path: Path) -> bool:
    """Return whether a file is a cache of Python, or of a JIT such as Numba's, and not itself a module."""
    if "__pycache__" in path.parts[:-2] or path.parent.name != "__pycache__":
        return False
    return path.suffix not in (".py", ".so") and (path.suffix != ".pyc" or "." in path.stem)


def _forged(folder: Path, listed: Set[str], python: Path | None) -> Iterator[str]:
    """Yield compiled files that Python would run although they do not match their sources."""
    sources = [folder / path for path in sorted(listed) if path.endswith(".py")]
    compiled = {
        cached: path
        for path in sources
        if path.is_file()
        for cached in path.parent.glob(f"__pycache__/{glob.escape(path.stem)}.*.pyc")
    }
    odd = [cached for cached in compiled if not cached.is_file()]  # a device has no end
    given = {str(cached): str(path) for cached, path in compiled.items() if cached not in odd}
    for cached in [*odd, *map(Path, interpreters.forged(python or Path(sys.executable), given))]:
        yield cached.relative_to(folder).as_posix()


def _own(name: str) -> Iterator[importlib.metadata.Distribution]:
    yield from importlib.metadata.distributions(name=name)


def _wheel_rows(path: Path) -> dict[str, str]:
    """Return the hashes of the files that a wheel installs unchanged."""
    with zips.opened(path) as archive:
        folder = _folder(path, archive)
        rows = zips.record(archive, folder)
    data = f"{folder.removesuffix('.dist-info')}.data/"
    libraries = {name: name.removeprefix(f"{data}purelib/").removeprefix(f"{data}platlib/") for name in rows}
    return {libraries[name]: row[0] for name, row in rows.items() if row[0] and not libraries[name].startswith(data)}


def _of_a_wheel(path: str) -> bool:
    """Return whether an installed file can only come from a wheel: installers add records, scripts and compiled files."""
    top = path.partition("/")[0]
    return not (top.endswith(".dist-info") or top in _ELSEWHERE or _kept(Path(path)))


def _hash_of(path: Path) -> str | None:
    try:
        if not path.is_file():  # a device has no end
            return None
        with path.open("rb") as file:
            return _checksum(file)
    except OSError:
        return None
