# SPDX-License-Identifier: Apache-2.0
"""Includes in added C++ and CUDA lines."""

import pytest

from stack.carry.drift import Drift, check
from stack.model.ids import TreeId
from stack.store.objects import EMPTY_TREE, Entry

from .trees import Scratch

UPSTREAM = {
    "include/flashinfer/attention/mask.cuh": "",
    "include/flashinfer/utils.cuh": "",
    "csrc/core/registration.h": "",
    "csrc/quantization/awq/dequantize.cuh": "",
    "csrc/near.h": "",
    "3rdparty/cutlass/include/cutlass/cutlass.h": "",
    "setup.py": "",
    "jit/make.py": 'folder = root / "made_export"\n',
    ".gitignore": "csrc/generated/\n",
}


def tree(scratch: Scratch, files: dict[str, str]) -> TreeId:
    write = scratch.objects.write_blob
    return scratch.objects.replaced(EMPTY_TREE, {path: Entry(0o100644, write(text.encode())) for path, text in files.items()})


def checked(
    scratch: Scratch, line: str, path: str = "csrc/mine.cu", gone: tuple[str, ...] = (), *, before: bool = False
) -> tuple[Drift, ...]:
    files = {key: value for key, value in UPSTREAM.items() if key not in gone} | {path: f"\n{line}\n"}
    then = tree(scratch, UPSTREAM | {path: f"\n{line}\n"}) if before else None
    return check(scratch.objects, tree(scratch, files), {path: frozenset({2})}, before=then)


@pytest.mark.parametrize(
    "line",
    [
        "#include <flashinfer/attention/gone.cuh>",
        '#include "flashinfer/attention/gone.cuh"',
        "  #  include <flashinfer/gone.cuh>  // why",
        "#include <flashinfer/gone/mask.cuh>",
        "#include <cutlass/gone.h>",
        '#include "core/gone.h"',
        '#include "quantization/awq/gone.cuh"',
        '#include "../csrc/gone.h"',
        '#include "./gone.h"',
    ],
)
def test_found(scratch: Scratch, line: str) -> None:
    (found,) = checked(scratch, line)
    assert (found.path, found.line) == ("csrc/mine.cu", 2)
    assert "leads nowhere in this tree" in found.problem


@pytest.mark.parametrize(
    "line",
    [
        "#include <flashinfer/attention/mask.cuh>",
        '#include "near.h"',
        '#include "core/registration.h"',
        '#include "../csrc/near.h"',
        "#include <awq/dequantize.cuh>",
        "#include <cutlass/cutlass.h>",
        "#include <torch/all.h>",
        "#include <vector>",
        '#include "unheard_of.h"',
        '#include "3rdparty/cub/cub.cuh"',
        '#include "generated/config.inc"',
        "#include <flashinfer/made_export/Enums.h>",
        "#include <{{ name }}>",
        "#include MACRO",
        "// #include <flashinfer/gone.cuh>",
        "#if __has_include(<flashinfer/gone.cuh>)\n#include <flashinfer/gone.cuh>",
    ],
)
def test_silent(scratch: Scratch, line: str) -> None:
    text = line.partition("\n")[2] or line
    files = UPSTREAM | {"csrc/mine.cu": f"{line}\n"}
    assert check(scratch.objects, tree(scratch, files), {"csrc/mine.cu": frozenset({1, 2})}) == ()
    if "__has" not in line:
        assert checked(scratch, text) == ()


@pytest.mark.parametrize(
    ("line", "gone"),
    [
        ('#include "near.h"', "csrc/near.h"),
        ("#include <awq/dequantize.cuh>", "csrc/quantization/awq/dequantize.cuh"),
        ("#include <flashinfer/attention/mask.cuh>", "include/flashinfer/attention/mask.cuh"),
        ("#include <cutlass/cutlass.h>", "3rdparty/cutlass/include/cutlass/cutlass.h"),
    ],
)
def test_a_file_that_was_there_before(scratch: Scratch, line: str, gone: str) -> None:
    path = "csrc/quantization/mine.cu"
    assert len(checked(scratch, line, path, (gone,), before=True)) == 1
    assert checked(scratch, line, path, before=True) == ()


def test_where_it_went_is_named(scratch: Scratch) -> None:
    files = {**UPSTREAM, "csrc/core/near.h": "", "csrc/mine.cu": '#include "near.h"\n'}
    del files["csrc/near.h"]
    before = tree(scratch, UPSTREAM | {"csrc/mine.cu": '#include "near.h"\n'})
    (found,) = check(scratch.objects, tree(scratch, files), {"csrc/mine.cu": frozenset({1})}, before=before)
    assert found.problem == "#include of near.h leads nowhere in this tree: there is csrc/core/near.h"


def test_only_added_lines_of_sources_count(scratch: Scratch) -> None:
    text = "#include <flashinfer/gone.cuh>\n#include <flashinfer/gone2.cuh>\n"
    files = UPSTREAM | {"csrc/mine.cu": text, "notes.md": text}
    added = {"csrc/mine.cu": frozenset({2}), "notes.md": frozenset({1, 2})}
    assert [drift.line for drift in check(scratch.objects, tree(scratch, files), added)] == [2]


def test_a_submodule_can_hold_anything(scratch: Scratch) -> None:
    files = {key: value for key, value in UPSTREAM.items() if not key.startswith("3rdparty")}
    objects = scratch.objects
    base = tree(scratch, files | {"csrc/mine.cu": "#include <cutlass/gone.h>\n#include <spdlog/x.h>\n"})
    with_entry = objects.replaced(base, {"3rdparty/cutlass": Entry(0o160000, "1" * 40)})
    assert check(objects, with_entry, {"csrc/mine.cu": frozenset({1, 2})}) == ()
