# SPDX-License-Identifier: Apache-2.0
"""Make a wheel by replacing patched files in a published one; compiled files stay unchanged, to the byte.

A file is only replaced if its published content equals the pin's: a wheel is built from more than its sources.
"""

import hashlib
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from stack.base.errors import StackError
from stack.model.ids import Sha256
from stack.projects import Edits
from stack.wheels import metadata, zips
from stack.wheels.zips import Member

_SIGNATURES = ("RECORD.jws", "RECORD.p7s")
_VERSION_LINE = re.compile(rb"^__version__ = version = .*$", re.MULTILINE)
_TUPLE_LINE = re.compile(rb"^__version_tuple__ = version_tuple = .*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Patched:
    """One patched file: its blob at the pin (None if it is new), and its patched content (None if it is removed)."""

    base: str | None
    content: bytes | None


@dataclass(frozen=True, slots=True)
class Base:
    """A published wheel: its path, and the parts of its name."""

    path: Path
    sha256: Sha256
    name: str
    version: Version
    tag: str
    """Python tag, ABI tag and platforms, as in the name."""

    @property
    def folder(self) -> str:
        """Its dist-info folder."""
        return f"{self.path.name.split('-')[0]}-{self.path.name.split('-')[1]}.dist-info"


@dataclass(frozen=True, slots=True)
class OverlayPlan:
    """The new wheel: its name and version, the patched files by path, and edits of METADATA."""

    name: str
    version: Version
    files: Mapping[str, Patched]
    edits: Edits = field(default_factory=Edits)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked overlay: the replaced and added members, and a description of what was done."""

    plan: OverlayPlan
    base: Base
    replaced: Mapping[str, bytes | None]
    added: Mapping[str, bytes]
    edited: tuple[str, ...]
    left_out: tuple[str, ...]
    """Patched files that the wheel does not contain: tests and documents."""

    @property
    def folder(self) -> str:
        """The new dist-info folder."""
        return f"{stem(self.plan.name, self.plan.version)}.dist-info"

    @property
    def filename(self) -> str:
        """The new wheel's name."""
        return f"{stem(self.plan.name, self.plan.version)}-{self.base.tag}.whl"


def stem(name: str, version: Version) -> str:
    """Return the first part of the names of a wheel and its folders."""
    return f"{name.replace('-', '_')}-{version}"


def published(path: Path, sha256: Sha256) -> Base:
    """Describe a wheel by its file.

    Raises:
        StackError: its name is not one of a wheel.

    """
    try:
        name, version, build, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename as bad:
        raise StackError(f"{path.name} is not the name of a wheel", "name a .whl file") from bad
    place = 3 if build else 2
    return Base(path, sha256, name, version, "-".join(path.name.removesuffix(".whl").split("-")[place:]))


def prepare(base: Base, plan: OverlayPlan) -> Prepared:
    """Check that the patched files fit a wheel.

    Raises:
        StackError: a file differs from the pin's there, or the wheel cannot be read.

    """
    with zips.opened(base.path) as archive:
        names = set(archive.namelist())
        tops = {name.partition("/")[0] for name in names if not name.startswith(base.folder)}
        inside = {path: file for path, file in plan.files.items() if path.partition("/")[0] in tops}
        for path, file in inside.items():
            _check(base, archive, path, file, path in names)
        replaced: dict[str, bytes | None] = {path: file.content for path, file in inside.items() if path in names}
        added = {path: file.content for path, file in inside.items() if path not in names and file.content is not None}
        edited = [f"{path} is {_word(path in replaced, file)}" for path, file in sorted(inside.items())]
        for name in _version_files(names, tops):
            data = replaced.get(name) or zips.read(archive, name)
            if _VERSION_LINE.search(data):
                replaced[name] = _versioned(data, plan.version)
                edited.append(f"{name} has the version {plan.version}")
        others = {name.partition("/")[0] for name in names if ".dist-info/" in name} - {base.folder}
        if others:
            raise StackError(
                f"{base.path.name} has another dist-info folder, {others.pop()}", "a wheel has one: fetch it again"
            )
        try:
            about, edited_metadata = metadata.metadata(
                zips.read(archive, f"{base.folder}/METADATA"), plan.name, str(plan.version), plan.edits
            )
        except UnicodeDecodeError as bad:
            raise StackError(f"{base.path.name}: METADATA is not UTF-8", "fetch the wheel again") from bad
        tags = parse_wheel_filename(base.path.name)[3]
        wheel = zips.read(archive, f"{base.folder}/WHEEL")
        tagged = metadata.wheel(wheel, tags)
        if tagged != wheel:
            edited_metadata = (*edited_metadata, "WHEEL has the tags of the file's name")
    replaced |= {f"{base.folder}/METADATA": about, f"{base.folder}/WHEEL": tagged}
    left_out = tuple(sorted(plan.files.keys() - inside.keys()))
    return Prepared(plan, base, replaced, added, (*edited, *edited_metadata), left_out)


def _word(exists: bool, file: Patched) -> str:
    return "new" if not exists else "patched" if file.content is not None else "removed"


def _check(base: Base, archive: zipfile.ZipFile, path: str, file: Patched, exists: bool) -> None:
    have = _blob(zips.read(archive, path)) if exists else None
    if have == file.base:
        return
    if have is None:
        problem, remedy = f"has no {path}, which the patches change", "pin the release of the wheel"
    elif file.base is None:
        problem, remedy = f"has a {path} already, which the patches add", "rename the patch's file"
    else:
        problem, remedy = f"has another {path} than the pin", "patches of that file need a build from source"
    raise StackError(f"{base.path.name} {problem}", remedy)


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _version_files(names: set[str], tops: set[str]) -> list[str]:
    return sorted(name for name in (f"{top}/_version.py" for top in tops) if name in names)


def _versioned(data: bytes, version: Version) -> bytes:
    """Set the version in a file that vcs-versioning or setuptools-scm wrote."""
    parts = (*version.release, *([version.local] if version.local else []))
    data = _VERSION_LINE.sub(f"__version__ = version = {str(version)!r}".encode(), data)
    return _TUPLE_LINE.sub(f"__version_tuple__ = version_tuple = {parts!r}".encode(), data)


def build(prepared: Prepared, target: Path, described: Mapping[str, bytes]) -> None:
    """Write the wheel; `described` has further files of its dist-info folder.

    Raises:
        StackError: the published wheel is broken, or the new one would be too large.
        OSError: it cannot be written.

    """
    base = prepared.base
    with zips.opened(base.path) as archive:
        rows = zips.record(archive, base.folder)
        members = list(_members(prepared, archive, rows, described))
    zips.write(target, base.path, members)


def _members(
    prepared: Prepared, archive: zipfile.ZipFile, rows: Mapping[str, tuple[str, str]], described: Mapping[str, bytes]
) -> Iterator[Member]:
    """Yield the new wheel's members in order: the package, then its dist-info folder, RECORD last."""
    base = prepared.base
    dated = archive.getinfo(f"{base.folder}/WHEEL")
    record: dict[str, tuple[str, str]] = {}
    last: list[Member] = []
    for info in archive.infolist():
        name = info.filename
        if name in (f"{base.folder}/{signed}" for signed in ("RECORD", *_SIGNATURES)):
            continue
        data = prepared.replaced.get(name)
        if name in prepared.replaced and data is None:
            continue
        inside = name.startswith(f"{base.folder}/")
        now = f"{prepared.folder}{name.removeprefix(base.folder)}" if inside else name
        data_folder = f"{base.folder.removesuffix('.dist-info')}.data/"
        if name.startswith(data_folder):  # pip looks for it under the wheel's new name
            now = f"{prepared.folder.removesuffix('.dist-info')}.data/{name.removeprefix(data_folder)}"
        if not name.endswith("/"):
            if data is None and name not in rows:
                raise StackError(f"{base.path.name}: RECORD does not name {name}", "fetch the wheel again")
            record[now] = rows[name] if data is None else metadata.row(data)
        member = Member(now, info, data)
        if inside:
            last.append(member)
        else:
            yield member
    new = {**prepared.added, **{f"{prepared.folder}/{name}": data for name, data in described.items()}}
    for name, data in sorted(new.items()):
        record[name] = metadata.row(data)
        member = Member(name, dated, data)
        if name in prepared.added:
            yield member
        else:
            last.append(member)
    yield from last
    listed = [name for name in record if not name.startswith(f"{prepared.folder}/")]
    order = [*listed, *(name for name in record if name.startswith(f"{prepared.folder}/"))]
    own = f"{prepared.folder}/RECORD"
    table = metadata.record({**{name: record[name] for name in order}, own: ("", "")})
    yield Member(own, dated, table)
