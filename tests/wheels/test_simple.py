# SPDX-License-Identifier: Apache-2.0
"""`stack wheel index`: what pip and other clients read."""

import json
import subprocess
import sys
from pathlib import Path

from pypi_simple import ProjectPage

from ..cli.conftest import Stack
from ..store.factories import sha256
from .conftest import PUBLISHED
from .factories import wheel


def test_pip_installs_from_it(stack: Stack, tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    own = wheel(folder, PUBLISHED, version="2.0+stack.g12345678", tag="py3-none-any", wrong_tag="py3-none-any")
    wheel(folder, PUBLISHED, name="Other.Pkg", tag="py3-none-any", wrong_tag="py3-none-any")
    ran = stack("wheel", "index", folder)
    assert ran.code == 0, ran.err
    assert ran.out == f"{folder / 'simple'}: gamma-pkg (1), other-pkg (1)\n"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path / "site")]
    index = ["--index-url", (folder / "simple").as_uri(), "gamma-pkg==2.0+stack.g12345678"]
    done = subprocess.run([*pip, *index], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/gamma/main.py").read_bytes() == PUBLISHED["gamma/main.py"]
    own.write_bytes(own.read_bytes() + b"more")
    done = subprocess.run([*pip, "--force-reinstall", *index], check=False, capture_output=True, text=True)
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_both_forms_say_the_same(stack: Stack, tmp_path: Path) -> None:
    wheels = [wheel(tmp_path, PUBLISHED, tag=tag) for tag in ("py3-none-any", "cp38-abi3-manylinux_2_28_x86_64")]
    wheels.append(wheel(tmp_path, PUBLISHED, version="2.0+local.1"))
    assert json.loads(stack("wheel", "index", tmp_path, "--json").out)["projects"]["gamma-pkg"] == sorted(
        one.name for one in wheels
    )
    said = json.loads((tmp_path / "simple/gamma-pkg/index.json").read_text())
    text = (tmp_path / "simple/gamma-pkg/index.html").read_text()
    html = ProjectPage.from_html("gamma-pkg", text, base_url=(tmp_path / "simple/gamma-pkg/").as_uri() + "/").packages
    for one in wheels:
        [entry] = [file for file in said["files"] if file["filename"] == one.name]
        [package] = [file for file in html if file.filename == one.name]
        metadata = one.with_name(f"{one.name}.metadata")
        assert entry["hashes"]["sha256"] == package.digests["sha256"] == sha256(one)
        assert entry["core-metadata"]["sha256"] == sha256(metadata)
        assert package.metadata_digests == {"sha256": sha256(metadata)}
        assert entry["requires-python"] == package.requires_python == ">=3.8"
        assert package.url.partition("#")[0] == one.as_uri()


def test_it_is_written_anew(stack: Stack, tmp_path: Path) -> None:
    first = wheel(tmp_path, PUBLISHED)
    stack("wheel", "index", tmp_path)
    (tmp_path / ".simple-left").mkdir()  # by a run that was killed
    first.unlink()
    wheel(tmp_path, PUBLISHED, name="other")
    assert stack("wheel", "index", tmp_path).code == 0
    assert sorted(path.name for path in (tmp_path / "simple").iterdir()) == ["index.html", "index.json", "other"]
    assert not list(tmp_path.glob(".simple*"))


def test_what_is_no_folder_of_wheels(stack: Stack, tmp_path: Path) -> None:
    assert "has no wheel: build some there" in stack("wheel", "index", tmp_path).refused()
    (tmp_path / "odd.whl").write_bytes(b"")
    assert "odd.whl is not the name of a wheel" in stack("wheel", "index", tmp_path).refused()
    (tmp_path / "odd.whl").rename(tmp_path / "odd-1.0-py3-none-any.whl")
    assert "odd-1.0-py3-none-any.whl is not a readable wheel" in stack("wheel", "index", tmp_path).refused()


def test_a_folder_of_that_name_that_is_no_index_stays(stack: Stack, tmp_path: Path) -> None:
    wheel(tmp_path, PUBLISHED)
    (tmp_path / "simple").mkdir()
    (tmp_path / "simple/notes.txt").write_text("mine")
    assert "exists and is not an index" in stack("wheel", "index", tmp_path).refused()
    assert (tmp_path / "simple/notes.txt").read_text() == "mine"
