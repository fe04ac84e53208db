# SPDX-License-Identifier: Apache-2.0
"""Print a folder for the temporary files of the quick tests: in memory where there is one that takes them, else the usual one.

Git writes thousands of small files in the quick tests. On a disk that is a quarter of their processor time.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOM = 4 * 2**30
"""Bytes that have to be free: the quick tests take a tenth at a time."""


def usable(folder: Path, room: int = ROOM) -> bool:
    """Return whether a folder has room, and lets programs run that lie in it: a container's often does neither."""
    try:
        if shutil.disk_usage(folder).free < room:
            return False
        with tempfile.TemporaryDirectory(dir=folder) as inside:
            script = Path(inside, "script")
            script.write_text("#!/bin/sh\n")
            script.chmod(0o700)
            return subprocess.run([script], check=False).returncode == 0
    except OSError:
        return False


if __name__ == "__main__":
    folder = Path("/dev/shm")  # where Linux has it
    sys.stdout.write(os.environ.get("TMPDIR") or (str(folder) if usable(folder) else tempfile.gettempdir()))
