# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.model import stack, switch
from stack.model.series import PatchRef

from .factories import CACHE, FILES, GATING, PINS, patch, refusal, write

GATE = PatchRef("gating", "vllm", "vllm/gate-kernels.patch")
READ = PatchRef("cache", "flashinfer", "flashinfer/read-caches.patch")
TILE = PatchRef("cache", "cutlass", "cutlass/add-a-tile.patch")


def test_loads(root: Path) -> None:
    loaded = stack.load(root)
    assert [one.name for one in loaded.series] == ["gating", "cache"]
    assert list(loaded.patches) == [GATE, READ, TILE]
    assert loaded.patches[GATE].raw == FILES["stacks/gating/vllm/gate-kernels.patch"]
    assert [one.ref for one in loaded.order("cutlass")] == [TILE]
    assert loaded.order("triton") == ()
    assert loaded.get("cache") is loaded.series[1]
    assert loaded.pins.names() == ("vllm", "flashinfer", "cutlass")
    assert refusal(root, loaded.get, "caches") == "unknown series 'caches': did you mean 'cache'?"
    assert not (root / switch.FOLDER).exists()


def test_loads_an_empty_stack(root: Path) -> None:
    for path in FILES:
        if path.startswith("stacks/"):
            (root / path).unlink()
    write(root, {"stacks/stack.toml": "series = []\n"})
    assert stack.load(root).series == ()


def test_order_is_that_of_the_series(root: Path) -> None:
    second = '\n[[patch]]\nupstream = "vllm"\nfile = "vllm/{}.patch"\n'
    write(root, {"stacks/gating/series.toml": GATING + second.format("b"), "stacks/gating/vllm/b.patch": patch("b", "b")})
    write(root, {"stacks/cache/series.toml": CACHE + second.format("a"), "stacks/cache/vllm/a.patch": patch("a", "a")})
    assert [one.subject for one in stack.load(root).order("vllm")] == ["Gate kernels", "b", "a"]


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"pins.toml": None}, "pins.toml is missing: check --root"),
        ({"stacks/stack.toml": None}, "stacks/stack.toml is missing: check --root"),
        ({"stacks/stack.toml": 'serie = ["gating"]'}, "stacks/stack.toml: serie is an unknown key: did you mean 'series'?"),
        ({"stacks/stack.toml": "series = [1]"}, "stacks/stack.toml: series is [1]: it has to be a list of strings"),
        (
            {"stacks/stack.toml": 'series = ["gating", "cache", "gating"]'},
            "stacks/stack.toml: series names 'gating' twice: name it once",
        ),
        *(
            (
                {"stacks/stack.toml": f'series = ["{name}"]'},
                f"stacks/stack.toml: series names '{name}': a series is named with lower-case letters, digits and dashes",
            )
            for name in ("../gating", "Gating", "a/b", ".", "-a")
        ),
        (
            {"stacks/stack.toml": 'series = ["gating", "cache", "fp8"]'},
            "stacks/stack.toml: series names 'fp8', which has no stacks/fp8/series.toml: add it, or take the name out",
        ),
        (
            {"stacks/stack.toml": 'series = ["gating", "resolutions"]', "stacks/resolutions/series.toml": GATING},
            "stacks/stack.toml: series names 'resolutions': that folder holds conflict resolutions: give the series another name",
        ),
        (
            {"stacks/stack.toml": 'series = ["gating"]'},
            "stacks/cache/cutlass/add-a-tile.patch is not listed in any series.toml: list it, or remove the file",
        ),
        (
            {"stacks/old/series.toml": GATING},
            "stacks/old/series.toml belongs to no series of stacks/stack.toml: name the series there, or remove its folder",
        ),
        (
            {"stacks/gating/vllm/left.patch": patch("left", "left")},
            "stacks/gating/vllm/left.patch is not listed in gating/series.toml: list it, or remove the file",
        ),
        (
            {"stacks/left.patch": patch("left", "left")},
            "stacks/left.patch is not listed in any series.toml: list it, or remove the file",
        ),
        (
            {"stacks/gating/vllm/gate-kernels.patch": None},
            "stacks/gating/vllm/gate-kernels.patch is missing: restore it, or take it out of series.toml",
        ),
        (
            {"stacks/gating/series.toml": GATING + '[[patch]]\nupstream = "vllm"\nfile = "vllm/gate-kernels.patch"\n'},
            "stacks/gating/vllm/gate-kernels.patch is listed twice: list it once",
        ),
        (
            {
                "stacks/cache/series.toml": CACHE + '[[patch]]\nupstream = "vllm"\nfile = "vllm/again.patch"\n',
                "stacks/cache/vllm/again.patch": patch(),
            },
            "stacks/cache/vllm/again.patch is the same patch as gating/vllm/gate-kernels.patch: keep it in one series",
        ),
        (
            {
                "stacks/cache/series.toml": CACHE + '[[patch]]\nupstream = "vllm"\nfile = "vllm/again.patch"\n',
                "stacks/cache/vllm/again.patch": patch("Another message"),
            },
            "stacks/cache/vllm/again.patch is the same patch as gating/vllm/gate-kernels.patch: keep it in one series",
        ),
        (
            {
                "stacks/gating/series.toml": GATING + '[[patch]]\nupstream = "triton"\nfile = "triton/x.patch"\n',
                "stacks/gating/triton/x.patch": patch(),
            },
            "stacks/gating/series.toml: patch 'triton/x.patch' is for 'triton', which has no pin: pinned: vllm, flashinfer, cutlass",
        ),
        (
            {"stacks/gating/series.toml": GATING.replace("state", 'needs = ["fp8"]\nstate')},
            "stacks/gating/series.toml: needs names 'fp8', which is not a series: known: gating, cache",
        ),
        (
            {"stacks/gating/series.toml": GATING.replace("state", 'needs = ["cache"]\nstate')},
            "stacks/gating/series.toml: needs is a cycle: gating -> cache -> gating: break it",
        ),
        (
            {"stacks/gating/series.toml": GATING.replace("state", 'needs = ["gating"]\nstate')},
            "stacks/gating/series.toml: needs is a cycle: gating -> gating: break it",
        ),
        (
            {"stacks/stack.toml": 'series = ["cache", "gating"]'},
            "stacks/stack.toml: 'cache' needs 'gating', which comes later: put the needed series first",
        ),
        ({"pins.toml": PINS + "x"}, "pins.toml: Expected '=' after a key in a key/value pair (at end of document): mend the TOML there"),
        (
            {"stacks/gating/series.toml": GATING + "["},
            "stacks/gating/series.toml: Invalid initial character for a key part (at end of document): mend the TOML there",
        ),
    ],
)  # fmt: skip
def test_refused(root: Path, changed: Mapping[str, bytes | str | None], line: str) -> None:
    write(root, changed)
    assert refusal(root, stack.load, root) == line


def test_resolutions_are_not_patches(root: Path) -> None:
    write(root, {"stacks/resolutions/ab/cd.patch": b"anything"})
    assert len(stack.load(root).patches) == 3


@pytest.mark.parametrize("whole_folder", [False, True])
def test_links_that_leave_the_stack(tmp_path: Path, whole_folder: bool) -> None:
    root, outside = tmp_path / "root", tmp_path / "root-of-another"
    write(root, FILES)
    place = root / "stacks/gating/vllm"
    place.rename(outside)
    if whole_folder:
        place.symlink_to(outside)
    else:
        place.mkdir()
        (place / "gate-kernels.patch").symlink_to("../../../../root-of-another/gate-kernels.patch")
    link = "stacks/gating/vllm" if whole_folder else "stacks/gating/vllm/gate-kernels.patch"
    assert refusal(root, stack.load, root) == f"{link} is a link that leaves the stack: put the file itself there"


def test_a_link_to_what_has_no_end(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, FILES)
    file = root / "stacks/gating/vllm/gate-kernels.patch"
    file.unlink()
    file.symlink_to("/dev/zero")
    assert "gate-kernels.patch is a link that leaves the stack" in refusal(root, stack.load, root)


def test_links_within_the_stack(root: Path) -> None:
    file = root / "stacks/gating/vllm/gate-kernels.patch"
    file.rename(root / "kept.txt")
    file.symlink_to("../../../kept.txt")
    assert GATE in stack.load(root).patches


def test_find_root(root: Path) -> None:
    assert stack.find_root(root) == root
    assert stack.find_root(root / "stacks/gating/vllm") == root
    (root / "pins.toml").unlink()
    line = refusal(root, stack.find_root, root / "stacks")
    assert (
        line
        == "no pins.toml in stacks or above: run stack inside a stack, name one with --root, or begin one: stack init --git URL"
    )


@pytest.mark.parametrize(
    "name", ["pins.toml", "stacks/stack.toml", "stacks/gating/series.toml", "stacks/gating/vllm/gate-kernels.patch"]
)
@pytest.mark.parametrize("kind", ["pipe", "link to a device"])
def test_what_is_no_file_is_refused_at_once(root: Path, name: str, kind: str) -> None:
    (root / name).unlink()
    if kind == "pipe":
        os.mkfifo(root / name)
    else:
        (root / name).symlink_to("/dev/zero")
    with pytest.raises(StackError, match=r"not a regular file|is a link|is missing|which has no"):
        stack.load(root)


def test_pins_have_a_largest_size(root: Path) -> None:
    (root / "pins.toml").write_text("# " + "x" * 70_000 + "\n" + (root / "pins.toml").read_text())
    with pytest.raises(StackError, match="is larger than 64 KiB"):
        stack.load(root)
