# SPDX-License-Identifier: Apache-2.0
"""The files for a CI: valid, with the least rights, and nothing on own hardware for a pull request."""

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
from stack.matrix import ci, formats
from stack.matrix.job import Job, Kind, Needs
from stack.matrix.listing import Choice
from stack.store import git

from ..cli.conftest import SCRIPT
from ..test_workflow import schema
from ..watch import actionlint
from .conftest import Proved

PLAN = ci.Plan(Choice(only=(Kind.PROOFS, Kind.KERNELS)), ("ubuntu-24.04",), "python:3.12", ("cpu",))
HOSTED = ci.github("", PLAN)
OWN = ci.github("fork/stack/", ci.Plan(Choice(), ("self-hosted", "linux"), "python:3.12"))
BOTH = pytest.mark.parametrize("text", [HOSTED, OWN], ids=["hosted", "own"])
JOBS = (
    Job("proofs-one", Kind.PROOFS, ("prove", "one"), Needs()),
    Job(
        "kernels-sm121",
        Kind.KERNELS,
        ("validate", "kernels"),
        Needs(gpus=1, labels=("sm121",)),
        outputs=(".stack/verdicts/k.json",),
    ),
)


IMAGE = Job("image", Kind.IMAGES, ("image", "build"), Needs(), outputs=(".stack/matrix/image",))


def parsed(text: str) -> dict[str, Any]:
    return dict(yaml.safe_load(re.sub(r"^on:", '"on":', text, flags=re.MULTILINE)))


def step(text: str, job: str, name: str) -> dict[str, Any]:
    [found] = [each for each in parsed(text)["jobs"][job]["steps"] if each.get("name") == name]
    return dict(found)


@BOTH
def test_it_follows_githubs_schema(text: str, tmp_path: Path) -> None:
    file = tmp_path / "stack-matrix.yml"
    file.write_text(text)
    assert schema(file) == 0


@pytest.mark.images
def test_actionlint_finds_nothing() -> None:
    assert actionlint.faults(HOSTED.replace("ubuntu-24.04", "ubuntu-22.04")) == []
    assert actionlint.faults(
        HOSTED.replace("ubuntu-24.04", "ubuntu-22.04").replace("steps.list.outputs.own", "steps.lists.outputs.own")
    )


@BOTH
def test_rights_are_least_and_actions_are_pinned(text: str) -> None:
    made = parsed(text)
    assert made["permissions"] == {}
    assert {name: job["permissions"] for name, job in made["jobs"].items()} == {
        name: {"contents": "read"} for name in made["jobs"]
    }
    steps = [each for job in made["jobs"].values() for each in job["steps"]]
    used = [each["uses"] for each in steps if "uses" in each]
    assert len(used) == 9
    assert all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", one) for one in used)
    assert [each["with"]["persist-credentials"] for each in steps if "checkout" in each.get("uses", "")] == [False] * 4
    assert "secrets" not in text
    assert "token" not in text


def allowed(condition: str, event: str) -> bool:
    """Whether a job with a condition may run for an event: the list of events in it decides."""
    found = re.match(r"contains\(fromJSON\('(\[[^]]*\])'\), github.event_name\)( &&|$)", condition)
    return found is None or event in json.loads(found[1])


@pytest.mark.parametrize("event", ["pull_request", "pull_request_target", "workflow_run", "issue_comment", "merge_group"])
def test_no_pull_request_runs_on_own_hardware(event: str) -> None:
    assert set(parsed(HOSTED)["on"]) == {"workflow_call", "workflow_dispatch"}
    jobs = parsed(HOSTED)["jobs"]
    assert not allowed(jobs["own"]["if"], event)
    assert allowed(jobs["hosted"]["if"], event)
    # With a runner of one's own for the other jobs, none of them runs: all need the list.
    jobs = parsed(OWN)["jobs"]
    assert not allowed(jobs["list"]["if"], event)
    assert [jobs[name]["needs"] for name in ("hosted", "own")] == ["list", "list"]
    assert jobs["verdict"]["if"] == "always() && needs.list.result == 'success'"


@pytest.mark.parametrize("event", ["push", "schedule", "workflow_dispatch", "release"])
def test_trusted_events_run_there(event: str) -> None:
    assert allowed(parsed(HOSTED)["jobs"]["own"]["if"], event)


def test_jobs_for_hardware_are_apart_from_the_others() -> None:
    hosted, own = (
        json.loads(formats.github(formats.at(JOBS, where), ("x",))) for where in (formats.Where.HOSTED, formats.Where.OWN)
    )
    assert [job["name"] for job in hosted["include"]] == ["proofs-one"]
    assert [(job["name"], job["runner"]) for job in own["include"]] == [("kernels-sm121", ["self-hosted", "sm121"])]
    assert formats.github((), ("x",)) == '{"include":[]}'  # what the workflow compares with


def shell(text: str, place: Path, proved: Proved, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a step's command as GitHub does, with `stack` where the step before it has installed it."""
    programs = place / "runner/stack/bin"
    programs.mkdir(parents=True, exist_ok=True)
    (programs / "stack").write_text(f'#!/bin/sh\nexec {sys.executable} -c "{SCRIPT}" --cache {proved.world.cache} "$@"\n')
    (programs / "stack").chmod(0o755)
    environment = os.environ | {"RUNNER_TEMP": str(place / "runner"), "GITHUB_OUTPUT": str(place / "output")} | variables
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text]
    return subprocess.run(command, cwd=proved.world.root, env=environment, capture_output=True, text=True, check=False)


def test_its_steps_work_as_they_are_written(proved: Proved, tmp_path: Path) -> None:
    """The list goes into the step's output, each job's command runs, and the verdicts are judged."""
    proved.go()
    text = ci.github("", ci.Plan(Choice(only=(Kind.PROOFS,), lanes=("main",)), ("ubuntu-24.04",)))
    done = shell(step(text, "list", "List the jobs")["run"], tmp_path, proved)
    assert done.returncode == 0, done.stderr
    outputs = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert outputs["own"] == '{"include":[]}'
    jobs = json.loads(outputs["hosted"])["include"]
    assert [job["name"] for job in jobs] == ["proofs-one", "proofs-two"]
    for name in ("hosted", "own"):
        for job in jobs:
            assert shell(step(text, name, "Run the job")["run"], tmp_path, proved, COMMAND=job["command"]).returncode == 0
    assert shell(step(text, "hosted", "Run the job")["run"], tmp_path, proved, COMMAND="stack prove three").returncode == 2
    check = step(text, "verdict", "Check that no job failed")["run"]
    assert [shell(check, tmp_path, proved, FAILED=value).returncode for value in ("false", "true")] == [0, 1]
    (tmp_path / "runner/verdicts").mkdir()
    (tmp_path / "runner/verdicts/k.json").write_text("{}")
    judged = shell(step(text, "verdict", "Judge the verdicts")["run"], tmp_path, proved, GATES="cpu")
    assert "gates.toml" in judged.stderr
    assert judged.returncode == 2


def test_the_list_fails_if_the_command_does(proved: Proved, tmp_path: Path) -> None:
    text = ci.github("", ci.Plan(Choice(lanes=("9",)), ("ubuntu-24.04",)))
    assert shell(step(text, "list", "List the jobs")["run"], tmp_path, proved).returncode == 2


def gitlab_schema(file: Path) -> int:
    check = str(Path(sys.executable).with_name("check-jsonschema"))
    command = [check, "--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci", str(file)]
    return subprocess.run(command, capture_output=True, check=False).returncode


@pytest.mark.parametrize(
    "text",
    [
        ci.gitlab("", PLAN),
        ci.gitlab("fork/", PLAN),
        formats.gitlab(JOBS, "python:3.12", ("cpu",), "fork/"),
        formats.gitlab((), "x", ()),
        formats.gitlab((IMAGE,), "x", ()),
    ],
)
def test_gitlabs_files_follow_its_schema(text: str, tmp_path: Path) -> None:
    file = tmp_path / "ci.yml"
    file.write_text(text)
    assert gitlab_schema(file) == 0
    file.write_text(text.replace("script:", "skript:"))
    assert gitlab_schema(file) == 1


def test_no_merge_request_starts_gitlabs() -> None:
    jobs = yaml.safe_load(ci.gitlab("", PLAN))
    for job in jobs.values():
        [rule] = job["rules"]
        assert set(re.findall(r'CI_PIPELINE_SOURCE == "(\w+)"', rule["if"])) == {"push", "schedule", "web"}
        assert "!" not in rule["if"]


def test_gitlabs_child_has_a_job_each_and_judges_at_the_end() -> None:
    made = yaml.safe_load(formats.gitlab(JOBS, "python:3.12", ("cpu",), "fork/"))
    assert made["kernels-sm121"]["tags"] == ["sm121"]
    assert made["kernels-sm121"]["artifacts"]["paths"] == ["fork/.stack/verdicts/k.json"]
    assert made["proofs-one"] == {"stage": "jobs", "script": ["stack prove one"], "image": "python:3.12"}
    assert made["verdict"]["needs"] == ["kernels-sm121"]
    assert made["verdict"]["script"] == ["stack verdict require --gate cpu .stack/verdicts/*.json"]
    assert f"git-carry=={__version__}" in made["default"]["before_script"][1]


def test_no_job_of_gitlabs_has_the_name_of_a_keyword() -> None:
    """GitLab refuses the whole pipeline if its image is a job."""
    made = yaml.safe_load(formats.gitlab([IMAGE], "python:3.12", ()))
    assert [name for name in made if name not in ("stages", "default")] == ["image-job"]
    assert made["image-job"]["artifacts"]["paths"] == [".stack/matrix/image"]


def test_a_gate_is_one_word_of_the_shell() -> None:
    made = yaml.safe_load(formats.gitlab(JOBS, "python:3.12", ("x; id",)))
    assert made["verdict"]["script"] == ["stack verdict require --gate 'x; id' .stack/verdicts/*.json"]


@pytest.mark.parametrize("forge", ["github", "gitlab"])
def test_it_is_written_once(proved: Proved, forge: str) -> None:
    git.run(["init", "--quiet", "--template=", str(proved.world.root)])
    file = proved.world.root / ci.PLACES[ci.Forge(forge)]
    given = ("matrix", "init", f"--{forge}", "--only", "proofs", "--json")
    assert json.loads(proved.run(*given).out) == {"schema": "stack/matrix-init/1", "path": str(file), "changed": True}
    assert "--only proofs" in file.read_text()
    assert json.loads(proved.run(*given).out)["changed"] is False
    file.write_text("mine")
    assert "is there and differs" in proved.run(*given).refused()
    assert json.loads(proved.run(*given, "--force").out)["changed"] is True
    assert [each.name for each in file.parent.iterdir()] == ["stack-matrix.yml"]


def test_outside_of_a_repository(proved: Proved) -> None:
    assert "is not in a git repository" in proved.run("matrix", "init").refused()


@pytest.mark.parametrize("value", ["", "a b", "${{ x }}", "a\nb", "$(x)", "'", "-x"])
def test_a_name_cannot_be_markup(value: str) -> None:
    for plan in (ci.Plan(runner=(value,)), ci.Plan(runner=("x",), gates=(value,)), ci.Plan(Choice(lanes=(value,)), ("x",))):
        if value == "-x" and plan.choice.lanes:
            continue  # an option that the program refuses, not markup
        with pytest.raises(StackError):
            ci.github("", plan)
    with pytest.raises(StackError):
        ci.gitlab("", ci.Plan(image=value))
