# SPDX-License-Identifier: Apache-2.0
"""The README's transcripts of the demo and the plan: what it says, what they print, and, with --write, the latter in the README."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
NAMES = ("demo", "plan")


def printed(name: str) -> str:
    """What `<name>.sh` prints."""
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([ROOT / f"examples/{name}.sh"], stdout=subprocess.PIPE, text=True, check=True, env=env)
    return done.stdout.lstrip("\n")


def quoted(name: str) -> str:
    """What the README shows."""
    found = _block(name).search(README.read_text(encoding="utf-8"))
    return found[2] if found else ""


def _block(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name} -->\n```\n)(.*?)(```\n<!-- /{name} -->)", re.DOTALL)


if __name__ == "__main__":
    for name in NAMES:
        transcript = printed(name)
        if "--write" in sys.argv[1:]:
            text = README.read_text(encoding="utf-8")
            README.write_text(_block(name).sub(lambda found: found[1] + transcript + found[3], text), encoding="utf-8")  # noqa: B023
        elif transcript != quoted(name):
            sys.exit(f"README.md shows another transcript of {name}: python examples/transcript.py --write")
