# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from stack.base.errors import StackError
from stack.proof.compiling import jobs
from stack.vllm_project import project
from stack.wheels import clones, compiled, machine, native
from stack.wheels.clones import Clone
from stack.wheels.machine import Machine

GB = 10**9
FIT = Machine(Version("13.0"), Version("12.2"), frozenset({"git", "patch"}), 8, 64 * GB, 100 * GB)
RULES = project.wheel("vllm")
BUILD = RULES.compiled
NEEDS = BUILD.needs


@pytest.mark.parametrize(
    ("here", "problem"),
    [
        (FIT, None),
        (replace(FIT, nvcc=None), "nvcc is not on PATH"),
        (replace(FIT, nvcc=Version("12.8")), "nvcc 12.8 does not know SM121 (install 12.9 or newer)"),
        (replace(FIT, gxx=None), "g++ is not on PATH"),
        (replace(FIT, gxx=Version("11.2")), "g++ 11.2 is too old (install 11.3 or newer"),
        (replace(FIT, programs=frozenset({"git"})), "patch is not on PATH"),
        (replace(FIT, memory=4 * GB), "memory: 4 GB are free, one compiler takes up to 8 GB"),
        (replace(FIT, disk=5 * GB), "disk: 5 GB are free, 40 GB are needed"),
    ],
)
def test_what_a_machine_lacks(here: Machine, problem: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_HOME", raising=False)
    found = list(native.missing(BUILD, NEEDS["cuda"], here, ()))
    assert len(found) == (problem is not None)
    assert problem is None or found[0].startswith(problem)


def test_what_is_not_for_a_gpu_takes_less() -> None:
    small = Machine(None, Version("11.3"), frozenset(), 2, 3 * GB, 4 * GB)
    assert list(native.missing(BUILD, NEEDS["empty"], small, ())) == []
    assert [line.split(" ")[0] for line in native.missing(BUILD, NEEDS["cpu"], small, ())] == ["g++", "disk:"]


@pytest.mark.parametrize(
    ("device", "memory", "expected"),
    [("cuda", 64 * GB, 8), ("cuda", 3 * jobs.EACH, 3), ("cuda", GB, 1), ("empty", 6 * GB, 3)],
)
def test_as_many_compilers_as_fit(monkeypatch: pytest.MonkeyPatch, device: str, memory: int, expected: int) -> None:
    monkeypatch.delenv("MAX_JOBS", raising=False)
    assert native._jobs(NEEDS[device], replace(FIT, memory=memory)) == expected
    monkeypatch.setenv("MAX_JOBS", "5")
    assert native._jobs(NEEDS[device], FIT) == 5
    for odd in ("many", "²", "0"):
        monkeypatch.setenv("MAX_JOBS", odd)
        assert native._jobs(NEEDS[device], replace(FIT, memory=memory)) == expected


def test_a_compiler_that_another_program_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    plain = machine.gxx()
    monkeypatch.setenv("CXX", "env g++")
    assert plain is not None and machine.gxx() == plain
    monkeypatch.setenv("CXX", "'g++")
    with pytest.raises(StackError, match=r"CXX is not a valid command: 'g\+\+"):
        machine.gxx()


def test_the_compiler_of_cuda_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whichever is on PATH: vLLM's build takes this one, and so do single targets."""
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert machine.look(tmp_path).nvcc is None
    assert next(native.missing(BUILD, NEEDS["cuda"], replace(FIT, nvcc=None), ())).startswith("nvcc is not in CUDA_HOME")
    program = tmp_path / "bin/nvcc"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho Cuda compilation tools, release 12.8, V12.8.93\n")
    program.chmod(0o755)
    here = machine.look(tmp_path)
    assert here.nvcc == Version("12.8")
    env = native._environment(BUILD, native.CompileOrder("cuda"), Version("1"), here, 1)
    plan = native.CompilePlan(native.CompileOrder("cuda"), RULES, BUILD, here, env, {}, (), 1, (), (), ())
    assert f"-DCMAKE_CUDA_COMPILER={program}" in compiled._options(plan, Path("python"), tmp_path)


def test_a_repository_is_no_option_of_git(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    odd = Clone(f"--upload-pack=touch {ran};", "v1", None)
    assert clones.unreachable([odd]) == odd
    assert not ran.exists()
