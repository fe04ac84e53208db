# SPDX-License-Identifier: Apache-2.0
"""Several machines as they answer: which link is taken, what is proposed, what is found wrong."""

import re
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.owner.nodes import facts, followers, reach
from stack.owner.nodes.plan import Plan, plan

from .machines import Machine, connect

PLAIN = Machine()
GIVEN = (
    {"enp1s0f1np1": "192.168.100.10/24", "enP2p1s0f1np1": "192.168.101.10/24"},
    {"enp1s0f1np1": "192.168.100.11/24", "enP2p1s0f1np1": "192.168.101.11/24"},
)


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    return tmp_path


def planned(
    folder: Path, patch: pytest.MonkeyPatch, here: Machine = PLAIN, *others: Machine, interface: str | None = None
) -> Plan:
    named = {f"spark-{letter}": each for letter, each in zip("bcd", others or (PLAIN,), strict=False)}
    connect(folder, patch, here=here, others=named)
    return plan(facts.read_all(reach.nodes(tuple(named))), interface)


def said(made: Plan) -> str:
    return "\n".join(f"{each.node}: {each.text}" for each in made.problems)


def test_both_interfaces_of_the_port_with_the_cable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = planned(folder, monkeypatch)
    assert (made.changes, made.problems) == (True, ())
    assert [[link.name for link in port.links] for port in made.ports] == [["enp1s0f1np1", "enP2p1s0f1np1"]] * 2
    assert [[str(each) for each in own] for own in made.addresses] == [
        ["192.168.177.11/24", "192.168.178.11/24"],
        ["192.168.177.12/24", "192.168.178.12/24"],
    ]
    assert dict(made.variables[1]) == {
        "NODE_RANK": "1",
        "HEAD_ADDRESS": "192.168.177.11",
        "NODE_ADDRESS": "192.168.177.12",
        "INTERFACE": "enp1s0f1np1",
        "HCA": "rocep1s0f1,roceP2p1s0f1",
    }


@pytest.mark.parametrize("name", ["\x1b[31mred", "{a:", '"', "-o", "a$(id)", "a;b", "ü"])
def test_an_interface_with_an_odd_name_is_none(name: str) -> None:
    """Linux allows all of them, and the name gets into a file of root's, a recipe's variables and the terminal."""
    node = reach.Node("spark-b", 1)
    lines = (f"link\t{each} up 100000 9000 4 4\nrdma\trocep1s0f1 {each}" for each in (name, "eth0.7"))
    read = facts.Facts.parse(node, "time\t1.5\n" + "\n".join(lines), 0, 1)
    assert [(link.name, link.rdma) for link in read.links] == [("eth0.7", "rocep1s0f1")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("spark-b", "spark-b"), ("me@spark-b", "me@spark-b"), ("fd00::1", "[fd00::1]"), ("me@::1", "me@[::1]")],
)
def test_a_name_for_rsync(name: str, expected: str) -> None:
    """Behind two colons it takes the name of a module of a server of its own."""
    assert followers._for_rsync(name) == expected


def test_addresses_that_work_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = (Machine(addresses=each, mtu=9000) for each in GIVEN)
    made = planned(folder, monkeypatch, here, there)
    assert not made.changes
    assert made.variables[0]["HEAD_ADDRESS"] == "192.168.100.10"


@pytest.mark.parametrize(
    "there",
    [
        Machine(addresses=GIVEN[1]),  # its MTU is 1500
        Machine(addresses=GIVEN[0], mtu=9000),  # the same address twice
        Machine(addresses={"enp1s0f1np1": "192.168.100.11/24"}, mtu=9000),
        Machine(addresses={"enp1s0f1np1": "10.0.0.1/24", "enP2p1s0f1np1": "192.168.101.11/24"}, mtu=9000),
    ],
)
def test_addresses_that_do_not_work_are_changed(folder: Path, monkeypatch: pytest.MonkeyPatch, there: Machine) -> None:
    assert planned(folder, monkeypatch, Machine(addresses=GIVEN[0], mtu=9000), there).changes


def test_both_interfaces_in_one_subnet_are_changed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (
        Machine(addresses={"enp1s0f1np1": f"192.168.100.{n}/24", "enP2p1s0f1np1": f"192.168.100.{n + 1}/24"}, mtu=9000)
        for n in (10, 20)
    )
    assert planned(folder, monkeypatch, one, two).changes


def test_a_subnet_that_is_in_use_is_not_proposed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = planned(folder, monkeypatch, Machine(addresses={"enp1s0f0np0": "192.168.177.5/24"}))
    assert str(made.addresses[0][0]) == "192.168.178.11/24"


def test_four_machines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = planned(folder, monkeypatch, Machine(), Machine(), Machine(), Machine())
    assert [each["NODE_ADDRESS"] for each in made.variables] == [f"192.168.177.{11 + rank}" for rank in range(4)]


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (Machine(driver="590.48.01"), "None: the drivers differ: spark-a 580.95.05, spark-b 590.48.01"),
        (Machine(lanes=2), "spark-b: enP2p1s0f1np1 has 2 of 4 PCIe lanes"),
        (
            Machine(up=("enp1s0f1np1",)),
            "spark-b: only one of the port's two RDMA devices is up (rocep1s0f1): half of the speed",
        ),
    ],
)
def test_what_is_wrong(folder: Path, monkeypatch: pytest.MonkeyPatch, there: Machine, expected: str) -> None:
    assert expected in said(planned(folder, monkeypatch, Machine(), there)).splitlines()


@pytest.mark.parametrize(("ahead", "word"), [(3600, "ahead"), (-3600, "behind")])
def test_a_clock_that_is_off(folder: Path, monkeypatch: pytest.MonkeyPatch, ahead: int, word: str) -> None:
    found = re.fullmatch(
        rf"spark-b: its clock is (\d+) s {word}", said(planned(folder, monkeypatch, PLAIN, Machine(ahead=ahead)))
    )
    assert found is not None
    assert abs(int(found[1]) - 3600) < 100  # asking takes a while on a busy machine


def test_a_link_that_carries_the_connection_keeps_its_address(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(folder, monkeypatch, here=Machine(), others={"spark-b": Machine(addresses={"enp1s0f1np1": "10.1.1.2/24"})})
    monkeypatch.setenv("SSH_CONNECTION", "10.1.1.1 4000 10.1.1.2 22")
    made = plan(facts.read_all(reach.nodes(("spark-b",))))
    assert "spark-b: it is reached over the link that changes, at 10.1.1.2" in said(made)


@pytest.mark.parametrize(
    ("there", "interface", "expected"),
    [
        (Machine(up=()), None, "no cable is plugged into spark-b"),
        (Machine(rdma=False), None, "spark-b has no RDMA device"),
        (Machine(), "eth7", "has no interface eth7"),
    ],
)
def test_no_link(folder: Path, monkeypatch: pytest.MonkeyPatch, there: Machine, interface: str | None, expected: str) -> None:
    with pytest.raises(StackError, match=expected):
        planned(folder, monkeypatch, Machine(), there, interface=interface)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("-oProxyCommand=x",), "is not a name for ssh"),
        (("a b",), "is not a name for ssh"),
        (("spark-b", "spark-b"), "is named twice"),
    ],
)
def test_names(names: tuple[str, ...], expected: str) -> None:
    with pytest.raises(StackError, match=expected):
        reach.nodes(names)


def test_a_node_that_is_not_reached_says_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(folder, monkeypatch, here=Machine(), others={"spark-b": Machine()})
    (folder / "spark-b/refuses").touch()
    with pytest.raises(StackError, match="ssh-copy-id spark-b"):
        facts.read_all(reach.nodes(("spark-b",)))
    with pytest.raises(StackError, match="check its name"):
        facts.read_all(reach.nodes(("spark-x",)))


@pytest.mark.parametrize("output", ["", "welcome\n", "time\tnow\n", "\x00" * 100, "time\t1e999\n"])
def test_a_node_that_answers_something_else(output: str) -> None:
    with pytest.raises(StackError, match="does not answer as a Linux machine does"):
        facts.Facts.parse(reach.Node("spark-b", 1), output, 0.0, 1.0)


def test_an_answer_with_nonsense_in_it_is_read_as_far_as_it_goes() -> None:
    output = "time\t5.0\nlink\tx\nlink\teth0 up 1000 1500 0 0\naddress\teth0 999.1.1.1/24\nrdma\t\nhost\ta\x1b[31mb\n"
    made = facts.Facts.parse(reach.Node("spark-b", 1), output, 4.0, 6.0)
    assert (made.host, made.ahead, [each.name for each in made.links]) == ("a?[31mb", 0.0, ["eth0"])
