# SPDX-License-Identifier: Apache-2.0
"""Facts are read from a Spark's programs and files."""

import json
import os
import socket
from pathlib import Path

import pytest

from stack.owner.readiness import engine, gpu, places, programs, system
from stack.owner.readiness.engine import EngineFacts
from stack.owner.readiness.gpu import Clocks, GpuFacts
from stack.owner.readiness.system import Update

from .spark import IDLE, UPDATES, FakeSpark, made

CDI = 'cdiVersion: "0.6.0"\nkind: nvidia.com/gpu\ndevices:\n- name: all\n'


@pytest.fixture(name="spark")
def _spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    return made(tmp_path, monkeypatch)


def test_a_gb10_has_no_memory_of_its_own(spark: FakeSpark) -> None:
    found = gpu.read()
    assert found.gpus == (GpuFacts("NVIDIA GB10", "12.1", "580.95.05", None, Clocks(208, 3003, 0, 4.31, 36, 1)),)
    assert found.cuda == "13.0"


def test_a_gpu_with_its_own_memory(spark: FakeSpark) -> None:
    """The words of the driver of a real H200."""
    spark.nvidia_smi("NVIDIA H200, 9.0, 143771, 580.159.04", "345, 1980, 0, 79.52, 39, 0x0000000000000001")
    assert gpu.read().gpus == (
        GpuFacts("NVIDIA H200", "9.0", "580.159.04", 143771 * 2**20, Clocks(345, 1980, 0, 79.52, 39, 1)),
    )


def test_a_driver_without_these_clocks_still_has_its_gpu(spark: FakeSpark) -> None:
    """An older driver refuses the whole query because of one name."""
    spark.program(
        "nvidia-smi",
        'case "$1" in\n--query-gpu=name*) echo "NVIDIA GB10, 12.1, [N/A], 580.95.05" ;;\n'
        '*) echo "Field \\"clocks_event_reasons.active\\" is not a valid field to query." ; exit 2 ;;\nesac',
    )
    (found,) = gpu.read().gpus
    assert (found.capability, found.clocks) == ("12.1", Clocks())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "echo 'NVIDIA-SMI has failed because it couldn'\"'\"'t communicate with the NVIDIA driver.'; exit 9",
            "NVIDIA-SMI has failed",
        ),
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "version mismatch"),
    ],
)
def test_a_driver_that_fails_is_quoted(spark: FakeSpark, body: str, said: str) -> None:
    spark.program("nvidia-smi", body)
    found = gpu.read()
    assert not found.gpus
    assert said in found.problem
    assert not found.missing


def test_a_machine_without_a_driver(spark: FakeSpark) -> None:
    spark.without("nvidia-smi")
    found = gpu.read(spark.folder / "sys/bus/pci/devices")
    assert (found.missing, found.has_device) == (True, False)
    spark.file("sys/bus/pci/devices/000f:01:00.0/vendor", "0x10de\n")
    spark.file("sys/bus/pci/devices/000f:01:00.0/class", "0x030000\n")
    assert gpu.read(spark.folder / "sys/bus/pci/devices").has_device


def test_docker_and_its_runtimes(spark: FakeSpark) -> None:
    found = engine.read(None, spark.sources.devices)
    assert (found.name, found.version, found.problem, found.denied) == ("docker", "28.3.3", "", False)
    assert "nvidia" in found.runtimes
    assert found.gives_gpus
    assert found.storage == spark.folder


def test_docker_may_give_gpus_by_cdi_only(spark: FakeSpark) -> None:
    spark.docker({"Runtimes": {"runc": {}}})
    assert not engine.read(None, spark.sources.devices).gives_gpus
    spark.file("etc/cdi/nvidia.yaml", CDI)
    found = engine.read(None, spark.sources.devices)
    assert found.devices == ("nvidia.com/gpu",)
    assert found.gives_gpus
    spark.file("elsewhere/other.json", json.dumps({"kind": "vendor.com/nic"}))
    spark.docker({"Runtimes": {"runc": {}}, "CDISpecDirs": [str(spark.folder / "elsewhere")]})
    assert not engine.read(None, spark.sources.devices).gives_gpus


def test_a_user_who_may_not_use_docker(spark: FakeSpark) -> None:
    spark.docker(
        {"ServerErrors": ["permission denied while trying to connect to the docker API at unix:///var/run/docker.sock"]}
    )
    found = engine.read(None, ())
    assert found.denied
    spark.docker({"ServerErrors": ["Cannot connect to the Docker daemon at unix:///var/run/docker.sock."]})
    found = engine.read(None, ())
    assert not found.denied
    assert found.problem.startswith("Cannot connect")


def test_podman(spark: FakeSpark) -> None:
    spark.without("docker")
    info = {"version": {"Version": "5.4.1"}, "store": {"graphRoot": "/home/ada/.local/share/containers/storage"}}
    spark.program("podman", f"echo '{json.dumps(info)}'")
    found = engine.read(None, spark.sources.devices)
    assert (found.name, found.version, found.problem) == ("podman", "5.4.1", "")
    assert str(found.storage).endswith("containers/storage")
    assert not found.gives_gpus
    spark.without("podman")
    assert engine.read(None, ()) == EngineFacts()


@pytest.mark.parametrize(
    "text", ["not JSON", "[]", '{"Runtimes": 3, "DockerRootDir": [], "CDISpecDirs": "x", "ServerErrors": {}}', ""]
)
def test_an_engine_that_answers_oddly(spark: FakeSpark, text: str) -> None:
    spark.program("docker", f"echo '{text}'")
    found = engine.read(None, ())
    assert found.name == "docker"
    assert not found.gives_gpus


def test_a_container_that_lists_its_gpus(spark: FakeSpark) -> None:
    found = engine.read(None, ())
    assert engine.tried(found, "x").seen == "GPU 0: NVIDIA GB10"
    spark.docker(run="echo 'could not select device driver \"\" with capabilities: [[gpu]]' >&2; exit 125")
    assert "could not select device driver" in (engine.tried(found, "x").refused or "")
    spark.docker(run="echo 'No devices were found'")
    assert engine.tried(found, "x").refused == "its container lists no GPU"


def test_the_system(spark: FakeSpark) -> None:
    found = system.read(spark.sources)
    assert (found.kernel, found.dgx_version, found.governor) == ("6.17.0-1014-nvidia", "7.4.0", "performance")
    assert found.updates == ()
    spark.fwupdmgr(f"echo '{json.dumps(UPDATES)}'; echo 'Devices with updates:'")
    assert system.read(spark.sources).updates == (Update("Embedded Controller", "0x02004b03", "0x02004e18"),)
    for odd in ("echo nothing", 'echo \'{"Devices": [3, {"Name": 1, "Releases": [{}]}]}\'', "echo broken >&2; exit 1"):
        spark.fwupdmgr(odd)
        updates = system.read(spark.sources).updates
        assert updates is None or updates == (Update("?", "?", "?"),)
    spark.without("fwupdmgr")
    assert system.read(spark.sources).firmware_problem == "fwupdmgr is not installed"


def test_memory_that_cannot_be_pinned(spark: FakeSpark) -> None:
    spark.file("proc/meminfo", "MemTotal: 127600748 kB\nCmaTotal:        0 kB\nCmaFree:    940604 kB\n")
    assert system.read(spark.sources).cma == (0, 940604 * 1024)
    spark.file("proc/meminfo", "MemTotal: 127600748 kB\n")
    assert system.read(spark.sources).cma is None


def test_a_port_and_who_holds_it() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        number = held.getsockname()[1]
        assert not places.port(number).is_free  # nobody listens, but no other server could be bound there
        held.listen()
        found = places.port(number)
        assert not found.is_free
        assert found.holder is not None
        assert found.holder[1] == os.getpid()
    assert places.port(number).is_free


def test_a_model_that_is_there_in_part(tmp_path: Path) -> None:
    blobs = tmp_path / "models--openai--gpt-oss-120b/blobs"
    assert places.of_model(tmp_path, "openai/gpt-oss-120b").present == 0
    blobs.mkdir(parents=True)
    (blobs / "a").write_bytes(b"x" * 1000)
    (blobs / "b.incomplete").write_bytes(b"x" * 24)
    found = places.of_model(tmp_path, "openai/gpt-oss-120b")
    assert found.present == 1024
    assert found.free
    assert places.disk(tmp_path / "not/there/yet").device == found.device


def test_a_program_that_hangs_is_left(spark: FakeSpark) -> None:
    spark.program("nvidia-smi", "exec /bin/sleep 60")
    found = programs.run("nvidia-smi", wait=0.2)
    assert found.problem == "nvidia-smi has not answered for 0 seconds"


@pytest.mark.parametrize("line", ["", "208", "a, b, c, d, e, f", "[N/A], [N/A], [N/A], [N/A], [N/A], [N/A]", f"{IDLE}, 1"])
def test_odd_clocks(spark: FakeSpark, line: str) -> None:
    spark.nvidia_smi(clocks=line)
    assert gpu.read().gpus[0].clocks == Clocks()
