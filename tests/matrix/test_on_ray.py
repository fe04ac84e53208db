# SPDX-License-Identifier: Apache-2.0
"""`stack matrix run --ray` on a real cluster of several nodes; one of them dies in the middle."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import PROOFS, Proved, alive, states, until
from .ray_cluster import Cluster, cluster, demand

CLUSTER = pytest.mark.images


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    demand()
    with cluster(2) as running:
        yield running


def order(proved: Proved, nodes: Cluster, *args: object) -> tuple[object, ...]:
    return ("--root", proved.world.root, "--cache", proved.world.cache, *PROOFS, "--ray", nodes.address, *args)


def outcomes(cache: Path) -> dict[str, object]:
    """The result of each run of a proof, by its inputs."""
    kept = {file.name: json.loads(file.read_text()) for file in (cache / "results/proofs").glob("*.json")}
    return {name: [(test["name"], test["outcome"]) for test in each["tests"]] for name, each in kept.items()}


@CLUSTER
def test_the_results_are_those_of_this_machine(proved: Proved, nodes: Cluster, tmp_path: Path) -> None:
    proved.go()
    shutil.copytree(proved.world.cache, tmp_path / "second", symlinks=True)
    code, out, err = nodes.run(*order(proved, nodes))
    assert (code, states(json.loads(out))) == (0, {"proofs-one": "passed", "proofs-two": "passed"}), err
    remote = (proved.world.root / ".stack/matrix/logs/proofs-one.log").read_text()
    assert states(json.loads(proved.run(*PROOFS).out)) == {"proofs-one": "kept", "proofs-two": "kept"}
    local = ["--root", proved.world.root, "--cache", tmp_path / "second", *PROOFS]
    assert nodes.run(*local)[0] == 0
    assert (proved.world.root / ".stack/matrix/logs/proofs-one.log").read_text() == remote
    assert len(outcomes(proved.world.cache)) == 4
    assert outcomes(proved.world.cache) == outcomes(tmp_path / "second")


@CLUSTER
def test_a_failure_comes_back_with_its_log(proved: Proved, nodes: Cluster) -> None:
    proved.go()
    proved.world.edit("stacks/one/series.toml", "grep -q hook", "grep -q hooks")
    code, out, _ = nodes.run(*order(proved, nodes))
    assert code == 1
    assert states(json.loads(out)) == {"proofs-one": "failed", "proofs-two": "passed"}
    assert "1 need a person" in (proved.world.root / ".stack/matrix/logs/proofs-one.log").read_text()


@CLUSTER
def test_a_job_whose_node_dies_is_repeated_elsewhere(proved: Proved, nodes: Cluster) -> None:
    pid = nodes.start(*order(proved, nodes))
    until(lambda: len(proved.pids()) == 1)
    nodes.fell(proved.pids()[0])
    until(lambda: len(proved.pids()) == 2)
    until(lambda: not alive(proved.pids()[0]))  # the processes of a node end soon after it
    proved.go()
    code, out, err = nodes.wait(pid)
    nodes.add()
    assert (code, states(json.loads(out))) == (0, {"proofs-one": "passed", "proofs-two": "passed"}), err


@CLUSTER
def test_it_is_not_repeated_for_ever(proved: Proved, nodes: Cluster) -> None:
    pid = nodes.start(*order(proved, nodes, "--retries", 1))
    until(lambda: len(proved.pids()) == 1)
    nodes.fell(proved.pids()[0])
    nodes.add()
    until(lambda: len(proved.pids()) == 2)
    nodes.fell(proved.pids()[1])
    code, out, err = nodes.wait(pid)
    nodes.add()
    assert code == 1, err
    assert states(json.loads(out)) == {"proofs-one": "passed", "proofs-two": "lost"}
    assert len(proved.pids()) == 2


@CLUSTER
def test_killed_the_next_run_goes_on(proved: Proved, nodes: Cluster) -> None:
    pid = nodes.start(*order(proved, nodes))
    until(lambda: len(proved.pids()) == 1 and len(proved.results()) == 1)
    os.kill(pid, signal.SIGKILL)
    nodes.wait(pid)
    until(lambda: not alive(proved.pids()[0]))
    proved.go()
    code, out, _ = nodes.run(*order(proved, nodes))
    assert (code, states(json.loads(out))) == (0, {"proofs-one": "kept", "proofs-two": "passed"})


@CLUSTER
def test_a_label_that_no_node_has(proved: Proved, nodes: Cluster) -> None:
    given = (
        "--root",
        proved.world.root,
        "--cache",
        proved.world.cache,
        "matrix",
        "run",
        "--only",
        "kernels",
        "--hardware",
        "sm999",
    )
    code, out, _ = nodes.run(*given, "--json", "--ray", nodes.address)
    [job] = json.loads(out)["jobs"]
    assert (code, job["state"]) == (0, "not here")
    assert "no machine of the cluster has sm999" in job["why"]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1 (Connection refused): start one: ray start --head"),
        ("nowhere", "--ray 'nowhere' is not an address"),
        ("http://127.0.0.1:1", "--ray 'http://127.0.0.1:1' is not an address"),
        ("127.0.0.1:99999", "--ray '127.0.0.1:99999' is not an address"),
        ("\x1b[2J:1", "--ray '?[2J:1' is not an address"),
    ],
)
def test_an_address_without_a_cluster(proved: Proved, address: str, said: str, tmp_path: Path) -> None:
    assert said in proved.run(*PROOFS[:-1], "--ray", address).refused()
    assert not (tmp_path / "stack/.stack/matrix/logs").exists()


def test_without_ray_it_says_what_to_install(proved: Proved, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    assert proved.run(*PROOFS, "--ray", "127.0.0.1:1").refused() == "--ray needs the package ray: pip install 'git-carry[ray]'"
