# SPDX-License-Identifier: Apache-2.0
"""`spark-stack setup`: prepare several machines to serve one model."""

import time
from collections.abc import Sequence

import click

from stack.base.errors import StackError
from stack.base.text import counted
from stack.cli.common import json_option, print_json, print_table, progress
from stack.cli.rendering import text
from stack.cli.sentences import fact, say
from stack.owner import state, state_file
from stack.owner.nodes import bandwidth, facts, kept, netplan, reach
from stack.owner.nodes import plan as planning
from stack.owner.nodes.bandwidth import Speed
from stack.owner.nodes.kept import Member
from stack.owner.nodes.plan import Plan, Problem
from stack.owner.nodes.reach import Node

_PROPOSED = "*"
_SETTLING = 20.0
"""Seconds that a link gets to come up again."""


@click.command("setup")
@click.argument("names", metavar="NODE...", nargs=-1, required=True)
@click.option(
    "--interface", metavar="NAME", help="The interface of the link, where it has no RDMA device; the same on all nodes."
)
@click.option(
    "--apply", "applies", is_flag=True, help="Put the netplan files in place; needs root on each node without a password."
)
@click.option("--bandwidth/--no-bandwidth", "measures", default=True, help="Measure the link, half a minute for each node.")
@json_option
@click.pass_context
def command(
    context: click.Context, names: tuple[str, ...], interface: str | None, applies: bool, measures: bool, as_json: bool
) -> None:
    """Prepare this machine and each NODE, a name for ssh, to serve one model together.

    Reads all of them: the link, both RDMA devices of its port, addresses, clocks, drivers. Proposes addresses and the settings of NCCL
    and Gloo. Changes nothing, unless with --apply. When all is right the nodes are kept, and recipes for several nodes use them. Exit code 1 if
    something is to be mended or applied first.
    """

    nodes = reach.nodes(names)
    with progress() as tell:
        tell("reading the nodes", 0, None)
        made = planning.plan(facts.read_all(nodes), interface)
    blocked = [each for each in made.problems if each.blocks]
    if applies and made.changes and not blocked:
        _apply(made)
        made = _settled(nodes, interface)
        blocked = [each for each in made.problems if each.blocks]
    ready = not blocked and not made.changes
    speeds = _measured(made) if ready and measures else ()
    if ready:
        _keep(made)
    if as_json:
        print_json(_as_json(made, speeds, ready=ready))
    else:
        _print(made, speeds, ready=ready)
    context.exit(0 if ready else 1)


def _keep(made: Plan) -> None:
    """Keep the nodes, unless a server runs on others: nobody would find it there again."""
    members = [Member(port.facts.node, port.facts.host, given) for port, given in zip(made.ports, made.variables, strict=True)]
    with state_file.locked(state.path()):  # `up` and `down` read the nodes while they change the server
        _keep_locked(members)


def _keep_locked(members: Sequence[Member]) -> None:
    known = state_file.read(state.path())
    running = known is not None and any(each is not None and each.spread for each in (known.now, known.target))
    before = kept.read(kept.path()) if running else ()
    if before and {each.node for each in before} - {each.node for each in members}:
        hosts = ", ".join(each.host for each in before if each.node.rank)
        raise StackError(f"the server is spread over {hosts}", "stop it first: spark-stack down")
    kept.write(kept.path(), members)


def _apply(made: Plan) -> None:
    for port in made.ports:
        netplan.demand(port.facts)
    # The other machines first: if one of them refuses, this one is as it was.
    pairs = list(zip(made.ports, made.addresses, strict=True))
    with progress() as tell:
        for done, (port, addresses) in enumerate(reversed(pairs)):
            tell(f"applying addresses on {port.facts.host}", done, len(pairs))
            netplan.apply(port.facts, netplan.text(port, addresses))


def _settled(nodes: tuple[Node, ...], interface: str | None) -> Plan:
    """Read the nodes until the link is up: a changed MTU takes an adapter down for some seconds."""
    end = time.monotonic() + _SETTLING
    while True:
        try:
            made = planning.plan(facts.read_all(nodes), interface)
        except StackError:
            if time.monotonic() >= end:
                raise
        else:
            if time.monotonic() >= end or not (made.changes or any(each.blocks for each in made.problems)):
                return made
        time.sleep(1.0)


def _measured(made: Plan) -> tuple[Speed, ...]:
    head, *others = zip(made.ports, made.addresses, strict=True)
    found: list[Speed] = []
    with progress() as tell:
        for done, (port, addresses) in enumerate(others):
            tell(f"measuring the link to {port.facts.host}", done, len(others))
            found += bandwidth.measure(head[0], head[1], port, addresses)
    return tuple(found)


def _print(made: Plan, speeds: tuple[Speed, ...], *, ready: bool) -> None:
    text.echo(text.styled(_summary(made, ready=ready), "bold"))
    text.echo()
    rows = [
        (each.facts.node.name, each.facts.host, each.facts.gpu or "-", each.facts.driver or "-", each.facts.engine or "-")
        for each in made.ports
    ]
    print_table(("node", "host", "GPU", "driver", "engine"), rows)
    text.echo()
    print_table(("host", "interface", "RDMA", "Gbit/s", "MTU", "address"), list(_links(made)))
    if made.changes:
        say(f"{_PROPOSED} proposed, not set yet")
    for problem in made.problems:
        _print_problem(problem)
    if made.changes:
        _print_files(made)
    if speeds:
        text.echo()
        print_table(("to", "over", "by", "Gbit/s"), [(each.node, each.over, each.how, f"{each.rate:.1f}") for each in speeds])
    if ready:
        text.echo()
        say("Serve over them:", f"spark-stack up RECIPE --nodes {len(made.ports)} --image IMAGE")


def _summary(made: Plan, *, ready: bool) -> str:
    count = counted(len(made.ports), "machine")
    if ready:
        return f"{count} ready to serve together"
    blocked = sum(each.blocks for each in made.problems)
    parts = [f"{counted(blocked, 'thing')} to mend"] if blocked else []
    parts += ["addresses to apply"] if made.changes else []
    return f"{count}: {' and '.join(parts)} first"


def _links(made: Plan) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for port, addresses in zip(made.ports, made.addresses, strict=True):
        for link, address in zip(port.links, addresses, strict=True):
            is_there = address in link.addresses
            speed = f"{link.speed / 1000:g}" if link.speed else "-"
            mark = "" if is_there else _PROPOSED
            rows.append(
                (port.facts.host or port.facts.node.name, link.name, link.rdma or "-", speed, str(link.mtu), f"{address}{mark}")
            )
    return rows


def _print_problem(problem: Problem) -> None:
    text.echo()
    where = f"{problem.node}: " if problem.node is not None else ""
    fact(f"{'✗' if problem.blocks else '!'} {where}{problem.text}")
    fact(f"fix: {problem.fix}", indent="  ")


def _print_files(made: Plan) -> None:
    for port, addresses in zip(made.ports, made.addresses, strict=True):
        text.echo()
        text.echo(f"{netplan.FILE} on {port.facts.node.name} ({port.facts.host}):")
        for line in netplan.text(port, addresses).splitlines():
            if not line.startswith("#"):
                text.echo(f"  {line}")
    text.echo()
    say("Have these files put in place by the same command with --apply, or do it by hand and run it again.")


def _as_json(made: Plan, speeds: tuple[Speed, ...], *, ready: bool) -> dict[str, object]:
    return {
        "ready": ready,
        "changes": made.changes,
        "nodes": [
            {
                "name": port.facts.node.name,
                "host": port.facts.host,
                "gpu": port.facts.gpu or None,
                "driver": port.facts.driver or None,
                "kernel": port.facts.kernel,
                "engine": port.facts.engine or None,
                "clock": round(port.facts.ahead, 3),
                "links": [
                    {
                        "name": link.name,
                        "rdma": link.rdma,
                        "up": link.up,
                        "gbits": link.speed / 1000 or None,
                        "mtu": link.mtu,
                        "address": str(address),
                        "is_set": address in link.addresses,
                    }
                    for link, address in zip(port.links, addresses, strict=True)
                ],
                "netplan": netplan.text(port, addresses),
                "variables": dict(variables),
            }
            for port, addresses, variables in zip(made.ports, made.addresses, made.variables, strict=True)
        ],
        "problems": [
            {"node": each.node, "problem": each.text, "fix": each.fix, "blocks": each.blocks} for each in made.problems
        ],
        "speeds": [{"node": each.node, "over": each.over, "by": each.how, "gbits": round(each.rate, 2)} for each in speeds],
    }
