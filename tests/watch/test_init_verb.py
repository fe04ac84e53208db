# SPDX-License-Identifier: Apache-2.0
"""`stack watch init`: the workflow is valid, has the least rights, is never started by a pull request, and its commands work."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from stack import __version__
from stack.base.errors import StackError
from stack.store import git
from stack.watch import workflow
from tests import forked
from tests.cli.conftest import SCRIPT, Ran

from ..test_workflow import schema
from . import actionlint
from .world import FIXED, OWN, Maintainer

PLAIN = workflow.text("", (workflow.PLAIN,), "stack")
OWN_HARDWARE = workflow.text("fork/stack/", ("self-hosted", "gpu"), "other")
BOTH = pytest.mark.parametrize("text", [PLAIN, OWN_HARDWARE], ids=["plain", "own hardware"])


def parsed(text: str) -> dict[str, Any]:
    return dict(yaml.safe_load(re.sub(r"^on:", '"on":', text, flags=re.MULTILINE)))


def steps(text: str) -> list[dict[str, Any]]:
    return list(parsed(text)["jobs"]["watch"]["steps"])


@BOTH
def test_it_follows_githubs_schema(text: str, tmp_path: Path) -> None:
    file = tmp_path / "stack-watch.yml"
    file.write_text(text)
    assert schema(file) == 0


@pytest.mark.images
@pytest.mark.parametrize("runner", [("ubuntu-22.04",), ("self-hosted", "linux")], ids=" ".join)
def test_actionlint_finds_nothing(runner: tuple[str, ...]) -> None:
    """With runners that it knows: it is older than the one by default, and wants a file with labels of one's own."""
    assert actionlint.faults(workflow.text("fork/", runner, "stack")) == []


@pytest.mark.images
@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("github.run_id", "github.run_no", 'property "run_no" is not defined'),
        ("runs-on: ubuntu-24.04", "runs-on: ubuntu-25.13", 'label "ubuntu-25.13" is unknown'),
        ('cron: "', 'cron: "77 ', "invalid CRON format"),
    ],
)
def test_actionlint_finds_what_is_wrong(old: str, new: str, fault: str) -> None:
    assert PLAIN.count(old) == 1
    assert fault in " ".join(actionlint.faults(PLAIN.replace(old, new)))


@BOTH
def test_no_pull_request_starts_it(text: str) -> None:
    """Own hardware would run a stranger's code; `pull_request_target` and `workflow_run` would even give it the token."""
    assert set(parsed(text)["on"]) == {"schedule", "workflow_dispatch"}


@BOTH
def test_rights_are_least_and_actions_are_pinned(text: str) -> None:
    made = parsed(text)
    assert made["permissions"] == {}
    assert [job["permissions"] for job in made["jobs"].values()] == [
        {"contents": "write", "issues": "write", "pull-requests": "write"}
    ]
    used = [step["uses"] for step in steps(text) if "uses" in step]
    assert len(used) == 2
    assert all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", one) for one in used)
    assert steps(text)[0]["with"] == {"persist-credentials": False}
    assert made["concurrency"] == {"group": "stack-watch", "cancel-in-progress": False}


@BOTH
def test_only_the_step_that_needs_it_gets_the_token(text: str) -> None:
    assert [("github.token" in json.dumps(step)) for step in steps(text)] == [False, False, False, True]
    assert not [step for step in steps(text) if "token" in step.get("run", "")]


@BOTH
def test_git_gives_the_token_to_the_forge_only(text: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upstream's host may ask for a password, too."""
    for key, value in steps(text)[-1]["env"].items():
        monkeypatch.setenv(
            key, value.replace("${{ github.server_url }}", "https://github.com").replace("${{ github.token }}", "t")
        )
    git._reaching.cache_clear()
    said = {}
    for host in ("github.com", "upstream.example"):
        done = subprocess.run(
            ["git", "credential", "fill"],
            input=f"protocol=https\nhost={host}\n\n",
            env=git.environment() | {"HOME": str(home)},
            capture_output=True,
            text=True,
            check=False,
        )
        said[host] = "password=t\n" in done.stdout
    assert said == {"github.com": True, "upstream.example": False}


def test_the_cache_is_keyed_by_the_pins() -> None:
    assert "hashFiles('pins.toml')" in steps(PLAIN)[1]["with"]["key"]
    assert "hashFiles('fork/stack/pins.toml')" in steps(OWN_HARDWARE)[1]["with"]["key"]


def test_its_time_is_at_night_and_of_its_own() -> None:
    times = {parsed(workflow.text("", ("x",), str(number)))["on"]["schedule"][0]["cron"] for number in range(50)}
    assert len(times) > 20
    assert all(re.fullmatch(r"[1-5]?\d [2-4] \* \* \*", time) for time in times)


@pytest.mark.parametrize("label", ["", "a b", "${{ x }}", "a\nb", "]", "-x", "é"])
def test_a_label_cannot_be_markup(label: str) -> None:
    with pytest.raises(StackError):
        workflow.text("", (label,), "stack")


@pytest.mark.parametrize("folder", ["a b/", "${{ x }}/", "a'/", "a\n/", "no-slash"])
def test_a_folder_cannot_be_markup(folder: str) -> None:
    with pytest.raises(StackError):
        workflow.text(folder, ("x",), "stack")


def init(root: Path, *args: str) -> Ran:
    done = forked.run(["--root", str(root), "watch", "init", *args], env=dict(os.environ))
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git.run(["init", "--quiet", "--template=", str(tmp_path / "mine")])
    root = tmp_path / "mine/fork"
    (root / "stacks").mkdir(parents=True)
    (root / "pins.toml").write_text("")
    (root / "stacks/stack.toml").write_text("series = []\n")
    return root


def test_it_is_written_once(repository: Path) -> None:
    file = repository.parent / ".github/workflows/stack-watch.yml"
    assert json.loads(init(repository, "--json").out)["changed"] is True
    assert file.read_text() == workflow.text("fork/", (workflow.PLAIN,), "mine")
    assert json.loads(init(repository, "--github", "--json").out)["changed"] is False
    file.write_text("mine")
    assert init(repository).refused() == f"{file} is there and differs: look at it, then run it with --force to replace it"
    assert file.read_text() == "mine"
    assert init(repository, "--force", "--runner", "self-hosted", "--runner", "gpu").code == 0
    assert parsed(file.read_text())["jobs"]["watch"]["runs-on"] == ["self-hosted", "gpu"]
    assert [path.name for path in file.parent.iterdir()] == ["stack-watch.yml"]


def test_a_link_is_not_followed(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (repository.parent / ".github").symlink_to(tmp_path / "elsewhere")
    assert "is a link" in init(repository).refused()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_outside_of_a_repository(tmp_path: Path) -> None:
    (tmp_path / "pins.toml").write_text("")
    assert init(tmp_path).refused() == f"{tmp_path} is not in a git repository: run `git init` there, or clone your repository"


def test_its_last_step_works_as_it_is_written(me: Maintainer, tmp_path: Path, home: Path) -> None:
    """The command runs in GitHub's shell, with the step's variables, and git gets the password from them alone."""
    (home / ".gitconfig").unlink()
    me.forge.passwords |= {"x-access-token": os.environ["GH_TOKEN"]}
    me.forge.programs.add("x-access-token")
    me.forge.hidden.add(OWN)
    me.release("v1.1", {"b.py": FIXED})
    programs = tmp_path / "runner/stack/bin"
    programs.mkdir(parents=True)
    stack = programs / "stack"
    stack.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{SCRIPT}" --cache {me.cache} "$@"\n')
    stack.chmod(0o755)
    step = steps(workflow.text("", (workflow.PLAIN,), "stack"))[-1]
    server = me.forge.url
    filled = {key: value.replace("${{ github.server_url }}", server) for key, value in step["env"].items()}
    given = {key: value for key, value in filled.items() if key != "GH_TOKEN"}
    environment = os.environ | given | {"RUNNER_TEMP": str(tmp_path / "runner")}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(shell, cwd=me.work, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(me.issues) == 1
    assert len(me.hub.repositories[OWN].pulls) == 1


def test_the_release_that_it_installs_is_this_one() -> None:
    assert f"'git-carry=={__version__}'" in steps(PLAIN)[2]["run"]
