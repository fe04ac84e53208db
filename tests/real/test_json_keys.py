# SPDX-License-Identifier: Apache-2.0
"""The documented JSON keys of verbs that need the pinned sources, or an environment with torch."""

import hashlib
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from laboratory.sm120_on_sm90 import compiling as emulation
from stack.cli import cli
from stack.deploy import recipes
from stack.validation.pack import bundled_wheels
from stack.wheels import building

from ..cli.conftest import SCRIPT
from ..documented import ROOT, check_verdict, keys, verb


def test_recipe_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the pinned sources: of our own recipes nothing is found, and of one with a flag that nobody has, that."""

    def check(*names: str) -> Result:
        return CliRunner().invoke(cli, ["--root", str(ROOT), "recipe", "check", "--json", *names])

    good = check("gpt-oss-120b-h200")
    assert (good.exit_code, json.loads(good.output)) == (0, {"schema": "stack/recipe-check/1", "clean": True, "findings": []})
    text = (recipes.FOLDER / "gpt-oss-120b-h200.toml").read_text()
    (tmp_path / "odd.toml").write_text(text.replace("arguments = [", 'arguments = ["--nnodez", "2", ', 1))
    monkeypatch.setattr(recipes, "FOLDER", tmp_path)
    bad = check("odd")
    assert bad.exit_code == 1
    [finding] = json.loads(bad.output)["findings"]
    assert (finding["recipe"], finding["setting"]) == ("odd", "--nnodez")
    assert verb("recipe check") == keys(json.loads(bad.output))


def test_validate_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive of this stack, without wheels: those are downloaded by the gigabyte, and a library is compiled for minutes."""
    library = tmp_path / "library.so"
    library.write_bytes(b"compiled")
    monkeypatch.setattr(building, "build", lambda *_: ())
    monkeypatch.setattr(bundled_wheels, "wheels", lambda *_: [])
    monkeypatch.setattr(emulation, "library", lambda *_: library)
    out = tmp_path / "pack.tar.xz"
    done = CliRunner().invoke(cli, ["--root", str(ROOT), "validate", "pack", "--json", "--out", str(out)])
    assert done.exit_code == 0, done.output
    said = json.loads(done.output)
    assert verb("validate pack") == keys(said)
    with tarfile.open(out) as archive:
        files = [one for one in archive if one.isfile()]
    sha256 = hashlib.sha256(out.read_bytes()).hexdigest()
    assert said == {
        "schema": "stack/validate-pack/1",
        "file": str(out),
        "sha256": sha256,
        "bytes": out.stat().st_size,
        "files": len(files),
    }


@pytest.mark.slow
@pytest.mark.kernels
def test_validate_kernels(tmp_path: Path) -> None:
    """Formats on this machine's CPU, in the environment of the suite."""
    out = tmp_path / "v.json"
    asked = [
        "--root",
        str(ROOT),
        "validate",
        "kernels",
        "--no-compile",
        "--only",
        "kernels/formats/*",
        "--out",
        str(out),
        "--json",
    ]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["verdict"]
    check_verdict(found)
    assert found == json.loads(out.read_text())
    assert {case["outcome"] for case in found["cases"] if "sm90" not in case["needs"]} == {"passed"}
