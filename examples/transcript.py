# SPDX-License-Identifier: Apache-2.0
"""The README's transcript of the demo: what it says, what the demo prints, and, with --write, the latter in the README."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
_BLOCK = re.compile(r"(<!-- demo -->\n```\n)(.*?)(```\n<!-- /demo -->)", re.DOTALL)


def printed() -> str:
    """What the demo prints."""
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run([ROOT / "examples/demo.sh"], stdout=subprocess.PIPE, text=True, check=True, env=env).stdout.lstrip(
        "\n"
    )


def quoted() -> str:
    """What the README shows."""
    found = _BLOCK.search(README.read_text(encoding="utf-8"))
    return found[2] if found else ""


if __name__ == "__main__":
    transcript = printed()
    if "--write" in sys.argv[1:]:
        README.write_text(
            _BLOCK.sub(lambda found: found[1] + transcript + found[3], README.read_text(encoding="utf-8")), encoding="utf-8"
        )
    elif transcript != quoted():
        sys.exit("README.md shows another transcript: python examples/transcript.py --write")
