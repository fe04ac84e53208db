# SPDX-License-Identifier: Apache-2.0
import os
import tempfile
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.store import git

from .factories import bare


def test_the_users_configuration_does_not_reach_into_results(home: Path, tmp_path: Path) -> None:
    (home / ".gitconfig").write_text("[user]\n\tname = Someone\n[diff]\n\tnoprefix = true\n[core]\n\thooksPath = /hooks\n")
    settings = git.text(["config", "--list"], cwd=bare(tmp_path / "x.git"))
    assert "someone" not in settings.lower()
    assert "noprefix" not in settings
    assert "hookspath" not in settings
    assert b"Someone" in git.run(["config", "--list"], user_config=True).stdout


def test_what_the_user_says_about_reaching_servers_always_holds(home: Path, tmp_path: Path) -> None:
    (home / ".gitconfig").write_text(
        '[include]\n\tpath = more\n[http]\n\tsslVerify\n\tproxy = one\n[http "scheme://host"]\n\textraHeader = A: b\\nc\n'
        '[credential]\n\thelper = first\n\thelper = second\n[core]\n\tsshCommand = ssh -v\n[url "x:"]\n\tinsteadOf = y:\n'
        "[safe]\n\tdirectory = /a\n\tbareRepository = explicit\n"
    )
    (home / "more").write_text("[http]\n\tproxy = two\n")
    repo = bare(tmp_path / "x.git")
    assert git.text(["config", "--get-all", "http.proxy"], cwd=repo) == "two\none"
    assert git.text(["config", "--bool", "http.sslverify"], cwd=repo) == "true"
    assert git.text(["config", "http.scheme://host.extraHeader"], cwd=repo) == "A: b\nc"
    assert git.text(["config", "--get-all", "credential.helper"], cwd=repo) == "first\nsecond"
    assert git.text(["config", "core.sshCommand"], cwd=repo) == "ssh -v"
    assert git.text(["config", "url.x:.insteadOf"], cwd=repo) == "y:"
    assert git.text(["config", "safe.directory"], cwd=repo) == "/a"


def test_a_change_of_the_users_home_is_noticed(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".gitconfig").write_text("[http]\n\tproxy = one\n")
    repo = bare(tmp_path / "x.git")
    assert git.text(["config", "http.proxy"], cwd=repo) == "one"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(git.GitError):
        git.text(["config", "http.proxy"], cwd=repo)


def test_a_configuration_that_git_cannot_read_does_not_matter(home: Path, tmp_path: Path) -> None:
    (home / ".gitconfig").write_text("[broken\n")
    assert bare(tmp_path / "x.git").is_dir()


def test_nothing_of_the_callers_repository_leaks_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = bare(tmp_path / "x.git")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'a.b=c'")
    monkeypatch.setenv("GIT_SSL_CAINFO", "kept")
    assert git.text(["rev-parse", "--absolute-git-dir"], cwd=repo) == str(repo)
    assert git.environment()["GIT_SSL_CAINFO"] == "kept"
    assert git.environment()["GIT_TERMINAL_PROMPT"] == "0"


def test_a_failure_says_which_command_and_why(tmp_path: Path) -> None:
    with pytest.raises(git.GitError, match=r"git rev-parse failed \(128\): fatal: "):
        git.text(["-c", "a.b=c", "rev-parse", "--verify", "nothing"], cwd=bare(tmp_path / "x.git"))


def test_a_full_disk_has_a_remedy() -> None:
    error = git.GitError(["fast-import"], 128, "fatal: write error: No space left on device\n")
    assert error.remedy == "free some disk space and run the command again"
    assert git.GitError(["fast-import"], -25, "").problem == "git fast-import was stopped by SIGXFSZ: no message"


def test_no_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError, match="git is not installed"):
        git.run(["--version"])
    with pytest.raises(StackError, match="git is not installed"), git.feed(["fast-import"], cwd=tmp_path):
        pass
    with pytest.raises(StackError, match="is not a folder"):
        git.run(["--version"], cwd=tmp_path / "missing")


def test_feeding_a_git_that_ends_early_reports_what_git_said(tmp_path: Path) -> None:
    with (
        pytest.raises(git.GitError, match="Unsupported command"),
        git.feed(["fast-import"], cwd=bare(tmp_path / "x.git")) as write,
    ):
        write(b"nonsense\n")
        for _ in range(1000):
            write(b"x" * 10_000)


def test_a_failing_feeder_stops_git_and_keeps_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), git.feed(["fast-import"], cwd=bare(tmp_path / "x.git")) as write:
        write(b"blob\ndata 100\n")
        raise ZeroDivisionError


def test_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StackError, match=r"no temporary file can be made .*TMPDIR"):
        git.run(["version"])


def test_a_bounded_call_ends_git_that_prints_too_much_or_takes_too_long(tmp_path: Path) -> None:
    repo = bare(tmp_path / "x.git")
    data = b"a" * 300_000
    blob = git.run(["hash-object", "-w", "--stdin"], cwd=repo, stdin=data).stdout.decode().strip()
    assert git.bounded(["cat-file", "blob", blob], cwd=repo, most=300_000, seconds=60).stdout == data
    with pytest.raises(git.Unanswered, match=r"^git cat-file printed more than 299999 bytes$"):
        git.bounded(["cat-file", "blob", blob], cwd=repo, most=299_999, seconds=60)
    assert git.bounded(["cat-file", "blob", "x"], cwd=repo, most=0, seconds=60, accept=(128,)).returncode == 128
    with pytest.raises(git.GitError, match=r"^git cat-file failed \(128\): fatal: Not a valid object name x$"):
        git.bounded(["cat-file", "blob", "x"], cwd=repo, most=0, seconds=60)
    (repo / "HEAD").unlink()
    os.mkfifo(repo / "HEAD")
    with pytest.raises(git.Unanswered, match=r"^git cat-file gave no answer within 0\.3 s$"):
        git.bounded(["cat-file", "blob", blob], cwd=repo, most=300_000, seconds=0.3)
