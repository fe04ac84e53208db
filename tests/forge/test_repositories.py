# SPDX-License-Identifier: Apache-2.0
import pytest

from stack.base.errors import StackError
from stack.forge import repositories
from stack.forge.repositories import Repository
from stack.forge.services import FORGEJO, GITHUB, GITLAB


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


def test_a_project_in_a_group_of_a_group() -> None:
    address = "git@gitlab.com:group/below/stack.git"
    assert repositories.repository(address, nested=True) == Repository("gitlab.com", "group/below", "stack")
    with pytest.raises(StackError):
        repositories.repository("https://gitlab.com/group/../stack", nested=True)


def test_api_addresses_of_other_forges(monkeypatch: pytest.MonkeyPatch) -> None:
    for service, path in ((GITLAB, "/api/v4"), (FORGEJO, "/api/v1")):
        monkeypatch.delenv(service.api_variable, raising=False)
        assert service.api("git.example.org") == f"https://git.example.org{path}"
        monkeypatch.setenv(service.api_variable, "http://git.example.org")
        with pytest.raises(StackError, match=f"{service.api_variable} is http://git.example.org, which is not secure"):
            service.api("git.example.org")


def test_api_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_API_URL", raising=False)
    assert GITHUB.api("github.com") == "https://api.github.com"
    assert GITHUB.api("git.example.org") == "https://git.example.org/api/v3"
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:8080/")
    assert GITHUB.api("github.com") == "http://127.0.0.1:8080"
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
            GITHUB.api("github.com")
        assert "secret" not in str(caught.value)
