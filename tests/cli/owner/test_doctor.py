# SPDX-License-Identifier: Apache-2.0
"""`spark-stack doctor` on a Spark made of files and programs, and on this very machine."""

import json
from datetime import datetime
from pathlib import Path

import pytest

from stack.deploy.available_memory import HolderKind

from ...owner.readiness import spark as sparks
from ...owner.readiness.spark import GB, FakeSpark
from . import asking
from .asking import ID, SparkStack


@pytest.fixture(name="run")
def _run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkStack:
    return asking.runner(tmp_path, monkeypatch)


@pytest.fixture(name="spark")
def _spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    (tmp_path / "spark").mkdir()
    made = sparks.made(tmp_path / "spark", monkeypatch)
    info = f"MemTotal: {125 * 10**6} kB\nMemFree: {100 * 10**6} kB\nMemAvailable: {118 * 10**6} kB\nCached: {8 * 10**6} kB\n"
    made.file("proc/meminfo", f"{info}SwapTotal: {16 * 10**6} kB\nSwapFree: {16 * 10**6} kB\nCmaTotal: 0 kB\nCmaFree: 0 kB\n")
    monkeypatch.setattr(
        "stack.owner.readiness.places.disk", lambda folder, present=0: sparks.DiskFacts(folder, 900 * GB, 1, present)
    )
    return made


FREE = ("--port", "45123")
"""A port that no test uses."""


def test_a_spark_in_order_is_ready(run: SparkStack, spark: FakeSpark) -> None:
    ran = run("doctor", *FREE)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "ready for gpt-oss-120b-spark\n\n13 checks are fine. -v shows them.\n"
        "Start it: spark-stack up gpt-oss-120b-spark --image IMAGE\n"
    )
    whole = run("doctor", *FREE, "-v").out
    assert "✓ gpu: NVIDIA GB10, compute capability 12.1" in whole
    assert "✓ dgx-os: DGX OS 7.4.0" in whole


def test_what_is_wrong_comes_first_with_its_commands(run: SparkStack, spark: FakeSpark) -> None:
    spark.docker({"Runtimes": {"runc": {}}})
    spark.nvidia_smi(clocks="611, 3003, 96, 18.00, 50, 0x0", apps="4242, VLLM::EngineCore, 52000")
    spark.file("proc/sys/kernel/osrelease", "7.0.0-1019-nvidia\n")
    ran = run("doctor", *FREE)
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[0] == "2 things to mend first, before gpt-oss-120b-spark"
    assert max(len(line) for line in lines if not line.startswith("      ")) <= 80
    assert "      sudo nvidia-ctk cdi generate" not in ran.out
    assert "      sudo apt install nvidia-container-toolkit" in lines
    assert ran.out.index("✗ power") < ran.out.index("! kernel")
    found = json.loads(run("doctor", *FREE, "--json").out)
    assert (found["ready"], found["to_mend"], found["recipe"]) == (False, 2, "gpt-oss-120b-spark")
    kernel = next(each for each in found["remarks"] if each["check"] == "kernel")
    assert "NVIDIA/NV-Kernels#591" in kernel["sources"]
    assert "seen in NVIDIA/NV-Kernels#591" in run("doctor", *FREE, "-v").out


def test_memory_that_a_left_over_engine_holds(run: SparkStack, spark: FakeSpark) -> None:
    text = (spark.folder / "proc/meminfo").read_text().replace(f"MemAvailable: {118 * 10**6}", f"MemAvailable: {40 * 10**6}")
    spark.file("proc/meminfo", text)
    sparks.machines.FakeMachine(spark.folder).process(4242, "VLLM::EngineCor", "VLLM::EngineCore")
    spark.nvidia_smi(apps="4242, VLLM::EngineCore, 70000")
    ran = run("doctor", *FREE)
    assert ran.code == 1
    assert "✗ left-over" in ran.out
    assert "      kill 4242" in ran.out
    assert "takes 90 GB, and less is available" in ran.out
    assert HolderKind.ORPHAN == "orphan"


def test_the_page_shows_what_is_printed(run: SparkStack, spark: FakeSpark) -> None:
    info = (spark.folder / "proc/meminfo").read_text()
    for name, now in (("MemAvailable", 61), ("SwapTotal", 0), ("SwapFree", 0)):
        info = "\n".join(
            f"{name}: {now * 10**9 // 1024} kB" if line.startswith(f"{name}:") else line for line in info.splitlines()
        )
    spark.file("proc/meminfo", f"{info}\n")
    sparks.machines.FakeMachine(spark.folder).process(4242, "VLLM::EngineCor", "VLLM::EngineCore")
    spark.nvidia_smi(apps="4242, VLLM::EngineCore, 55313")
    page = (Path(__file__).parents[3] / "docs/owner-check.md").read_text()
    shown = page.partition("<!-- spark-stack doctor -->\n```\n$ spark-stack doctor\n")[2].partition("```\n")[0]
    assert run("doctor", *FREE).out == shown


def test_a_fault_in_the_kernels_log(run: SparkStack, spark: FakeSpark) -> None:
    now = datetime.now().strftime("%a %b %d %H:%M:%S %Y")
    spark.program("dmesg", f"echo '[{now}] NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.'")
    ran = run("doctor", *FREE)
    assert ran.code == 1
    assert "✗ kernel-log: " in ran.out
    assert "      sudo dmesg -T | tail -50" in ran.out
    spark.program("dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")
    assert run("doctor", *FREE).code == 0


def test_try_starts_a_container(run: SparkStack, spark: FakeSpark) -> None:
    assert asking.refused(run("doctor", "--try")).startswith("--try has no image to start: name one")
    spark.docker(run='echo "$@" > ran; echo "GPU 0: NVIDIA GB10 (UUID: GPU-1)"')
    ran = run("doctor", *FREE, "--try", "--image", "registry.example/stack:1", "-v")
    assert "a container sees GPU 0: NVIDIA GB10" in ran.out
    assert Path("ran").read_text().split()[-2:] == ["registry.example/stack:1", "-L"]
    spark.docker(run="echo 'could not select device driver' >&2; exit 125")
    asking.up(45123)
    ran = run("doctor", "--try")
    assert ran.code == 1
    assert "✗ gpu-access: a container does not get the GPU" in ran.out
    assert ID  # the image that runs is the one that is tried


def test_the_recipe_that_runs_is_judged(run: SparkStack, spark: FakeSpark) -> None:
    asking.up(45123, recipe="gpt-oss-20b-spark")
    assert run("doctor").out.startswith("ready for gpt-oss-20b-spark\n")
    assert run("doctor", "--recipe", "gpt-oss-120b-spark").out.startswith("ready for gpt-oss-120b-spark\n")


def test_this_machine_without_a_gpu(run: SparkStack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is made up here: the checks read this machine, whose PATH has neither a driver nor an engine."""
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = run("doctor", *FREE)
    assert ran.code == 1
    assert "✗ gpu: this machine has no NVIDIA GPU" in ran.out or "✗ gpu: the GPU has no driver" in ran.out
    assert "✗ engine: there is no container engine" in ran.out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--recipe", "gpt-oss-121b-spark"], "unknown recipe 'gpt-oss-121b-spark'"),
        (["--port", "0"], "--port"),
        (["--engine", "lxc"], "--engine"),
        (["--try", "--image", "--privileged"], "'--privileged' is not the name of an image"),
        (["--try", "--image", "x\x1b[31m"], "is not the name of an image"),
    ],
)
def test_refused(run: SparkStack, args: list[str], said: str) -> None:
    assert said in asking.refused(run("doctor", *args))
