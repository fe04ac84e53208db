# SPDX-License-Identifier: Apache-2.0
"""Write a wheel of given files; equal files give equal bytes."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

from stack import __version__
from stack.wheels import metadata, zips
from stack.wheels.zips import Member

_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest time in a ZIP file."""


def write(target: Path, files: Mapping[str, bytes], about: bytes, inside: Mapping[str, bytes]) -> None:
    """Write a wheel; name, version and tag come from the target's name.

    Args:
        target: the wheel; it appears when it is complete.
        files: the files by their path in the wheel.
        about: METADATA.
        inside: further files of its dist-info folder.

    Raises:
        StackError: it would be too large.
        OSError: it cannot be written.

    """
    name, version, tag = target.name.removesuffix(".whl").split("-", 2)
    folder = f"{name}-{version}.dist-info"
    lines = ["Wheel-Version: 1.0", f"Generator: stack {__version__}", "Root-Is-Purelib: false", f"Tag: {tag}"]
    own = {"METADATA": about, "WHEEL": ("\n".join(lines) + "\n").encode(), **inside}
    content = {**files, **{f"{folder}/{path}": data for path, data in own.items()}}
    record = f"{folder}/RECORD"
    rows = {path: metadata.row(data) for path, data in content.items()} | {record: ("", "")}
    content[record] = metadata.record(rows)
    zips.write(target, None, (Member(path, _info(path), data) for path, data in content.items()))


def _info(path: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(path, _TIME)
    info.create_system = 3  # Unix, so that the permissions count
    info.external_attr = (0o100755 if path.endswith(".so") else 0o100644) << 16
    return info
