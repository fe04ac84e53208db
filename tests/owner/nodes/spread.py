# SPDX-License-Identifier: Apache-2.0
"""A machine of an owner, and what it needs to serve together with another one: a recipe, kept nodes, a model in a cache."""

import shutil
from pathlib import Path

from stack.owner.nodes import kept, reach
from stack.owner.nodes.kept import Member

from ..world import World

RECIPE = "gpt-oss-120b-2-sparks"


def prepare(world: World, name: str, addresses: tuple[str, str]) -> Path:
    """Keep the other node, as a setup does, and put the model into a cache; return the model's folder."""
    members = [
        Member(
            node,
            node.name,
            {
                "NODE_RANK": str(node.rank),
                "HEAD_ADDRESS": addresses[0],
                "NODE_ADDRESS": addresses[node.rank],
                "INTERFACE": "link0",
                "HCA": "rocep1s0f1,roceP2p1s0f1",
            },
        )
        for node in reach.nodes((name,))
    ]
    kept.write(world.folder / "state/stack/nodes.json", members)
    root = world.folder / "hub/models--openai--gpt-oss-120b"
    (root / "blobs").mkdir(parents=True)
    snapshot = root / "snapshots/abc"
    snapshot.mkdir(parents=True)
    for file in world.model.iterdir():
        shutil.copy(file, root / "blobs" / file.name)
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    (root / "blobs/half.incomplete").write_text("x")
    return snapshot


def up(world: World, model: Path, *more: str, image: str = "registry.example/stack:1") -> list[str]:
    """The words of `up` over both machines; the stand-in server names other kernels than a Spark's."""
    words = ["up", RECIPE, "--nodes", "2", "--image", image, "--model", str(model), "--port", str(world.port)]
    return [*words, "--allow-fallback", *more]
