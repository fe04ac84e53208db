# SPDX-License-Identifier: Apache-2.0
"""Lanes: other pins and own versions of some files; a write changes the lane that it names and what no other one carries."""

import json
import random
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from stack.model import digest, lane_files, lane_pins, lanes, pins, series, stack, switch
from stack.model.pins import Pins
from stack.model.series import PatchRef
from stack.model.stack import Stack

from .factories import FILES, GATING, PINS, patch, refusal, snapshot, write

OLD = f"""
[lane."0.9".vllm]
tag     = "v0.9.0"
commit  = "{"d" * 40}"
archive = {{ package = "vllm", version = "0.9.0" }}
"""
GATE = "stacks/gating/vllm/gate-kernels.patch"
CACHES = "stacks/cache/flashinfer/read-caches.patch"


@pytest.fixture
def laned(root: Path) -> Path:
    """A stack with a lane on an older vllm."""
    write(root, {"pins.toml": PINS + OLD})
    return root


def seen(root: Path) -> dict[str | None, tuple[object, ...]]:
    """Pins, label, and patches with their bytes, as each lane sees them."""
    return {
        lane: (
            one.pins.upstreams,
            one.pins.base,
            [(ref, one.patches[ref].raw) for member in one.series for ref in member.patches],
        )
        for lane, one in lanes.carried(root).items()
    }


def raw(root: Path, lane: str | None, path: str) -> bytes:
    one = stack.load(root, lane)
    return next(found.raw for ref, found in one.patches.items() if f"stacks/{ref.path}" == path)


# --- pins -----------------------------------------------------------------------------------------------------------------


def test_a_lane_has_the_pins_that_it_names_and_the_others_from_the_main_ones(laned: Path) -> None:
    main, old = pins.load(laned / "pins.toml"), pins.load(laned / "pins.toml", "0.9")
    assert main.lanes == old.lanes == ("0.9",)
    assert old.get("flashinfer") == main.get("flashinfer")
    vllm = old.get("vllm")
    assert (vllm.git, vllm.tag, vllm.commit, vllm.tree) == (main.get("vllm").git, "v0.9.0", "d" * 40, None)
    assert old.base == main.base


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        ("[lane.0.33.vllm]\ncommit = 'aaaaaaa'", 'write the name of the lane in quotes: [lane."0.33".UPSTREAM]'),
        ("[lane.a.torch]\ncommit = 'aaaaaaa'", "lane.a.torch has no pin outside of the lane: pinned: vllm, flashinfer, cutlass"),
        ("[lane.a.vllm]\ntag = 'v1'", "lane.a.vllm.commit is missing: add it"),
        ("[lane.a.vllm]\ncommit = 'aaaaaaa'\nspeed = 1", "lane.a.vllm.speed is an unknown key"),
        ("[lane.a]\nvllm = 1", "lane.a.vllm is 1: it has to be a table"),
        ("[lane.A]\n[lane.a]", "lane: lanes 'A' and 'a' differ only in case: give one of them another name"),
        ("".join(f"[lane.a{number}]\n" for number in range(101)), "has 101 lanes, more than 100: remove"),
        ("[lane]\na = 1", "lane.a is 1: it has to be a table"),
        *(
            (f'[lane."{name}"]', "is not a valid name of a lane")
            for name in ("main", "Main", "..", ".", "../x", "a/b", "/a", "", "a.", ".a", "-a", "a b", "a\\\\b", "x" * 65)
        ),
    ],
)  # fmt: skip
def test_lanes_that_are_not_valid(root: Path, tables: str, line: str) -> None:
    write(root, {"pins.toml": f"{PINS}\n{tables}\n"})
    assert line in refusal(root, stack.load, root)


def test_an_unknown_lane_names_those_that_exist(laned: Path) -> None:
    assert refusal(laned, stack.load, laned, "1.0") == (
        "unknown lane '1.0': pins.toml has main, 0.9; `stack lane add` begins one"
    )


def test_no_upstream_may_be_named_as_the_table_of_lanes(root: Path) -> None:
    write(root, {"pins.toml": f'{PINS}\n[lane]\ngit = "https://example.org/lane"\ncommit = "aaaaaaa"\n'})
    assert "lane.git is 'https://example.org/lane': it has to be a table" in refusal(root, stack.load, root)


def test_edited_pins_keep_everything_else(laned: Path) -> None:
    text = (laned / "pins.toml").read_text()
    old = lane_pins.parsed(text, "0.9")
    moved = replace(old.get("vllm"), commit="e" * 40, tag=None, archive=None, stated_source=None)
    new = lane_pins.edited(text, "0.9", old.replaced(moved))
    assert new == PINS + f'\n[lane."0.9".vllm]\ncommit  = "{"e" * 40}"\n'
    assert lane_pins.edited(new, "0.9", old.replaced(moved)) == new
    flashinfer = replace(old.get("flashinfer"), commit="f" * 40)
    both = lane_pins.edited(new, "0.9", old.replaced(moved, flashinfer))
    assert both.startswith(new)
    assert lane_pins.parsed(both, "0.9") == old.replaced(moved, flashinfer)
    assert lane_pins.parsed(both, None) == lane_pins.parsed(text, None)


def test_a_lane_is_begun_and_dropped(laned: Path) -> None:
    text = (laned / "pins.toml").read_text()
    old = lane_pins.parsed(text, "0.9")
    more = lane_pins.begun(text, "0.8", old)
    assert more.startswith(text)
    assert lane_pins.parsed(more, "0.8") == replace(old, lanes=("0.9", "0.8"))
    assert lane_pins.dropped(more, "0.8").rstrip() == text.rstrip()
    assert lane_pins.parsed(lane_pins.dropped(lane_pins.dropped(more, "0.9"), "0.8"), None).lanes == ()
    assert "has a lane '0.9' already" in refusal(laned, lane_pins.begun, text, "0.9", old)
    lower = lane_pins.begun(text, "a", old)
    assert "lanes 'a' and 'A' differ only in case" in refusal(laned, lane_pins.begun, lower, "A", old)
    assert "'MAIN' is not a valid name" in refusal(laned, lane_pins.begun, text, "MAIN", old)


def test_a_hundred_lanes_are_quick_and_one_more_is_refused(root: Path) -> None:
    text = PINS + "".join(f"[lane.a{number}]\n" for number in range(100))
    write(root, {"pins.toml": text})
    begun = time.process_time()
    assert len(lanes.carried(root)) == 101
    assert len(lane_pins.parsed(lane_pins.dropped(text, "a7"), None).lanes) == 99
    assert time.process_time() - begun < 20
    main = lane_pins.parsed(text, None)
    assert "has 100 lanes, and may not have more" in refusal(root, lane_pins.begun, text, "b", main)


# --- files ----------------------------------------------------------------------------------------------------------------


def test_a_lane_sees_its_own_files_first(laned: Path) -> None:
    own = patch("Gate kernels", "older")
    write(laned, {lane_files.place("0.9", GATE): own})
    assert (raw(laned, "0.9", GATE), raw(laned, None, GATE)) == (own, patch())
    old = stack.load(laned, "0.9")
    assert (old.owns("gating/vllm/gate-kernels.patch"), old.place("gating/vllm/gate-kernels.patch")) == (
        True,
        "stacks/lanes/0.9/gating/vllm/gate-kernels.patch",
    )
    assert old.place("cache/series.toml") == "stacks/cache/series.toml"


def test_a_list_of_a_lane_replaces_the_common_one(laned: Path) -> None:
    """A patch that has landed may stay in an older lane, and the other way round; what the lane does not say stays common."""
    more = '\n[[patch]]\nupstream = "vllm"\nfile = "vllm/more.patch"\n'
    own: dict[str, bytes | str | None] = {
        "stacks/lanes/0.9/gating/series.toml": GATING[GATING.index("[[patch]]") :] + more,
        "stacks/lanes/0.9/gating/vllm/more.patch": patch("More", "more"),
        "stacks/lanes/0.9/stack.toml": 'series = ["gating"]\n',
    }
    write(laned, own)
    old = stack.load(laned, "0.9")
    assert [ref.path for ref in old.patches] == ["gating/vllm/gate-kernels.patch", "gating/vllm/more.patch"]
    assert old.get("gating").title == "Gate kernels"
    assert len(stack.load(laned).patches) == 3


@pytest.mark.parametrize(
    ("files", "lane", "line"),
    [
        ({"stacks/lanes/7/gating/vllm/x.patch": patch()}, None, "stacks/lanes/7 belongs to no lane of pins.toml"),
        ({"stacks/lanes/0.9/gating/vllm/x.patch": patch()}, "0.9", "x.patch is not listed in gating/series.toml"),
        ({"stacks/lanes/0.9/new/series.toml": GATING}, "0.9", "new/series.toml belongs to no series of stacks/stack.toml"),
        ({"stacks/lanes/0.9/stack.toml": 'label = "x"\n'}, "0.9", "stacks/lanes/0.9/stack.toml: label is an unknown key"),
        ({"stacks/lanes/0.9/stack.toml": 'series = ["lanes"]\n'}, "0.9", "that folder holds the files of lanes"),
        ({"stacks/stack.toml": 'series = ["lanes"]\n'}, None, "that folder holds the files of lanes"),
    ],
)
def test_files_of_lanes_that_nothing_names(laned: Path, files: dict[str, bytes | str], lane: str | None, line: str) -> None:
    write(laned, files)
    assert line in refusal(laned, stack.load, laned, lane)


@pytest.mark.parametrize("link", ["stacks/lanes", "stacks/lanes/0.9", "stacks/lanes/0.9/gating"])
def test_links_out_of_the_stack(laned: Path, tmp_path_factory: pytest.TempPathFactory, link: str) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (laned / link).parent.mkdir(parents=True, exist_ok=True)
    (laned / link).symlink_to(elsewhere)
    assert "link" in refusal(laned, stack.load, laned, "0.9")


# --- writing --------------------------------------------------------------------------------------------------------------


def test_a_common_change_leaves_the_lanes_as_they_are(laned: Path) -> None:
    before = seen(laned)
    shorter = series.edited(GATING, ())
    files = {GATE: None, "stacks/gating/series.toml": shorter.encode(), CACHES: patch("Read caches", "anew")}
    moved = stack.load(laned).pins
    text = pins.edited(PINS + OLD, moved.replaced(replace(moved.get("flashinfer"), commit="9" * 40)))
    lanes.apply(stack.load(laned), files | {"pins.toml": text.encode()}, title="change")
    after = seen(laned)
    assert after["0.9"] == before["0.9"]
    assert after[None] != before[None]
    assert sorted(path for path in snapshot(laned) if "lanes" in path) == [
        "stacks/lanes/0.9/cache/flashinfer/read-caches.patch",
        "stacks/lanes/0.9/gating/series.toml",
        "stacks/lanes/0.9/gating/vllm/gate-kernels.patch",
    ]
    switch.undo(laned)
    assert snapshot(laned) == {**{path: bytes(data) for path, data in FILES.items()}, "pins.toml": (PINS + OLD).encode()}


def test_a_lane_writes_only_its_own_files_and_none_that_equals_a_common_one(laned: Path) -> None:
    before = snapshot(laned)
    old = stack.load(laned, "0.9")
    lanes.apply(old, {GATE: patch("Gate kernels", "older"), CACHES: patch("Read caches", "caches")}, title="change")
    assert {path for path, data in snapshot(laned).items() if before.get(path) != data} == {lane_files.place("0.9", GATE)}
    lanes.apply(stack.load(laned, "0.9"), {GATE: patch()}, title="back")
    assert snapshot(laned) == before
    # It comes to equal the common file because that one changes.
    lanes.apply(stack.load(laned, "0.9"), {GATE: patch("Gate kernels", "older")}, title="change")
    lanes.apply(stack.load(laned), {GATE: patch("Gate kernels", "older")}, title="change")
    assert set(snapshot(laned)) == set(before)


def test_lanes_follow_if_they_are_told_to(laned: Path) -> None:
    lanes.apply(stack.load(laned), {GATE: patch("Gate kernels", "mended")}, title="change", follow=True)
    assert raw(laned, "0.9", GATE) == patch("Gate kernels", "mended")
    assert not (laned / "stacks/lanes").exists()


def test_what_is_said_of_a_series_reaches_the_lanes_and_its_list_does_not(laned: Path) -> None:
    lanes.apply(stack.load(laned), {"stacks/gating/series.toml": series.edited(GATING, ()).encode(), GATE: None}, title="drop")
    now = (laned / "stacks/gating/series.toml").read_bytes().replace(b'"pending"', b'"draft"')
    lanes.apply(stack.load(laned), {"stacks/gating/series.toml": now}, title="draft")
    old = stack.load(laned, "0.9").get("gating")
    assert (old.state, [ref.file for ref in old.patches]) == ("draft", ["vllm/gate-kernels.patch"])


def test_nothing_is_written_over_a_file_that_has_changed(laned: Path) -> None:
    old = stack.load(laned, "0.9")
    write(laned, {lane_files.place("0.9", GATE): patch("Gate kernels", "by hand")})
    before = snapshot(laned)
    line = refusal(laned, lanes.apply, old, {GATE: patch("Gate kernels", "x")}, title="change", expected={GATE: patch()})
    assert line == f"{GATE} was changed while this command ran: nothing was written: run it again"
    assert snapshot(laned) == before


def test_a_lane_may_not_write_what_is_no_lanes(laned: Path) -> None:
    assert "is not a file that a lane may change" in refusal(
        laned, lanes.apply, stack.load(laned, "0.9"), {"pyproject.toml": b""}, title="change"
    )


@pytest.mark.parametrize(
    "text",
    [GATING, GATING.replace("\n\n[[patch]]", "\n# About it.\n[[patch]]"), GATING[: GATING.index("[[")], "# none\n" + GATING],
)  # fmt: skip
def test_the_text_that_a_lane_sees_is_the_one_that_was_written(text: str) -> None:
    common = GATING + '\n[[patch]]\nupstream = "vllm"\nfile = "vllm/two.patch"\n'
    own = lane_files.own_text("stacks/gating/series.toml", common, text, None)
    assert own is not None
    joined = lane_files.joined(common, own)
    assert joined is not None
    assert tomllib.loads(joined) == tomllib.loads(text)
    assert lane_files.own_text("stacks/gating/series.toml", common, joined, own) == own
    assert lane_files.own_text("stacks/gating/series.toml", common, common, own) is None


class _Random:
    """Random edits, each in one lane of a stack, as a rebase, a refresh and an import make them."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.random = random.Random(seed)
        self.count = 0

    def edit(self, lane: str | None) -> None:
        now = stack.load(self.root, lane)
        files: dict[str, bytes | None] = {}
        for member in now.series:
            refs = list(member.patches)
            for ref in list(refs):
                match self.random.randrange(6):
                    case 0:
                        files[f"stacks/{ref.path}"] = None
                        refs.remove(ref)
                    case 1 | 2:
                        # Few contents, so that lanes come to equal each other.
                        files[f"stacks/{ref.path}"] = patch(ref.file, f"{ref.file} {self.random.randrange(3)}")
            if self.random.randrange(3) == 0:
                name = f"new-{self.random.randrange(4)}"
                ref = PatchRef(member.name, "vllm", f"vllm/{name}.patch")
                if ref not in refs:
                    refs.insert(self.random.randrange(len(refs) + 1), ref)
                    files[f"stacks/{ref.path}"] = patch(name, f"{member.name} {name} {self.random.randrange(2)}")
            path = f"stacks/{member.name}/series.toml"
            text = series.edited(lanes.text(now, path), tuple(refs))
            if self.random.randrange(4) == 0:
                text = series.with_landed(text, [series.Landed(PatchRef(member.name, "vllm", "vllm/gone.patch"), "v1", "v0")])
            files[path] = text.encode()
        files["pins.toml"] = self._pins(now).encode()
        lanes.apply(now, files, title=f"edit {lane}", expected=lanes.contents(now, files))
        self._check(lane, files)

    def _pins(self, now: Stack) -> str:
        pin = now.pins.get(self.random.choice(now.pins.names()))
        commit = f"{self.random.randrange(16**7):07x}".ljust(40, "0")
        new: Pins = now.pins.replaced(replace(pin, commit=commit))
        text = (self.root / "pins.toml").read_text()
        return pins.edited(text, new) if now.lane is None else lane_pins.edited(text, now.lane, new)

    def _check(self, lane: str | None, files: dict[str, bytes | None]) -> None:
        """The lane sees what was written, and holds no copy of a common file."""
        now = stack.load(self.root, lane)
        for path, data in files.items():
            if path.endswith(".patch"):
                there = {f"stacks/{ref.path}": one.raw for ref, one in now.patches.items()}
                assert there.get(path) == data, path
            elif path != "pins.toml" and data is not None:
                assert tomllib.loads(lanes.text(now, path)) == tomllib.loads(data.decode())
        assert all(not lanes.needless(one) for one in lanes.carried(self.root).values())


@pytest.mark.parametrize("seed", range(4))
def test_random_edits_in_one_lane_leave_the_others_byte_for_byte_the_same(root: Path, seed: int) -> None:
    lanes.begin(root, "0.9")
    lanes.begin(root, "0.8", "0.9")
    edits = _Random(root, seed)
    for _ in range(12):
        lane = edits.random.choice((None, "0.9", "0.8"))
        before, files = seen(root), snapshot(root)
        edits.edit(lane)
        after = seen(root)
        assert {name: what for name, what in after.items() if name != lane} == {
            name: what for name, what in before.items() if name != lane
        }
        if lane is not None:
            own = f"stacks/lanes/{lane}/"
            changed = {path for path in files.keys() | snapshot(root).keys() if files.get(path) != snapshot(root).get(path)}
            assert all(path == "pins.toml" or path.startswith(own) for path in changed), changed
        if edits.random.randrange(4) == 0:
            switch.undo(root)
            assert snapshot(root) == files
    lanes.drop(root, "0.8")
    assert not any("0.8" in path for path in snapshot(root))
    assert set(seen(root)) == {None, "0.9"}


def test_killed_at_any_step_a_write_leaves_all_lanes_old_or_new(root: Path, tmp_path: Path) -> None:
    lanes.begin(root, "0.9")
    place = tmp_path.parent / "killed"
    root.rename(tmp_path.parent / "moved")
    place.mkdir()
    (tmp_path.parent / "moved").rename(place / "root")
    switch.adopt(place / "root")
    script = Path(__file__).with_name("crash_injection.py")
    done = subprocess.run([sys.executable, script, "laned", str(place)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["old"] > 5
    assert counts["new"] > 5


@pytest.mark.parametrize("lane", [None, "0.9"])
def test_a_lane_by_itself_is_a_stack_of_the_same_effect(laned: Path, tmp_path: Path, lane: str | None) -> None:
    """For places that hold one stack, such as an image: own patches, own list, own pins, and no lanes."""
    folder = laned / "stacks/lanes/0.9"
    own = {GATE: patch("Gate kernels", "vllm/old.py")}
    write(folder, {path.removeprefix("stacks/"): data for path, data in own.items()})
    (folder / "stack.toml").write_text('series = ["gating"]\n')
    carried = stack.load(laned, lane)
    target = tmp_path / "alone"
    write(target, lanes.alone(carried))
    found = stack.load(target)
    assert found.lane is None
    assert (found.pins.lanes, found.pins.upstreams, found.pins.base) == ((), carried.pins.upstreams, carried.pins.base)
    assert [one.name for one in found.series] == [one.name for one in carried.series]
    assert digest.exact(found) == digest.exact(carried)
    assert digest.of(found) == digest.of(carried)
    assert b"vllm/old.py" in (target / GATE).read_bytes() or lane is None


def test_a_lane_with_a_source_of_its_own_by_itself(laned: Path) -> None:
    text = PINS + OLD + 'git = "https://example.org/other"\nsource = "git"\n'
    alone = lane_pins.alone(text, "0.9")
    assert lane_pins.parsed(alone, None).get("vllm") == lane_pins.parsed(text, "0.9").get("vllm")
