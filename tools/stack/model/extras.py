# SPDX-License-Identifier: Apache-2.0
"""The optional dependency group `serve` of the project's own `pyproject.toml`: it names the pinned releases, too."""

import re
from collections.abc import Iterator
from pathlib import Path

from stack.model import document
from stack.model.pins import Pin, Pins

FILE = "pyproject.toml"
GROUP = "serve"


def disagreements(root: Path, pins: Pins) -> Iterator[str]:
    """What the group says otherwise than the pins; nothing where there is no such file or group."""
    if not (root / FILE).is_file():
        return
    text = document.read_text(root / FILE)
    for pin in pins:
        found = _find(text, pin)
        if found is not None and pin.archive is not None and found["version"] != pin.archive.version:
            yield f"{FILE}: {GROUP} has {pin.archive.package}=={found['version']}, the pin is {pin.archive.version}"


def edited(text: str, pins: Pins) -> str:
    """The text with the pinned versions in the group; nothing else changes."""
    for pin in pins:
        found = _find(text, pin)
        if found is not None and pin.archive is not None:
            text = text[: found.start("version")] + pin.archive.version + text[found.end("version") :]
    return text


def _find(text: str, pin: Pin) -> re.Match[str] | None:
    """The version of one package in the group's list. Found in the text, so that an edit touches those characters alone."""
    # A bracket in a string, as in "vllm[audio]==1.0", or in a comment does not end the list.
    group = re.search(rf"^{GROUP} *= *\[(?P<list>(?:[^\]\"'#]|\"[^\"]*\"|'[^']*'|#.*)*)\]", text, re.MULTILINE)
    if group is None or pin.archive is None:
        return None
    # `Flashinfer_Python` and `flashinfer-python` are one package.
    name = re.sub(r"[-_.]+", "[-_.]+", pin.archive.package)
    return re.compile(rf"[\"']{name} *(?:\[[^\]]*\])? *== *(?P<version>[^\"',;\s]+)", re.IGNORECASE).search(
        text, group.start("list"), group.end("list")
    )
