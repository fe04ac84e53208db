# SPDX-License-Identifier: Apache-2.0
"""kill -9 at every step: the publisher, with all that it has started, dies before each thing that it would write."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stack.images import envelope, moving, verify

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
        "allowed_signers",
        "--key",
        "release.pem",
        "--move",
        "latest",
    ]
    command = [sys.executable, "-c", SCRIPT, "image", "publish", f"{world.host}/{name}", *options]
    return subprocess.Popen(command, cwd=world.root, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class Killer(Between):
    """Kills a publisher before its write number `last` reaches the registry, or after the last of them all."""

    def __init__(self, last: int) -> None:
        super().__init__(before=self.kill)
        self.left, self.victim = last, 0

    def kill(self, method: str, path: str) -> None:
        if method != "PUT":
            return
        self.left -= 1
        if self.left <= 0:
            if self.left == 0:
                os.killpg(self.victim, signal.SIGKILL)
            raise ConnectionResetError


@pytest.mark.slow
def test_killed_at_any_write_no_tag_lacks_its_attestations(
    world: World, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = world.image()
    world.verdict(digest)
    key, folder = envelope.public(world.root / "release.pub.pem"), Path(registry.environment["SSL_CERT_FILE"]).parent
    incomplete = 0
    monkeypatch.setenv("TMPDIR", str(world.root))  # what the killed leave behind
    for step in range(1, 100):
        name, killer = f"killed-{step}", Killer(step)
        with standing(registry, world.root, killer):
            for variable, value in environment(folder, registry.host, killer.host).items():
                monkeypatch.setenv(variable, value)
            with started(replace(world, host=killer.host), f"{name}:1.0") as publisher:
                killer.victim = publisher.pid
                _, said = publisher.communicate(timeout=120)
        if publisher.returncode == 0:
            break
        assert publisher.returncode == -signal.SIGKILL, said
        for tag in ("1.0", "latest"):
            if moving.digest_of(world.name(f"{name}:{tag}")) is not None:
                assert verify.verify(world.name(f"{name}:{tag}"), world.stack, key).holds
            else:
                incomplete += 1
        world.publish(f"{name}:1.0", world.root / "v.json", moves=("latest",))
        report = verify.verify(world.name(f"{name}:1.0"), world.stack, key)
        assert report.holds, report.problems
        assert not (world.layout.parent / ".read-back").exists()
        assert moving.digest_of(world.name(f"{name}:latest")) == report.image.digest == digest
    # A manifest of the image; four envelopes, their empty configuration, the artifact, an index and a tag; two tags. The image's
    # blobs may be had from another repository of the registry.
    assert publisher.returncode == 0
    assert step > 11
    # The release's tag comes last but one: it was there only where the moving one was all that was missing.
    assert incomplete == 2 * (step - 1) - 1
