# SPDX-License-Identifier: Apache-2.0
import pytest

from stack.base.errors import StackError
from stack.forge import repositories
from stack.forge.repositories import Repository


@pytest.mark.parametrize(
    "git",
    [
        "https://github.com/up/gamma",
        "https://github.com/up/gamma.git",
        "https://GitHub.com/up/gamma/",
        "https://user:secret@github.com/up/gamma.git",
        "ssh://git@github.com/up/gamma.git",
        "git@github.com:up/gamma.git",
    ],
)
def test_repositories(git: str) -> None:
    assert repositories.repository(git) == Repository("github.com", "up", "gamma")


@pytest.mark.parametrize(
    "git",
    [
        "file:///srv/up/gamma",
        "/srv/gamma",
        "https://github.com/gamma",
        "https://github.com/a/b/c",
        "https://me:secret@x/../y",
        "https:///up/gamma",
        "git@github.com:/up/gamma",
        "https://github.com/up/ga mma",
        "https://[::1/up/gamma",
        "",
    ],
)
def test_what_is_no_repository(git: str) -> None:
    with pytest.raises(StackError, match="is not a repository of a forge: it has to be like") as caught:
        repositories.repository(git)
    assert "secret" not in str(caught.value)


def test_api_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_API_URL", raising=False)
    assert repositories.api("github.com") == "https://api.github.com"
    assert repositories.api("git.example.org") == "https://git.example.org/api/v3"
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:8080/")
    assert repositories.api("github.com") == "http://127.0.0.1:8080"
    for odd, why in {
        "http://api.github.com": "not secure",
        "http://127.0.0.1.example.org": "not secure",
        "ftp://api.github.com": "not an API's address",
        "api.github.com": "not an API's address",
        "https://me:secret@api.github.com": "not an API's address",
        "https://[": "not an API's address",
    }.items():
        monkeypatch.setenv("GITHUB_API_URL", odd)
        with pytest.raises(StackError, match=why) as caught:
            repositories.api("github.com")
        assert "secret" not in str(caught.value)
