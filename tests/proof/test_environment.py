# SPDX-License-Identifier: Apache-2.0
"""The environment of proofs: real venv and pip, from a package index in a folder that the test makes."""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.proof import environment
from stack.store import git
from stack.store.objects import EMPTY_TREE, Entry, Objects

TORCH = environment.Base("torch", "9.1.0")


def wheel(folder: Path, name: str, version: str, module: str = "") -> None:
    """A wheel with one module that states its version."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": module or f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {
        path: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=") for path, text in files.items()
    }
    record = "".join(f"{path},sha256={digests[path].decode()},{len(text)}\n" for path, text in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


def pin(file: Path) -> str:
    """The line of a lock that allows this wheel only."""
    name, version, *_ = file.name.split("-")
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels as pip's only source."""
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    folder = tmp_path / "wheels"
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def version_of_torch(python: Path) -> str:
    return subprocess.check_output([str(python), "-c", "import torch; print(torch.VERSION)"], text=True).strip()


@pytest.mark.parametrize(
    ("offered", "taken"),
    [(["9.1.0", "9.1.0+cpu"], "9.1.0+cpu"), (["9.1.0"], "9.1.0")],
    ids=["a CPU build where there is one", "else the registry's"],
)
@pytest.mark.slow
@pytest.mark.images
def test_torch_is_installed_once(index: Path, tmp_path: Path, offered: list[str], taken: str) -> None:
    for version in offered:
        wheel(index, "torch", version)
    wheel(index, "helper", "1.0")
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("helper>=1\n")
    said: list[str] = []
    python = environment.python(TORCH, requirements, tmp_path / "cache", said.append)
    assert version_of_torch(python) == taken
    assert said
    said.clear()
    assert environment.python(TORCH, requirements, tmp_path / "cache", said.append) == python
    assert said == []


@pytest.mark.slow
@pytest.mark.images
def test_a_lock_is_installed_by_its_hashes_beside_torch(index: Path, tmp_path: Path) -> None:
    for name, version in [("torch", "9.1.0+cpu"), ("helper", "1.0"), ("helper", "1.1"), ("other", "3.0")]:
        wheel(index, name, version)
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("torch==9.1.0\nhelper>=1\n")
    lock = tmp_path / "requirements.lock"
    lock.write_text("".join(map(pin, [index / "helper-1.0-py3-none-any.whl", index / "other-3.0-py3-none-any.whl"])))
    python = environment.python(TORCH, requirements, tmp_path / "cache")
    assert version_of_torch(python) == "9.1.0+cpu"
    installed = "import helper, other; print(helper.VERSION, other.VERSION)"
    assert subprocess.check_output([str(python), "-c", installed], text=True).split() == ["1.0", "3.0"]
    wheel(index, "helper", "1.0", "VERSION = 'tampered with'\n")
    for unfit in (lock.read_text(), "helper==1.1\nother==3.0\n"):
        shutil.rmtree(tmp_path / "cache")
        lock.write_text(unfit)
        with pytest.raises(StackError, match=r"(?i)hash"):
            environment.python(TORCH, requirements, tmp_path / "cache")


@pytest.mark.slow
@pytest.mark.images
def test_a_failed_install_is_made_anew(index: Path, tmp_path: Path) -> None:
    wheel(index, "torch", "9.1.0")
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("helper>=1\n")
    with pytest.raises(StackError, match=r"helper.*check the network"):
        environment.python(TORCH, requirements, tmp_path / "cache")
    wheel(index, "helper", "1.0")
    python = environment.python(TORCH, requirements, tmp_path / "cache")
    assert subprocess.run([str(python), "-c", "import helper"], check=False).returncode == 0


def test_the_tree_names_the_torch_version(tmp_path: Path) -> None:
    git.run(["init", "--quiet", "--bare", str(tmp_path)])
    with Objects(tmp_path) as objects:
        text = b"# the GPU's\n-r common.txt\ntorchaudio==1.0\ntorch==9.1.0 # and its friends\n"
        tree = objects.replaced(EMPTY_TREE, {"requirements/cuda.txt": Entry(0o100644, objects.write_blob(text))})
        assert environment.of_tree(objects, tree) == TORCH
        assert environment.of_tree(objects, EMPTY_TREE) is None


def test_what_builds_a_package_gets_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GH_TOKEN", "GITHUB_TOKEN", "HF_TOKEN", "VLLM_API_KEY", "PLAIN"):
        monkeypatch.setenv(name, "secret")
    file = tmp_path / "seen"
    code = "import os, pathlib, sys; pathlib.Path(sys.argv[1]).write_text(' '.join(k for k, v in os.environ.items() if v == 'secret'))"
    environment._run([sys.executable, "-c", code, str(file)])
    assert file.read_text() == "PLAIN"
