# SPDX-License-Identifier: Apache-2.0
"""Save a built image as an OCI layout, without the engine's own data, so that two builds give the same image."""

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
"""Docker's manifest type: with OCI's, podman ignores the health check."""
_OF_THE_ENGINE = ("container", "container_config", "docker_version", "id", "parent")
_OF_THE_STORAGE = ("Hostname", "Image")
TAG = "built"


def save(engine: Engine, image: str, target: Path, files: Mapping[str, bytes]) -> str:
    """Write an image as an OCI layout with further files, in one step, and return its digest.

    Raises:
        StackError: the target exists and is not a layout, or cannot be written.

    """
    if target.exists() and not (target / "oci-layout").is_file():
        raise StackError(f"{target} exists and is not an OCI layout", "name another folder in --output")
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
    """Make an OCI layout of an image's files, and return the manifest's digest."""
    blobs = made / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    manifest = json.loads((plain / "manifest.json").read_bytes())
    for layer in manifest["layers"]:
        name = layer["digest"].removeprefix("sha256:")
        if not (blobs / name).exists():
            shutil.move(plain / name, blobs / name)
    config = json.loads((plain / manifest["config"]["digest"].removeprefix("sha256:")).read_bytes())
    described = layout.put(made, layout.encode(_steady(config)), manifest["config"]["mediaType"])
    manifest_descriptor = layout.put(made, layout.encode({**manifest, "config": described}), MANIFEST)
    platform = {"architecture": config["architecture"], "os": config["os"]}
    layout.finish(made, {TAG: {**manifest_descriptor, "platform": platform}})
    for path in made.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return str(manifest_descriptor["digest"])


def _steady(config: Mapping[str, Any]) -> dict[str, Any]:
    """Remove container ids and storage names from a configuration."""
    own = {name: value for name, value in config.items() if name not in _OF_THE_ENGINE}
    own["config"] = {name: value for name, value in config["config"].items() if name not in _OF_THE_STORAGE}
    own["history"] = [{name: value for name, value in step.items() if name != "comment"} for step in config.get("history", ())]
    return own
