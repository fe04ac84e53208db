# SPDX-License-Identifier: Apache-2.0
"""docs/owner.md shows what its commands print."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from . import page
from .readiness import spark


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return page.blocks(tmp_path_factory.mktemp("page") / "machine")


@pytest.mark.parametrize("name", page.COMMANDS)
def test_the_page_shows_what_is_printed(name: str, printed: dict[str, str]) -> None:
    shown = {block["name"]: block["text"] for block in page.BLOCK.finditer(page.PAGE.read_text())}
    assert {*shown} == {*page.COMMANDS}
    assert shown[name] == printed[name], "python -m tests.owner.page writes it"


def first_commands() -> list[str]:
    """The page's first block of commands."""
    first = next(text for text in page.PAGE.read_text().split("\n\n") if text.startswith("    "))
    return [line.strip() for line in first.splitlines()]


def test_four_commands_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first block of commands is the whole way from an empty home to a server that is checked: at most four.

    The first installs the package, which `tests/test_package.py` does. The server is a stand-in, whose answers are rightly found wrong.
    """
    commands = first_commands()
    assert len(commands) <= 4
    assert commands[0] == "pipx install ."
    with page.owner(tmp_path / "machine") as world:
        there = spark.made(tmp_path / "spark", monkeypatch)
        monkeypatch.delenv("HF_HUB_CACHE")  # the cache is the world's
        for name in ("nvidia-smi", "fwupdmgr", "dmesg", "journalctl"):
            (there.folder / "bin" / name).rename(world.folder / "bin" / name)
        monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_frsize=1, f_bavail=10**12))
        assert not any((world.folder / "home").iterdir())
        said = {}
        for command in commands[1:]:
            program, verb, *words = command.replace("HOST/NAME:TAG", f"{page.NAME}:1").split()
            more = {"up": ["--port", world.port], "check": ["--minutes", "0"]}.get(verb, [])
            ran = world.run(verb, *words, *more)
            assert (program, ran.code) == ("spark-stack", 1 if verb == "check" else 0), ran
            said[verb] = ran.out
    assert list(said) == ["doctor", "up", "check"]
    assert said["doctor"].startswith("ready for gpt-oss-120b-spark")
    assert f"gpt-oss-120b-spark serves at http://127.0.0.1:{world.port}" in said["up"]
    assert f"at http://127.0.0.1:{world.port}" in said["check"]
