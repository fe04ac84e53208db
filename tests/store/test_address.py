# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.store import address


@pytest.mark.parametrize(
    "given",
    [
        *("https://example.org/a/b.git", "ssh://git@example.org:22/a", "ssh://example.org/a", "git@example.org:a/b.git"),
        *("file:///srv/a", "https://example.org/with%20blank", "me@host:~/a", "git@[::1]:a"),
    ],
)
def test_kept(tmp_path: Path, given: str) -> None:
    assert address.stored(f" {given} ", here=tmp_path) == given


def test_a_local_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "my repo").mkdir()
    (tmp_path / "me@here:it").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert address.stored("../b", here=tmp_path / "a/b") == f"{tmp_path}/a/b"
    assert address.stored("~/a", here=tmp_path / "a") == f"{tmp_path}/a"
    assert address.stored(str(tmp_path), here=tmp_path / "a") == str(tmp_path)
    assert address.stored("my repo", here=tmp_path) == f"file://{tmp_path}/my%20repo"
    assert address.stored("me@here:it", here=tmp_path) == f"{tmp_path}/me@here:it"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("--upload-pack=touch x", "begins with a dash"),
        ("ext::sh -c touch% x", r"names a program of git's own \(ext::\)"),
        ("fd::17", "names a program"),
        ("http://example.org/a", "is reached by http, which nobody vouches for"),
        ("git://example.org/a", "is reached by git"),
        ("javascript://a", "is reached by javascript"),
        ("ssh://-oProxyCommand=x/a", "names no host"),
        ("https:///a", "names no host"),
        ("https://[::1/a", "cannot be read"),
        ("git@-oProxyCommand=x:a", "neither a folder nor an address"),
        ("git@host:-x", "neither a folder nor an address"),
        ("https://me:secret@example.org/a", "holds a user or a password"),
        ("https://token@example.org/a", "holds a user or a password"),
        ("ssh://me:secret@example.org/a", "holds a user or a password"),
        ("https://example.org/a b", "has a blank"),
        ("host:path", "neither a folder nor an address"),
        ("https://example.org/\x1b[2J", "is not the address"),
        ("", "is not the address"),
        ("nothing/here", "neither a folder nor an address"),
    ],
)
def test_refused(tmp_path: Path, given: str, problem: str) -> None:
    with pytest.raises(StackError, match=problem) as refused:
        address.stored(given, here=tmp_path)
    assert "secret" not in str(refused.value)
    assert "token" not in str(refused.value)
