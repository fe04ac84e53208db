# SPDX-License-Identifier: Apache-2.0
"""Stacks, patches and git, as the tests of this folder need them."""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from stack.base.errors import StackError

TREE = "7" * 40
SHA256 = "5" * 64

PINS = f"""\
# Where the stack stands.
[vllm]
git     = "https://example.org/vllm"
tag     = "v1.0.0"
commit  = "aaaaaaa" # as far as it is known
archive = {{ package = "vllm", version = "1.0.0", sha256 = "{SHA256}" }}
tree    = "{TREE}"

[flashinfer]
git     = "https://example.org/flashinfer"
tag     = "v0.5.0"
commit  = "{"b" * 40}"
archive = {{ package = "flashinfer-python", version = "0.5.0" }}

[cutlass]
git      = "https://example.org/cutlass"
commit   = "{"c" * 40}"
within   = {{ upstream = "flashinfer", path = "3rdparty/cutlass" }}
subtrees = {{ include = "{TREE}" }}

[base]
image  = "example.org/cuda"
tag    = "13.0"
digest = "sha256:{SHA256}"
"""

GATING = """\
title = "Gate kernels"
why   = "The upstream takes the wrong ones."
state = "pending"

[[patch]]
upstream = "vllm"
file     = "vllm/gate-kernels.patch"
"""

CACHE = """\
title = "Small caches"
why   = "Half the memory."
needs = ["gating"]
state = "draft"

[[patch]]
upstream = "flashinfer"
file     = "flashinfer/read-caches.patch"

[[patch]]
upstream = "cutlass"
file     = "cutlass/add-a-tile.patch"
"""


def patch(subject: str = "Gate kernels", line: str = "new", *, head: str = "", end: str = "\n") -> bytes:
    """A patch file as git writes it, made by hand."""
    return (
        (
            f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: Ada <ada@example.org>\nDate: Mon, 5 Jan 2026 10:00:00 +0100\n"
            f"Subject: [PATCH] {subject}\n{head}\nBecause.\n\nSigned-off-by: Ada <ada@example.org>\n---\n"
            f"diff --git a/one.py b/one.py\nindex {'1' * 40}..{'2' * 40} 100644\n--- a/one.py\n+++ b/one.py\n"
            f"@@ -1 +1 @@\n-old\n+{line}\n"
        )
        .replace("\n", end)
        .encode()
    )


FILES: Mapping[str, bytes] = {
    "pins.toml": PINS.encode(),
    "stacks/stack.toml": b'series = ["gating", "cache"]\n',
    "stacks/gating/series.toml": GATING.encode(),
    "stacks/gating/vllm/gate-kernels.patch": patch(),
    "stacks/cache/series.toml": CACHE.encode(),
    "stacks/cache/flashinfer/read-caches.patch": patch("Read caches", "caches"),
    "stacks/cache/cutlass/add-a-tile.patch": patch("Add a tile", "tile"),
}


def write(root: Path, files: Mapping[str, bytes | str | None]) -> None:
    """Write files below a folder; None removes one."""
    for path, content in files.items():
        if content is None:
            (root / path).unlink(missing_ok=True)
        else:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content.encode() if isinstance(content, str) else content)


def snapshot(root: Path) -> dict[str, bytes]:
    """All files of a stack, without the folder that `switch` keeps for itself."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".stack" not in path.relative_to(root).parts
    }


def refusal(root: Path, call: Callable[..., object], *args: Any, **options: Any) -> str:
    """The line with which a call is refused; paths below `root` are shortened to what stands below it."""
    with pytest.raises(StackError) as caught:
        call(*args, **options)
    line = str(caught.value)
    assert "\n" not in line
    assert caught.value.remedy, f"says nothing about what to do: {line}"
    return line.replace(f"{root}/", "").replace(str(root), "ROOT")


def git(*args: str, cwd: Path, data: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
    """Git's output, untouched by the configuration of who runs the tests."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    own = {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_COMMITTER_NAME": "Committer",
        "GIT_COMMITTER_EMAIL": "committer@example.org",
    }
    return subprocess.run(
        ["git", *args], cwd=cwd, input=data, env=kept | own | dict(env or {}), check=True, capture_output=True
    ).stdout
