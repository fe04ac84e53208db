# SPDX-License-Identifier: Apache-2.0
"""Killed at any moment, a fetch leaves a cache in which the next one works."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from stack.store import git

from ..sweeps import sweep
from .factories import Remote, run_python, sdist, sha256

# Runs `obtain` in forked children that die by SIGKILL: after a number of calls inside the store's code, or after some time;
# with or without the git that they had started. Then runs it again in the same cache and looks at what is left.
DRIVER = """
import json, shutil, sys, time
from pathlib import Path
from stack.model.pins import Archive, Pin, Within
from stack.store import cache, git, registry, remote, repository, sources
from tests.store import crash_injection

sys.executable = "/a/python/without/pip"  # pip's start is not what is measured
order = json.loads(sys.argv[1])
pin = Pin("up", order["git"], order["commit"], "v1.0", Archive("pkg", "1.0", order["sha256"]))
vendored = [Pin("lib", order["lib"], order["inside"], within=Within("up", "lib"))]
home = Path(order["cache"])
CODE = "/stack/store/"

def obtain():
    return sources.obtain(pin, cache=home, source=order["source"], vendored=vendored)

def check(why):
    found = obtain()
    store = cache.upstream_store(home, "up")
    assert found.tree == order["tree"], why
    assert git.run(["fsck", "--strict"], cwd=store).returncode == 0, why
    # Killed after the last step, nothing was left to do: then only the next fetch sweeps.
    with cache.lock(store):
        repository.sweep(store)
    left = [path for path in store.rglob("*") if "incoming" in path.name or path.suffix in (".lock", ".keep")]
    left += [path for path in home.rglob("*") if path.name.startswith(".")]
    assert left == [], (why, left)
    assert obtain() == found, why

def afresh():
    shutil.rmtree(home, ignore_errors=True)
    return time.monotonic()

started = afresh()
order["tree"] = obtain().tree
whole = time.monotonic() - started
afresh()
total = crash_injection.counted(obtain, CODE)
check("undisturbed")
kills = 0
for number in range(order["calls"]):
    limit = 1 + number * (total - 1) // (order["calls"] - 1)
    afresh()
    kills += crash_injection.at_call(obtain, CODE, limit)
    check(f"call {limit} of {total}")
for number in range(order["times"]):
    afresh()
    crash_injection.at_time(obtain, whole * (number + 0.5) / order["times"], together=number % 2 == 1)
    check(f"time {number} of {order['times']}")
print(json.dumps({"kills": kills, "calls": total}))
"""


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    inside = Remote(tmp_path / "lib")
    inside.commit({"x.h": b"x\n"})
    made = Remote(tmp_path / "remote")
    made.commit({f"pkg/{number}.py": os.urandom(500) for number in range(20)})
    made.commit({"pkg/0.py": b"changed\n"}, submodules={"lib": inside.git("rev-parse", "HEAD")})
    made.tag("v1.0")
    return made


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {f"pkg/{number}.bin": os.urandom(20_000) for number in range(60)}
    path = sdist(tmp_path / "served/pkg-1.0.tar.gz", files)
    page = tmp_path / "simple/pkg/index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="../../served/{path.name}#sha256={sha256(path)}">{path.name}</a>')
    monkeypatch.setenv("PIP_INDEX_URL", f"file://{tmp_path}/simple")
    return path


@sweep("part", 0.4, 1)
@pytest.mark.parametrize(("source", "calls", "times"), [("archive", 26, 12), ("git", 16, 6)])
@pytest.mark.slow
def test_killed_at_any_moment(
    tmp_path: Path, remote: Remote, index: Path, source: str, calls: int, times: int, part: float
) -> None:
    calls, times = int(calls * part), int(times * part)
    order = {
        "source": source,
        "calls": calls,
        "times": times,
        "cache": str(tmp_path / "cache"),
        "git": remote.url,
        "commit": remote.git("rev-parse", "v1.0"),
        "lib": f"file://{tmp_path}/lib",
        "inside": git.text(["rev-parse", "HEAD"], cwd=tmp_path / "lib"),
        "sha256": sha256(index),
    }
    done: subprocess.CompletedProcess[str] = run_python(DRIVER, json.dumps(order), timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["kills"] == calls
    assert told["calls"] > 30
