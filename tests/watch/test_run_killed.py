# SPDX-License-Identifier: Apache-2.0
"""Killed by SIGKILL at any write, before or after the forge has carried it out, the next night finishes: nothing twice, nothing lost."""

import signal
import subprocess
import sys

import pytest

from tests.cli.conftest import SCRIPT

from ..forge.fake_forgejo import ForgejoHub
from ..forge.fake_threads import Issue
from ..upstreaming.forge import Request
from .world import BRANCH, CONFLICT, FIXED, OWN, Maintainer

FIRST = {"github": 3, "gitlab": 3, "forgejo": 4}
"""Writes of the first night: a push, a pull request, an issue; at a Forgejo also the label of the issue."""
LATER = 6
"""Writes of a later night: a push, a pull request with its label, an issue with a comment and its label."""
KILLED_FIRST = [
    pytest.param(kind, number, id=f"{kind}-{number}") for kind, most in FIRST.items() for number in range(1, most + 1)
]
KILLED_LATER = [pytest.param(kind, number, id=f"{kind}-{number}") for kind in FIRST for number in range(1, LATER + 1)]


class Killer:
    """Runs nights, and kills one of them at its write of a number."""

    def __init__(self, me: Maintainer) -> None:
        self.me = me
        self.process: subprocess.Popen[bytes] | None = None
        self.left = 0
        self.after = False
        me.hub.at_write = self._strikes
        me.forge.hear = self._hear
        me.forge.after = self._after

    def night(self, number: int = 0, *, after: bool = False) -> int:
        self.left, self.after = number, after
        command = [sys.executable, "-c", SCRIPT, *self.me.args, "watch", "run"]
        self.me.forget()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as self.process:
            return self.process.wait()

    def _strikes(self, after: bool) -> bool:
        """Count a write, and kill the night if it is that one."""
        if after is not self.after or not self.left:
            return False
        self.left -= 1
        if self.left:
            return False
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        return True

    def _hear(self, request: Request, body: bytes) -> bytes:
        return body[:20] if request.pushes and self._strikes(False) else body

    def _after(self, request: Request) -> None:
        if request.pushes:
            self._strikes(True)


def check(me: Maintainer, killer: Killer, release: str, comments: int) -> None:
    """The next night finishes what the killed one began, and the one after it has nothing to do."""
    assert killer.night() in (0, 1)
    pulls = me.hub.repositories[OWN].pulls
    assert [(pull.title, pull.state, pull.labels) for pull in pulls] == [(f"Carry the stack to up {release}", "open", [])]
    if isinstance(me.hub, ForgejoHub):
        assert sorted(me.hub.labels) == sorted(set(me.hub.labels))
    issues: list[Issue] = me.issues
    assert [(len(issue.comments), issue.labels) for issue in issues] == [(comments, ["stack-watch"])]
    pins = subprocess.run(
        ["git", "show", f"{BRANCH}:pins.toml"], cwd=me.mine, capture_output=True, text=True, check=True
    ).stdout
    assert f'tag = "{release}"' in pins
    assert killer.night() in (0, 1)
    assert me.writes() == []


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("kind", "number"), KILLED_FIRST)
def test_the_first_night(me: Maintainer, number: int, after: bool) -> None:
    me.release("v1.1", {"b.py": FIXED})
    me.release("v1.2", CONFLICT)
    killer = Killer(me)
    assert killer.night(number, after=after) == -signal.SIGKILL
    check(me, killer, "v1.1", 0)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("kind", "number"), KILLED_LATER)
def test_a_later_night(me: Maintainer, number: int, after: bool) -> None:
    me.release("v1.1", {"b.py": FIXED})
    killer = Killer(me)
    killer.night()
    me.release("v1.2", {"d.py": b"d\n"})
    me.release("v1.3", CONFLICT)
    me.issues[0].labels.append("retry")
    me.hub.repositories[OWN].pulls[0].labels.append("retry")
    assert killer.night(number, after=after) == -signal.SIGKILL
    check(me, killer, "v1.2", 1)


@pytest.mark.parametrize("kind", FIRST)
def test_there_are_no_more_writes(me: Maintainer, kind: str) -> None:
    """A night that is to be killed at one write more ends by itself, so the tests above cover all of them."""
    me.release("v1.1", {"b.py": FIXED})
    me.release("v1.2", CONFLICT)
    killer = Killer(me)
    assert killer.night(FIRST[kind] + 1, after=True) == 1
    assert len(me.writes()) == FIRST[kind]
