# SPDX-License-Identifier: Apache-2.0
"""Read which container engine there is, whether it answers, and whether its containers can get the GPU."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stack.owner.readiness import programs

ENGINES = ("docker", "podman")
"""The engines that are known, the preferred one first."""
_DENIED = re.compile(r"permission denied", re.IGNORECASE)
_LARGEST = 4 * 2**20
_KIND = re.compile(r"[\"']?kind[\"']?\s*:\s*[\"']?(nvidia\.com/[\w.-]{1,60})")
_RUN = 120.0
"""Seconds for a container that only lists its GPUs."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """A container engine.

    `name`: docker or podman; empty if there is none. `problem`: why it does not answer; `denied`: this user may not use it. `runtimes`:
    the OCI runtimes that it knows. `devices`: the kinds of NVIDIA devices that the Container Device Interface describes. `toolkit`:
    NVIDIA's container toolkit is installed. `storage`: where images are kept. `seen`: the GPUs that a container listed; `refused`: what
    it said instead; both None if none was tried.
    """

    name: str = ""
    version: str = ""
    problem: str = ""
    denied: bool = False
    runtimes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    toolkit: bool = False
    storage: Path | None = None
    seen: str | None = None
    refused: str | None = None

    @property
    def gives_gpus(self) -> bool:
        """Whether its settings let containers have the GPU: a runtime of NVIDIA's for docker, or a CDI specification."""
        return bool(self.devices) or (self.name == "docker" and any("nvidia" in name for name in self.runtimes))


def read(name: str | None, folders: Sequence[Path]) -> EngineFacts:
    """Ask the engine of that name, or the first that is installed, about itself.

    Args:
        name: docker or podman.
        folders: with specifications of the Container Device Interface, unless the engine names others.

    """
    found = name or next((each for each in ENGINES if shutil.which(each)), "")
    toolkit = shutil.which("nvidia-ctk") is not None
    if not found:
        return EngineFacts(toolkit=toolkit)
    told = programs.run(found, "info", "--format", "{{json .}}" if found == "docker" else "json")
    content = _parsed(told.text)
    facts = _docker(content) if found == "docker" else _podman(content)
    problem = _first_error(content) or told.problem or ("" if content else f"{found} info does not answer with JSON")
    return replace(
        facts,
        name=found,
        problem=problem,
        denied=_DENIED.search(problem) is not None,
        devices=tuple(dict.fromkeys(_kinds(_cdi_folders(content) or folders))),
        toolkit=toolkit,
    )


def tried(facts: EngineFacts, image: str) -> EngineFacts:
    """Start a container of an image that lists its GPUs, and remove it."""
    gpus = ("--gpus", "all") if facts.name == "docker" else ("--device", "nvidia.com/gpu=all")
    command = (
        facts.name,
        "run",
        "--rm",
        "--pull",
        "never",
        "--network",
        "none",
        *gpus,
        "--entrypoint",
        "nvidia-smi",
        image,
        "-L",
    )
    done = programs.run(*command, wait=_RUN)
    first = next((line.split(" (UUID")[0] for line in done.text.splitlines() if line.startswith("GPU ")), "")
    if done.works and first:
        return replace(facts, seen=first)
    return replace(facts, refused=done.problem or "its container lists no GPU")


def _docker(content: Mapping[str, Any]) -> EngineFacts:
    runtimes, root = content.get("Runtimes"), content.get("DockerRootDir")
    return EngineFacts(
        version=str(content.get("ServerVersion") or ""),
        runtimes=tuple(sorted(map(str, runtimes))) if isinstance(runtimes, Mapping) else (),
        storage=Path(root) if isinstance(root, str) and root else None,
    )


def _podman(content: Mapping[str, Any]) -> EngineFacts:
    version, store = content.get("version"), content.get("store")
    root = store.get("graphRoot") if isinstance(store, Mapping) else None
    return EngineFacts(
        version=str(version.get("Version") or "") if isinstance(version, Mapping) else "",
        storage=Path(root) if isinstance(root, str) and root else None,
    )


def _first_error(content: Mapping[str, Any]) -> str:
    """Return why docker's client could not reach its daemon: it exits with 0 all the same."""
    errors = content.get("ServerErrors")
    return " ".join(str(errors[0]).split())[:200] if isinstance(errors, list) and errors else ""


def _cdi_folders(content: Mapping[str, Any]) -> tuple[Path, ...]:
    named = content.get("CDISpecDirs")
    return tuple(Path(each) for each in named if isinstance(each, str)) if isinstance(named, list) else ()


def _kinds(folders: Sequence[Path]) -> Iterator[str]:
    for folder in folders:
        for file in sorted((*folder.glob("*.yaml"), *folder.glob("*.yml"), *folder.glob("*.json"))):
            try:
                with file.open(encoding="utf-8", errors="replace") as opened:
                    text = opened.read(_LARGEST)
            except OSError:
                continue
            yield from _KIND.findall(text)


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
