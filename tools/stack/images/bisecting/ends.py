# SPDX-License-Identifier: Apache-2.0
"""The two ends of a bisection: folders of stacks, or revisions of the repository that the stack at hand stands in."""

import io
import tarfile
from pathlib import Path

from stack.model import pins
from stack.model import stack as stacks
from stack.model.errors import StackError
from stack.model.stack import FOLDER, Stack
from stack.store import git


def load(name: str, root: Path, folder: Path) -> Stack:
    """The stack that a name means: a folder with pins.toml, or a git revision of the stack in `root`, unpacked into `folder`.

    Raises:
        StackError: it is neither, or no stack.

    """
    if (Path(name) / pins.FILE).is_file():
        return stacks.load(Path(name).resolve())
    here = ["-C", str(root)]
    try:
        commit = git.text([*here, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"])
        packed = git.run([*here, "archive", "--format=tar", commit, "--", pins.FILE, FOLDER])
    except StackError as unknown:
        raise StackError(
            f"{name} is no folder of a stack, and no revision of {root} that has one",
            "name a folder with pins.toml or a commit",
        ) from unknown
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return stacks.load(folder)
