# SPDX-License-Identifier: Apache-2.0
"""Killed at any moment, a push leaves a store and a fork with which the next one goes on."""

import json
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stack.store import cache
from tests.cli.conftest import SCRIPT
from tests.store.factories import run_python

from ..carry.world import numbered
from ..sweeps import sweep
from .forge import Request
from .world import BASE, Contributor, patch_between, proposal

# Pushes in forked children that die by SIGKILL: after a number of calls inside our code, or after some time, with or without the
# git that they had started. Then it pushes again: the same, or what has changed once more.
DRIVER = """
import json, pickle, shutil, sys, time
from pathlib import Path
from stack.store import cache, git, repository
from tests.upstreaming.forge import Forge
from tests.upstreaming.world import Contributor
from tests.store import crash_injection
from tests.store.factories import strays

order = json.loads(sys.argv[1])
place = Path(order["place"])
CODE = "/stack/"
same, changed = pickle.loads(Path(order["proposals"]).read_bytes())
me = Contributor(place / "stack", place / "cache", place, None, Forge(place / "forge", order["url"]))

def push(proposals):
    return [row.state.value for row in me.push(*proposals)]

def afresh():
    for name in ("cache", "forge/me", "stack"):
        shutil.rmtree(place / name, ignore_errors=True)
        shutil.copytree(place / "before" / name, place / name, symlinks=True)
    return time.monotonic()

def check(why, proposals, expected):
    states = push(proposals)
    assert "refused" not in states, (why, states)
    assert me.branches() | expected == me.branches(), (why, me.branches(), expected)
    assert me.branches() == me.branches(me.store), why
    heads = {name.partition("/heads/")[2]: tip for name, tip in me.branches().items() if "/heads/" in name}
    assert {name.partition("/pr/")[2]: tip for name, tip in me.records().items()} == {
        name.partition("pr/")[2]: tip for name, tip in heads.items()}, (why, me.records())
    assert all("/pushed/" in name for name in me.records()), why
    for repo in (me.store, me.mine):
        assert git.run(["fsck", "--strict"], cwd=repo).returncode == 0, why
    assert strays(me.store) == [], (why, strays(me.store))
    assert (me.root / ".stack/pulls/up/one-hook.range-diff").is_file(), why
    assert push(proposals) == ["unchanged", "unchanged"], why

whole = afresh()
push(same)
whole = time.monotonic() - whole
once = me.branches()
afresh()
total = crash_injection.counted(lambda: push(same), CODE)
afresh()
push(same), push(changed)
heads = {name: tip for name, tip in me.branches().items() if "/heads/" in name}
kills = 0
evenly = [1 + number * (total - 1) // (order["calls"] - 1) for number in range(order["calls"])]
# When it has arrived, and is not written down yet: the last calls.
for number, limit in enumerate([*evenly, *(total - 4 * number for number in range(1, order["calls"]))]):
    afresh()
    kills += crash_injection.at_call(lambda: push(same), CODE, limit)
    if number % 2:
        check(f"call {limit} of {total}", same, once)
    else:
        check(f"call {limit} of {total}, changed", changed, heads)
for number in range(order["times"]):
    afresh()
    crash_injection.at_time(lambda: push(same), whole * (number + 0.5) / order["times"], together=number % 2 == 1)
    check(f"time {number} of {order['times']}", *((same, once) if number % 3 else (changed, heads)))
print(json.dumps({"kills": kills, "calls": total}))
"""


@sweep("calls", 4, 8)
@pytest.mark.slow
def test_killed_at_any_moment(me: Contributor, tmp_path: Path, calls: int) -> None:
    base = me.base()
    times = calls * 3 // 4
    texts = [BASE | {"a.py": numbered("a", {10: text})} for text in ("hook", "hooked", "hooking")]
    hooks = [
        proposal(base, "hook", patch_between(tmp_path / f"p{number}", BASE, after, "Hook"))
        for number, after in enumerate(texts)
    ]
    other = proposal(base, "other", patch_between(tmp_path / "o", BASE, BASE | {"n.py": b"n\n"}, "Other"))
    me.push(hooks[0])
    for name in ("cache", "forge/me", "stack"):
        shutil.copytree(tmp_path / name, tmp_path / "before" / name, symlinks=True)
    (tmp_path / "proposals").write_bytes(pickle.dumps([[hooks[1], other], [hooks[2], other]]))
    order = {
        "place": str(tmp_path),
        "url": me.forge.url,
        "proposals": str(tmp_path / "proposals"),
        "calls": calls,
        "times": times,
    }
    done: subprocess.CompletedProcess[str] = run_python(DRIVER, json.dumps(order), timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["kills"] == 2 * calls - 1
    assert told["calls"] > 100


def test_git_outlives_the_command(me: Contributor) -> None:
    """Whoever comes next waits until what is on its way has arrived."""
    arrived, released = threading.Event(), threading.Event()

    def slowly(request: Request) -> None:
        if request.pushes:
            arrived.set()
            assert released.wait(60)

    me.forge.before = slowly
    push = ["export-pr", "--no-tests", "--source", "git", "--push", me.forge.address("me/up")]
    command = [sys.executable, "-c", SCRIPT, "--root", str(me.root), "--cache", str(me.cache), *push]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert arrived.wait(60)
        process.kill()
        process.wait()
        with cache.lock_if_free(me.store) as free:
            assert not free
        assert me.branches() == {}
        released.set()
        with cache.lock(me.store):
            assert sorted(me.branches()) == ["refs/heads/pr/up/one-hook", "refs/heads/pr/up/one-other"]
