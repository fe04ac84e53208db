# SPDX-License-Identifier: Apache-2.0
"""What a wheel, or an installed package, says of itself, and whether its files are the ones that it lists."""

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
"""How the paths of scripts, and of others that lie outside of packages' folders, begin; an absolute one begins with nothing."""


@dataclass(frozen=True, slots=True)
class Report:
    """A wheel or an installed package: its name and version, what it says of its stack, how many files were looked at, what is wrong."""

    name: str
    version: str
    described: dict[str, Any] | None
    files: int
    problems: tuple[str, ...]


def wheel(path: Path) -> Report:
    """Read a wheel, and compare every member with its RECORD.

    Raises:
        StackError: it is no wheel.

    """
    with zips.opened(path) as archive:
        folder = _folder(path, archive)
        rows = zips.record(archive, folder)
        fields = metadata.fields(zips.read(archive, f"{folder}/METADATA"))
        names = {name for name in archive.namelist() if not name.endswith("/")}
        described = [name for name in names if name.startswith(f"{folder}/") and name.endswith(_SUFFIX)]
        problems = [*_misnamed(path, fields), *_against_record(archive, names, rows, folder)]
        said = _described(path.name, zips.read(archive, described[0])) if described else None
    return Report(fields.get("Name", ""), fields.get("Version", ""), said, len(names), tuple(problems))


def _misnamed(path: Path, fields: Mapping[str, str]) -> Iterator[str]:
    """Why pip would take the file for another package, or for none."""
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename as bad:
        yield f"the file's name is none of a wheel ({bad})"
        return
    inside = canonicalize_name(fields.get("Name", "")), canonicalize_version(fields.get("Version", ""))
    if inside != (name, canonicalize_version(version)):
        yield f"the file's name says {name} {version}, its METADATA {' '.join(inside)}"


def _folder(path: Path, archive: zipfile.ZipFile) -> str:
    found = {name.partition("/")[0] for name in archive.namelist() if name.partition("/")[0].endswith(".dist-info")}
    if len(found) != 1:
        raise StackError(f"{path.name} has {len(found)} dist-info folders", "a wheel has one")
    return found.pop()


def _described(name: str, data: bytes) -> dict[str, Any]:
    try:
        said = json.loads(data)
    except (ValueError, RecursionError) as bad:
        raise StackError(f"{name} describes itself in no JSON ({bad})", "it was not made by `stack build wheels`") from bad
    # Of the first format, which listed patches in place of the files that they change, wheels are still about.
    parts = "files" if isinstance(said, dict) and "files" in said else "patches"
    shape = (("pins", dict), ("base", dict), (parts, list), ("edited", list), ("left_out", list))
    if (
        not isinstance(said, dict)
        or not all(isinstance(said.get(key), kind) for key, kind in shape)
        or not all(isinstance(one, dict) for one in (*said["pins"].values(), *said[parts]))
    ):
        raise StackError(f"{name} does not describe itself", "it was not made by `stack build wheels`")
    return said


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
                    found = _checksum(file)
            except zips.BROKEN as bad:
                yield f"{name} is broken ({bad})"
                continue
            if found != checksum:
                yield f"{name} is not what RECORD says"


def _checksum(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return metadata.checksum(digest.digest())


def installed(name: str, python: Path | None = None, against: Path | None = None, *, bytecode: bool = False) -> Report:
    """Read an installed package, and compare its files with what its installer noted, and with a wheel.

    Args:
        name: the package.
        python: whose packages; this interpreter's unless given.
        against: the wheel that it should have come from.
        bytecode: look into what Python has compiled of its sources, too: each is compiled again.

    Raises:
        StackError: it is not installed, the interpreter does not answer, or what is compared with is no wheel.

    """
    try:
        canonicalize_name(name, validate=True)
    except InvalidName as bad:
        raise StackError(f"{name!r} is no name of a package", "name one, or a wheel's file (it ends in .whl)") from bad
    found = list(importlib.metadata.distributions(name=name, path=interpreters.paths(python)) if python else _own(name))
    if not found:
        raise StackError(f"{name} is not installed", "name a package, or a wheel's file (it ends in .whl)")
    one = found[0]
    folder = Path(str(one.locate_file("")))
    problems = list(_doubts(one))
    wanted: dict[str, str] = {}
    if against is not None:
        problems += [f"{against.name}: {problem}" for problem in wheel(against).problems]
        wanted = _wheel_rows(against)
    files: dict[str, tuple[str, str]] = {}
    try:
        files = metadata.parsed_record((one.read_text("RECORD") or "").encode())
    except ValueError as bad:
        problems.append(f"RECORD cannot be read ({bad}): what was installed cannot be told")
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
    said = next((folder / path for path in files if path.endswith(_SUFFIX) and ".dist-info/" in path), None)
    described = _described(name, said.read_bytes()) if said is not None and said.is_file() else None
    fields = _fields(one)
    return Report(fields.get("Name", ""), fields.get("Version", ""), described, len(files), tuple(problems[:_SHOWN]))


def _fields(one: importlib.metadata.Distribution) -> dict[str, str]:
    try:
        return metadata.fields((one.read_text("METADATA") or one.read_text("PKG-INFO") or "").encode())
    except ValueError as bad:
        raise StackError(f"the METADATA of what is installed cannot be read ({bad})", "install it again") from bad


def _doubts(one: importlib.metadata.Distribution) -> Iterator[str]:
    """Why nothing can be told of an installation."""
    with contextlib.suppress(ValueError):  # that it cannot be read is another matter
        if not one.read_text("RECORD"):
            yield "there is no RECORD: what was installed cannot be told"
    with contextlib.suppress(ValueError, AttributeError, RecursionError):
        if json.loads(one.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"):
            yield "it is an editable installation: its files are those of a working tree"


def _unlisted(folder: Path, listed: Set[str]) -> Iterator[str]:
    """What can be imported from the package's own folders and its installer did not note; what Python compiled is passed over."""
    tops = {path.partition("/")[0] for path in listed if "/" in path}
    for top in sorted(top for top in tops if not top.endswith(".dist-info") and top not in (*_ELSEWHERE, "__pycache__")):
        for path in sorted((folder / top).rglob("*")):
            name = path.relative_to(folder).as_posix()
            if name not in listed and (path.is_file() or (path.is_symlink() and path.is_dir())) and not _kept(Path(name)):
                yield name


def _kept(path: Path) -> bool:
    """Whether a file is what Python, or a JIT such as Numba's, keeps of a module, and is itself no module."""
    if "__pycache__" in path.parts[:-2] or path.parent.name != "__pycache__":
        return False
    return path.suffix not in (".py", ".so") and (path.suffix != ".pyc" or "." in path.stem)


def _forged(folder: Path, listed: Set[str], python: Path | None) -> Iterator[str]:
    """Compiled files that Python would run, and that are not what it makes of their sources."""
    sources = [folder / path for path in sorted(listed) if path.endswith(".py")]
    compiled = {
        one: path
        for path in sources
        if path.is_file()
        for one in path.parent.glob(f"__pycache__/{glob.escape(path.stem)}.*.pyc")
    }
    odd = [one for one in compiled if not one.is_file()]  # a device never ends
    given = {str(one): str(path) for one, path in compiled.items() if one not in odd}
    for one in [*odd, *map(Path, interpreters.forged(python or Path(sys.executable), given))]:
        yield one.relative_to(folder).as_posix()


def _own(name: str) -> Iterator[importlib.metadata.Distribution]:
    yield from importlib.metadata.distributions(name=name)


def _wheel_rows(path: Path) -> dict[str, str]:
    """The hashes of the files that a wheel installs as they are."""
    with zips.opened(path) as archive:
        folder = _folder(path, archive)
        rows = zips.record(archive, folder)
    data = f"{folder.removesuffix('.dist-info')}.data/"
    libraries = {name: name.removeprefix(f"{data}purelib/").removeprefix(f"{data}platlib/") for name in rows}
    return {libraries[name]: row[0] for name, row in rows.items() if row[0] and not libraries[name].startswith(data)}


def _of_a_wheel(path: str) -> bool:
    """Whether an installed file can only come from a wheel: installers add notes, scripts and what Python compiles."""
    top = path.partition("/")[0]
    return not (top.endswith(".dist-info") or top in _ELSEWHERE or _kept(Path(path)))


def _hash_of(path: Path) -> str | None:
    try:
        if not path.is_file():  # a device never ends
            return None
        with path.open("rb") as file:
            return _checksum(file)
    except OSError:
        return None
