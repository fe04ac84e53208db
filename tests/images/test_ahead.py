# SPDX-License-Identifier: Apache-2.0
"""Modules compiled ahead of time for an image: which ones, by which compiler, and where they are listed."""

import json
import os
import zipfile
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.deploy import recipes
from stack.images import ahead, processors


def test_a_recipe_of_a_spark_has_those_that_every_server_uses() -> None:
    spark, other, cpu = (recipes.load(name) for name in ("gpt-oss-120b-spark", "gpt-oss-120b-h200", "cpu-fp32"))
    assert ahead.wanted((), spark) == ("norm", "page")
    assert [ahead.wanted((), each) for each in (other, cpu, None)] == [(), (), ()]
    assert ahead.wanted(("batch*",), other) == ("batch*",)
    assert ahead.wanted(("none",), spark) == ()
    with pytest.raises(StackError, match="--aot none stands beside other modules"):
        ahead.wanted(("none", "norm"), spark)


def test_the_compiler_is_one_for_the_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ahead.compiler("aarch64") is None
    for name in ("g++", "aarch64-linux-gnu-g++"):
        (tmp_path / name).touch(0o755)
    assert (ahead.compiler("aarch64"), ahead.compiler("x86_64")) == ("aarch64-linux-gnu-g++", "g++")
    with ahead.compiling("aarch64-linux-gnu-g++"):
        assert os.environ["CXX"] == "aarch64-linux-gnu-g++"
    assert "CXX" not in os.environ
    monkeypatch.setenv("CXX", "ccache g++-13")
    assert ahead.compiler("aarch64") == "ccache g++-13"


def test_the_bill_of_materials_lists_them(tmp_path: Path) -> None:
    wheel = tmp_path / "flashinfer_jit_cache-1-py3-none-linux_aarch64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("flashinfer_jit_cache/about.json", json.dumps({"modules": ["norm", "page"]}))
    plain = tmp_path / "plain.whl"
    with zipfile.ZipFile(plain, "w") as archive:
        archive.writestr("a/deep/about.json", "{}")
    compiled = ahead.modules({"flashinfer-jit-cache": wheel, "plain": plain})
    assert compiled == {"flashinfer-jit-cache": ("norm", "page")}
    bill = json.dumps({"components": [{"name": "flashinfer-jit-cache"}, {"name": "torch"}]}).encode()
    made = json.loads(ahead.noted(bill, compiled, ("batch_decode",)))
    assert [each["value"] for each in made["components"][0]["properties"]] == ["norm", "page"]
    assert "properties" not in made["components"][1]
    assert made["properties"] == [{"name": "stack:jit-module", "value": "batch_decode"}]


@pytest.mark.parametrize("text", ["arm64", "aarch64", "linux/arm64", "linux/aarch64"])
def test_a_platform_has_many_spellings(text: str) -> None:
    assert processors.platform_of(text) == "linux/arm64"
    assert [processors.platform_of(each) for each in ("x86_64", "linux/riscv64", "")] == ["linux/amd64", "linux/riscv64", ""]
