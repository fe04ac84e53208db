# SPDX-License-Identifier: Apache-2.0
"""A real browser without a window, and without the network: it draws a page, or measures it."""

import html
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.system import found

_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --hide-scrollbars --force-device-scale-factor=1"
)
_NOWHERE = "MAP * ~NOTFOUND"
"""No name has an address."""
MEASURE = """
const page = document.getElementById("page").contentDocument, root = page.documentElement;
const cells = [...page.querySelectorAll(".heat td[class^=o-]")];
const style = (each) => getComputedStyle(each);
const result = {
  ran: page.documentElement.dataset.ran || window.ran || null,
  width: root.scrollWidth,
  height: root.scrollHeight,
  ground: style(page.body).backgroundColor,
  text: style(page.body).color,
  cells: Object.fromEntries(cells.map((cell) => [cell.className.split(" ")[0], style(cell).backgroundColor])),
  first: page.querySelector(".heat tbody th[scope=row]")?.getBoundingClientRect().left,
  folded: [...page.querySelectorAll("details:not([open])")].length,
  smallest: Math.min(...[...page.querySelectorAll("body *")].filter((each) => each.checkVisibility() && each.innerText?.trim())
    .map((each) => parseFloat(style(each).fontSize))),
  outside: [...page.querySelectorAll("body *")].filter((each) => !each.closest(".scroll, .skip, .sr")
    && each.getBoundingClientRect().right > root.clientWidth + 1).map((each) => each.outerHTML.slice(0, 120)),
};
document.body.replaceChildren();
document.title = JSON.stringify(result);
"""


def screenshot(page: Path, picture: Path, *, width: int, height: int, dark: bool = False) -> None:
    """Draw a page of a given width (500 pixels or more) as PNG."""
    _run(picture.parent, [f"--window-size={width},{height}", f"--screenshot={picture}", *_scheme(dark), page.as_uri()])


def framed(text: str, width: int, height: int = 2000, script: str = "") -> str:
    """Return a page that shows another one in a frame, since no window is narrower than 500 pixels."""
    frame = f'<iframe id="page" srcdoc="{html.escape(text)}" style="border:0;width:{width}px;height:{height}px"></iframe>'
    return f'<!DOCTYPE html><meta charset="utf-8"><body style="margin:0">{frame}<script>{script}</script>'


def measured(text: str, folder: Path, *, width: int, dark: bool = False) -> Any:
    """Return what a browser finds on a page of a given width."""
    file = folder / f"measure-{width}-{dark}.html"
    file.write_text(framed(text, width, script=f"window.onload = () => {{ {MEASURE} }}"))
    said = _run(folder, [f"--window-size={max(width, 500)},2000", "--dump-dom", *_scheme(dark), file.as_uri()])
    title = said.partition("<title>")[2].partition("</title>")[0]
    return json.loads(html.unescape(title))


def _scheme(dark: bool) -> list[str]:
    return [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]


def _run(folder: Path, arguments: list[str]) -> str:
    program = found("chromium")
    assert program is not None
    profile = folder / "profile"
    command = [program, *_FLAGS.split(), f"--host-resolver-rules={_NOWHERE}", f"--user-data-dir={profile}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
