# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry.person import Person, configured
from stack.store import git


def test_from_the_users_configuration(home: Path, tmp_path: Path) -> None:
    (home / ".gitconfig").write_text("[user]\n\tname = Jörg Ä. Müller\n\temail = j@müller\n")
    assert configured(tmp_path) == Person("Jörg Ä. Müller", "j@müller")
    assert str(configured(tmp_path)) == "Jörg Ä. Müller <j@müller>"


def test_a_folders_own_wins(home: Path, tmp_path: Path) -> None:
    (home / ".gitconfig").write_text("[user]\n\tname = All\n\temail = all@x\n")
    git.run(["init", "--quiet", str(tmp_path)])
    git.run(["config", "user.email", "here@x"], cwd=tmp_path)
    assert configured(tmp_path) == Person("All", "here@x")


def test_from_the_environment(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_COMMITTER_NAME", "It")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "it@x")
    assert configured(tmp_path) == Person("It", "it@x")


@pytest.mark.parametrize(
    "text", ["", "[user]\n\tname = Only\n", "[user]\n\temail = only@x\n", "[user]\n\tname = <>\n\temail = x@x\n"]
)
def test_none_is_never_guessed(home: Path, tmp_path: Path, text: str) -> None:
    (home / ".gitconfig").write_text(text)
    with pytest.raises(StackError, match=r"git does not know who signs off the commits: git config --global user\.name"):
        configured(tmp_path)


def test_another_encoding(home: Path, tmp_path: Path) -> None:
    (home / ".gitconfig").write_bytes(b"[user]\n\tname = J\xf6rg\n\temail = j@x\n")
    with pytest.raises(StackError, match="does not know who"):
        configured(tmp_path)
