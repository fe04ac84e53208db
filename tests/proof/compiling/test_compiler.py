# SPDX-License-Identifier: Apache-2.0
"""Running compilers: what an error is, where ccache stands. That they are real is seen in test_check.py."""

import os
from pathlib import Path

import pytest

from stack.proof.compiling import compiler
from stack.proof.compiling.listing import Unit
from stack.proof.compiling.toolkit import Toolkit

# Memory that it holds, as cicc does for nvcc: in a child of its own.
HUNGRY = "#!/bin/sh\npython3 -c 'x = bytearray(3 * 10**8)'\n"


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def unit(tmp_path: Path) -> Unit:
    source = tmp_path / "tree/a.cu"
    source.parent.mkdir()
    source.touch()
    return Unit("m", source, ("-O3",))


def compiled(unit: Unit, nvcc: Path) -> compiler.Run:
    folder = nvcc.parent
    toolkit = Toolkit(folder, nvcc, "13.0", folder / "cuobjdump", folder / "headers")
    return compiler.compile_unit(unit, unit.source, folder / "built.o", toolkit, unit.source.parent)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (
            "In file included from include/error.h:3,\na.cu(9): warning #20012-D: no\na.cu(9): error: no such name\n",
            "a.cu(9): error: no such name",
        ),
        ('a.cu(9): error #349: no operator "+"\n', 'a.cu(9): error #349: no operator "+"'),
        ("a.h:1:10: fatal error: b.h: No such file or directory\n", "a.h:1:10: fatal error: b.h: No such file or directory"),
        (
            "nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n",
            "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
        ),
        ("x\nptxas fatal   : Unresolved extern\nptxas error   : later\n", "ptxas fatal   : Unresolved extern"),
        ("gone\n", "it ended with 3 and no error message"),
    ],
)
def test_the_first_error(unit: Unit, tmp_path: Path, said: str, error: str) -> None:
    (tmp_path / "said").write_text(said.replace("a.cu", str(unit.source)))
    assert compiled(unit, script(tmp_path / "nvcc", f"#!/bin/sh\ncat {tmp_path}/said\nexit 3\n")).error == error
    # What a compiler only warns of is none.
    assert compiled(unit, script(tmp_path / "nvcc", f"#!/bin/sh\ncat {tmp_path}/said\n")).error == ""


def test_the_peak_is_that_of_the_largest_child(unit: Unit, tmp_path: Path) -> None:
    assert compiled(unit, script(tmp_path / "nvcc", HUNGRY)).peak > 3 * 10**8
    assert compiled(unit, script(tmp_path / "nvcc", "#!/bin/sh\n")).peak < 10**8


def test_ccache_is_used_where_it_is_on_path(unit: Unit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = script(tmp_path / "nvcc", f'#!/bin/sh\necho nvcc "$@" >> {tmp_path}/said\n')
    compiled(unit, nvcc)
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin/ccache", f'#!/bin/sh\necho ccache "$CCACHE_BASEDIR" >> {tmp_path}/said\nexec "$@"\n')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    compiled(unit, nvcc)
    line = f"nvcc -O3 -MD -MF {tmp_path}/built.d -c {unit.source} -o {tmp_path}/built.o -isystem {tmp_path}/headers/include"
    assert (tmp_path / "said").read_text().splitlines() == [line, f"ccache {tmp_path.parent}", line]


def test_the_files_that_it_read_are_told(unit: Unit, tmp_path: Path) -> None:
    """By a real compiler; of one that writes no dependency file nothing is known."""
    silent = script(tmp_path / "nvcc", "#!/bin/sh\n")
    assert compiled(unit, silent).sources == frozenset()
    (unit.source.parent / "deep").mkdir()
    (unit.source.parent / "deep/b.h").write_text("#pragma once\n")
    unit.source.write_text('#include "deep/b.h"\n#include "deep/../deep/b.h"\nint one;\n')
    real = script(tmp_path / "nvcc", '#!/bin/sh\nexec g++ -x c++ "$@"\n')
    found = {path for path in compiled(unit, real).sources if path.is_relative_to(tmp_path)}
    assert found == {unit.source, unit.source.parent / "deep/b.h"}
