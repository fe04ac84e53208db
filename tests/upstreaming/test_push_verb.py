# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr --push`, as a user types it."""

import json
import os
import pty
import re
import sys

import pytest

from stack.store import git
from tests.cli.conftest import SCRIPT, Ran

from .. import forked
from .world import Contributor

PUSH = ("export-pr", "--no-tests", "--source", "git", "--push")


def run(me: Contributor, *args: str) -> Ran:
    done = forked.run(["--root", me.root, "--cache", me.cache, *args])
    return Ran(done.returncode, done.stdout, done.stderr)


def test_the_first_wave(me: Contributor) -> None:
    fork = me.forge.address("me/up")
    done = run(me, *PUSH, fork)
    assert done.code == 0, done
    tips = {name.removeprefix("refs/heads/"): tip for name, tip in me.branches().items()}
    assert sorted(tips) == ["pr/up/one-hook", "pr/up/one-other"]
    lines = [line.split() for line in done.out.splitlines()]
    assert lines == [
        ["branch", "state", "commit"],
        lines[1],
        ["pr/up/one-hook", "new", tips["pr/up/one-hook"][:12]],
        ["pr/up/one-other", "new", tips["pr/up/one-other"][:12]],
        ["up:", fork],
    ]
    again = run(me, *PUSH, fork, "--json")
    told = json.loads(again.out)["branches"]
    assert [(one["branch"], one["state"], one["commits"]) for one in told] == [
        (branch, "unchanged", [tip]) for branch, tip in sorted(tips.items())
    ]
    assert {(one["fork"], one["behind"], one["wave"], one["base"]) for one in told} == {(fork, 0, 1, me.base())}


def test_what_is_named(me: Contributor) -> None:
    done = run(me, *PUSH, me.forge.address("me/up"), "--only", "up/one-more")
    assert done.code == 0, done
    [tip] = me.branches().values()
    assert git.text(["log", "--format=%s", f"{me.base()}..{tip}"], cwd=me.mine) == "Do more\nDo hook"


def test_changed_and_somebody_elses(me: Contributor) -> None:
    fork = me.forge.address("me/up")
    assert run(me, *PUSH, fork).code == 0
    first = me.branches()["refs/heads/pr/up/one-hook"]
    git.run(["update-ref", "refs/heads/pr/up/one-other", "main"], cwd=me.mine)
    file = me.root / "stacks/one/up/hook.patch"
    file.write_bytes(file.read_bytes().replace(b"Why it is needed.", b"Why it is needed, in other words."))
    done = run(me, *PUSH, fork)
    assert done.code == 1
    rows = done.out.splitlines()
    assert f"was {first[:12]}, kept as pr/up/one-hook/v1" in rows[2]
    assert rows[3].split()[1] == "refused"
    [theirs] = re.findall(r"somebody changed it there: --over ([0-9a-f]{12}) replaces that", rows[3])
    assert rows[4].strip().startswith("< ")
    told = json.loads(run(me, *PUSH, fork, "--json").out)["branches"]
    assert [one["state"] for one in told] == ["unchanged", "refused"]
    assert told[1]["differs"] == [rows[4].strip()]
    done = run(me, *PUSH, fork, "--over", theirs)
    assert done.code == 0, done
    assert "kept as pr/up/one-other/v1" in done.out
    assert "in other words" in (me.root / ".stack/pulls/up/one-hook.range-diff").read_text()


def test_upstream_is_ahead(me: Contributor) -> None:
    me.upstream.commit({"same.py": b"newer\n"})
    me.publish()
    done = run(me, *PUSH, me.forge.address("me/up"), "--onto", "v1.0")
    assert done.code == 0, done
    assert done.out.count("1 commit behind upstream") == 2


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["https://me:secret@forge.test/them/up"], "/them/up is the upstream itself: push to your own fork of it"),
        (["fork"], "the stack's git has no remote 'fork'"),
        (["down=x"], "unknown upstream 'down'"),
        (["https://me:secret@127.0.0.1:1/me/up"], "https://127.0.0.1:1/me/up cannot be reached"),
    ],
)
def test_refused(me: Contributor, args: list[str], why: str) -> None:
    said = run(me, *PUSH, *args).refused()
    assert why in said
    assert "secret" not in said
    assert me.branches() == me.branches(me.store) == {}


def test_over_is_of_push(me: Contributor) -> None:
    assert "--over says what --push may replace" in run(me, "export-pr", "--over", "1234567").refused()


def test_on_archives_only_what_is_on_this_machine(me: Contributor) -> None:
    archives = ("export-pr", "--no-tests", "--push")
    said = run(me, *archives, "git@forge.example:me/up").refused()
    assert "one-hook is based on an archive of v1.0, which is not a commit of up: stack fetch up --source git" in said
    done = run(me, *archives, str(me.mine))
    assert done.code == 0, done
    assert len(me.branches()) == 2


def test_git_may_ask_on_a_terminal(me: Contributor) -> None:
    """Without a helper, git asks for name and password where there is somebody to ask, and nowhere else."""
    me.configure(secret="")
    assert "has no credentials" in run(me, *PUSH, me.forge.address("me/up")).refused()
    command = [sys.executable, "-c", SCRIPT, "--root", str(me.root), "--cache", str(me.cache), *PUSH, me.forge.address("me/up")]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(command[0], command)
    shown = b""
    answers = {b"Username for": b"me\n", b"Password for": b"secret\n"}
    while chunk := _read(terminal):
        shown += chunk
        for question, answer in list(answers.items()):
            if question in shown:
                os.write(terminal, answer)
                del answers[question]
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0, shown
    assert answers == {}
    assert b"secret" not in shown
    assert len(me.branches()) == 2


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other side is gone
        return b""
