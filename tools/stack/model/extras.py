# SPDX-License-Identifier: Apache-2.0
"""The optional dependency group `serve` in the project's own `pyproject.toml`, which repeats the pinned releases."""

import re
from collections.abc import Iterator
from pathlib import Path

from stack.model import document
from stack.model.pins import Pin, Pins

FILE = "pyproject.toml"
GROUP = "serve"


def disagreements(root: Path, pins: Pins) -> Iterator[str]:
    """Yield where the group's versions differ from the pins; nothing if the file or the group is missing."""
    if not (root / FILE).is_file():
        return
    text = document.read_text(root / FILE)
    for pin in pins:
        requirement = _find(text, pin)
        if requirement is not None and pin.archive is not None and requirement["version"] != pin.archive.version:
            yield f"{FILE}: {GROUP} has {pin.archive.package}=={requirement['version']}, the pin is {pin.archive.version}"


def edited(text: str, pins: Pins) -> str:
    """Return the text with the pinned versions in the group; nothing else changes."""
    for pin in pins:
        requirement = _find(text, pin)
        if requirement is not None and pin.archive is not None:
            text = text[: requirement.start("version")] + pin.archive.version + text[requirement.end("version") :]
    return text


def _find(text: str, pin: Pin) -> re.Match[str] | None:
    """Find a package's version in the group's list. A search in the text lets an edit touch only the version."""
    # A bracket in a string (`"vllm[audio]==1.0"`) or in a comment does not end the list.
    group = re.search(rf"^{GROUP} *= *\[(?P<list>(?:[^\]\"'#]|\"[^\"]*\"|'[^']*'|#.*)*)\]", text, re.MULTILINE)
    if group is None or pin.archive is None:
        return None
    # `Flashinfer_Python` and `flashinfer-python` name the same package.
    name = re.sub(r"[-_.]+", "[-_.]+", pin.archive.package)
    return re.compile(rf"[\"']{name} *(?:\[[^\]]*\])? *== *(?P<version>[^\"',;\s]+)", re.IGNORECASE).search(
        text, group.start("list"), group.end("list")
    )
