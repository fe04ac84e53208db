# SPDX-License-Identifier: Apache-2.0
"""`stack watch init`: the files are valid, have the least rights, are never started by a pull request, and their commands work."""

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
from stack.watch.workflow import Kind
from tests import forked
from tests.cli.conftest import SCRIPT, Ran

from ..test_workflow import schema
from . import actionlint
from .world import FIXED, OWN, Maintainer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
DIGEST = "0123456789abcdef" * 4
IMAGE = f"python:3.12-bookworm@sha256:{DIGEST}"


def text(kind: Kind, folder: str = "", seed: str = "stack", **values: Any) -> str:
    """The file that the nightly run is in."""
    return next(iter(workflow.texts(kind, workflow.nightly(folder, seed, kind=kind, **values)).values()))


PLAIN = text(Kind.GITHUB)
OWN_HARDWARE = text(Kind.GITHUB, "fork/stack/", "other", runner=("self-hosted", "gpu"))
PROVING = text(Kind.GITHUB, prove=True)
ALL = pytest.mark.parametrize("made", [PLAIN, OWN_HARDWARE, PROVING], ids=["plain", "own hardware", "proving"])
FORGEJO = pytest.mark.parametrize(
    "made", [text(Kind.FORGEJO), text(Kind.FORGEJO, "fork/", runner=("gpu", "arm"), prove=True)], ids=["plain", "proving"]
)
GITLAB = pytest.mark.parametrize(
    "made", [text(Kind.GITLAB), text(Kind.GITLAB, "fork/", runner=("gpu",), image=IMAGE, prove=True)], ids=["plain", "proving"]
)
BOTH_JOBS = {kind: text(kind, prove=True) for kind in Kind}


def parsed(made: str) -> dict[str, Any]:
    return dict(yaml.safe_load(re.sub(r"^on:", '"on":', made, flags=re.MULTILINE)))


def steps(made: str, job: str = "watch") -> list[dict[str, Any]]:
    return list(parsed(made)["jobs"][job]["steps"])


def jobs(made: str) -> dict[str, dict[str, Any]]:
    """The jobs of a file for GitLab; the one with a dot is a template."""
    found = parsed(made)
    template = found.pop(".stack-watch")
    return {name: template | job for name, job in found.items()}


@ALL
def test_it_follows_githubs_schema(made: str, tmp_path: Path) -> None:
    file = tmp_path / "stack-watch.yml"
    file.write_text(made)
    assert schema(file) == 0


@FORGEJO
def test_forgejos_follows_githubs_schema(made: str, tmp_path: Path) -> None:
    """Forgejo's own schema is in no registry; it takes what GitHub takes, and addresses of actions."""
    file = tmp_path / "stack-watch.yml"
    file.write_text(made)
    assert schema(file) == 0


@GITLAB
def test_it_follows_gitlabs_schema(made: str, tmp_path: Path) -> None:
    file = tmp_path / "stack-watch.yml"
    file.write_text(made)
    assert gitlab_schema(file) == 0
    file.write_text(made.replace("resource_group:", "resource_groups:"))
    assert gitlab_schema(file) == 1


def gitlab_schema(file: Path) -> int:
    program = str(Path(sys.executable).with_name("check-jsonschema"))
    command = [program, "--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci", str(file)]
    return subprocess.run(command, capture_output=True, check=False).returncode


@pytest.mark.images
@pytest.mark.parametrize("prove", [False, True], ids=["plain", "proving"])
@pytest.mark.parametrize("runner", [("ubuntu-22.04",), ("self-hosted", "linux")], ids=" ".join)
def test_actionlint_finds_nothing(runner: tuple[str, ...], prove: bool) -> None:
    """With runners that it knows: it is older than the one by default, and wants a file with labels of one's own."""
    assert actionlint.faults(text(Kind.GITHUB, "fork/", runner=runner, prove=prove)) == []


@pytest.mark.images
@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("github.run_id", "github.run_no", 'property "run_no" is not defined'),
        ("needs.prove.outputs", "needs.proof.outputs", 'property "proof" is not defined'),
        (
            "runs-on: ubuntu-24.04\n    timeout-minutes: 300\n    needs",
            "runs-on: ubuntu-25.13\n    needs",
            'label "ubuntu-25.13" is unknown',
        ),
        ('cron: "', 'cron: "77 ', "invalid CRON format"),
    ],
)
def test_actionlint_finds_what_is_wrong(old: str, new: str, fault: str) -> None:
    assert PROVING.count(old) == 1
    assert fault in " ".join(actionlint.faults(PROVING.replace(old, new)))


@ALL
def test_no_pull_request_starts_it(made: str) -> None:
    """Own hardware would run a stranger's code; `pull_request_target` and `workflow_run` would even give it the token."""
    assert set(parsed(made)["on"]) == {"schedule", "workflow_dispatch"}


@FORGEJO
def test_no_pull_request_starts_forgejos(made: str) -> None:
    assert set(parsed(made)["on"]) == {"schedule", "workflow_dispatch"}


@GITLAB
def test_no_merge_request_starts_gitlabs(made: str) -> None:
    """Each job has the one rule, which a pipeline of a merge request cannot fulfil. A job without rules would always run."""
    for job in jobs(made).values():
        [rule] = job["rules"]
        assert set(rule) == {"if"}
        source, switch, branch = rule["if"].split(" && ")
        assert source == '($CI_PIPELINE_SOURCE == "schedule" || $CI_PIPELINE_SOURCE == "web")'
        assert (switch, branch) == ('$STACK_WATCH == "true"', "$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH")


@ALL
def test_rights_are_least_and_actions_are_pinned(made: str) -> None:
    found = parsed(made)
    assert found["permissions"] == {}
    rights = {name: job["permissions"] for name, job in found["jobs"].items()}
    assert rights.pop("watch") == {"actions": "read", "contents": "write", "issues": "write", "pull-requests": "write"}
    assert rights in ({}, {"prove": {"contents": "read"}})
    for job in found["jobs"]:
        used = [step for step in steps(made, job) if "uses" in step]
        assert all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", step["uses"]) for step in used)
        assert used[0]["with"] == {"persist-credentials": False}
    assert found["concurrency"] == {"group": "stack-watch", "cancel-in-progress": False}


@FORGEJO
def test_forgejos_actions_are_pinned(made: str) -> None:
    used = [step["uses"] for job in parsed(made)["jobs"] for step in steps(made, job) if "uses" in step]
    assert used
    assert all(re.fullmatch(r"https://data\.forgejo\.org/actions/[\w-]+@[0-9a-f]{40}", one) for one in used)


@ALL
def test_only_the_step_that_needs_it_gets_the_token(made: str) -> None:
    assert [("github.token" in json.dumps(step)) for step in steps(made)] == [False] * (len(steps(made)) - 1) + [True]
    assert not [step for step in steps(made) if "token" in step.get("run", "")]


@pytest.mark.parametrize("kind", [Kind.GITHUB, Kind.FORGEJO])
def test_the_job_with_upstreams_code_gets_no_token_and_hands_over_text_only(kind: Kind) -> None:
    made = BOTH_JOBS[kind]
    prove, watch = steps(made, "prove"), steps(made)
    assert "token" not in json.dumps(prove).lower()
    assert parsed(made)["jobs"]["watch"]["needs"] == "prove"
    # The other job's output reaches a shell as a variable's value, never as a part of a script.
    assert [step["env"] for step in watch if "needs." in json.dumps(step)] == [{"PROOFS": "${{ needs.prove.outputs.proofs }}"}]
    assert not [step for step in (*prove, *watch) if "${{" in step.get("run", "")]


def test_the_job_with_upstreams_code_gets_no_token_at_gitlab() -> None:
    prove, watch = jobs(BOTH_JOBS[Kind.GITLAB])["stack-watch-prove"], jobs(BOTH_JOBS[Kind.GITLAB])["stack-watch"]
    assert "environment" not in prove
    assert watch["environment"] == {"name": "stack-watch", "action": "access"}
    assert (watch["needs"], prove["allow_failure"]) == (["stack-watch-prove"], True)
    assert prove["artifacts"]["paths"] == [".stack-watch/proofs.json"]


def test_the_job_that_writes_takes_no_cache_from_the_one_with_upstreams_code() -> None:
    for kind in (Kind.GITHUB, Kind.FORGEJO):
        assert not [step for step in steps(BOTH_JOBS[kind]) if "cache@" in step.get("uses", "")]
        [cache] = [step for step in steps(BOTH_JOBS[kind], "prove") if "cache@" in step.get("uses", "")]
        assert all(line.strip().startswith("stack-watch-proofs-") for line in cache["with"]["restore-keys"].splitlines())
    assert "cache" not in jobs(BOTH_JOBS[Kind.GITLAB])["stack-watch"]


def test_the_job_that_writes_starts_from_a_checkout_of_its_own_at_gitlab() -> None:
    """A runner keeps a project's folder between jobs: upstream's code could have changed .git/config there."""
    assert jobs(BOTH_JOBS[Kind.GITLAB])["stack-watch"]["variables"] == {"GIT_STRATEGY": "clone"}
    assert "python3 -m venv --clear .stack-watch/venv ||" in BOTH_JOBS[Kind.GITLAB]


HELPERS = [
    pytest.param(PLAIN, "GH_TOKEN", id="github"),
    pytest.param(text(Kind.FORGEJO), "FORGEJO_TOKEN", id="forgejo"),
]


@pytest.mark.parametrize(("made", "variable"), HELPERS)
def test_git_gives_the_token_to_the_forge_only(made: str, variable: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upstream's host may ask for a password, too."""
    for key, value in steps(made)[-1]["env"].items():
        monkeypatch.setenv(key, value.replace("${{ github.server_url }}", "https://forge.example"))
    monkeypatch.setenv(variable, "t")
    assert answers(home) == {"forge.example": True, "upstream.example": False}


def answers(home: Path) -> dict[str, bool]:
    """Whether git has the token for a host."""
    git._reaching.cache_clear()
    said = {}
    for host in ("forge.example", "upstream.example"):
        done = subprocess.run(
            ["git", "credential", "fill"],
            input=f"protocol=https\nhost={host}\n\n",
            env=git.environment() | {"HOME": str(home)},
            capture_output=True,
            text=True,
            check=False,
        )
        said[host] = "password=t\n" in done.stdout
    return said


def test_the_cache_is_keyed_by_the_pins() -> None:
    assert "hashFiles('pins.toml')" in steps(PLAIN)[1]["with"]["key"]
    assert "hashFiles('fork/stack/pins.toml')" in steps(OWN_HARDWARE)[1]["with"]["key"]
    assert jobs(text(Kind.GITLAB, "fork/"))["stack-watch"]["cache"]["key"]["files"] == ["fork/pins.toml"]


def test_its_time_is_at_night_and_of_its_own() -> None:
    times = {parsed(text(Kind.GITHUB, seed=str(number)))["on"]["schedule"][0]["cron"] for number in range(50)}
    assert len(times) > 20
    assert all(re.fullmatch(r"[1-5]?\d [2-4] \* \* \*", time) for time in times)


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("label", ["", "a b", "${{ x }}", "a\nb", "]", "-x", "é"])
def test_a_label_cannot_be_markup(kind: Kind, label: str) -> None:
    with pytest.raises(StackError):
        text(kind, runner=(label,))


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("folder", ["a b/", "${{ x }}/", "a'/", "a\n/", "no-slash"])
def test_a_folder_cannot_be_markup(kind: Kind, folder: str) -> None:
    with pytest.raises(StackError):
        text(kind, folder)


@pytest.mark.parametrize("image", ["python:3.12", "python:latest@sha256:1", f"x y@sha256:{DIGEST}", f"$X@sha256:{DIGEST}"])
def test_an_image_is_pinned(image: str) -> None:
    with pytest.raises(StackError, match="has no digest"):
        text(Kind.GITLAB, image=image)
    assert jobs(text(Kind.GITLAB, image=IMAGE))["stack-watch"]["image"] == IMAGE
    with pytest.raises(StackError, match="goes with --gitlab"):
        text(Kind.GITHUB, image=IMAGE)


WHEEL = f"https://host/git_carry-1-py3-none-any.whl#sha256={DIGEST}"


@pytest.mark.parametrize(
    ("install", "arguments"),
    [
        (None, f"'git-carry=={__version__}'"),
        ("1.2.3rc1", "'git-carry==1.2.3rc1'"),
        (WHEEL, f"'git-carry @ {WHEEL}'"),
        (f"git+https://host/me/carry.git@{COMMIT}", f"'git-carry @ git+https://host/me/carry.git@{COMMIT}'"),
        (f"git+ssh://git@host/me/carry@{COMMIT}", f"'git-carry @ git+ssh://git@host/me/carry@{COMMIT}'"),
        (".", "."),
        ("ci/watch.txt", "--require-hashes --requirement './ci/watch.txt'"),
    ],
)
def test_what_is_installed(install: str | None, arguments: str) -> None:
    for kind in Kind:
        assert f"-m pip install --quiet {arguments}\n" in text(kind, install=install)


@pytest.mark.parametrize(
    "install",
    [
        "1.2; x", "git-carry", ">=1", "latest", "git+https://host/me@main", "git+http://host/me@" + COMMIT, "https://host/a.whl",
        f"http://host/a.whl#sha256={DIGEST}", "../a.txt", "/etc/a.txt", "a b.txt", "'", "$(x)", "git+https://u:p@host/me@main",
    ],
)  # fmt: skip
def test_what_can_change_is_not_installed(install: str) -> None:
    with pytest.raises(StackError, match="does not name one thing for ever"):
        text(Kind.GITHUB, install=install)


def test_a_file_of_requirements_has_hashes(repository: Path) -> None:
    file = repository.parent / "watch.txt"
    assert init(repository, "--install", "watch.txt").refused().startswith(f"{file} is missing: write it first")
    file.write_text("# a\n-i https://host/simple\ngit-carry==1 \\\n    --hash=sha256:aa\nclick==8\n")
    assert init(repository, "--install", "watch.txt").refused().startswith(f"{file}: click==8 has no hash")
    file.write_text("git-carry==1 --hash=sha256:aa\n")
    assert init(repository, "--install", "watch.txt").code == 0


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


PLACES = {
    Kind.GITHUB: ".github/workflows/stack-watch.yml",
    Kind.GITLAB: ".gitlab/stack-watch.yml",
    Kind.FORGEJO: ".forgejo/workflows/stack-watch.yml",
}


@pytest.mark.parametrize("kind", Kind)
def test_it_is_written_once(repository: Path, kind: Kind) -> None:
    file, option = repository.parent / PLACES[kind], f"--{kind.value}"
    said = json.loads(init(repository, option, "--json").out)
    assert (said["path"], said["forge"], said["changed"], said["include"]) == (str(file), kind.value, True, None)
    assert file.read_text() == text(kind, "fork/", "mine")
    assert json.loads(init(repository, option, "--json").out)["changed"] is False
    file.write_text("mine")
    refused = init(repository, option).refused()
    assert refused == f"{file} is there and differs: look at it, then run it with --force to replace it"
    assert file.read_text() == "mine"
    assert init(repository, option, "--force", "--runner", "self-hosted", "--runner", "gpu").code == 0
    assert file.read_text() == text(kind, "fork/", "mine", runner=("self-hosted", "gpu"))
    assert [path.name for path in file.parent.iterdir()] == ["stack-watch.yml"]


def test_a_pipeline_that_is_there_is_not_changed(repository: Path) -> None:
    main = repository.parent / ".gitlab-ci.yml"
    main.write_text("build:\n  script: make\n")
    ran = init(repository, "--gitlab")
    assert f"wrote {main}" not in ran.out
    assert "add this to" in ran.out
    assert "local: .gitlab/stack-watch.yml" in ran.out
    assert main.read_text() == "build:\n  script: make\n"
    main.write_text("include:\n  - local: .gitlab/stack-watch.yml\n")
    assert json.loads(init(repository, "--gitlab", "--json").out)["include"] is None


@pytest.mark.parametrize(
    ("address", "setting", "place"),
    [
        ("https://github.com/me/stack", "", ".github/workflows"),
        ("git@gitlab.com:group/below/stack.git", "", ".gitlab"),
        ("https://codeberg.org/me/stack", "", ".forgejo/workflows"),
        ("https://git.example.org/me/stack", "forgejo", ".forgejo/workflows"),
        ("https://git.example.org/me/stack", "", ".github/workflows"),
    ],
)
def test_the_forge_is_found_by_the_remote(repository: Path, address: str, setting: str, place: str) -> None:
    git.run(["remote", "add", "origin", address], cwd=repository)
    if setting:
        git.run(["config", "stack.forge", setting], cwd=repository)
    assert json.loads(init(repository, "--json").out)["path"] == str(repository.parent / place / "stack-watch.yml")


def test_a_pipeline_that_is_new_is_named(repository: Path) -> None:
    out = init(repository, "--gitlab").out.split()
    assert str(repository.parent / ".gitlab-ci.yml") in out
    assert "them" in out


def test_it_says_when_the_forge_was_assumed(repository: Path) -> None:
    assert init(repository).err.startswith(
        "stack: git has no remote 'origin' at a forge, so this is for GitHub; for another one: "
    )
    git.run(["remote", "add", "origin", "https://git.example.org/me/stack"], cwd=repository)
    assert init(repository).err.startswith("stack: the name git.example.org does not tell the forge, so this is for GitHub; ")
    assert init(repository, "--github").err == ""
    git.run(["config", "stack.forge", "github"], cwd=repository)
    assert init(repository).err == ""


def test_a_setting_that_names_no_forge(repository: Path) -> None:
    git.run(["remote", "add", "origin", "https://git.example.org/me/stack"], cwd=repository)
    git.run(["config", "stack.forge", "svn"], cwd=repository)
    assert init(repository).refused() == "git's setting stack.forge is 'svn': set it to one of github, gitlab, forgejo"


def test_a_link_is_not_followed(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (repository.parent / ".github").symlink_to(tmp_path / "elsewhere")
    assert "is a link" in init(repository).refused()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_outside_of_a_repository(tmp_path: Path) -> None:
    (tmp_path / "pins.toml").write_text("")
    assert init(tmp_path).refused() == f"{tmp_path} is not in a git repository: run `git init` there, or clone your repository"


def test_this_repository_has_what_the_command_writes(tmp_path: Path) -> None:
    """The stack watches itself, with the tool of its own checkout. The name of the folder decides about the time of the night."""
    root = tmp_path / "git-carry"
    git.run(["init", "--quiet", "--template=", str(root)])
    (root / "stacks").mkdir()
    (root / "pins.toml").write_text("")
    assert init(root, "--github", "--install", ".").code == 0
    assert (Path(__file__).parents[2] / PLACES[Kind.GITHUB]).read_text() == (root / PLACES[Kind.GITHUB]).read_text()


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
    step = steps(PLAIN)[-1]
    server = me.forge.url
    filled = {key: value.replace("${{ github.server_url }}", server) for key, value in step["env"].items()}
    given = {key: value for key, value in filled.items() if key != "GH_TOKEN"}
    environment = os.environ | given | {"RUNNER_TEMP": str(tmp_path / "runner")}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(shell, cwd=me.work, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(me.issues) == 1
    assert len(me.hub.repositories[OWN].pulls) == 1
