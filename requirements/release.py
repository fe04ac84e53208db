# SPDX-License-Identifier: Apache-2.0
"""Build what is published of this project: a wheel and a source archive, their bill of materials, and how they were made.

Equal commits give equal bytes: the files have the commit's date, and what differs from the commit is refused.
"""

import argparse
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK = "requirements/dev.txt"
_NAMESPACE = uuid.UUID("0f1c9a52-8f5e-4f0b-9b52-1a35d3a2d0c4")
"""Namespace of the bill's serial number: equal files have equal numbers."""


def main() -> None:
    """Build into the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    if changed := _git("status", "--porcelain"):
        sys.exit(f"release: {changed.splitlines()[0].strip()}: commit it first, so that the commit says what was built")
    import changelog  # noqa: PLC0415 - it lies beside this script, and tests load this one as a module

    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if found := [*changelog.unfit((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)]:
        sys.exit("\n".join(f"release: CHANGELOG.md: {problem}" for problem in found))
    for file in build(folder):
        print(f"{_sha256(file)}  {file}")


def build(folder: Path, root: Path = ROOT) -> list[Path]:
    """Build the checkout into a folder; return the files."""
    os.environ["SOURCE_DATE_EPOCH"] = _git("show", "--no-patch", "--format=%ct", "HEAD", root=root)
    os.environ["HATCH_BUILD_HOOK_ENABLE_CUSTOM"] = "true"
    folder.mkdir(parents=True, exist_ok=True)
    built = [
        Path(path) for make in (WheelBuilder, SdistBuilder) for path in make(str(root)).build(directory=str(folder.resolve()))
    ]
    stem = built[0].name.partition("-py3")[0]
    bill, statement = folder / f"{stem}.cdx.json", folder / f"{stem}.intoto.json"
    bill.write_bytes(_encoded(_bill(built[0], root)))
    statement.write_bytes(_encoded(_statement(built, root)))
    return [*built, bill, statement]


def _bill(wheel: Path, root: Path) -> dict[str, Any]:
    """List the wheel and what it requires, in the versions that the tests run with."""
    name, version = wheel.name.split("-")[:2]
    pinned = _pinned(root)
    own = f"pkg:pypi/{name.replace('_', '-')}@{version}"
    needed = sorted(_needed(name.replace("_", "-")) & {*pinned})
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, _sha256(wheel))}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "purl": own,
                "name": name,
                "version": version,
                "hashes": [{"alg": "SHA-256", "content": _sha256(wheel)}],
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [
            {"type": "library", "bom-ref": url, "purl": url, "name": one, "version": pinned[one]}
            for one in needed
            for url in [f"pkg:pypi/{one}@{pinned[one]}"]
        ],
    }


def _needed(distribution: str) -> set[str]:
    """Name everything that a distribution requires, directly or through others, here."""
    found: set[str] = set()
    waiting = [distribution]
    while waiting:
        for line in importlib.metadata.requires(waiting.pop()) or ():
            requirement = Requirement(line)
            name = canonicalize_name(requirement.name)
            if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
                found.add(name)
                waiting.append(name)
    return found


def _pinned(root: Path) -> dict[str, str]:
    lines = (root / LOCK).read_text(encoding="utf-8").splitlines()
    return dict(line.split(" ")[0].split("==") for line in lines if "==" in line)


def _statement(built: list[Path], root: Path) -> dict[str, Any]:
    """Say in in-toto's form, with SLSA's provenance, from which commit and with which tools the files were built."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": file.name, "digest": {"sha256": _sha256(file)}} for file in built],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:stack:release:1",
                "externalParameters": {"commit": _git("rev-parse", "HEAD", root=root)},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": _git("rev-parse", "HEAD", root=root)}},
                    {"name": LOCK, "digest": {"sha256": _sha256(root / LOCK)}},
                ],
            },
            "runDetails": {
                "builder": {"id": "urn:stack:release", "version": {"hatchling": importlib.metadata.version("hatchling")}}
            },
        },
    }


def _git(*arguments: str, root: Path = ROOT) -> str:
    return subprocess.run(["git", *arguments], cwd=root, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _encoded(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


if __name__ == "__main__":
    main()
