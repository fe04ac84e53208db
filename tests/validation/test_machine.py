# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import pytest

from stack.model.verdict import Gpu
from stack.validation import machine


def test_this_machine_is_described() -> None:
    here = machine.here()
    assert here.cores == len(os.sched_getaffinity(0))
    assert here.memory > 2**29
    assert here.cpu
    assert here.flags


@pytest.mark.parametrize(
    ("line", "gpu"),
    [
        ("NVIDIA H200, 9.0, 143771, 580.95.05", Gpu("NVIDIA H200", "9.0", 143771 * 2**20, "580.95.05")),
        ("NVIDIA GB10, 12.1, [N/A], 590.48.01", Gpu("NVIDIA GB10", "12.1", None, "590.48.01")),
        ("No devices were found", None),
        ("a, b, c, d", None),
    ],
)
def test_gpus_are_read_as_the_driver_lists_them(line: str, gpu: Gpu | None) -> None:
    assert machine.gpu_of(line) == gpu


def test_a_driver_that_is_there_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\n"
        'case "$1" in --query*) echo "NVIDIA GB10, 12.1, [N/A], 590.48.01";; *) echo "| CUDA Version: 13.1     |";; esac\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    here = machine.here()
    assert (here.gpus, here.cuda) == ((Gpu("NVIDIA GB10", "12.1", None, "590.48.01"),), "13.1")


def test_the_code_has_a_digest_that_stays() -> None:
    assert machine.code() == machine.code()
    assert len(machine.code()) == 12
