# SPDX-License-Identifier: Apache-2.0
"""Keep what `spark-stack setup` found: the nodes, and each one's values of a recipe's variables."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from stack.base.errors import StackError
from stack.model import document
from stack.model.document import Table
from stack.owner.nodes.reach import Node, nodes
from stack.store import cache

SCHEMA = 1
_LARGEST = 2**20


@dataclass(frozen=True, slots=True)
class Member:
    """A node, its host name, and its values of the variables of a recipe for several nodes."""

    node: Node
    host: str
    variables: Mapping[str, str]


def path() -> Path:
    """Return the file's path: `nodes.json` in the user's state folder."""
    import platformdirs  # noqa: PLC0415

    return platformdirs.user_state_path("stack") / "nodes.json"


def write(file: Path, members: Sequence[Member]) -> None:
    """Write the nodes, whole and on disk.

    Raises:
        StackError: The file cannot be written.

    """
    rows = [
        {"node": {"name": each.node.name, "rank": each.node.rank}, "host": each.host, "variables": dict(each.variables)}
        for each in members
    ]
    text = json.dumps({"schema": SCHEMA, "nodes": rows}, indent=2) + "\n"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with cache.appearing(file, 0o600) as opened:
            opened.write(text.encode())
    except OSError as failed:
        raise StackError(f"{file} cannot be written ({failed.strerror})", "make room or check its rights") from failed


def read(file: Path) -> tuple[Member, ...]:
    """Read the nodes, in their order; none before a setup.

    Raises:
        StackError: The file is damaged, or a newer version wrote it.

    """
    if not file.exists():
        return ()
    remedy = "run spark-stack setup again"
    try:
        values = json.loads(document.read_text(file, largest=_LARGEST))
    except (ValueError, RecursionError) as bad:
        raise StackError(f"{file} is not valid JSON", remedy) from bad
    if not isinstance(values, dict) or values.get("schema") != SCHEMA:
        raise StackError(f"{file} is not of version {SCHEMA}", remedy)
    table = Table(values, file=file)
    table.whole("schema")
    made = [_member(each) for each in table.tables("nodes")]
    table.finish()
    known = nodes(tuple(each.node.name for each in made[1:]))
    if tuple(each.node for each in made) != known:
        raise StackError(f"{file} does not number its nodes", remedy)
    return tuple(made)


def _member(table: Table) -> Member:
    node = table.table("node")
    named = Node(node.text("name"), node.whole("rank"))
    node.finish()
    variables = table.table("variables")
    given = {name: variables.text(name) for name in variables}
    variables.finish()
    made = Member(named, table.text("host"), MappingProxyType(given))
    table.finish()
    return made
