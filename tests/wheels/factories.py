# SPDX-License-Identifier: Apache-2.0
"""Small wheels, as build backends write them, and an index that offers them."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from stack.wheels import metadata

from ..store.factories import sha256

TAG = "cp38-abi3-manylinux_2_28_x86_64"
METADATA = """\
Metadata-Version: 2.4
Name: {name}
Version: {version}
Requires-Python: >=3.8
Requires-Dist: torch==2.13.0+cpu; platform_machine == "x86_64"
Requires-Dist: torchvision
Requires-Dist: click

Words.

Version: of another kind
"""


def wheel(
    folder: Path,
    files: Mapping[str, bytes],
    *,
    name: str = "gamma-pkg",
    version: str = "2.0",
    tag: str = TAG,
    wrong_tag: str = TAG,
    about: str = METADATA,
) -> Path:
    """A wheel in a folder; `wrong_tag` is what its WHEEL file says, `about` its METADATA."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    own = {
        "licenses/LICENSE": b"free\n",
        "METADATA": about.format(name=name, version=version).encode(),
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: false\nTag: {wrong_tag}\n\n".encode(),
        "top_level.txt": b"gamma\n",
    }
    content = {**files, **{f"{stem}.dist-info/{path}": data for path, data in own.items()}}
    rows = {path: metadata.row(data) for path, data in content.items()}
    record = f"{stem}.dist-info/RECORD"
    content[record] = metadata.record(rows | {record: ("", "")})
    path = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in content.items():
            info = zipfile.ZipInfo(member, (2026, 10, 17, 21, 45, 46))
            info.external_attr = 0o100755 << 16
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return path


def offer(index: Path, monkeypatch: pytest.MonkeyPatch, *wheels: Path) -> None:
    """Make an index of wheels, and the only one."""
    for one in wheels:
        page = index / one.name.split("-")[0].replace("_", "-").lower() / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        known = page.read_text() if page.exists() else "<!DOCTYPE html>\n"
        page.write_text(f'{known}<a href="{one.resolve().as_uri()}#sha256={sha256(one)}">{one.name}</a>\n')
    monkeypatch.setenv("PIP_INDEX_URL", f"file://{index}/")
