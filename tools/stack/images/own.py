# SPDX-License-Identifier: Apache-2.0
"""Build the wheel of this tool itself, which images contain to check their contents and to be validated from inside."""

import hashlib
import importlib.metadata
from pathlib import Path

import stack
from stack.deploy.data import DATA
from stack.wheels import packing

NAME = "git-carry"
"""The name of the distribution; its package and command are called `stack`."""


def wheel(folder: Path) -> Path:
    """Write the wheel into a folder. Its version contains a hash of its files, so no index has another file of that version.

    Raises:
        OSError: it cannot be written.

    """
    files = dict(sorted(_files().items()))
    content = hashlib.sha256(b"".join(f"{path}\0{len(data)}\0".encode() + data for path, data in files.items())).hexdigest()
    version = f"{stack.__version__}+g{content[:8]}"
    target = folder / f"{NAME.replace('-', '_')}-{version}-py3-none-any.whl"
    packing.write(target, files, _about(version), {"entry_points.txt": b"[console_scripts]\nstack = stack.__main__:main\n"})
    return target


def _files() -> dict[str, bytes]:
    contents = {}
    package = Path(stack.__file__).parent
    for folder, name in ((package, "stack"), (DATA, "stack/data")):
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".log":
                contents[f"{name}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
    return contents


def _about(version: str) -> bytes:
    needs = [requirement for requirement in importlib.metadata.requires(NAME) or () if "extra ==" not in requirement]
    lines = ["Metadata-Version: 2.1", f"Name: {NAME}", f"Version: {version}", "Requires-Python: >=3.11"]
    return ("\n".join([*lines, *(f"Requires-Dist: {requirement}" for requirement in sorted(needs))]) + "\n").encode()
