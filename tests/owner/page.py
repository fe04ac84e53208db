# SPDX-License-Identifier: Apache-2.0
"""Run the commands of docs/owner.md with stand-ins for the driver, the engine and the server; `python -m tests.owner.page` writes them."""

import hashlib
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from stack.deploy import checkpoints
from stack.model.verdict import Gpu, Machine
from stack.owner import images
from stack.validation import machine

from .world import ROOT, World, digest, made

PAGE = ROOT / "docs/owner.md"
NAME = "ghcr.io/you/vllm-spark"
PUBLIC = """\
-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAiojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w=
-----END PUBLIC KEY-----
"""
WAYS: Mapping[str, Mapping[str, str]] = {
    f"{NAME}:1": {},
    f"{NAME}:2": {},
    f"{NAME}:3": {"says": "h200-refused-moe", "how": "dies"},
}
BLOCK = re.compile(r"(<!-- owner: (?P<name>[\w-]+) -->\n)(?P<text>.*?)(<!-- /owner: (?P=name) -->)", re.DOTALL)
COMMANDS = {
    "up": f"up gpt-oss-120b-spark --image {NAME}:1 --key release.pub.pem",
    "status": "status",
    "update": f"update --image {NAME}:2",
    "update-bad": f"update --image {NAME}:3",
    "rollback": "rollback",
    "down": "down",
}
SPARK = Machine(
    system="Linux 6.14",
    architecture="aarch64",
    cpu="Cortex-X925",
    cores=20,
    memory=128 * 10**9,
    flags=(),
    gpus=(Gpu("NVIDIA GB10", "12.1", None, "590.48.01"),),
    cuda="13.1",
)


@contextmanager
def owner(folder: Path) -> Iterator[World]:
    """A Spark's owner, with the model in Hugging Face's cache, and three images; one of them does not serve."""
    with made(folder) as world, pytest.MonkeyPatch.context() as patched:
        listed = {
            name: {"digest": digest(name), "id": digest(f"id {name}"), "says": "made-spark-compose", **way}
            for name, way in WAYS.items()
        }
        (world.engine / "images.json").write_text(json.dumps(listed))
        world.environment["HF_HOME"] = str(world.folder / "hf")
        _fill(world.folder / "hf")
        (world.folder / "release.pub.pem").write_text(PUBLIC)
        patched.setattr(machine, "here", lambda: SPARK)
        patched.setattr(images, "_verified", lambda where, _key: listed[where.shown]["digest"])
        yield world


def _fill(home: Path) -> None:
    """Put a model of the recipe's name into the cache. Beside it lie the logs that the stand-in server prints."""
    checkpoint = checkpoints.load("gpt-oss-120b")
    top = home / f"hub/models--{checkpoint.repository.replace('/', '--')}"
    snapshot = top / f"snapshots/{checkpoint.revision}"
    snapshot.mkdir(parents=True)
    (top / "blobs").mkdir()
    index = json.dumps({"weight_map": {"w": "model-00000-of-00001.safetensors"}})
    files = {"config.json": "{}", "tokenizer.json": "{}", "tokenizer_config.json": "{} ", "model.safetensors.index.json": index}
    files |= {"model-00000-of-00001.safetensors": "weights"}
    files |= {path.name: path.read_text() for path in (ROOT / "tests/deploy/logs").glob("*.log")}
    for name, text in files.items():
        blob = top / f"blobs/{hashlib.sha256(text.encode()).hexdigest()}"
        blob.write_text(text)
        (snapshot / name).symlink_to(f"../../blobs/{blob.name}")
    for place in (home.parent, home, *home.rglob("*")):
        if place.is_dir() and not place.is_symlink():
            place.chmod(0o755)


def blocks(folder: Path) -> dict[str, str]:
    """The output of each command of the page, on both streams; times, speeds, digests and folders as the page writes them."""
    found = {}
    with owner(folder) as world:
        for name, command in COMMANDS.items():
            more = ["--port", world.port] if name == "up" else []
            ran = world.run(*command.split(), *more)
            assert ran.code == (1 if name == "update-bad" else 0), ran
            found[name] = f"```\n$ spark-stack {command}\n{_plain(ran.err + ran.out, world)}```\n"
    return found


def _plain(text: str, world: World) -> str:
    text = text.replace(str(world.port), "8000").replace(str(world.folder), "/home/you")
    text = text.replace("/home/you/state", "/home/you/.local/state")
    # A step gets a line if it took long, which depends on the machine.
    text = re.sub(r"^spark-stack: [^:]*(?::[^:\s][^:]*)*: [0-9]+ s\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"[0-9.]+ tokens a second", "… tokens a second", text)
    text = re.sub(r"\b[0-9]+ s\b", "… s", text)
    text = re.sub(r"sha256:([0-9a-f]{12})[0-9a-f]{52}", r"sha256:\1…", text)
    return re.sub(r"pid=[0-9]+", "pid=…", text)


def main() -> None:
    """Write the outputs into the page."""
    with tempfile.TemporaryDirectory() as folder:
        printed = blocks(Path(folder).resolve() / "machine")
    text = PAGE.read_text()
    PAGE.write_text(BLOCK.sub(lambda block: f"{block[1]}{printed[block['name']]}{block[4]}", text))


if __name__ == "__main__":
    main()
