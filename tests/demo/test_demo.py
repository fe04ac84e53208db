# SPDX-License-Identifier: Apache-2.0
"""The examples on the real sources: each prints what its page shows, and leaves the checkout as it was."""

import hashlib
import re
from pathlib import Path

import pytest

from ..scripts import loaded

ROOT = Path(__file__).parents[2]


def stack_files() -> dict[Path, str]:
    files = [ROOT / "pins.toml", ROOT / "pyproject.toml", *(path for path in (ROOT / "stacks").rglob("*") if path.is_file())]
    return {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


# One run each: that two runs print the same follows, since both have to print the committed text.
@pytest.mark.images  # whole examples, two thirds of a minute each
@pytest.mark.parametrize("name", ["demo", "plan"])
def test_a_page_shows_what_its_example_prints(name: str) -> None:
    before = stack_files()
    module = loaded("examples/transcript.py")
    assert module.printed(name) == module.quoted(name), "run `make transcripts`"
    assert stack_files() == before


@pytest.mark.images  # a whole example
def test_the_tutorial_shows_what_its_commands_print() -> None:
    module = loaded("examples/transcript.py")
    assert module.printed("tutorial") == module.quoted("tutorial"), "run `examples/transcript.py tutorial`"


def test_a_written_transcript_is_the_one_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = loaded("examples/transcript.py")
    pages = {name: tmp_path / page.name for name, page in module.PAGES.items()}
    for name, page in module.PAGES.items():
        pages[name].write_text(page.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(module, "PAGES", pages)
    shown = {name: rf"$ stack {name} \1" + "\n" for name in pages}
    monkeypatch.setattr(module, "printed", shown.__getitem__)
    for page in ("tutorial", "spark"):
        text = pages[page].read_text(encoding="utf-8")
        parts = re.findall(rf"^<!-- {page}: ([\w-]+) -->$", text, re.MULTILINE)
        shown[page] = "\n".join(f"# {part}\n\n$ stack {part} \\1\n# of {part}\n" for part in parts)
    module.main([])
    assert {name: module.quoted(name) for name in pages} == shown
