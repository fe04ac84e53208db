# SPDX-License-Identifier: Apache-2.0
"""`spark-stack share`: nothing leaves without a yes, and what would leave is shown whole."""

import json
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from stack.cli.owner import share
from stack.model import verdict as verdicts
from stack.owner import kept_verdicts, state
from stack.owner.sharing import reduced

from ...owner.sharing.test_reduced import SECRETS, full
from . import asking
from .asking import SparkStack

WHERE = ("--repository", "ada/stack")


@pytest.fixture(name="run")
def _run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkStack:
    made = asking.runner(tmp_path, monkeypatch)
    kept_verdicts.write(kept_verdicts.folder(state.path()), full())
    return made


def written(tmp_path: Path) -> list[Path]:
    return [path for path in tmp_path.rglob("*") if path.is_file() and "shared" in path.parts]


def test_it_is_shown_and_prepared(run: SparkStack, tmp_path: Path) -> None:
    ran = run("share", *WHERE, "--yes")
    assert ran.code == 0
    shown = ran.out[ran.out.index("{") : ran.out.rindex("}") + 1]
    less = reduced.of(full())
    assert verdicts.read(shown.encode(), "x") == less
    address = ran.out.splitlines()[-1]
    assert address.startswith("https://github.com/ada/stack/issues/new?title=Verdict")
    (file,) = written(tmp_path)
    assert verdicts.load(file) == less
    everything = address + file.read_text() + shown + parse_qs(urlsplit(address).query)["body"][0]
    assert [secret for secret in SECRETS if secret in everything] == []


def test_without_a_yes_nothing_is_written(run: SparkStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "nobody can be asked here" in asking.refused(run("share", *WHERE))
    assert "nobody can be asked here" in asking.refused(run("share", *WHERE, "--json"))
    monkeypatch.setattr(share, "_agreed", lambda **_: False)
    ran = run("share", *WHERE)
    assert ran.code == 1
    assert ran.out.endswith("Nothing was written.\n")
    assert written(tmp_path) == []


def test_a_signed_file(run: SparkStack, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    told = json.loads(run("share", *WHERE, "--yes", "--sign", key, "--json").out)
    assert told["signature"] == f"{told['file']}.sig"
    assert Path(told["signature"]).read_text().startswith("-----BEGIN SSH SIGNATURE-----")
    assert told["issue"]["address"].startswith("https://github.com/ada/stack/issues/new?")
    assert told["verdict"]["stack"]["digest"] == full().stack


def test_a_pull_request(run: SparkStack, tmp_path: Path) -> None:
    assert asking.refused(run("share", "--pull-request", "--yes")).startswith("there is no stack in this folder")
    (tmp_path / "pins.toml").write_text("")
    ran = run("share", "--pull-request", "--yes")
    assert ran.code == 0
    (file,) = (tmp_path / "validation/verdicts").glob("*.json")
    assert file.name == "nvidia-gb10-gpt-oss-120b-spark-aaaaaaaa-2026-11-21.json"
    assert verdicts.load(file) == reduced.of(full())
    assert "  git switch -c verdict-aaaaaaaa-2026-11-21" in ran.out.splitlines()


def test_the_repository_is_never_invented(run: SparkStack, tmp_path: Path) -> None:
    assert asking.refused(run("share", "--yes")).startswith("no repository is named")
    (tmp_path / "pins.toml").write_text("")
    assert asking.refused(run("share", "--yes")).startswith("no repository is named")
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "remote", "add", "origin", "git@git.example.org:ada/stack.git"], check=True)
    assert run("share", "--yes").out.splitlines()[-1].startswith("https://git.example.org/ada/stack/issues/new?")
    assert "is not a repository" in asking.refused(run("share", "--yes", "--repository", "/srv/x"))


def test_a_file_that_is_no_verdict(run: SparkStack, tmp_path: Path) -> None:
    odd = tmp_path / "odd.json"
    odd.write_text("{}")
    assert asking.refused(run("share", odd, *WHERE, "--yes"))
    named = tmp_path / "named.json"
    named.write_bytes(verdicts.write(full()))
    assert run("share", named, *WHERE, "--yes").code == 0
