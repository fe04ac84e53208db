# SPDX-License-Identifier: Apache-2.0
"""The user of an image: lines in its files of users and groups, and a home."""

from pathlib import Path

from stack.images.system import Read

HOME = Path("home/stack/.cache/huggingface")
"""The home with the folders that volumes are mounted over, in the build's context."""
# By number, since some bases have a user 1000 of their own.
_LINES = {"/etc/passwd": "stack:x:10001:10001::/home/stack:/bin/sh\n", "/etc/group": "stack:x:10001:\n"}


def add(file: Read, context: Path) -> None:
    """Write the base's files of users and groups with the user `stack` into the context; `file` reads those of the base.

    Raises:
        StackError: The base has no such file.

    """
    for path, line in _LINES.items():
        before = file(path).decode()
        target = context / "root" / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(before if before.endswith(line) else before + line)
        target.chmod(0o644)
        target.parent.chmod(0o755)
