# SPDX-License-Identifier: Apache-2.0
"""The generated files run for real, with every step: by act for GitHub and Forgejo, by gitlab-ci-local for GitLab.

Neither forge is here, so these things of the files are replaced: the forge's address and the address of its API, which runners
give, by those of the stand-in; `actions/cache` by a program that prints its values; Forgejo's copies of actions by their names,
since act takes no addresses. act copies the checkout in place of `actions/checkout`.
"""

import os
from pathlib import Path

import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder

from stack.store import git
from stack.watch import workflow

from ..forge.conftest import TOKEN
from . import local_runners
from .local_runners import Programs
from .world import FIXED, OWN, Maintainer

pytestmark = [pytest.mark.images, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
PERSON = {f"GIT_{who}_{what}": "p" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
USERS = {"github": "x-access-token", "gitlab": "stack-watch", "forgejo": "stack-watch"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with this project's wheel, as an index would have it."""
    folder = tmp_path_factory.mktemp("wheels")
    [_] = WheelBuilder(str(ROOT)).build(directory=str(folder))
    return folder


@pytest.fixture(scope="module")
def programs() -> Programs:
    return local_runners.installed()


def committed(me: Maintainer, kind: str, *, prove: bool) -> None:
    """Write the workflow and push it, as a person does."""
    workflow.write(me.work, workflow.Kind(kind), prove=prove)
    git.run(["add", "."], cwd=me.work)
    git.run(["commit", "--quiet", "-m", "Watch"], cwd=me.work, env=PERSON)
    git.run(["push", "--quiet", str(me.mine), "HEAD:main"], cwd=me.work)


def run(me: Maintainer, kind: str, home: Path, wheels: Path, programs: Programs) -> str:
    found = {"PIP_FIND_LINKS": str(wheels), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if kind == "gitlab":
        given = {
            "CI_PIPELINE_SOURCE": "schedule", "STACK_WATCH": "true", "CI_COMMIT_BRANCH": "main", "CI_DEFAULT_BRANCH": "main",
            "CI_SERVER_URL": me.forge.url, "CI_PROJECT_PATH": OWN, "CI_API_V4_URL": me.hub.url,
        }  # fmt: skip
        return local_runners.gitlab(programs, me.work, home, given | found, {"STACK_WATCH_TOKEN": TOKEN})
    place = me.work / (".github" if kind == "github" else ".forgejo") / "workflows/stack-watch.yml"
    text = place.read_text().replace("${{ github.server_url }}", me.forge.url).replace("${{ github.api_url }}", me.hub.url)
    text = text.replace("https://data.forgejo.org/", "")
    if kind == "github":
        text = text.replace("GH_TOKEN: ${{", f"GITHUB_API_URL: {me.hub.url}\n          GH_TOKEN: ${{{{")
    file = home / "stack-watch.yml"
    file.write_text(text)
    label = "ubuntu-24.04" if kind == "github" else "docker"
    secrets = {"GITHUB_TOKEN": TOKEN} if kind == "github" else {"STACK_WATCH_TOKEN": TOKEN}
    return local_runners.act(programs, file, me.work, home, label, secrets, found)


@pytest.mark.parametrize("prove", [False, True], ids=["plain", "prove"])
@pytest.mark.parametrize("kind", ["github", "gitlab", "forgejo"])
def test_a_night_by_the_generated_file(
    me: Maintainer, kind: str, prove: bool, wheels: Path, programs: Programs, home: Path
) -> None:
    (home / ".gitconfig").unlink()
    git._reaching.cache_clear()
    me.forge.passwords = {USERS[kind]: TOKEN}
    me.forge.programs.add(USERS[kind])
    me.forge.hidden.add(OWN)
    committed(me, kind, prove=prove)
    me.release("v1.1", {"b.py": FIXED})
    me.forget()
    said = run(me, kind, home, wheels, programs)
    assert said.endswith("exit 0\n"), said
    assert len(me.issues) == 1, said
    [pull] = me.hub.repositories[OWN].pulls
    assert pull.title == "Carry the stack to up v1.1"
    assert ("## Proofs" in pull.body) is prove, said
    if prove:
        assert "gave no result" not in pull.body, pull.body
    assert "push git-receive-pack" in me.writes()
    assert TOKEN not in said.replace(f"--secret {TOKEN}", "")


def test_gitlabs_job_with_upstreams_code_refuses_the_token() -> None:
    """A variable that is not limited to the environment would reach it."""
    made = workflow.nightly("", "x", kind=workflow.Kind.GITLAB, prove=True)
    [text, _] = workflow.texts(workflow.Kind.GITLAB, made).values()
    script = yaml.safe_load(text)["stack-watch-prove"]["script"][0]
    for token, code in ((TOKEN, 1), ("", 0)):
        assert os.waitstatus_to_exitcode(os.system(f"STACK_WATCH_TOKEN={token} sh -c '{script}' 2>/dev/null")) == code
