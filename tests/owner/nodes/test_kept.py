# SPDX-License-Identifier: Apache-2.0
"""The nodes that a setup keeps."""

import json
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.owner.nodes import kept, reach
from stack.owner.nodes.kept import Member


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "state/nodes.json"
    assert kept.read(file) == ()
    members = tuple(Member(node, f"host-{node.rank}", {"NODE_RANK": str(node.rank)}) for node in reach.nodes(("me@spark-b",)))
    kept.write(file, members)
    assert kept.read(file) == members
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(schema=2),
        lambda data: data["nodes"].reverse(),
        lambda data: data["nodes"][1]["node"].update(name="-oProxyCommand=x"),
        lambda data: data["nodes"][1].update(more=1),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: object) -> None:
    file = tmp_path / "nodes.json"
    kept.write(file, [Member(node, "h", {}) for node in reach.nodes(("spark-b",))])
    data = json.loads(file.read_text())
    assert callable(change)
    change(data)
    file.write_text(json.dumps(data))
    with pytest.raises(StackError):
        kept.read(file)
