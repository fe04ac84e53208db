# SPDX-License-Identifier: Apache-2.0
"""Whether a file is the carried one is asked of the environment that a server runs in."""

import sys
from contextlib import nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.validation import python_env
from stack.validation.python_env import Installed
from stack.validation.serve import patches
from stack.validation.serve.client import Wrong
from stack.validation.serve.patches import Delivery

CARRIED, UPSTREAM = b"answer = 42\n", b"answer = 41\n"
FILE = "vllm/answer.py"
WANTED = Delivery({FILE: sha256(CARRIED).hexdigest()}, {FILE: sha256(UPSTREAM).hexdigest()})


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").touch()
    (tmp_path / FILE).write_bytes(CARRIED)
    return Installed(Path(sys.executable), (tmp_path,))


def test_delivered(installed: Installed) -> None:
    patches.check(installed, WANTED)


@pytest.mark.parametrize(
    ("data", "said"),
    [(UPSTREAM, "is upstream's version"), (b"answer = 4\n", "is another version"), (None, "is missing")],
)
def test_not_delivered(installed: Installed, data: bytes | None, said: str) -> None:
    file = installed.folders[0] / FILE
    if data is None:
        file.unlink()
    else:
        file.write_bytes(data)
    with pytest.raises(Wrong, match=f"{FILE} {said}"):
        patches.check(installed, WANTED)


def test_an_environment_without_the_package(installed: Installed) -> None:
    with pytest.raises(Wrong, match="does not run"):
        patches.check(replace(installed, folders=()), WANTED)


@pytest.mark.parametrize("said", ["", "[]", "{}", '{"vllm/answer.py": 1}', "[" * 5000, "hello"])
def test_an_environment_that_says_what_it_likes(installed: Installed, said: str) -> None:
    (installed.folders[0] / "sitecustomize.py").write_text(f"import os\nprint({said!r}, flush=True)\nos._exit(0)\n")
    with pytest.raises(Wrong, match=r"prints something else than hashes|is missing"):
        patches.check(installed, WANTED)
    with pytest.raises(StackError, match=r"prints .* instead of versions") if said != "{}" else nullcontext():
        assert python_env.versions(installed, "vllm") == {}
