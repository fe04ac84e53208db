# SPDX-License-Identifier: Apache-2.0
"""Write what the demo, the plan and the tutorials print into the documentation; `make transcripts` runs it.

`transcript.py NAME...` runs these only.
"""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = {
    "demo": ROOT / "docs/demo.md",
    "plan": ROOT / "docs/export-pr.md",
    "tutorial": ROOT / "docs/tutorial.md",
    "spark": ROOT / "docs/spark.md",
}
_PART = re.compile(r"^# (\w[\w-]*)\n", re.MULTILINE)
"""A line of an example's output that begins a part. Its page shows each part between comments of its own."""


def printed(name: str) -> str:
    """Run `<name>.sh` and return what it prints."""
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    # As on a terminal of this size, which a reader of the page can see without scrolling.
    env |= {"STACK_COLUMNS": "80", "LINES": "40"}
    done = subprocess.run([ROOT / f"examples/{name}.sh"], stdout=subprocess.PIPE, text=True, check=True, env=env)
    return done.stdout.lstrip("\n")


def quoted(name: str) -> str:
    """Return what the example's page shows between the comments `<!-- name -->` and `<!-- /name -->`, or those of its parts."""
    found = list(_block(name).finditer(PAGES[name].read_text(encoding="utf-8")))
    return "\n".join(f"# {block['part']}\n\n{block['text']}" if block["part"] else block["text"] for block in found)


def _block(name: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?P<start><!-- {name}(?:: (?P<part>[\w-]+))? -->\n```\n)(?P<text>.*?)"
        rf"(?P<end>```\n<!-- /{name}(?(part): (?P=part)) -->)",
        re.DOTALL,
    )


def _parts(transcript: str) -> dict[str | None, str]:
    """Split a transcript at its part lines; one without any is one part without a name."""
    first, *rest = _PART.split(transcript)
    named = dict(zip(rest[::2], rest[1::2], strict=True))
    return {part: text.strip("\n") + "\n" for part, text in named.items()} or {None: first}


def _with(parts: dict[str | None, str], found: re.Match[str]) -> str:
    return f"{found['start']}{parts[found['part']]}{found['end']}"


def main(names: list[str]) -> None:
    """Run the examples, and replace their transcripts when all have passed."""
    transcripts = {name: printed(name) for name in names or PAGES}
    for name, transcript in transcripts.items():
        page = PAGES[name]
        text = _block(name).sub(partial(_with, _parts(transcript)), page.read_text(encoding="utf-8"))
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
