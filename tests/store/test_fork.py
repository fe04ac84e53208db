# SPDX-License-Identifier: Apache-2.0
"""Which fork `--push` means, and that its secrets stay where they are."""

import os
import shutil
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.model.pins import Pin, Pins
from stack.store import git, repository
from stack.store.fork import Fork, _reason, named, problem
from stack.store.pushed_refs import _decoded, _encoded

PINS = Pins((Pin("up", "https://forge.test/them/up", "1" * 40), Pin("lib", "https://forge.test/them/lib.git", "2" * 40)))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return repository.open(tmp_path / "cache", "up")


def found(store: Path, *given: str, wanted: tuple[str, ...] = ("up",)) -> dict[str, str]:
    git._reaching.cache_clear()  # read once in a process
    return {name: fork.address for name, fork in named(given, PINS, wanted, store.parent, store).items()}


@pytest.mark.parametrize(
    ("given", "wanted", "forks"),
    [
        (["https://forge.test/me/up"], ("up",), {"up": "https://forge.test/me/up"}),
        (["git@forge.test:me/up.git"], ("up",), {"up": "git@forge.test:me/up.git"}),
        (["up=ssh://git@forge.test:22/me/up?a=b"], ("up", "lib"), {"up": "ssh://git@forge.test:22/me/up?a=b"}),
        (["/srv/up.git"], ("up",), {"up": "/srv/up.git"}),
        (["https://forge.test/me/"], ("up", "lib"), {"up": "https://forge.test/me/up", "lib": "https://forge.test/me/lib.git"}),
        (["git@forge.test:me/"], ("lib",), {"lib": "git@forge.test:me/lib.git"}),
        (["up=/srv/a", "lib=/srv/b"], ("up", "lib"), {"up": "/srv/a", "lib": "/srv/b"}),
    ],
)
def test_addresses(home: Path, store: Path, given: list[str], wanted: tuple[str, ...], forks: dict[str, str]) -> None:
    assert found(store, *given, wanted=wanted) == forks


def test_a_remote_of_the_stacks_own_git(home: Path, store: Path) -> None:
    git.run(["init", "--quiet", str(store.parent)])
    git.run(["remote", "add", "mine", "https://forge.test/me/up"], cwd=store.parent)
    git.run(["config", "remote.mine.pushurl", "git@forge.test:me/up"], cwd=store.parent)
    assert found(store, "mine") == {"up": "git@forge.test:me/up"}
    with pytest.raises(StackError, match="the stack's git has no remote 'other': name one"):
        found(store, "other")


def test_a_stack_outside_of_git(home: Path, store: Path) -> None:
    with pytest.raises(StackError, match="the stack's git has no remote 'origin'"):
        found(store, "origin")


@pytest.mark.parametrize("kind", ["insteadOf", "pushInsteadOf"])
def test_addresses_that_the_user_has_git_rewrite(home: Path, store: Path, kind: str) -> None:
    (home / ".gitconfig").write_text(f'[url "git@forge.test:"]\n\t{kind} = https://forge.test/\n')
    assert found(store, "https://forge.test/me/up") == {"up": "git@forge.test:me/up"}


@pytest.mark.parametrize("address", ["https://me:hunter2@forge.test/me/up", "https://hunter2@forge.test/me/up"])
def test_a_secret_is_not_written_down(home: Path, store: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = store.parent / "bin/git"
    watched.parent.mkdir()
    watched.write_text(f'#!/bin/sh\necho "$@" >> {store.parent}/asked\nexec {shutil.which("git")} "$@"\n')
    watched.chmod(0o755)
    monkeypatch.setenv("PATH", str(watched.parent), prepend=os.pathsep)
    assert found(store, address) == {"up": address}
    assert found(store, "https://forge.test/me/up") == {"up": "https://forge.test/me/up"}
    asked = (store.parent / "asked").read_text()
    assert "forge.test/me/up" in asked
    assert "hunter2" not in asked


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["https://forge.test/them/up.git"], "https://forge.test/them/up.git is the upstream itself: push to your own fork"),
        (["git@forge.test:them/up"], "is the upstream itself"),
        (["ssh://git@FORGE.test/them/up"], "is the upstream itself"),
        (["nowhere=/srv/a"], "unknown upstream 'nowhere'"),
        (["lib=/srv/a"], "there is no pull request of lib to push"),
        (["up=/srv/a", "up=/srv/b"], "two forks of up are named"),
        (["/srv/a", "up=/srv/b"], "two forks of up are named"),
        (["up="], "has no remote ''"),
        (["up=--upload-pack=touch x:y"], "no valid address"),
        (["https://[::1/x"], "no valid address"),
        (["up=ext::sh -c true"], "no valid address"),
        (["fd::17"], "no valid address"),
    ],
)
def test_what_is_no_fork(home: Path, store: Path, given: list[str], why: str) -> None:
    with pytest.raises(StackError, match=why):
        found(store, *given)


def test_one_repository_for_two_upstreams(home: Path, store: Path) -> None:
    with pytest.raises(
        StackError, match=r"https://forge\.test/me/up is a single repository, but there are branches for up, lib"
    ) as caught:
        found(store, "https://me:secret@forge.test/me/up", wanted=("up", "lib"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("/srv/up.git", True),
        ("../up.git", True),
        ("file:///srv/up.git", True),
        ("http://127.0.0.1:8080/x", True),
        ("http://127.9.9.9/x", True),
        ("http://[::1]:1/x", True),
        ("ssh://localhost/x", True),
        ("localhost:x", True),
        ("https://github.com/me/up", False),
        ("git@github.com:me/up", False),
        ("http://127.0.0.1.example.org/x", False),
        ("https://localhost.example.org/x", False),
        ("https://localhost@github.com/x", False),
        ("http://10.0.0.1/x", False),
    ],
)
def test_what_is_on_this_machine(address: str, local: bool) -> None:
    assert Fork("up", address).local is local


@pytest.mark.parametrize(
    "address",
    [
        "https://me:sec%2Fret@forge.test/me/up",
        "https://sec%2Fret@forge.test/me/up",
        "https://sec%2Fret:x-oauth@forge.test/me/up",
    ],
)
def test_what_git_says_shows_no_credentials(address: str) -> None:
    fork = Fork("up", address)
    said = f"fatal: unable to access '{address}/': \x1b[31mit said sec%2Fret and sec/ret\n"
    error = str(problem(fork, git.GitError(["push"], 128, said)))
    assert "forge.test/me/up cannot be reached" in error
    assert "sec%2Fret" not in error
    assert "sec/ret" not in error
    assert "\x1b" not in error
    assert "sec" not in str(fork)
    assert "sec" not in _encoded(str(fork))


@pytest.mark.parametrize(
    "address", ["https://forge.test/me/up.git", "git@h:~me/.x..lock/" + "long/" * 100, "/srv/pr/a b/ü@{1}.lock"]
)
def test_an_address_as_a_ref(tmp_path: Path, address: str) -> None:
    name = f"refs/stack/pushed/{_encoded(address)}/pr/up/x"
    git.run(["check-ref-format", name])
    assert max(map(len, name.split("/"))) <= 200
    assert _decoded(_encoded(address)) == address


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("[rejected] (stale info)", "somebody changed it meanwhile: run it again"),
        ("[remote rejected] (hook \x1b[2Jdeclined)", "hook ?[2Jdeclined"),
        ("[rejected] (atomic push failed)", "not pushed: the fork takes all or none"),
        ("[no match]", "the fork refused it"),
        ("", "the fork refused it"),
    ],
)
def test_why_a_fork_refuses(said: str, reason: str) -> None:
    assert _reason(said) == reason
