# SPDX-License-Identifier: Apache-2.0
"""The output names the release between two pins in which a patch landed, and says if no release lies between."""

import re
from pathlib import Path

import pytest

from ..carry.test_any_project import Project, made, project
from .conftest import Ran
from .test_init import run as run_in

__all__ = ["made", "project"]


def run(project: Project, *args: str) -> Ran:
    assert project.cache == project.root.parent / "cache"
    return run_in(project.root, *args)


def test_the_release_in_which_a_patch_landed(project: Project) -> None:
    main = project.commits["main"]
    landed = run(project, "rebase", "web", "--onto", "main", "--through", "auto", "--dry-run")
    assert landed.code == 0, landed
    assert f"web release-1.2.0 -> {main[:12]}\n" in landed.out
    assert re.search(rf"answer-faster +landed +{main[:12]} Be fast \(in {main[:12]}\)", landed.out)
    assert main not in landed.out


def test_no_release_lies_between(project: Project) -> None:
    sentence = "--through auto: no release of web lies between (tags like release-*; `tags` in pins.toml sets the rule)"
    for args, said in (
        (("rebase", "web", "--onto", "release-1.10.0", "--dry-run", "--through", "auto"), True),
        (("rebase", "web", "--onto", "release-1.10.0", "--dry-run"), False),
        (("rebase", "web", "--onto", "release-1.11.0", "--dry-run", "--through", "auto"), False),
        (("forecast", "web", "--against", "release-1.10.0", "--through", "auto"), True),
    ):
        ran = run(project, *args)
        assert (ran.code, sentence in " ".join(ran.out.split())) == (0, said), ran
        assert max(map(len, ran.out.splitlines())) <= 80


def test_a_move_back_is_announced(project: Project) -> None:
    project.pin('tag = "release-1.10.0"', "1.10.0")
    back = run(project, "rebase", "web", "--onto", "release-1.2.0", "--dry-run")
    assert "web release-1.10.0 -> release-1.2.0" in back.out
    assert ", back to an older release\n" in back.out
    assert "back to" not in run(project, "rebase", "web", "--onto", "release-1.11.0", "--dry-run").out


@pytest.mark.parametrize("tag", ["release-1.10.0", "release-1.11.0"])
def test_triage_says_so_too(project: Project, tmp_path: Path, tag: str) -> None:
    repo = str(project.remote.path)
    patch = str(project.root / "stacks/mine/web/answer-faster.patch")
    asked = ("triage", "--repo", repo, "--base", "release-1.2.0", "--onto", tag, "--through", "auto", patch)
    assert ("no release lies between" in run(project, *asked).out) == (tag == "release-1.10.0")
