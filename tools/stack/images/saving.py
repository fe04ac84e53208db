# SPDX-License-Identifier: Apache-2.0
"""A built image as an OCI layout: what an engine says of itself and of its storage is left out, so that two builds are one image."""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.images import layout
from stack.images.engine import Engine
from stack.store import cache

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
"""Docker's own kind: with OCI's, podman passes over the health check."""
_OF_THE_ENGINE = ("container", "container_config", "docker_version", "id", "parent")
_OF_THE_STORAGE = ("Hostname", "Image")
TAG = "built"


def save(engine: Engine, image: str, target: Path, files: Mapping[str, bytes]) -> str:
    """Write an image as an OCI layout with further files beside its own, at once; returns its digest.

    Raises:
        StackError: something else lies there, or it cannot be written.

    """
    if target.exists() and not (target / "oci-layout").is_file():
        raise StackError(f"{target} is there and is no OCI layout", "name another folder in --output")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as place:
        plain, made = Path(place) / "plain", Path(place) / "layout"
        engine.save(image, plain)
        digest = _layout(plain, made)
        for name, data in files.items():
            cache.put(made / name, data)
        if target.exists():
            target.rename(Path(place) / "old")
        made.rename(target)
    return digest


def _layout(plain: Path, made: Path) -> str:
    """An OCI layout of an image's files; its digest."""
    blobs = made / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    manifest = json.loads((plain / "manifest.json").read_bytes())
    for one in manifest["layers"]:
        name = one["digest"].removeprefix("sha256:")
        if not (blobs / name).exists():
            shutil.move(plain / name, blobs / name)
    config = json.loads((plain / manifest["config"]["digest"].removeprefix("sha256:")).read_bytes())
    described = layout.put(made, layout.encode(_steady(config)), manifest["config"]["mediaType"])
    found = layout.put(made, layout.encode({**manifest, "config": described}), MANIFEST)
    platform = {"architecture": config["architecture"], "os": config["os"]}
    layout.finish(made, {TAG: {**found, "platform": platform}})
    for path in made.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return str(found["digest"])


def _steady(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without the ids of containers and the names of bases in a storage."""
    own = {name: value for name, value in config.items() if name not in _OF_THE_ENGINE}
    own["config"] = {name: value for name, value in config["config"].items() if name not in _OF_THE_STORAGE}
    own["history"] = [{name: value for name, value in one.items() if name != "comment"} for one in config.get("history", ())]
    return own
