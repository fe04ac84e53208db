# SPDX-License-Identifier: Apache-2.0
"""Whatever is wrong: one line that says what and what to do, exit 2, and nothing changed."""

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stack.store.cache import upstream_store

from ..carry.world import World
from .conftest import NO_BYTECODE, Stack, command, run_apart

PATIENCE = 120
"""Seconds within which a command has to end, on a busy machine, too."""

REBASE = ("rebase", "gamma", "--onto", "v2.1", "--with-required")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("rebase", "delta", "--onto", "v1"), "unknown upstream 'delta': pins.toml has gamma, alpha, beta"),
        (("fetch", "delta"), "unknown upstream 'delta': pins.toml has gamma, alpha, beta"),
        (("checkout", "delta", "x"), "unknown upstream 'delta': pins.toml has gamma, alpha, beta"),
        (("pins", "set", "delta", "v1"), "unknown upstream 'delta': pins.toml has gamma, alpha, beta"),
        (("refresh", "gamma", "none"), "none is not a folder: `stack checkout gamma none` makes it"),
        (("fetch", "beta"), "beta has no release: fetch alpha: it is vendored there"),
        (("rebase", "gamma", "--onto", "v2.7"), "no source archive of gamma-pkg 2.7; newest: 2.2, 2.1, 2.0: name one of these"),
        (("fetch", "gamma", "v2.7", "--source", "git"), "gamma-remote has no tag v2.7: did you mean "),
        (("rebase", "gamma", "--onto", "main"), "the tag 'main' names no version of gamma: name a release tag such as"),
        (("rebase", "gamma", "--onto", "--upload-pack=x"), "'--upload-pack=x' is not a release tag"),
        (("rebase", "gamma", "--onto", "../x", "--source", "git"), "'../x' is not a release tag"),
        (("rebase", "gamma"), "name an upstream and --onto REV: see `stack rebase --help`"),
        (("rebase", "--onto", "v1"), "name an upstream and --onto REV: see `stack rebase --help`"),
        (("rebase", "gamma", "--on", "v1"), "unknown option '--on': did you mean '--onto'?"),
        (("rebase", "gamma", "--onto", "v2.2", "--rerere", "."), "--rerere goes with --workspace"),
        (("rebase", "gamma", "--onto", "v2.1", "--format", "x"), "Invalid value for '--format': 'x' is not one of"),
        (("rebase", "--continue", "none"), "none is not the working tree of a rebase: start one: stack rebase"),
        (("rebase", "--abort", "none"), "none is not the working tree of a rebase: start one: stack rebase"),
        (("rebase", "--abort", "none", "--dry-run"), "--abort stands alone: the working tree knows what was asked"),
        (("rebase", "gamma", "--continue", "none"), "--continue stands alone"),
        (("nothing",), "unknown command 'nothing': see `stack --help`"),
        (("checkout", "gamma"), "Missing argument 'DIRECTORY': see `stack checkout --help`"),
        (("undo",), "nothing to undo: no switch is recorded for this stack"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage(
    stack: Stack, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = world.files()
    for options in ((), ("--json",)):
        assert message.lower() in stack(*args, *options).refused().lower()
    assert world.files() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "stack"]


def test_no_stack_here(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        stack("status", root=None).refused()
        == f"no pins.toml in {tmp_path} or above: run stack inside a stack, name one with --root, or begin one: stack init --git URL"
    )
    nowhere = tmp_path / "none"
    begin = f"or begin a stack there: stack --root {nowhere} init --git URL"
    assert stack("status", root=nowhere).refused() == f"{nowhere}/pins.toml is missing: check --root, {begin}"


def _no_network(world: World) -> None:
    shutil.rmtree(world.cache)
    os.environ["PIP_INDEX_URL"] = "http://127.0.0.1:9/simple/"


def _empty_index(world: World) -> None:
    shutil.rmtree(world.cache)
    os.environ["PIP_INDEX_URL"] = f"file://{world.root}/"


def _store(spoil: Callable[[Path], object]) -> Callable[[World], None]:
    return lambda world: spoil(upstream_store(world.cache, "gamma")) and None


def _cut_packs(store: Path) -> None:
    for pack in (store / "objects/pack").glob("*.pack"):
        pack.chmod(0o644)
        pack.write_bytes(pack.read_bytes()[:50])


def _cache_is_a_file(world: World) -> None:
    shutil.rmtree(world.cache)
    world.cache.write_text("mine")


BROKEN: dict[str, tuple[Callable[[World], None], str]] = {
    "no network": (_no_network, "http://127.0.0.1:9/simple/ cannot be reached: check the network"),
    "empty index": (_empty_index, "no source archive of gamma-pkg: check the package's name and the configured index"),
    "store without HEAD": (
        _store(lambda store: (store / "HEAD").unlink()),
        "gamma.git is damaged (it is not a bare git repository): it is only a cache",
    ),
    "store without packs": (
        _store(lambda store: shutil.rmtree(store / "objects/pack")),
        "it is only a cache: delete that folder and fetch again",
    ),
    "store with torn packs": (_store(_cut_packs), "it is only a cache: delete that folder and fetch again"),
    "cache is a file": (_cache_is_a_file, "cannot write"),
    "stack.toml is no TOML": (lambda world: world.edit("stacks/stack.toml", "series = [", "series = "), "stacks/stack.toml: "),
    "unknown key": (lambda world: world.edit("stacks/two/series.toml", "needs", "need"), "did you mean 'needs'?"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_environment(stack: Stack, world: World, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", os.environ["PIP_INDEX_URL"])
    spoil, message = BROKEN[case]
    spoil(world)
    before = world.files()
    for args in (REBASE, ("lint",)):
        assert message in stack(*args).refused()
    assert world.files() == before
    assert not (world.root / ".stack").exists()


def test_a_lost_object_of_the_store(stack: Stack, world: World) -> None:
    """What no ref names directly is missed only when it is read."""
    store = upstream_store(world.cache, "gamma")
    for line in subprocess.check_output(
        ["git", "ls-tree", "refs/stack/archive/v2.1", "gamma/"], cwd=store, text=True
    ).splitlines():
        path = store / "objects" / line.split()[2][:2] / line.split()[2][2:]
        path.unlink(missing_ok=True)
    packs = list((store / "objects/pack").glob("*.pack"))
    for pack in packs:
        pack.rename(pack.with_suffix(".away"))
    said = stack(*REBASE).refused()
    assert "it is only a cache" in said
    shutil.rmtree(store)
    assert stack(*REBASE).code == 0


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "#!/bin/sh\necho git version 2.30.2\n",
            "git 2.30 is too old: install git 2.38 or newer (`git merge-tree --write-tree` is needed)",
        ),
        (None, "git is not installed: install git 2.38 or newer"),
    ],
)
def test_git_is_old_or_missing(world: World, tmp_path: Path, script: str | None, message: str) -> None:
    (tmp_path / "bin").mkdir()
    if script is not None:
        (tmp_path / "bin/git").write_text(script)
        (tmp_path / "bin/git").chmod(0o755)
    before = world.files()
    path = f"{tmp_path}/bin:{os.environ['PATH']}" if script else f"{tmp_path}/bin"
    for args in (REBASE, ("checkout", "gamma", tmp_path / "tree")):
        assert run_apart(world, *args, env={"PATH": path}).refused() == message
    assert run_apart(world, "status", env={"PATH": path}).code == 0
    assert world.files() == before
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize(
    ("limit", "cache", "message"),
    [
        (60, "empty", "cannot write "),
        (700, "empty", "git fast-import was stopped by SIGXFSZ"),
        # The index of landed changes is built in memory then; the carried patch is what finds no room.
        (60, "warm", "gamma.git cannot be written (File too large): free disk space or check its rights"),
        (60, "indexed", "gamma.git cannot be written (File too large): free disk space or check its rights"),
        (400, "carried", "git diff-tree was stopped by SIGXFSZ"),
        (800, "carried", "stack cannot be written (File too large): free disk space or check the folder's rights"),
    ],
)
def test_a_disk_that_is_full(world: World, limit: int, cache: str, message: str) -> None:
    """No file may grow beyond some bytes: writes fail at another place with each limit."""
    if cache == "empty":
        shutil.rmtree(world.cache)
    fetched = set(world.cache.rglob("pack-*"))
    if cache in ("indexed", "carried"):  # what upstream changed is known
        assert run_apart(world, *REBASE, "--dry-run").code == 0
    if cache == "indexed":  # what a carry writes is not there yet
        for file in set(world.cache.rglob("pack-*")) - fetched:
            file.unlink()
    before = world.files()
    assert message in run_apart(world, *REBASE, env=NO_BYTECODE, largest=limit).refused()
    assert world.files() == before
    again = REBASE if cache != "empty" else ("fetch", "gamma")
    assert run_apart(world, *again).code == 0


def has_open(process: int, file: Path) -> bool:
    """Whether a process has a file open; a descriptor may be closed while the list of them is read."""
    try:
        return any(os.path.realpath(entry) == str(file.resolve()) for entry in Path(f"/proc/{process}/fd").iterdir())
    except FileNotFoundError:
        return False


def test_interrupted(world: World) -> None:
    """Ctrl-C while it waits for another process that fills the same store."""
    shutil.rmtree(world.cache)
    store = upstream_store(world.cache, "gamma")
    store.parent.mkdir(parents=True)
    lock = store.with_name(f"{store.name}.lock")
    before = world.files()
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        process = subprocess.Popen(
            command(world, *REBASE),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not has_open(process.pid, lock):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err.strip()) == (130, "", "stack: interrupted: the stack is whole, run the command again")
    assert world.files() == before
    assert run_apart(world, "fetch", "gamma").code == 0


def test_whoever_reads_the_output_goes_away(world: World) -> None:
    process = subprocess.Popen(command(world, "status"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    process.wait(timeout=PATIENCE)
