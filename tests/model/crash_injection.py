# SPDX-License-Identifier: Apache-2.0
"""Runs switches in children that end themselves, or are ended, anywhere; started as a program of its own, since it forks.

Prints what it has done as JSON; exits with a traceback where a stack was neither in the old state nor in the new one.
"""

import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.model import stack, switch

WATCHED = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "fcntl.flock"})
Files = dict[str, bytes | None]
State = dict[str, bytes]


def snapshot(root: Path) -> State:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".stack" not in path.relative_to(root).parts
    }


# --- a child that kills itself at a step ----------------------------------------------------------------------------------


class Steps:
    """Counts what this process does to the disk and kills it before step number `last`; half-written files are steps, too."""

    def __init__(self, last: int) -> None:
        self.left = last

    def count(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        sys.addaudithook(lambda event, _: self.count() if event in WATCHED else None)
        os.fsync = lambda fd: self.count()
        steps = self

        class Torn(io.FileIO):
            """A file whose writes can be interrupted in the middle."""

            def write(self, data: Any) -> int:
                whole = bytes(data)
                steps.count()
                super().write(whole[: len(whole) // 2])
                steps.count()
                super().write(whole[len(whole) // 2 :])
                return len(whole)

        fdopen = os.fdopen

        def opened(descriptor: int, mode: str = "r", *args: Any, **options: Any) -> Any:
            return io.BufferedWriter(Torn(descriptor, mode)) if mode == "wb" else fdopen(descriptor, mode, *args, **options)

        os.fdopen = opened


def child(action: Callable[[], object]) -> int:
    """The process id of a child that does something and ends; its exit status is 0, or 3 where it was refused."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        action()
        status = 0
    except StackError as refused:
        print(refused, file=sys.stderr, flush=True)
        status = 3
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at(step: int, action: Callable[[], object]) -> bool:
    """Run an action in a child that kills itself at a step; False where it was done before."""

    def run() -> None:
        steps = Steps(step)
        steps.watch()
        action()

    status = ended(child(run))
    assert status in (0, -signal.SIGKILL), status
    return status != 0


def everywhere(
    template: Path, work: Path, action: Callable[[Path], object], old: State, new: State, tried: range
) -> dict[str, int]:
    """Kill an action at steps of it until one comes after its end, and the recovery after a kill at some step, too."""
    seen = {"old": 0, "new": 0, "steps": 0}
    for number, step in enumerate(tried, 1):
        root = work / str(step)
        shutil.copytree(template, root)
        switch.adopt(root)
        killed = killed_at(step, lambda root=root: action(root))  # type: ignore[misc]
        if killed and number % 2:
            killed_at(1 + step // 2 % 23, lambda root=root: switch.recover(root))  # type: ignore[misc]
        switch.recover(root)
        state = snapshot(root)
        assert state in (old, new), f"a mix after step {step}: {sorted(state)}"
        seen["new" if state == new else "old"] += 1
        stack.load(root)
        # Nothing stands in the way of what comes next.
        before = len(switch.history(root))
        changed = switch.apply(
            root, {"pins.toml": b"# again\n" + state["pins.toml"], "stacks/new/folder/file": b"x"}, title="next"
        )
        assert changed == ("pins.toml", "stacks/new/folder/file")
        assert len(switch.history(root)) == min(before + 1, switch.KEPT)
        assert switch.undo(root).title == "next"
        assert snapshot(root) == state
        assert not (root / "stacks/new").exists()
        assert (root / ".stack/.gitignore").read_bytes() == b"*\n"
        stack.load(root)
        shutil.rmtree(root)
        seen["steps"] = number
        if not killed:
            assert state == new
            return seen
    raise AssertionError("never ends")


WHAT = ("first", "later", "undo", "redo", "naive")


def steps(place: Path, what: str, stride: int) -> dict[str, int]:
    """Kill `what` at every step: the first switch of a stack, one with a full history, an undo, a redo, or a naive one.

    With a stride, only at each such step, beginning at another for each `what`: most of their steps are the same.
    """
    template, changes = place / "root", changed(place / "root")
    tried = range(1 + WHAT.index(what) % stride, 10_000, stride)
    if what != "first":
        switch.KEPT = 3
        for number in range(4):
            switch.apply(template, {"stacks/notes": b"%d" % number}, title=f"note {number}")
    old = snapshot(template)
    new: State = {path: data for path, data in {**old, **changes}.items() if data is not None}
    if what in ("undo", "redo"):
        switch.apply(template, changes, title="change")
        assert snapshot(template) == new
        if what == "undo":
            return everywhere(template, place / "work", switch.undo, new, old, tried)
        switch.undo(template)
        assert snapshot(template) == old
        return everywhere(template, place / "work", switch.redo, old, new, tried)
    apply = naive if what == "naive" else switch.apply
    return everywhere(template, place / "work", lambda root: apply(root, changes, title="change"), old, new, tried)


def laned(place: Path) -> dict[str, int]:
    """Kill a change of common files at every step: what a lane used becomes its own in the same switch."""
    from stack.model import lanes  # noqa: PLC0415  (only this one needs it)

    template = place / "root"

    def change(root: Path) -> None:
        path, name = "stacks/gating/vllm/gate-kernels.patch", "stacks/gating/series.toml"
        text = (root / name).read_bytes()
        lanes.apply(stack.load(root), {path: None, name: text[: text.index(b"[[")]}, title="change")

    old = snapshot(template)
    shutil.copytree(template, place / "new")
    switch.adopt(place / "new")
    change(place / "new")
    new = snapshot(place / "new")
    assert "stacks/lanes/0.9/gating/vllm/gate-kernels.patch" in new
    carried = stack.load(template, "0.9").patches
    assert stack.load(place / "new", "0.9").patches == carried
    seen = {"old": 0, "new": 0}
    for step in range(1, 10_000, 4):
        root = place / f"work-{step}"
        shutil.copytree(template, root)
        switch.adopt(root)
        killed = killed_at(step, lambda root=root: change(root))  # type: ignore[misc]
        switch.recover(root)
        state = snapshot(root)
        assert state in (old, new), f"a mix after step {step}: {sorted(state)}"
        seen["new" if state == new else "old"] += 1
        assert stack.load(root, "0.9").patches == carried
        shutil.rmtree(root)
        if not killed:
            return seen
    raise AssertionError("never ends")


def naive(root: Path, files: Files, *, title: str) -> None:
    """What a switch must not be."""
    for path, content in files.items():
        if content is None:
            (root / path).unlink()
        else:
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_bytes(content)


def changed(root: Path) -> Files:
    """A switch that edits, adds and removes, with folders that come and go."""
    order, gating = root / "stacks/stack.toml", root / "stacks/gating"
    series = (gating / "series.toml").read_bytes()
    return {
        "pins.toml": b"# changed\n" + (root / "pins.toml").read_bytes(),
        "stacks/stack.toml": order.read_bytes() + b"# changed\n",
        "stacks/gating/series.toml": series.replace(b"vllm", b"flashinfer"),
        "stacks/gating/vllm/gate-kernels.patch": None,
        "stacks/gating/flashinfer/gate-kernels.patch": (gating / "vllm/gate-kernels.patch").read_bytes(),
    }


# --- killed from outside, while another process reads ---------------------------------------------------------------------


def files(version: int) -> Files:
    """Some files that belong together: each holds the version, `b` only the even ones have."""
    text = b"%d" % version
    return {"stacks/a/x": text, "stacks/b/y": None if version % 2 else text, "stacks/c": text * 1000}


def check(root: Path) -> int:
    with switch.reading(root):
        texts = {
            path: (root / path).read_bytes() if (root / path).exists() else None
            for path in ("stacks/a/x", "stacks/b/y", "stacks/c")
        }
    version = int(texts["stacks/a/x"] or b"0")
    assert texts == files(version), f"a mix: {texts}"
    return version


def write_for_ever(root: Path) -> None:
    random.seed()  # not what all children of this process would draw
    switch.recover(root)
    while True:
        check(root)
        if random.random() < 0.3 and len(switch.history(root)) > 1:
            switch.undo(root)
        else:
            switch.apply(root, files(random.randrange(1_000_000)), title="change")


def read_until(root: Path, stop: Path) -> None:
    seen = set()
    while not stop.exists():
        with contextlib.suppress(switch.Interrupted):  # until the next writer
            seen.add(check(root))
        time.sleep(0.001)  # or the writers would never get the lock
    assert len(seen) > 10, f"saw {len(seen)} versions only"


def kills(place: Path, times: int) -> dict[str, int]:
    """Kill a writer at random times while two others read."""
    root, stop = place / "root", place / "stop"
    for version in (1, 2, 3):
        switch.apply(root, files(version), title="begin")
    readers = [child(lambda: read_until(root, stop)) for _ in range(2)]
    interrupted = 0
    for _ in range(times):
        writer = child(lambda: write_for_ever(root))
        time.sleep(random.uniform(0.001, 0.05))
        os.kill(writer, signal.SIGKILL)
        assert ended(writer) == -signal.SIGKILL, "the writer has ended by itself"
        interrupted += (root / ".stack/switch.json").exists()
    stop.touch()
    assert [ended(reader) for reader in readers] == [0, 0]
    switch.recover(root)
    check(root)
    return {"kills": times, "interrupted": interrupted}


def half_way(place: Path, then: str) -> dict[str, int]:
    """Kill a writer between two renames while another process waits for it to read or to write; returns that one's exit status."""
    root = place / "root"
    paused, pause = os.pipe()

    def write() -> None:
        move = switch._move

        def moved(*args: Any) -> None:
            move(*args)
            os.write(pause, b"x")
            time.sleep(60)

        switch._move = moved
        switch.apply(root, {"stacks/one": b"2", "stacks/two": b"2"}, title="second")

    def read() -> None:
        with switch.reading(root):
            raise AssertionError("read a mix")

    def apply() -> None:
        # Only what stands after the second switch is expected: without finishing that one first, `two` would be another.
        switch.apply(root, {"stacks/one": b"3"}, title="third", expected={"stacks/one": b"2", "stacks/two": b"2"})

    writer = child(write)
    os.read(paused, 1)
    half = [(root / name).read_bytes() for name in ("stacks/one", "stacks/two")] == [b"2", b"1"]
    waiting = child({"read": read, "apply": apply, "undo": lambda: switch.undo(root)}[then])
    time.sleep(0.2)
    os.kill(writer, signal.SIGKILL)
    ended(writer)
    return {"half": int(half), "status": ended(waiting)}


# --- no room, and company -------------------------------------------------------------------------------------------------


def full(place: Path, limit: int) -> dict[str, int]:
    """Switch while no file may grow beyond `limit` bytes, as on a full disk; the exit status is the child's."""

    def run() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        switch.apply(
            place / "root",
            {"stacks/a": b"x", "stacks/b": b"y" * 5000, "stacks/new/c": b"z", "pins.toml": None},
            title="too much",
        )

    return {"status": ended(child(run))}


def company(place: Path, writers: int, times: int) -> dict[str, int]:
    """Several processes switch at once, each its own file and a common one."""
    start, begin = os.pipe()

    def run(number: int) -> None:
        os.close(begin)
        os.read(start, 1)
        for turn in range(times):
            text = b"%d %d" % (number, turn)
            switch.apply(place / "root", {f"stacks/own/{number}": text, "stacks/common": text}, title=text.decode())

    children = [child(lambda number=number: run(number)) for number in range(writers)]  # type: ignore[misc]
    os.close(begin)
    return {"failed": sum(ended(pid) != 0 for pid in children)}


if __name__ == "__main__":
    # What a killed process has written, the kernel has: without waiting for the disk, far more is tried in the same time.
    os.fsync = lambda fd: None
    print(json.dumps(globals()[sys.argv[1]](Path(sys.argv[2]), *(int(arg) if arg.isdigit() else arg for arg in sys.argv[3:]))))
