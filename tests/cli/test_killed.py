# SPDX-License-Identifier: Apache-2.0
"""Killed at any moment, a rebase leaves the old stack or the new one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stack.carry import resolutions, worktree
from stack.model import switch

from ..carry.test_signoff import SIGNED
from ..carry.test_workspace import RESOLUTIONS, STOPS, Work
from ..carry.test_worktree import user_git
from ..carry.world import PATCHES, World
from ..sweeps import sweep

# Runs `stack rebase` in forked children, with all modules loaded already, and kills each at another moment: half of them
# anywhere, half of them where the files are switched (by the calls that were made in model/switch.py).
DRIVER = """
import functools, importlib, inspect, io, json, os, random, shutil, signal, sys, time
from pathlib import Path

order = json.loads(sys.argv[1])
root, cache, work = Path(order["root"]), order["cache"], Path(order["work"])
kept = {folder: folder.with_name(folder.name + "-kept") for folder in (root, work) if folder.exists()}
from stack.cli import main
from stack.model import stack, switch

sys.argv = ["stack", "--root", str(root), "--cache", cache, *order["args"]]

def files():
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".stack" not in path.relative_to(root).parts
    }

def switched(found):
    # A rebase writes resolutions before the switch, and `undo` leaves them.
    return {path: data for path, data in found.items() if order["args"][0] != "rebase" or not path.startswith("stacks/resolutions/")}

def counted(limit):
    calls = 0
    def profile(frame, event, arg):
        nonlocal calls
        if "/stack/model/switch.py" in frame.f_code.co_filename:
            calls += 1
            if calls == limit:
                os.kill(os.getpid(), signal.SIGKILL)
    def watched(function):
        # Outside of the switch nothing is counted, and a profiled call takes several times as long.
        @functools.wraps(function)
        def call(*args, **kwargs):
            outer = sys.getprofile()
            sys.setprofile(profile)
            try:
                return function(*args, **kwargs)
            finally:
                sys.setprofile(outer)
        return call
    for name, one in list(vars(switch).items()):
        if inspect.isfunction(one) and one.__module__ == switch.__name__:
            setattr(switch, name, watched(one))
    try:
        main()
    finally:
        os.write(counts, f"{calls} ".encode())

def child(work):
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            work()
        except SystemExit:
            pass
        finally:
            os._exit(0)
    os.setpgid(pid, pid)  # here, too: it may be killed before the child has come so far
    return pid

def reset():
    for folder, copy in kept.items():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(copy, folder, symlinks=True)

for folder, copy in kept.items():
    shutil.copytree(folder, copy, symlinks=True)
reader, counts = os.pipe()
old = files()

def learnt():
    try:
        main()
    finally:
        with os.fdopen(told, "w") as names:
            names.write(" ".join(sys.modules))

# Whatever the command imports, this process imports before any child is killed: else each child would import it anew.
names, told = os.pipe()
learner = child(learnt)
os.close(told)
with os.fdopen(names) as modules:
    for name in modules.read().split():
        if name not in sys.modules and name != "__mp_main__":
            importlib.import_module(name)
os.waitpid(learner, 0)
reset()
began = time.monotonic()
os.waitpid(child(main), 0)
whole = time.monotonic() - began
new = files()
assert old != new
reset()
os.waitpid(child(lambda: counted(0)), 0)
calls = int(os.read(reader, 99).split()[0])

dice = random.Random(7)
seen = {"old": 0, "new": 0}
for number in range(order["moments"]):
    reset()
    if number % 2:
        why = f"after {(moment := whole * 1.2 * dice.random()):.4f} s"
        pid = child(main)
        time.sleep(moment)
        os.killpg(pid, signal.SIGKILL)
    else:
        why = f"after {(moment := calls * (number + 2) // order['moments'])} calls of {calls}"
        pid = child(lambda: counted(moment))
    os.waitpid(pid, 0)
    switch.recover(root)
    stack.load(root)
    found = files()
    changed = {path for path in old.keys() | found.keys() if old.get(path) != found.get(path)}
    assert switched(found) in (switched(old), switched(new)), (why, changed)
    assert all(new[path] == found[path] for path in found.keys() - switched(found).keys()), (why, changed)
    seen["old" if switched(found) == switched(old) else "new"] += 1
    assert not (root / ".stack/switch.json").exists(), why
    if switched(found) == switched(new):
        assert found == new, (why, changed)
        # An undo is taken back by a redo, any other switch by an undo.
        (switch.redo if order["args"] == ["undo"] else switch.undo)(root)
        resolved = {path: new[path] for path in new.keys() - switched(new).keys()}
        assert files() == switched(old) | resolved, why
    if number % 8 == 0:  # store and stack are sound: it can be done again
        if work in kept:
            shutil.rmtree(work, ignore_errors=True)
            shutil.copytree(kept[work], work, symlinks=True)
        os.waitpid(child(main), 0)
        assert files() == new, why
print(json.dumps(seen))
"""


def killed(world: World, work: Path, args: tuple[str, ...], moments: int) -> None:
    order = {"root": str(world.root), "cache": str(world.cache), "work": str(work), "args": args, "moments": moments}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(order)], capture_output=True, text=True, check=False, env=os.environ.copy()
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    # Both are seen, or the moments would prove nothing: the last call comes after the switch, the first ones before it.
    assert seen["old"]
    assert seen["new"]


@sweep("moments", 24, 100)
@pytest.mark.slow
def test_old_or_new(world: World, tmp_path: Path, moments: int) -> None:
    killed(world, tmp_path / "none", ("rebase", "gamma", "--onto", "v2.1", "--with-required"), moments)


@sweep("moments", 24, 100)
@pytest.mark.slow
def test_resolutions_are_whole_and_stay(world: World, tmp_path: Path, moments: int) -> None:
    """The last `--continue` writes what was resolved, then pins and patches at once."""
    work = Work(world, tmp_path / "workspace").start()
    for patch in STOPS[:-1]:
        work.resolve(RESOLUTIONS[patch])
        work.proceed()
    work.resolve(RESOLUTIONS[STOPS[-1]])
    assert len(list((world.root / "stacks/resolutions").iterdir())) == len(STOPS) - 1
    killed(world, work.folder, ("rebase", "--continue", str(work.folder)), moments)


@sweep("moments", 16, 40)
@pytest.mark.slow
def test_a_refresh(world: World, tmp_path: Path, moments: int) -> None:
    folder = tmp_path / "tree"
    with world.stores() as stores:
        worktree.checkout(stores, "gamma", folder)
    user_git(folder, "reset", "-q", "--hard", "HEAD^")
    # Nowhere is the working tree made anew: a refresh that was killed, or taken back, can be done again from it.
    killed(world, tmp_path / "none", ("refresh", "gamma", str(folder)), moments)


@sweep("moments", 16, 40)
@pytest.mark.slow
def test_resolutions_that_are_dropped(world: World, tmp_path: Path, moments: int) -> None:
    work = Work(world, tmp_path / "workspace").start()
    for patch in STOPS:
        work.resolve(RESOLUTIONS[patch])
        work.proceed()
    work.finish()
    keys = resolutions.standing(world.root).named
    assert len(keys) == len(STOPS)
    killed(world, tmp_path / "none", ("resolutions", "drop", *keys), moments)


@sweep("moments", 16, 40)
@pytest.mark.slow
@pytest.mark.parametrize("args", [("undo",), ("redo",), ("pins", "set", "gamma", "v2.1", "--allow-mismatch")])
def test_other_verbs_leave_the_old_state_or_the_new_one(
    world: World, tmp_path: Path, args: tuple[str, ...], moments: int
) -> None:
    switch.apply(world.root, {"stacks/note": b"1", "pins.toml": (world.root / "pins.toml").read_bytes() + b"# 1\n"}, title="1")
    if args == ("redo",):
        switch.undo(world.root)
    killed(world, tmp_path / "none", args, moments)


@sweep("moments", 12, 24)
@pytest.mark.slow
@pytest.mark.parametrize("in_a_tree", [False, True], ids=["in the stack", "in a working tree"])
def test_a_sign_off(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_a_tree: bool, moments: int) -> None:
    """With a working tree, its commits are signed before the patches: a refresh that was killed is done again from them."""
    (tmp_path / "config").write_text("[user]\nname = Some Body\nemail = some@body\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
    folder = tmp_path / "tree"
    for patch in PATCHES:
        (world.root / "stacks" / patch).write_text(world.read(f"stacks/{patch}").replace(SIGNED, ""))
    if in_a_tree:
        with world.stores() as stores:
            worktree.checkout(stores, "gamma", folder)
    killed(world, folder, ("refresh", "gamma", *([str(folder)] if in_a_tree else []), "--signoff"), moments)
    if in_a_tree:
        assert user_git(folder, "status", "--porcelain") == ""
