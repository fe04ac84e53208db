# SPDX-License-Identifier: Apache-2.0
"""A server is not started where it cannot be what its recipe says."""

import socket

import pytest

from stack.base.errors import StackError
from stack.deploy import recipes
from stack.model.verdict import Gpu, Machine
from stack.serving import demands

SPARK, H200, TINY = (recipes.load(name) for name in ("gpt-oss-120b-spark", "gpt-oss-120b-h200", "cpu-mxfp4"))
GB10 = Gpu("NVIDIA GB10", "12.1", None, "580.95")
H200_GPU = Gpu("NVIDIA H200", "9.0", 150_754_820_096, "580.95")


def machine(*gpus: Gpu, memory: float = 128, flags: tuple[str, ...] = ()) -> Machine:
    return Machine("Linux 6", "x86_64", "a CPU", 8, int(memory * 1e9), flags, gpus, None)


@pytest.mark.parametrize(
    ("recipe", "here"),
    [
        (SPARK, machine(GB10, memory=128)),
        (H200, machine(H200_GPU, memory=1)),
        (H200, machine(GB10, H200_GPU)),
        (TINY, machine(memory=6, flags=("avx512_bf16", "avx2"))),
        (recipes.load("gpt-oss"), machine(memory=1)),
    ],
)
def test_a_machine_that_a_recipe_is_for(recipe: recipes.Recipe, here: Machine) -> None:
    demands.demand_machine(recipe, here, fallback=False)


@pytest.mark.parametrize(
    ("recipe", "here", "problem"),
    [
        (
            SPARK,
            machine(H200_GPU),
            "for NVIDIA DGX Spark (GB10), compute capability 12.1; here is NVIDIA H200 (9.0): use a recipe",
        ),
        (SPARK, machine(), "here is no NVIDIA GPU"),
        (SPARK, machine(GB10, memory=60), "takes 90 GB, this machine with its NVIDIA GB10 has 60: use a smaller model"),
        (H200, machine(Gpu("NVIDIA H200 MIG", "9.0", 35 * 10**9, "1")), "takes 136 GB, NVIDIA H200 MIG has 35"),
        (TINY, machine(flags=("avx2",)), "needs a CPU with avx512_bf16: use another recipe"),
        (TINY, machine(memory=4, flags=("avx512_bf16",)), "takes 5 GB, this machine has 4"),
    ],
)
def test_one_that_it_is_not_for(recipe: recipes.Recipe, here: Machine, problem: str) -> None:
    with pytest.raises(StackError) as refused:
        demands.demand_machine(recipe, here, fallback=False)
    assert problem in str(refused.value)


def test_another_gpu_may_be_taken_but_no_smaller_one() -> None:
    demands.demand_machine(SPARK, machine(H200_GPU), fallback=True)
    demands.demand_machine(SPARK, machine(), fallback=True)
    with pytest.raises(StackError, match="takes 90 GB, NVIDIA A10 has 24"):
        demands.demand_machine(SPARK, machine(Gpu("NVIDIA A10", "8.6", 24 * 10**9, "1")), fallback=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_this_machine_needs_no_key(host: str) -> None:
    demands.demand_key(host, {})
    demands.demand_key(host, {}, contained=True)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.invalid"])
def test_other_machines_need_one(host: str) -> None:
    demands.demand_key(host, {demands.KEY: "x"})
    for environment, contained in (({}, False), ({demands.KEY: ""}, False), ({demands.KEY: "x"}, True)):
        with pytest.raises(StackError, match="can be reached from other machines"):
            demands.demand_key(host, environment, contained=contained)


def test_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for host in ("127.0.0.1", "0.0.0.0"):
            with pytest.raises(StackError, match=f"port {port} of {host} is in use"):
                demands.demand_port(host, port)
    demands.demand_port("127.0.0.1", port)
    with pytest.raises(StackError, match=r"nothing can listen at 192\.0\.2\.1 port"):
        demands.demand_port("192.0.2.1", port)
    with pytest.raises(StackError, match=r"nothing can listen at example\.invalid port"):
        demands.demand_port("example.invalid", port)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:1"),
        ("0.0.0.0", "http://127.0.0.1:1"),
        ("::", "http://[::1]:1"),
        ("fe80::1", "http://[fe80::1]:1"),
        ("spark", "http://spark:1"),
    ],
)
def test_where_a_server_can_be_asked(host: str, url: str) -> None:
    assert demands.address(host, 1) == url


@pytest.mark.parametrize(
    "flag",
    [
        "--host",
        "--hos=0.0.0.0",
        "--ho",
        "--port",
        "--po=1",
        "--api-key",
        "--api_ke=x",
        "--hf-token=x",
        "--hf_t",
        "--uds",
        "--no-headl",
    ],
)
def test_what_options_of_ours_say_is_no_extra_flag_nor_its_beginning(flag: str) -> None:
    with pytest.raises(StackError, match=r"give --(host|port) before the --|set (VLLM_API_KEY|HF_TOKEN)|leave it out"):
        demands.demand_flags([flag, "0.0.0.0"])


def test_other_extra_flags() -> None:
    demands.demand_flags(["--max-model-len", "8", "-tp", "2", "--hf-token", "--api-server-count=2", "--", "host"])
    demands.demand_flags(["--hf-token"])


def test_an_empty_host_is_none() -> None:
    with pytest.raises(StackError, match="--host is empty: name an address"):
        demands.demand_key("", {demands.KEY: "x"})
