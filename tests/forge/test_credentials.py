# SPDX-License-Identifier: Apache-2.0
import os
import stat
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.forge import credentials
from stack.forge.services import FORGEJO, GITLAB, SERVICES, Service

# As gh writes it.
HOSTS = """\
github.com:
    users:
        me:
            oauth_token: gho_mine
    git_protocol: https
    oauth_token: gho_mine
    user: me
git.example.org:
    oauth_token: gho_other
"""
GH = """\
#!/bin/sh
[ "$1 $2 $3" = "auth token --hostname" ] || exit 9
[ "$4" = github.com ] || { echo "no oauth token found for $4" >&2; exit 1; }
echo gho_keyring
"""


@pytest.fixture
def config(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """gh's folder; there is no gh on PATH."""
    own = [name for one in SERVICES.values() for name in (*one.token_variables, one.host_variable, one.api_variable)]
    for name in (*own, *credentials.ENTERPRISE, "GH_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(home / "bin"))
    (home / "bin").mkdir()
    folder = home / ".config/gh"
    folder.mkdir(parents=True)
    return folder


def test_variables_come_first(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (config / "hosts.yml").write_text(HOSTS)
    monkeypatch.setenv("GITHUB_TOKEN", "second")
    assert credentials.token("github.com") == "second"
    monkeypatch.setenv("GH_TOKEN", " first\n")
    assert credentials.token("github.com") == "first"
    monkeypatch.setenv("GH_TOKEN", "")
    assert credentials.token("github.com") == "second"


def test_the_variables_of_github_are_for_no_other_host(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH_TOKEN", "ghp_mine")
    assert credentials.token("git.example.org") is None
    said = "log in with `gh auth login --hostname git.example.org`, or set GH_HOST to git.example.org and GH_ENTERPRISE_TOKEN"
    assert credentials.missing("git.example.org").startswith(said)
    monkeypatch.setenv("GITHUB_ENTERPRISE_TOKEN", "of_work")
    monkeypatch.setenv("GH_HOST", "git.example.org")
    assert credentials.missing("git.example.org").startswith("log in with `gh auth login`, or set GH_ENTERPRISE_TOKEN")
    assert (credentials.token("git.example.org"), credentials.token("github.com")) == ("of_work", "ghp_mine")
    # The user says where the API is: what the variables have is for that.
    monkeypatch.setenv("GITHUB_API_URL", "https://git.example.org/api/v3")
    assert credentials.token("git.example.org") == "ghp_mine"


@pytest.mark.parametrize("named", [None, "", "work.example.org", "git.example.org.evil.test", "github.com"])
def test_the_token_of_work_is_for_the_host_that_the_user_names(
    config: Path, home: Path, monkeypatch: pytest.MonkeyPatch, named: str | None
) -> None:
    """The pins of a checkout name hosts: an upstream at evil.test must not get the token by that, nor through gh."""
    monkeypatch.setenv("GH_ENTERPRISE_TOKEN", "of_work")
    if named is not None:
        monkeypatch.setenv("GH_HOST", named)
    gh = home / "bin/gh"
    gh.write_text('#!/bin/sh\n[ -n "$GH_ENTERPRISE_TOKEN" ] || exit 1\necho "$GH_ENTERPRISE_TOKEN"\n')
    gh.chmod(gh.stat().st_mode | stat.S_IXUSR)
    for host in ("evil.test", "git.example.org", "github.com"):
        assert credentials.token(host) is None, host
    monkeypatch.setenv("GH_HOST", "Git.Example.org")
    assert (credentials.token("git.example.org"), credentials.token("evil.test")) == ("of_work", None)


def test_the_configuration_of_gh(config: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert credentials.token("github.com") is None
    (config / "hosts.yml").write_text(HOSTS)
    assert credentials.token("github.com") == "gho_mine"
    assert credentials.token("git.example.org") == "gho_other"
    assert credentials.token("elsewhere.org") is None
    monkeypatch.setenv("GH_CONFIG_DIR", str(home / "none"))
    assert credentials.token("github.com") is None


def test_gh_itself_knows_the_keyring(config: Path, home: Path) -> None:
    gh = home / "bin/gh"
    gh.write_text(GH)
    gh.chmod(gh.stat().st_mode | stat.S_IXUSR)
    (config / "hosts.yml").write_text("github.com:\n    user: me\n")
    assert credentials.token("github.com") == "gho_keyring"
    assert credentials.token("git.example.org") is None
    gh.write_text("#!/nowhere\n")
    assert credentials.token("github.com") is None
    # The output of a gh that failed is no token.
    gh.write_text("#!/bin/sh\necho gho_stale\nexit 1\n")
    assert credentials.token("github.com") is None


@pytest.mark.parametrize("text", ["github.com: [", "\x00", "!!python/object/apply:os.system ['true']", "{" * 5000, "\udcff"])
def test_a_configuration_that_is_none(config: Path, text: str) -> None:
    (config / "hosts.yml").write_bytes(os.fsencode(text))
    with pytest.raises(StackError, match=r"hosts\.yml is not valid YAML: log in with `gh auth login`, or set GH_TOKEN"):
        credentials.token("github.com")


@pytest.mark.parametrize(
    "text", ["[]", "github.com: x", "github.com: {oauth_token: 7}", "github.com: {oauth_token: ''}", "", "7"]
)
def test_a_configuration_without_a_token(config: Path, text: str) -> None:
    (config / "hosts.yml").write_text(text)
    assert credentials.token("github.com") is None


def test_what_is_no_token_is_not_shown(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (config / "hosts.yml").write_text('github.com: {oauth_token: "gho_secret\\r\\nX-Other: 1"}')
    with pytest.raises(StackError, match=r"hosts\.yml is not a token") as caught:
        credentials.token("github.com")
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("GH_TOKEN", "two words")
    with pytest.raises(StackError, match="the value in GH_TOKEN is not a token") as caught:
        credentials.token("github.com")
    assert "words" not in str(caught.value).partition(":")[0]


@pytest.mark.parametrize("service", [GITLAB, FORGEJO], ids=lambda service: service.title)
def test_the_token_of_another_forge_is_for_its_host(config: Path, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    [variable] = service.token_variables
    assert credentials.missing(service.home, service) == f"set {variable} to a token that may write {service.pulls}"
    monkeypatch.setenv(variable, "mine")
    monkeypatch.setenv("GH_TOKEN", "ghp_other")
    assert (credentials.token(service.home, service), credentials.token("git.example.org", service)) == ("mine", None)
    assert credentials.missing("git.example.org", service).startswith(
        f"set {service.host_variable} to git.example.org and {variable} to"
    )
    monkeypatch.setenv(service.host_variable, "git.example.org")
    assert credentials.token("git.example.org", service) == "mine"
    monkeypatch.delenv(service.host_variable)
    monkeypatch.setenv(service.api_variable, "https://proxy.example.org/api")
    assert credentials.token("git.example.org", service) == "mine"
    monkeypatch.setenv(variable, "two words")
    with pytest.raises(StackError) as caught:
        credentials.token(service.home, service)
    assert "two" not in str(caught.value)
