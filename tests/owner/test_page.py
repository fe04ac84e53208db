# SPDX-License-Identifier: Apache-2.0
"""docs/owner.md shows what its commands print."""

import pytest

from . import page


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return page.blocks(tmp_path_factory.mktemp("page") / "machine")


@pytest.mark.parametrize("name", page.COMMANDS)
def test_the_page_shows_what_is_printed(name: str, printed: dict[str, str]) -> None:
    shown = {block["name"]: block["text"] for block in page.BLOCK.finditer(page.PAGE.read_text())}
    assert {*shown} == {*page.COMMANDS}
    assert shown[name] == printed[name], "python -m tests.owner.page writes it"


def test_four_commands_from_nothing() -> None:
    """The first block of commands is the whole way: at most four."""
    first = next(text for text in page.PAGE.read_text().split("\n\n") if text.startswith("    "))
    commands = [line.strip() for line in first.splitlines()]
    assert len(commands) <= 4
    assert [command.split()[:2] for command in commands[1:]] == [["spark-stack", verb] for verb in ("doctor", "up", "check")]
