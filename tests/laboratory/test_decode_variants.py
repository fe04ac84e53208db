# SPDX-License-Identifier: Apache-2.0
"""The program of the decode kernels' variants: that it compiles, and what it refuses."""

from pathlib import Path

import pytest

from laboratory.variants import building as decode_variants
from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.model.stack import load
from stack.proof.compiling import toolkit
from stack.store import cache as places
from stack.validation.kernels import carried_kernels
from tests import keeping
from tests.keeping import Keep, Measured

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for path in decode_variants.SOURCES.iterdir() if path.is_file())


@pytest.fixture(scope="module")
def kernels() -> dict[str, bytes]:
    with Stores(load(ROOT), Place(places.root())) as stores:
        return carried_kernels(stores)


@pytest.mark.kernels
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_121a"])
def test_the_program_and_a_variant_compile(kernels: dict[str, bytes], architecture: str, tmp_path: Path, keep: Keep) -> None:
    own, work = tmp_path / "own", tmp_path / "work"
    own.mkdir()
    work.mkdir()
    text = kernels["moe_rows.cuh"]
    (own / "moe_rows.cuh").write_bytes(text.replace(b"kMoeWarps = 16;", b"kMoeWarps = 8;"))
    (own / "more.cuh").write_text("// that another one may include")
    fewer = decode_variants.headers(own, kernels)
    assert "more.cuh" in fewer
    assert fewer["moe_rows.cuh"] != text
    assert fewer["gemv.cuh"] == kernels["gemv.cuh"]
    tools = toolkit.find(places.root())

    def built() -> Measured:
        made = decode_variants.build({"carried": kernels, "fewer": fewer}, architecture, work, tools)
        return {"objects": [path.name for path in made if path.read_bytes().startswith(b"\x7fELF")]}

    inputs = {"kernels": repr((kernels, fewer)), "architecture": architecture, "program": keeping.code(*SOURCES)}
    assert keep({**inputs, **keeping.cuda(tools)}, built)["objects"] == ["bench.o", "variant-carried.o", "variant-fewer.o"]


@pytest.mark.kernels
def test_what_nvcc_refuses_is_a_line(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"^nvcc for sm_1: .*sm_1") as found:
        decode_variants.build({}, "sm_1", tmp_path, toolkit.find(places.root()))
    assert "\n" not in str(found.value)
    assert decode_variants.main([str(tmp_path / "program"), "--architecture", "sm_1"]) == 2


@pytest.mark.kernels
def test_of_several_folders_the_last_one_s_headers_count(
    kernels: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "gemv.cuh").write_text(f"#error {name}\n")
    (tmp_path / "first/choose.cuh").write_text("#error chosen first\n")
    given = f"both={tmp_path / 'first'},{tmp_path / 'second'}"
    laid = decode_variants.laid_out([tmp_path / "first", tmp_path / "second"], kernels)
    assert (laid["gemv.cuh"], laid["choose.cuh"]) == (b"#error second\n", b"#error chosen first\n")
    assert laid["moe_decode.cuh"] == kernels["moe_decode.cuh"]
    assert decode_variants.main([str(tmp_path / "program"), "--variant", given]) == 2
    assert "#error second" in capsys.readouterr().err


def test_a_folder_without_their_headers_is_a_line(kernels: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "other.cuh").touch()
    with pytest.raises(StackError, match="has none of the kernels' headers"):
        decode_variants.headers(tmp_path, kernels)


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit, match="2"):
        decode_variants.main(arguments)
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "given", ["fast", "fast=", "fast=nowhere", "fast=.,nowhere", "fast=.,", "carried=.", "mxfp4=.", "whole=.", "a b=."]
)
def test_a_variant_that_is_none_is_refused_in_a_line(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "and a folder with headers" in refusal(["program", "--variant", given], capsys)


@pytest.mark.parametrize("place", ["", "nowhere/program"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_built(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "cannot be written" in refusal([str(tmp_path / place)], capsys)
