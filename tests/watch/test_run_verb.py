# SPDX-License-Identifier: Apache-2.0
"""`stack watch run` as a user and the workflow call it: on a real git server, and a forge that holds every request against its schema."""

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from stack.store import git
from stack.watch.observing import Proving
from stack.watch.proof_file import ProofFile
from tests import forked
from tests.cli.conftest import Ran

from ..forge.conftest import KINDS, TOKEN
from ..forge.fake_github import Answer
from .world import BRANCH, CONFLICT, FIXED, OWN, Maintainer

FORGES = pytest.mark.parametrize("kind", KINDS)
PERSON = {f"GIT_{who}_{what}": "p" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def run(me: Maintainer, *args: str) -> Ran:
    done = forked.run([*me.args, "watch", *args], env=dict(os.environ))
    return Ran(done.returncode, done.stdout, done.stderr)


def night(me: Maintainer, *args: str) -> Ran:
    me.forget()
    return run(me, "run", *args)


def pulls(me: Maintainer) -> list[tuple[int, str, str]]:
    return [(pull.number, pull.title, pull.state) for pull in me.hub.repositories[OWN].pulls]


def two_releases(me: Maintainer) -> None:
    """One release in which a patch has landed, and one with which the other one is in conflict."""
    me.release("v1.1", {"b.py": FIXED})
    me.release("v1.2", CONFLICT)


@FORGES
def test_a_whole_night_and_the_ones_after_it(me: Maintainer, kind: str) -> None:
    two_releases(me)
    ran = night(me)
    assert ran.code == 1
    opened = {"github": ["POST /pulls"], "gitlab": ["POST /merge_requests"], "forgejo": ["POST /pulls", "POST /labels"]}[kind]
    assert me.writes() == [*opened, "POST /issues", "push git-receive-pack"]
    [issue] = me.issues
    assert (issue.title, issue.state, issue.labels) == ("up: 1 patch needs a person", "open", ["stack-watch"])
    for part in (
        "| `main` | `v1.0` | `v1.2` (release) | 1 landed, 1 conflict",
        "- `one/up/hook`: **conflict** at `v1.2`",
        "Merge request !1 carries" if kind == "gitlab" else "Pull request #1 carries",
    ):
        assert part in issue.body
    [pull] = me.hub.repositories[OWN].pulls
    assert (pull.title, pull.draft, pull.head, pull.base) == ("Carry the stack to up v1.1", True, f"me:{BRANCH}", "main")
    for part in (
        "The newest release is `v1.2`",
        "| `one/up/fix` | landed |",
        "## Dropped, since upstream has it\n\n- `one/up/fix`: ",
        "```diff\n",
    ):
        assert part in pull.body
    after = subprocess.run(
        ["git", "show", f"{BRANCH}:pins.toml"], cwd=me.mine, capture_output=True, text=True, check=True
    ).stdout
    assert 'tag = "v1.1"' in after
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", BRANCH], cwd=me.mine, capture_output=True, text=True, check=True
    )
    assert "fix.patch" not in listed.stdout
    assert ".stack/" not in listed.stdout
    for _ in range(2):
        assert night(me).code == 1
        assert me.writes() == []


def test_a_night_with_an_empty_cache_writes_nothing_either(me: Maintainer) -> None:
    two_releases(me)
    night(me)
    shutil.rmtree(me.cache)
    time.sleep(1.1)  # commits of another second must be the same
    assert night(me).code == 1
    assert me.writes() == []


def test_a_commit_on_the_default_branch_moves_ours(me: Maintainer) -> None:
    two_releases(me)
    night(me)
    base = me.commit_to("main", "more.txt")
    night(me)
    assert me.writes() == ["push git-receive-pack"]
    assert git.text(["rev-parse", f"{BRANCH}^"], cwd=me.mine) == base
    assert len(pulls(me)) == 1


@FORGES
def test_without_anything_newer_there_is_one_closed_issue(me: Maintainer) -> None:
    assert night(me).code == 0
    assert [(issue.title, issue.state) for issue in me.issues] == [("up: all patches carry", "closed")]
    assert BRANCH not in me.branches
    assert night(me).code == 0
    assert me.writes() == []


@FORGES
def test_a_newer_release_updates_the_pull_request_and_comments_once(me: Maintainer) -> None:
    two_releases(me)
    night(me)
    me.release("v1.3", {"a.py": b"".join(b"a %d\n" % number for number in range(1, 41))})
    assert night(me).code == 0
    assert pulls(me) == [(1, "Carry the stack to up v1.3", "open")]
    assert [issue.state for issue in me.issues] == ["closed"]
    assert len(me.issues[0].comments) == 1
    assert night(me).code == 0
    assert me.writes() == []


@FORGES
def test_a_persons_commit_is_never_overwritten(me: Maintainer) -> None:
    me.release("v1.1", {"b.py": FIXED})
    night(me)
    theirs = me.commit_to(BRANCH, "mine.txt")
    me.release("v1.2", {"d.py": b"d\n"})
    night(me)
    assert me.branches[BRANCH] == theirs
    assert "Its branch has commits of a person" in me.issues[0].body
    assert pulls(me) == [(1, "Carry the stack to up v1.1", "open")]


@FORGES
def test_a_push_that_comes_between_is_not_overwritten(me: Maintainer) -> None:
    me.release("v1.1", {"b.py": FIXED})
    night(me)
    me.release("v1.2", {"d.py": b"d\n"})
    theirs: list[str] = []

    def between(request: object) -> None:
        if getattr(request, "pushes", False) and not theirs:
            theirs.append(me.commit_to(BRANCH, "mine.txt"))

    me.forge.before = between
    ran = night(me)
    assert ran.code == 2
    assert f"stack: up: {BRANCH} was not pushed (somebody changed it meanwhile): run it again\n" in ran.err
    assert me.branches[BRANCH] == theirs[0]


@FORGES
def test_labels_of_a_person(me: Maintainer, kind: str) -> None:
    two_releases(me)
    night(me)
    me.hub.repositories[OWN].pulls[0].labels = ["hold"]
    me.issues[0].labels.append("hold")
    me.release("v1.3", {"d.py": b"d\n"})
    night(me)
    assert me.writes() == []
    me.hub.repositories[OWN].pulls[0].labels = ["retry"]
    me.issues[0].labels.remove("hold")
    me.issues[0].labels.append("retry")
    night(me)
    taken = {
        "github": "DELETE /issues/1/labels/retry",
        "gitlab": "PUT /merge_requests/1",
        "forgejo": "DELETE /issues/1/labels/3",
    }
    assert taken[kind] in me.writes()
    assert [pull.labels for pull in me.hub.repositories[OWN].pulls] == [[]]
    assert me.issues[0].labels == ["stack-watch"]


@FORGES
def test_an_issue_without_its_label_is_found_by_its_mark(me: Maintainer) -> None:
    night(me)
    me.issues[0].labels = []
    night(me)
    assert len(me.issues) == 1


@FORGES
def test_an_issue_of_somebody_who_may_not_write_is_left_alone(me: Maintainer) -> None:
    """It has a copy of the mark, and is older."""
    two_releases(me)
    night(me)
    me.issues[0].author = "stranger"
    before = replace(me.issues[0])
    night(me)
    assert (len(me.issues), me.issues[0], me.issues[1].author) == (2, before, "me")
    night(me)
    assert me.writes() == []


def test_a_dry_run_writes_nothing(me: Maintainer) -> None:
    two_releases(me)
    ran = night(me, "--dry-run")
    assert ran.code == 1
    assert me.writes() == []
    assert "would open a draft pull request: Carry the stack to up v1.1" in " ".join(ran.out.split())


def test_each_lane_is_carried(me: Maintainer) -> None:
    assert forked.run([*me.args, "lane", "add", "old"], env=dict(os.environ)).returncode == 0
    git.run(["add", "."], cwd=me.work)
    git.run(["commit", "--quiet", "-m", "Lane"], cwd=me.work, env=PERSON)
    git.run(["push", "--quiet", str(me.mine), "main"], cwd=me.work)
    me.release("v1.1", {"b.py": FIXED})
    me.upstream.commit(CONFLICT, "Towards more")
    [up] = json.loads(night(me, "--json").out)["upstreams"]
    found = [(trial["lane"], trial["aim"], trial["outcomes"]) for trial in up["trials"]]
    assert found == [
        (lane, aim, outcomes)
        for lane in ("main", "old")
        for aim, outcomes in (("release", {"clean": 1, "landed": 1}), ("main", {"landed": 1, "conflict": 1}))
    ]
    pins = git.text(["show", f"{BRANCH}:pins.toml"], cwd=me.mine)
    assert 'tag = "v1.1"' in pins
    assert 'tag = "v1.0"' in pins  # the lane stays where it is


def test_proofs_stand_in_the_pull_request(me: Maintainer) -> None:
    me.release("v1.1", {"b.py": FIXED})
    for writes in (3, 0):
        assert night(me, "--prove", "--python", sys.executable).code == 0
        assert len([write for write in me.writes() if "push" in write or "POST" in write]) == writes
    assert "## Proofs\n\n- `one/up/hook: passes with the patch, fails without it`\n" in me.hub.repositories[OWN].pulls[0].body
    names = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", BRANCH], cwd=me.mine, capture_output=True, text=True, check=True
    )
    assert "__pycache__" not in names.stdout


@FORGES
def test_three_nights_without_a_change_write_nothing(me: Maintainer) -> None:
    """The forge lists the workflow's runs, as it does while the workflow runs."""
    me.ran()
    two_releases(me)
    night(me)
    assert "say when the nightly run last ran" in me.issues[0].body
    for _ in range(3):
        assert night(me).code == 1
        assert me.writes() == []


def test_a_lane_asks_for_a_pull_request(me: Maintainer) -> None:
    assert forked.run([*me.args, "lane", "add", "old"], env=dict(os.environ)).returncode == 0
    git.run(["add", "."], cwd=me.work)
    git.run(["commit", "--quiet", "-m", "Lane"], cwd=me.work, env=PERSON)
    git.run(["push", "--quiet", str(me.mine), "main"], cwd=me.work)
    me.release("v1.1", {"b.py": FIXED})
    assert night(me, "--lane", "new").refused() == "the stack has no lane new: it has main, old"
    [up] = json.loads(night(me, "--lane", "old", "--json").out)["upstreams"]
    assert (up["pull"], up["release"], up["lanes"]) == (1, "v1.1", [{"lane": "old", "pull": 2, "release": "v1.1"}])
    found = [(pull.number, pull.title, pull.head) for pull in me.hub.repositories[OWN].pulls]
    branch = "stack-watch-lanes/up/old"
    assert found == [(1, "Carry the stack to up v1.1", f"me:{BRANCH}"), (2, "Carry lane old to up v1.1", f"me:{branch}")]
    pins = tomllib.loads(git.text(["show", f"{branch}:pins.toml"], cwd=me.mine))
    assert (pins["up"]["tag"], pins["lane"]["old"]["up"]["tag"]) == ("v1.0", "v1.1")
    assert "Pull request #2 carries lane `old` to `v1.1`." in me.issues[0].body
    for _ in range(2):
        night(me, "--all-lanes")
        assert me.writes() == []


def test_a_token_in_the_remotes_address_is_on_no_command_line(me: Maintainer, tmp_path: Path, home: Path) -> None:
    """git's command lines and those of the programs that it starts are written down by a program in its place."""
    secret = "glpat-In_The%20Address"
    (home / ".gitconfig").unlink()
    git._reaching.cache_clear()
    me.forge.passwords = {"me": secret.replace("%20", " ")}
    me.forge.hidden.add(OWN)
    address = me.forge.address(OWN).replace("://", f"://me:{secret}@")
    git.run(["remote", "set-url", "origin", address], cwd=me.work)
    real, log = shutil.which("git"), tmp_path / "commands"
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/git"
    program.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {real} "$@"\n')
    program.chmod(0o755)
    me.release("v1.1", {"b.py": FIXED})
    me.forget()
    done = forked.run([*me.args, "watch", "run"], env=os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stderr
    assert "push git-receive-pack" in me.writes()
    lines = log.read_text()
    assert "push" in lines
    assert "In_The" not in lines + done.stdout + done.stderr


def test_proofs_of_another_job_are_taken(me: Maintainer, tmp_path: Path) -> None:
    me.release("v1.1", {"b.py": FIXED})
    file = tmp_path / "proofs.json"
    without = {key: value for key, value in os.environ.items() if not key.endswith(("_TOKEN", "_API_URL"))}
    for root in (me.work, clone(me, tmp_path / "shallow")):
        file.unlink(missing_ok=True)
        command = [
            "--root",
            str(root),
            "--cache",
            str(me.cache),
            "watch",
            "prove",
            "--python",
            sys.executable,
            "--output",
            str(file),
        ]
        me.forget()
        done = forked.run([*command, "--json"], env=without)
        assert (done.returncode, me.hub.seen, me.forge.seen) == (0, [], [])
        document = json.loads(done.stdout)
        assert (document, document["upstreams"][0]["release"]) == (json.loads(file.read_text()), "v1.1")
    said = "passes with the patch, fails without it"
    assert document["upstreams"][0]["proofs"] == [f"one/up/hook: {said}"]
    assert night(me, "--proofs", str(file)).code == 0
    [pull] = me.hub.repositories[OWN].pulls
    assert f"## Proofs\n\n- `one/up/hook: {said}`\n" in pull.body
    night(me, "--proofs", str(file))
    assert me.writes() == []
    me.commit_to("main", "more.txt")
    night(me, "--proofs", str(file))
    assert "## Proofs\n\n- `not run: the job that runs them had another commit of this repository`\n" in pull.body


def test_upstreams_code_gets_no_token_of_the_job(me: Maintainer, tmp_path: Path) -> None:
    """A runner may put tokens into the environment of each step."""
    me.release("v1.1", {"b.py": FIXED})
    python, log = tmp_path / "python", tmp_path / "environment"
    python.write_text(f'#!/bin/sh\nenv >> {log}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    names = ("GITHUB_TOKEN", "FORGEJO_TOKEN", "CI_JOB_TOKEN", "STACK_WATCH_TOKEN", "ACTIONS_RUNTIME_TOKEN")
    given = os.environ | dict.fromkeys(names, "glpat-OfTheJob") | {"HARMLESS": "kept"}
    done = forked.run([*me.args, "watch", "prove", "--python", str(python), "--json"], env=given)
    assert json.loads(done.stdout)["upstreams"][0]["proofs"] == ["one/up/hook: passes with the patch, fails without it"]
    seen = log.read_text()
    assert "PATH=" in seen
    assert "glpat-OfTheJob" not in seen


def clone(me: Maintainer, place: Path) -> Path:
    """Clone the repository as a forge's workflow does: the last commit only."""
    git.run(["clone", "--quiet", "--depth=1", me.mine.as_uri(), str(place)])
    return place


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "gave no result"),
        ("", "gave no result"),
        ("{", "is invalid"),
        ("[]", "is invalid"),
        ('{"schema": "stack/watch-prove/1", "upstreams": [{"upstream": "up", "commit": "x", "proofs": [7]}]}', "is invalid"),
        ('{"schema": "stack/watch-prove/1", "upstreams": {"x": 1}}', "is invalid"),
        ("[" * 100_000, "is invalid"),
        (" " * 300_000 + "{}", "is invalid"),
        ('{"schema": "stack/watch-prove/1", "upstreams": []}', "had another commit"),
    ],
)
def test_a_hostile_file_of_proofs_stops_nothing(tmp_path: Path, content: str | None, why: str) -> None:
    """Upstream's code ran where it was written."""
    file = tmp_path / "proofs.json"
    if content is not None:
        file.write_text(content)
    [said] = ProofFile(file).of(Proving(tmp_path, None, "up", "v1", "c"))
    assert why in said


def test_hostile_proofs_are_bounded_and_printable(tmp_path: Path) -> None:
    file = tmp_path / "proofs.json"
    entry = {"upstream": "up", "commit": "c", "proofs": ["\x1b[2J" + "x" * 900] * 900}
    file.write_text(json.dumps({"schema": "stack/watch-prove/1", "upstreams": [entry | {"proofs": entry["proofs"][:200]}]}))
    said = ProofFile(file).of(Proving(tmp_path, None, "up", "v1", "c"))
    assert len(said) == 200
    assert all(each.isprintable() and len(each) == 300 for each in said)


def test_json(me: Maintainer) -> None:
    two_releases(me)
    ran = night(me, "--json")
    [up] = json.loads(ran.out)["upstreams"]
    assert (up["issue"], up["pull"], up["release"], up["problem"], up["needs_person"]) == (2, 1, "v1.1", None, True)
    assert [(trial["aim"], trial["revision"], trial["open"]) for trial in up["trials"]] == [
        ("release", "v1.2", ["one/up/hook"])
    ]


def test_an_upstream_that_cannot_be_reached_writes_nothing(me: Maintainer) -> None:
    night(me)
    me.upstream.path.rename(me.upstream.path.with_name("gone"))
    ran = night(me)
    assert ran.code == 2
    assert "stack: up: " in ran.err
    assert me.writes() == []


@pytest.mark.parametrize(
    ("kind", "variable", "said"),
    [
        ("github", "GH_TOKEN", "log in with `gh auth login`, or set GH_TOKEN to a token that may write pull requests"),
        ("gitlab", "GITLAB_TOKEN", "set GITLAB_TOKEN to a token that may write merge requests"),
        ("forgejo", "FORGEJO_TOKEN", "set FORGEJO_TOKEN to a token that may write pull requests"),
    ],
)
def test_without_a_token_it_says_so(me: Maintainer, variable: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(variable)
    assert night(me).refused() == f"no token for 127.0.0.1: {said}"
    assert run(me, "status").refused() == f"no token for 127.0.0.1: {said}"


@FORGES
def test_the_token_is_nowhere(me: Maintainer) -> None:
    two_releases(me)
    ran = night(me, "--json")
    texts = [ran.out, ran.err, *(sent.decode() for sent in me.hub.sent)]
    for place in (me.work, me.cache, me.mine):
        texts += [path.read_bytes().decode("latin1") for path in place.rglob("*") if path.is_file()]
    assert not [text for text in texts if TOKEN in text]


def test_outages_are_survived(me: Maintainer) -> None:
    two_releases(me)
    me.hub.trouble("^GET ", Answer(502, {"message": "Server Error"}))
    me.hub.trouble("^POST .*/issues", Answer(429, {"message": "secondary rate limit"}, {"retry-after": "1"}))
    assert night(me).code == 1
    assert (len(me.issues), len(pulls(me))) == (1, 1)
