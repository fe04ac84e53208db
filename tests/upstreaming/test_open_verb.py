# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr --open`, with a person at a terminal, a git server and GitHub."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.model.series import State
from stack.model.stack import load
from tests.cli.conftest import SCRIPT, Ran, unwrapped

from ..carry.world import isolate
from ..forge.fake_github import Handler, Hub, Repo, Request
from . import forge as forges
from .conftest import READER, TOKEN
from .terminal import Answer, answered
from .test_push_verb import PUSH, run
from .world import Contributor, contributor

pytestmark = pytest.mark.slow

UP = "them/up"
EXPORT = ("export-pr", "--no-tests", "--source", "git")
QUESTION = "(yes, show, no)"
PROOF = """\
# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

TREE = Path(os.environ["STACK_PROOF_TREE"])
PROVES = {"up/hook.patch": ["test_hook"], "up/other.patch": ["test_other"], "up/more.patch": ["test_more"]}


def test_hook():
    assert "hook" in (TREE / "a.py").read_text()


def test_other():
    assert "other" in (TREE / "b.py").read_text()


def test_more():
    assert "more" in (TREE / "a.py").read_text()
"""


def opened(me: Contributor, *answers: Answer, args: tuple[str, ...] = (), env: dict[str, str] | None = None) -> Ran:
    """`stack export-pr --open` on a terminal."""
    command = [sys.executable, "-c", SCRIPT, "--root", str(me.root), "--cache", str(me.cache), *EXPORT, "--open", *args]
    code, screen = answered(command, QUESTION, answers, env={"COLUMNS": "300"} | (env or {}))
    assert TOKEN not in screen
    return Ran(code, screen, "")


@pytest.fixture(scope="module")
def prepared(contributed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pull requests of the first wave, proved, described and pushed."""
    place = tmp_path_factory.mktemp("prepared")
    for name in ("stack", "cache", "upstream", "forge"):
        shutil.copytree(contributed / name, place / name, symlinks=True)
    with pytest.MonkeyPatch.context() as monkeypatch, forges.serving(place / "forge") as forge:
        (place / "home").mkdir()
        isolate(monkeypatch, place / "home", contributed / "simple")
        me = contributor(place, place / "home", forge)
        (me.root / "proofs").mkdir()
        (me.root / "proofs/test_one.py").write_text(PROOF)
        series = me.root / "stacks/one/series.toml"
        series.write_text(series.read_text().replace('"pending"', '"pending"\nproves = ["proofs/test_one.py"]'))
        done = run(me, "export-pr", "--source", "git", "--python", sys.executable, "--edit", "--json")
        assert done.code == 0, done
        done = run(me, *PUSH, forge.address("me/up"))
        assert done.code == 0, done
    return place


@pytest.fixture
def me(prepared: Path, contributed: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Contributor]:
    isolate(monkeypatch, home, contributed / "simple")
    for name in ("stack", "cache", "upstream", "forge"):
        shutil.copytree(prepared / name, tmp_path / name, symlinks=True)
    with forges.serving(tmp_path / "forge") as forge:
        yield contributor(tmp_path, home, forge)


@pytest.fixture
def ready(me: Contributor, hub: Hub) -> Hub:
    """GitHub, which knows what was pushed."""
    branches = {name.removeprefix("refs/heads/"): tip for name, tip in me.branches().items()}
    hub.repositories = {UP: Repo(), "me/up": Repo(parent=UP, branches=branches)}
    return hub


def states(me: Contributor) -> tuple[State, list[tuple[str, str]]]:
    series = load(me.root).get("one")
    return series.state, [(one.ref.file, one.address) for one in series.pulls]


def pulls(hub: Hub) -> list[Request]:
    return hub.repositories[UP].pulls


def test_what_is_confirmed_is_opened_as_a_draft(me: Contributor, ready: Hub) -> None:
    done = opened(me, "show", "yes", "no", env={"PAGER": "cat"})
    assert done.code == 0, done.out
    [made] = pulls(ready)
    assert (made.title, made.head, made.base, made.draft, made.modify) == ("Do hook", "me:pr/up/one-hook", "main", True, True)
    assert made.sha == me.branches()["refs/heads/pr/up/one-hook"]
    assert "its tests passed on" in made.body
    assert "<!-- stack:" not in made.body
    # All of it was shown: title, description, the commit with its message and every line.
    for shown in (
        "Do hook\n\n## Description",
        "Why it is needed.",
        "Signed-off-by: A Person <a@person>",
        "\n+hook\n",
        "\n-a 10\n",
    ):
        assert shown in done.out
    address = f"https://github.com/{UP}/pull/1"
    assert states(me) == (State.SUBMITTED, [("up/hook.patch", address)])
    assert f"{address} is open\n" in done.out
    rows = [line.split() for line in done.out.splitlines()]
    assert ["up/one-hook", "opened", address] in rows
    assert ["up/one-other", "not", "opened", "you", "did", "not", "say", "yes"] in rows
    # Again: what is open is not opened again, nor asked for.
    again = opened(me, "y")
    assert ["up/one-hook", "open", address] in [line.split() for line in again.out.splitlines()]
    assert again.out.count(QUESTION) == 1
    assert len(pulls(ready)) == 1


@pytest.mark.parametrize("answer", [("", "y"), ("up/one-hook", "YES please")])
def test_only_yes_is_a_yes(me: Contributor, ready: Hub, answer: tuple[str, str]) -> None:
    done = opened(me, *answer)
    assert done.out.count(QUESTION) == 2
    assert pulls(ready) == []
    assert states(me) == (State.PENDING, [])


def test_without_a_terminal_nothing_is_asked(me: Contributor, ready: Hub) -> None:
    line = run(me, *EXPORT, "--open").refused()
    assert line == (
        "--open asks you to confirm each pull request, but there is no terminal: "
        "run it in a terminal; nothing is opened unattended"
    )
    # One end of it is not enough.
    command = f'{sys.executable} -c "{SCRIPT}" --root {me.root} --cache {me.cache} {" ".join(EXPORT)} --open'
    for half in (f"yes yes | {command}", f"{command} | cat >&2"):
        _, screen = answered(["bash", "-c", half], QUESTION, ["yes"])
        assert "but there is no terminal" in screen
    assert pulls(ready) == []
    assert ready.seen == []


def test_somebody_who_leaves(me: Contributor, ready: Hub) -> None:
    done = opened(me, "\x03")
    assert done.code == 130
    assert pulls(ready) == []


def test_what_is_against_it(me: Contributor, ready: Hub) -> None:
    hook = next(patch.diff for ref, patch in load(me.root).patches.items() if ref.file == "up/hook.patch")
    ready.add(UP, title="Do a hook", diff=hook)
    (me.root / ".stack/pulls/up/one-other.md").unlink()
    done = opened(me)
    assert done.code == 1
    assert QUESTION not in done.out
    assert f"https://github.com/{UP}/pull/1 may do the same (1.00): look at it, then --despite it" in done.out
    assert "+hook" in done.out
    told = opened(me, args=("--json",)).out
    found, _ = json.JSONDecoder().raw_decode(told[told.index("{") :])
    assert found["pulls"][0]["state"] == "refused"
    assert "alike " not in told[: told.index("{")]
    assert "up/one-other has no description: stack export-pr --edit --only up/one-other" in done.out
    assert opened(me, "yes", args=("--only", "up/one-hook", "--despite", f"https://github.com/{UP}/pull/1")).code == 0
    assert [one.title for one in pulls(ready)] == ["Do a hook", "Do hook"]


def test_the_rules_are_asked(me: Contributor, ready: Hub) -> None:
    rules = me.root / "stacks/rules"
    rules.mkdir()
    general = Path(__file__).parents[2] / "tools/stack/upstreaming/rules/general.toml"
    (rules / "up.toml").write_text(
        general.read_text() + '\n[title]\npattern = "Fix .*"\nform = "Fix and what"\n[open]\nmost = 2\n'
    )
    done = opened(me)
    assert done.code == 1
    assert done.out.count("title: ") == 2
    for title in ("Of mine", "Of mine, too"):
        ready.add(UP, title=title, author="me")
    done = opened(me)
    assert done.out.count("you have 2 open at them/up, which allows 2") == 2
    assert len(pulls(ready)) == 2


def test_the_fork_has_another_commit(me: Contributor, ready: Hub) -> None:
    ready.repositories["me/up"].branches["pr/up/one-hook"] = "a" * 40
    del ready.repositories["me/up"].branches["pr/up/one-other"]
    done = opened(me)
    assert done.code == 1
    tip = me.branches()["refs/heads/pr/up/one-hook"]
    assert f"me/up has aaaaaaaaaaaa, not {tip[:12]}, as branch pr/up/one-hook" in done.out
    assert "me/up has no branch pr/up/one-other" in done.out
    file = me.root / "stacks/one/up/hook.patch"
    file.write_bytes(file.read_bytes().replace(b"Why it is needed.", b"Why it is needed, in other words."))
    assert "has another version of pr/up/one-hook: stack export-pr --push" in opened(me, args=("--only", "up/one-hook")).out


def test_somebody_pushes_while_it_is_read(me: Contributor, ready: Hub) -> None:
    def push() -> str:
        ready.repositories["me/up"].branches["pr/up/one-hook"] = "a" * 40
        return "yes"

    done = opened(me, push, args=("--only", "up/one-hook"))
    assert done.code == 1
    assert "me/up has aaaaaaaaaaaa, not " in unwrapped(done.out)
    assert pulls(ready) == []


def test_tokens(me: Contributor, ready: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    done = opened(me, "yes", args=("--only", "up/one-hook"), env={"GH_TOKEN": READER})
    assert done.code == 1
    assert "Resource not accessible by personal access token" in unwrapped(done.out)
    done = opened(me, env={"GH_TOKEN": "ghp_expired"})
    assert (done.code, "github" in done.out) == (2, False)
    assert "refuses the token: it has expired, or belongs to another host: log in again" in unwrapped(done.out)
    monkeypatch.delenv("GH_TOKEN")
    assert "no token for forge.test: log in with `gh auth login`" in unwrapped(opened(me).out)
    assert pulls(ready) == []


@pytest.mark.parametrize("after", [False, True])
def test_the_network_drops(me: Contributor, ready: Hub, after: bool) -> None:
    ready.trouble("^POST", Handler.drop, after=after)
    done = opened(me, "yes", args=("--only", "up/one-hook"))
    assert done.code == (0 if after else 1)
    assert len(pulls(ready)) == after
    assert (states(me)[0] is State.SUBMITTED) == after
    if not after:
        assert "nothing was opened: run the command again" in unwrapped(done.out)
        assert opened(me, "yes", args=("--only", "up/one-hook")).code == 0
    assert len(pulls(ready)) == 1


def test_what_could_not_be_written_down_is_said_and_found_again(me: Contributor, ready: Hub) -> None:
    series = me.root / "stacks/one/series.toml"
    text = series.read_text()

    def spoil(handler: Handler) -> None:
        """Somebody else writes into the file while it is opened."""
        series.write_text("title = ")
        handler.drop()

    ready.trouble("^POST", spoil, after=True)
    done = opened(me, "yes", args=("--only", "up/one-hook"))
    assert done.code == 2
    address = f"https://github.com/{UP}/pull/1"
    assert f"{address} is open, but could not be written into stacks/one/series.toml" in unwrapped(done.out)
    series.write_text(text)
    assert opened(me, args=("--only", "up/one-hook")).code == 0
    assert states(me) == (State.SUBMITTED, [("up/hook.patch", address)])
    assert len(pulls(ready)) == 1


def test_what_was_closed_or_merged_is_not_opened_again(me: Contributor, ready: Hub) -> None:
    for number, name in enumerate(("hook", "other")):
        tip = me.branches()[f"refs/heads/pr/up/one-{name}"]
        ready.add(UP, title=name, state="closed", head=f"me:pr/up/one-{name}", sha=tip, merge="c" * 40 if number else None)
    done = opened(me)
    assert done.code == 1
    assert "was closed: reopen it there" in unwrapped(done.out)
    assert "was merged: stack export-pr --status" in unwrapped(done.out)
    assert states(me)[0] is State.PENDING


def test_json(me: Contributor, ready: Hub) -> None:
    done = opened(me, "yes", args=("--only", "up/one-hook", "--json"))
    assert done.code == 0
    # On a busy machine a line of progress is drawn, and erased, after it.
    document, _ = json.JSONDecoder().raw_decode(done.out[done.out.rindex('{\n  "schema"') :])
    [found] = document["pulls"]
    assert (found["name"], found["state"], found["address"], found["reason"]) == (
        "up/one-hook",
        "opened",
        f"https://github.com/{UP}/pull/1",
        None,
    )
    assert found["search"]["repository"] == UP


def test_an_archive_cannot_be_opened(me: Contributor, ready: Hub) -> None:
    command = [
        sys.executable,
        "-c",
        SCRIPT,
        "--root",
        str(me.root),
        "--cache",
        str(me.cache),
        "export-pr",
        "--no-tests",
        "--open",
    ]
    code, screen = answered(command, QUESTION, [], env=dict(os.environ))
    assert code == 2
    assert "is based on an archive of v1.0, which is not a commit of up: stack fetch up --source git" in unwrapped(screen)
    assert ready.seen == []


def test_what_waits_for_another(me: Contributor, ready: Hub) -> None:
    done = opened(me, args=("--only", "up/one-more"))
    assert done.code == 2
    assert "up/one-more needs up/one-hook: it can be opened when that is merged upstream" in unwrapped(done.out)
