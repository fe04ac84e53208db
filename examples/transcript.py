# SPDX-License-Identifier: Apache-2.0
"""Write what the demo and the plan print into the documentation; `make transcripts` runs it."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = {"demo": ROOT / "docs/demo.md", "plan": ROOT / "docs/export-pr.md"}


def printed(name: str) -> str:
    """Run `<name>.sh` and return what it prints."""
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    # As on a terminal of this size, which a reader of the page can see without scrolling.
    env |= {"STACK_COLUMNS": "80", "LINES": "40"}
    done = subprocess.run([ROOT / f"examples/{name}.sh"], stdout=subprocess.PIPE, text=True, check=True, env=env)
    return done.stdout.lstrip("\n")


def quoted(name: str) -> str:
    """Return what the example's page shows between the comments `<!-- name -->` and `<!-- /name -->`."""
    found = _block(name).search(PAGES[name].read_text(encoding="utf-8"))
    return found[2] if found else ""


def _block(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name} -->\n```\n)(.*?)(```\n<!-- /{name} -->)", re.DOTALL)


def _with(transcript: str, found: re.Match[str]) -> str:
    return f"{found[1]}{transcript}{found[3]}"


def main() -> None:
    """Run every example, and replace its transcript when all have passed."""
    transcripts = {name: printed(name) for name in PAGES}
    for name, page in PAGES.items():
        text = _block(name).sub(partial(_with, transcripts[name]), page.read_text(encoding="utf-8"))
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
