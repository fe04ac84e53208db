# SPDX-License-Identifier: Apache-2.0
"""What a wheel, or an installed package, says of itself, and whether its files are the ones that it lists."""

import contextlib
import hashlib
import importlib.metadata
import json
import sys
import zipfile
import zlib
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from stack.model.errors import StackError
from stack.proof import interpreters
from stack.wheels import metadata, zips

_SUFFIX = "_stack.json"
_CHUNK = 1 << 20
_SHOWN = 1000


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
        problems = list(_against_record(archive, names, rows, folder))
        said = _described(path.name, zips.read(archive, described[0])) if described else None
    return Report(fields.get("Name", ""), fields.get("Version", ""), said, len(names), tuple(problems))


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
    shape = (("pins", dict), ("base", dict), ("patches", list), ("edited", list), ("left_out", list))
    if not isinstance(said, dict) or not all(isinstance(said.get(key), kind) for key, kind in shape):
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
            except (zipfile.BadZipFile, zlib.error, EOFError) as bad:
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
        StackError: it is not installed, or the interpreter does not answer.

    """
    found = list(importlib.metadata.distributions(name=name, path=interpreters.paths(python)) if python else _own(name))
    if not found:
        raise StackError(f"{name} is not installed", "name a package, or a wheel's file (it ends in .whl)")
    one = found[0]
    wanted = _wheel_rows(against) if against is not None else {}
    folder = Path(str(one.locate_file("")))
    problems = list(_doubts(one))
    files = {file.as_posix(): file for file in one.files or ()}
    problems += [f"{path} is not in RECORD" for path in _unlisted(folder, files.keys())]
    for path, file in files.items():
        noted = f"{file.hash.mode}={file.hash.value}" if file.hash is not None else None
        have = _hash_of(folder / path)
        if noted is None and not path.endswith((".dist-info/RECORD", ".pyc")):
            problems.append(f"{path} has no hash in RECORD")
        elif have is None:
            problems.append(f"{path} is missing")
        elif noted is not None and have != noted:
            problems.append(f"{path} is not what was installed")
        elif path in wanted and have != wanted[path]:
            problems.append(f"{path} is not that of {against.name if against else ''}")
    if bytecode:
        problems += [f"{path} is not compiled from its source" for path in _forged(folder, files.keys(), python)]
    problems += [f"{path} was not installed" for path in sorted(wanted.keys() - files.keys())]
    said = next((folder / path for path in files if path.endswith(_SUFFIX) and ".dist-info/" in path), None)
    described = _described(name, said.read_bytes()) if said is not None and said.is_file() else None
    return Report(one.metadata["Name"], one.version, described, len(files), tuple(problems[:_SHOWN]))


def _doubts(one: importlib.metadata.Distribution) -> Iterator[str]:
    """Why nothing can be told of an installation."""
    if one.files is None:
        yield "there is no RECORD: what was installed cannot be told"
    with contextlib.suppress(ValueError, AttributeError):
        if json.loads(one.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"):
            yield "it is an editable installation: its files are those of a working tree"


def _unlisted(folder: Path, listed: Set[str]) -> Iterator[str]:
    """Files in the package's own folders that its installer did not note; what Python compiled is passed over."""
    tops = {path.partition("/")[0] for path in listed if "/" in path}
    for top in sorted(top for top in tops if not top.endswith(".dist-info") and top not in ("..", "__pycache__", "bin")):
        for path in sorted((folder / top).rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and name not in listed and "__pycache__" not in path.parts:
                yield name


def _forged(folder: Path, listed: Set[str], python: Path | None) -> Iterator[str]:
    """Compiled files that Python would run, and that are not what it makes of their sources."""
    sources = [folder / path for path in sorted(listed) if path.endswith(".py")]
    compiled = {str(one): str(path) for path in sources for one in path.parent.glob(f"__pycache__/{path.stem}.*.pyc")}
    for one in interpreters.forged(python or Path(sys.executable), compiled):
        yield Path(one).relative_to(folder).as_posix()


def _own(name: str) -> Iterator[importlib.metadata.Distribution]:
    yield from importlib.metadata.distributions(name=name)


def _wheel_rows(path: Path) -> dict[str, str]:
    """The hashes of the files that a wheel installs as they are."""
    with zips.opened(path) as archive:
        folder = _folder(path, archive)
        rows = zips.record(archive, folder)
    data = f"{folder.removesuffix('.dist-info')}.data/"
    return {name: row[0] for name, row in rows.items() if row[0] and not name.startswith(data)}


def _hash_of(path: Path) -> str | None:
    try:
        if not path.is_file():  # a device never ends
            return None
        with path.open("rb") as file:
            return _checksum(file)
    except OSError:
        return None
