# SPDX-License-Identifier: Apache-2.0
"""Draw what `any-fork.sh` prints on a terminal of 80 columns, for the README; `make transcripts` runs it."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).parents[1]
WIDTH = 80
THEMES = {
    "light": TerminalTheme(
        *((246, 248, 250), (31, 35, 40)),
        [(31, 35, 40), (207, 34, 46), (17, 99, 41), (125, 78, 0), (9, 105, 218), (130, 80, 223), (27, 124, 131), (87, 96, 106)],
    ),
    "dark": TerminalTheme(
        *((13, 17, 23), (230, 237, 243)),
        [
            (72, 79, 88),
            (255, 123, 114),
            (63, 185, 80),
            (210, 153, 34),
            (88, 166, 255),
            (188, 140, 255),
            (57, 197, 207),
            (177, 186, 196),
        ],
    ),
}
"""Background, text, and the eight colours of a terminal; each has a contrast of at least 4.5 to its background."""
TITLE = "Three commands carry a fork to the next release: one patch moved, one has landed"
# Rich's own frame loads fonts from elsewhere.
FRAME = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img" \
aria-label="{title}">
<style>.{unique_id}-matrix {{ font: {char_height}px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }}
.{unique_id}-matrix text {{ white-space: pre; }}
{styles}</style>
<defs>{lines}</defs>
<rect width="100%" height="100%" rx="8" fill="{background}"/>
<g transform="translate(12, 8)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def pictures() -> dict[str, str]:
    """Run the example, and return a drawing of its output by the name of its file."""
    output = _printed()
    return {f"rebase-{name}.svg": _drawn(output, theme) for name, theme in THEMES.items()}


def _printed() -> str:
    """Return what the example prints on a terminal. Commits have a fixed date, so that two runs print the same ids."""
    dates = {f"GIT_{role}_DATE": "2026-11-01T12:00:00Z" for role in ("AUTHOR", "COMMITTER")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | dates | {"PATH": path, "TERM": "xterm-256color", "COLUMNS": str(WIDTH), "LINES": "50"}
    leader, follower = pty.openpty()
    example = subprocess.Popen([ROOT / "examples/any-fork.sh"], stdout=follower, stderr=subprocess.DEVNULL, env=env)
    os.close(follower)
    parts = []
    try:
        while part := os.read(leader, 1 << 16):
            parts.append(part)
    except OSError:  # Linux says so when the other end is closed
        pass
    if example.wait() != 0:
        raise SystemExit("examples/any-fork.sh failed")
    return b"".join(parts).decode().replace("\r\n", "\n").strip("\n")


def _drawn(output: str, theme: TerminalTheme) -> str:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(output))
    back = "#{:02x}{:02x}{:02x}".format(*theme.background_color)
    frame = FRAME.replace("{background}", back).replace("{title}", TITLE)
    return console.export_svg(theme=theme, code_format=frame, unique_id="t")


def main() -> None:
    """Write the drawings into the documentation."""
    for name, drawing in pictures().items():
        (ROOT / "docs" / name).write_text(drawing, encoding="utf-8")


if __name__ == "__main__":
    main()
