# SPDX-License-Identifier: Apache-2.0
"""Write a simple index of a folder's wheels as static files: HTML (PEP 503), JSON (PEP 691), hashes, core metadata (PEP 714).

pip install --extra-index-url https://example.org/wheels/simple vllm
"""

import hashlib
import html
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from stack.base.errors import StackError
from stack.model.ids import Sha256
from stack.store import cache
from stack.wheels import metadata, zips

FOLDER = "simple"
_META = {"api-version": "1.0"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One wheel of the index."""

    filename: str
    sha256: Sha256
    size: int
    requires_python: str | None
    metadata: bytes


def write(folder: Path) -> Mapping[str, tuple[Entry, ...]]:
    """Write `simple/` next to a folder's wheels, replacing it in one step; links are relative.

    Raises:
        StackError: there is no wheel, or one cannot be read.
        OSError: the folder cannot be written.

    """
    projects: dict[str, list[Entry]] = {}
    for file in sorted(folder.glob("*.whl")):
        try:
            name = parse_wheel_filename(file.name)[0]
        except InvalidWheelFilename as bad:
            raise StackError(f"{file.name} is not the name of a wheel", "remove it from the folder") from bad
        projects.setdefault(name, []).append(_entry(file))
    if not projects:
        raise StackError(f"{folder} has no wheel", "build some there: stack build wheels --out DIR")
    target = folder / FOLDER
    if (target.exists() or target.is_symlink()) and not _is_ours(target):
        raise StackError(f"{target} exists and is not an index", "move it away, or name another folder")
    with cache.lock(target):
        return _written(folder, projects)


def _is_ours(target: Path) -> bool:
    page = target / "index.html"
    return not target.is_symlink() and page.is_file() and b"pypi:repository-version" in page.read_bytes()


def _written(folder: Path, projects: Mapping[str, list[Entry]]) -> Mapping[str, tuple[Entry, ...]]:
    entries_by_project = {name: tuple(entries) for name, entries in sorted(projects.items())}
    for left in folder.glob(f".{FOLDER}-*"):
        shutil.rmtree(left, ignore_errors=True)
    for entry in (entry for entries in entries_by_project.values() for entry in entries):
        cache.put(folder / f"{entry.filename}.metadata", entry.metadata)  # where pip looks for it
    place = Path(tempfile.mkdtemp(prefix=f".{FOLDER}-", dir=folder))
    try:
        place.chmod(0o755)
        _fill(place, entries_by_project)
        _swap(place, folder / FOLDER)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return entries_by_project


def _entry(file: Path) -> Entry:
    with zips.opened(file) as archive:
        names = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA") and name.count("/") == 1]
        if len(names) != 1:
            raise StackError(f"{file.name} has no METADATA", "it is not a wheel: remove it from the folder")
        about = zips.read(archive, names[0])
    python = metadata.fields(about).get("Requires-Python")
    return Entry(file.name, cache.hash_of(file), file.stat().st_size, python, about)


def _fill(place: Path, projects: Mapping[str, tuple[Entry, ...]]) -> None:
    links = "".join(f'<a href="{name}/">{html.escape(name)}</a><br>\n' for name in projects)
    (place / "index.html").write_text(_page("Simple index", links), encoding="utf-8")
    _write_json(place / "index.json", {"meta": _META, "projects": [{"name": name} for name in projects]})
    for name, entries in projects.items():
        own = place / canonicalize_name(name)
        own.mkdir()
        (own / "index.html").write_text(_page(name, "".join(map(_link, entries))), encoding="utf-8")
        _write_json(own / "index.json", {"meta": _META, "name": name, "files": [_file(entry) for entry in entries]})


def _page(title: str, body: str) -> str:
    head = f'<meta name="pypi:repository-version" content="1.0"><title>{html.escape(title)}</title>'
    return f"<!DOCTYPE html>\n<html><head>{head}</head>\n<body>\n{body}</body></html>\n"


def _link(entry: Entry) -> str:
    python = f' data-requires-python="{html.escape(entry.requires_python)}"' if entry.requires_python else ""
    core = f'data-core-metadata="sha256={_hash(entry)}"'
    return f'<a href="{_place(entry)}#sha256={entry.sha256}"{python} {core}>{html.escape(entry.filename)}</a><br>\n'


def _file(entry: Entry) -> dict[str, object]:
    own: dict[str, object] = {
        "filename": entry.filename,
        "url": _place(entry),
        "hashes": {"sha256": entry.sha256},
        "size": entry.size,
        "core-metadata": {"sha256": _hash(entry)},
    }
    return own | ({"requires-python": entry.requires_python} if entry.requires_python else {})


def _place(entry: Entry) -> str:
    return f"../../{quote(entry.filename)}"


def _hash(entry: Entry) -> str:
    return hashlib.sha256(entry.metadata).hexdigest()


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _swap(made: Path, target: Path) -> None:
    """Put a folder in the place of another one; if it is killed in between, the next run completes it."""
    old = made.with_name(f"{made.name}.old")
    if target.exists():
        target.rename(old)
    made.rename(target)
    shutil.rmtree(old, ignore_errors=True)
