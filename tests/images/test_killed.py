# SPDX-License-Identifier: Apache-2.0
"""kill -9 at every step: the publisher, with all that it has started, dies before each thing that it would write."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stack.images import envelope, floating_tags, referrers, skopeo, verify

from .proxy import Between, standing
from .registry import Registry, environment
from .world import World

SCRIPT = "import sys; sys.argv[0] = 'stack'; from stack.cli import main; main()"


def started(world: World, name: str) -> "subprocess.Popen[bytes]":
    """`stack image publish` with a process group of its own."""
    options = [
        "--gate",
        "cpu",
        "--verdict",
        "v.json",
        "--signers",
        str(world.policy.signers),
        "--gates",
        str(world.policy.gates),
        "--key",
        "release.pem",
        "--sbom",
        "python.cdx.json",
        "--move",
        "latest",
    ]
    command = [sys.executable, "-c", SCRIPT, "image", "publish", f"{world.host}/{name}", *options]
    return subprocess.Popen(command, cwd=world.root, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def listed(world: World, name: str, digest: str) -> int:
    """Number of referrers in the index: the four bundles."""
    return len(json.loads(skopeo.raw(world.name(f"{name}:{referrers.tag(digest)}")))["manifests"])


class Killer(Between):
    """Kills a publisher before the write number `last` whose path has `kind` in it reaches the registry, or after the last."""

    def __init__(self, kind: str, last: int) -> None:
        super().__init__(before=self.kill)
        self.kind, self.left, self.victim = kind, last, 0
        self.killed = ""

    def kill(self, method: str, path: str) -> None:
        if method != "PUT":
            return
        if self.kind in path:
            self.left -= 1
        if self.left <= 0:
            if not self.killed:
                self.killed = path
                os.killpg(self.victim, signal.SIGKILL)
            raise ConnectionResetError


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["/blobs/", "/manifests/"])
def test_killed_at_any_write_no_tag_lacks_its_attestations(
    kind: str, world: World, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = world.image()
    world.verdict(digest)
    key, folder = envelope.public(world.root / "release.pub.pem"), Path(registry.environment["SSL_CERT_FILE"]).parent
    killed = []
    monkeypatch.setenv("TMPDIR", str(world.root))  # what the killed leave behind
    for step in range(1, 100):
        name, killer = f"killed-{kind.strip('/')}-{step}", Killer(kind, step)
        with standing(registry, world.root, killer):
            for variable, value in environment(folder, registry.host, killer.host).items():
                monkeypatch.setenv(variable, value)
            there = replace(world, host=killer.host)
            with started(there, f"{name}:1.0") as publisher:
                killer.victim = publisher.pid
                _, said = publisher.communicate(timeout=120)
            if publisher.returncode == 0:
                break
            assert publisher.returncode == -signal.SIGKILL, said
            killed.append(killer.killed.rpartition("/")[2])
            # The release's tag comes last but one: it is there only where the moving one is all that is missing.
            assert floating_tags.digest_of(world.name(f"{name}:latest")) is None
            if floating_tags.digest_of(world.name(f"{name}:1.0")) is not None:
                assert killed[-1] == "latest"
                assert verify.verify(world.name(f"{name}:1.0"), world.stack, key).holds
            killer.left = 10**6
            there.publish(f"{name}:1.0", world.root / "v.json", moves=("latest",))
        report = verify.verify(world.name(f"{name}:1.0"), world.stack, key)
        assert report.holds, report.problems
        assert (len(report.claims.statements), report.claims.bundled, report.claims.earlier) == (4, 4, 4)
        assert listed(world, name, digest) == 4, "something is listed twice, or not at all"
        assert not (world.layout.parent / ".read-back").exists()
        assert floating_tags.digest_of(world.name(f"{name}:latest")) == report.image.digest == digest
    assert publisher.returncode == 0
    if kind == "/manifests/":  # the image, what is attested, their index and its tag
        assert killed[-2:] == ["1.0", "latest"]
        assert len(killed) > 4
    else:  # four envelopes and their empty configuration; the image's blobs may be had from another repository of the registry
        assert len(killed) > 4
