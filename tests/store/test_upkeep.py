# SPDX-License-Identifier: Apache-2.0
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stack.cli.cache import HOLDS
from stack.store import cache, upkeep
from stack.store.results import key, results

from .test_cache import hold

NOW = time.time()
DAY = 24 * 3600


def keep(path: Path, days: float, size: int = 5000) -> Path:
    """An entry of the cache, used so many days ago."""
    with cache.lock(path):
        path.mkdir(parents=True)
        (path / "data").write_bytes(b"x" * size)
    os.utime(cache_lock(path), (NOW - days * DAY,) * 2)
    return path


def cache_lock(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


@pytest.fixture
def held(tmp_path: Path) -> dict[str, Path]:
    made = {
        "old": ("trees/old", 40),
        "new": ("trees/new", 3),
        "deep": ("wheels/built/deep", 31),
        "store": ("upstreams/a.git", 90),
    }
    return {name: keep(tmp_path / place, days) for name, (place, days) in made.items()}


def test_what_has_a_lock_beside_it_is_one_entry(tmp_path: Path, held: dict[str, Path]) -> None:
    found = {entry.path: entry for entry in upkeep.entries(tmp_path)}
    assert {path: entry.kind for path, entry in found.items()} == {
        held["old"]: "trees",
        held["new"]: "trees",
        held["deep"]: "wheels",
        held["store"]: "upstreams",
    }
    assert all(5000 <= entry.size <= 50_000 for entry in found.values())
    assert found[held["new"]].used == pytest.approx(NOW - 3 * DAY, abs=1)


def stuck(error: OSError) -> None:
    raise error


def test_what_cannot_be_removed_is_told_and_the_rest_goes(
    tmp_path: Path, held: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = upkeep._delete

    def busy(path: Path) -> None:
        if path.name.startswith(held["old"].name):
            raise OSError(errno.EBUSY, "Device or resource busy", str(path))
        delete(path)

    monkeypatch.setattr(upkeep, "_delete", busy)
    told: list[OSError] = []
    gone = upkeep.prune(upkeep.entries(tmp_path), NOW - 30 * DAY, told.append)
    assert {entry.path for entry in gone} == {held["deep"]}
    assert [error.strerror for error in told] == ["Device or resource busy"]
    assert held["old"].exists()


def test_a_cache_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert upkeep.entries(tmp_path / "none") == ()


def test_what_was_not_used_for_long_goes_and_the_rest_stays(tmp_path: Path, held: dict[str, Path]) -> None:
    gone = upkeep.prune(upkeep.entries(tmp_path), NOW - 30 * DAY, stuck)
    assert {entry.path for entry in gone} == {held["old"], held["deep"]}
    assert [path.exists() for path in held.values()] == [False, True, False, True]
    assert not list(tmp_path.rglob("*.part"))


def test_using_it_keeps_it(tmp_path: Path, held: dict[str, Path]) -> None:
    listed = upkeep.entries(tmp_path)
    with cache.lock(held["old"]):
        pass
    assert {entry.path for entry in upkeep.prune(listed, NOW - 30 * DAY, stuck)} == {held["deep"]}
    assert held["old"].exists()


def test_what_is_in_use_stays(tmp_path: Path, held: dict[str, Path]) -> None:
    with hold(held["old"]) as process:
        os.utime(cache_lock(held["old"]), (NOW - 40 * DAY,) * 2)  # held since then
        assert {entry.path for entry in upkeep.prune(upkeep.entries(tmp_path), NOW - 30 * DAY, stuck)} == {held["deep"]}
        process.kill()
    assert held["old"].exists()


def test_what_a_killed_run_left_half_goes(tmp_path: Path) -> None:
    (tmp_path / "trees/half.part/deep").mkdir(parents=True)
    (tmp_path / "trees/half.lock").touch()
    file = tmp_path / "archives/p/.p.tar.gz.x1.part"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"half")
    fresh = tmp_path / "archives/p/.p.tar.gz.x2.part"
    fresh.write_bytes(b"being written")
    for path in (file, tmp_path / "trees/half.part"):
        os.utime(path, (NOW - 2 * DAY,) * 2)
    gone = upkeep.prune(upkeep.entries(tmp_path), NOW - DAY, stuck)
    assert {entry.path for entry in gone} == {file, tmp_path / "trees/half.part"}
    assert fresh.exists() and not file.exists() and not (tmp_path / "trees/half.part").exists()


def test_what_is_not_the_caches_stays(tmp_path: Path) -> None:
    mine = [keep(tmp_path / name, 90) for name in ("poetry", "Downloads/film", "trees/deep/er", "wheels/of/mine")]
    half = tmp_path / "Downloads/film.mkv.part"
    other = tmp_path / "trees/notes.part"  # nothing says that it is ours
    for path in (half, other):
        path.write_bytes(b"half")
        os.utime(path, (0, 0))
    assert upkeep.entries(tmp_path) == ()
    assert upkeep.prune(upkeep.entries(tmp_path), NOW, stuck) == ()
    assert all(path.exists() for path in (*mine, half, other))


def test_every_folder_of_entries_is_explained() -> None:
    assert set(HOLDS) == set(upkeep.ENTRIES)


def test_links_are_not_followed(tmp_path: Path, held: dict[str, Path]) -> None:
    outside = tmp_path / "outside"
    keep(outside / "precious", 90)
    (tmp_path / "cache/trees").mkdir(parents=True)
    (tmp_path / "cache/trees/link").symlink_to(outside)
    (tmp_path / "cache/trees/dangling").symlink_to(tmp_path / "nowhere")
    locked = tmp_path / "cache/trees/locked"
    with cache.lock(locked):
        locked.symlink_to(outside)
    os.utime(cache_lock(locked), (NOW - 40 * DAY,) * 2)
    gone = upkeep.prune(upkeep.entries(tmp_path / "cache"), NOW - 30 * DAY, stuck)
    assert {entry.path for entry in gone} == {locked}
    assert (outside / "precious/data").exists() and not locked.is_symlink()


PRUNE = """
import os, signal, sys, time
from pathlib import Path
from stack.store import upkeep
held = upkeep.entries(Path(sys.argv[1]))
left = int(sys.argv[2])

def count(event, args):
    global left
    if event in ("os.rename", "os.remove", "os.rmdir"):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
upkeep.prune(held, time.time(), print)
"""


@pytest.mark.slow
def test_killed_at_each_step_of_removing_it_leaves_an_entry_whole_or_out_of_its_place(tmp_path: Path) -> None:
    files = 5
    states = []
    for step in range(1, 20):
        entry = tmp_path / f"trees/{step}"
        with cache.lock(entry):
            entry.mkdir()
            for number in range(files):
                (entry / str(number)).touch()
        os.utime(cache_lock(entry), (NOW - DAY,) * 2)
        killed = subprocess.run([sys.executable, "-c", PRUNE, str(tmp_path), str(step)], check=False).returncode
        assert killed in (0, -signal.SIGKILL)
        assert not entry.exists() or len(list(entry.iterdir())) == files
        half = entry.with_name(f"{step}.part")
        states.append("half" if half.exists() else "whole" if entry.exists() else "gone")
        upkeep.prune(upkeep.entries(tmp_path), time.time() + 1, stuck)
        assert not entry.exists() and not half.exists()
        if killed == 0:
            break
    assert states[0] == "whole"
    assert states.count("half") > files
    assert states[-1] == "gone"


def test_a_kept_result_is_an_entry_without_a_lock(tmp_path: Path) -> None:
    kept = results(tmp_path, "proofs")
    old, new = key({"tree": "1"}), key({"tree": "2"})
    for name in (old, new):
        kept.put(name, {"passed": []})
    os.utime(kept.folder / f"{old}.json", (NOW - 40 * DAY,) * 2)
    found = upkeep.entries(tmp_path)
    assert [entry.kind for entry in found] == ["results", "results"]
    gone = upkeep.prune(found, NOW - 30 * DAY, stuck)
    assert [entry.path.stem for entry in gone] == [old]
    assert (kept.get(old), kept.get(new)) == (None, {"passed": []})
