# SPDX-License-Identifier: Apache-2.0
"""Bills of materials of an image (CycloneDX 1.6): its Debian packages, and its Python packages with their hashes."""

import json
import tempfile
import uuid
from datetime import UTC, datetime
from pathlib import Path

from stack.images import tools
from stack.images.system import System

_VERSION = "1.6"
_NAMESPACE = uuid.UUID("5a2f3d5e-7b7c-4c39-9d3a-6a1d1c0f8e44")
"""Namespace of serial numbers: equal contents have equal serial numbers."""


def system(system: System, time: int, programs: Path) -> bytes:
    """List the Debian packages of an image; `time` (seconds since 1970) is the document's time.

    Raises:
        StackError: debsbom failed.

    """
    serial = uuid.uuid5(_NAMESPACE, system.status)
    with tempfile.TemporaryDirectory(prefix="stack-sbom-") as place:
        root = Path(place)
        for path, text in (("var/lib/dpkg/status", system.status), ("etc/os-release", system.release)):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        vendor = "ubuntu" if "ID=ubuntu" in system.release.splitlines() else "debian"
        tools.run(
            programs / "debsbom",
            *("generate", "--sbom-type=cdx", f"--cdx-schema-version={_VERSION}", f"--cdx-serialnumber={serial}"),
            *(f"--timestamp={datetime.fromtimestamp(time, UTC).isoformat()}", f"--base-distro-vendor={vendor}"),
            *(f"--distro-arch={system.architecture}", f"--root={root}", f"--out={root / 'system'}"),
        )
        return _steady((root / "system.cdx.json").read_bytes())


def python(requirements: Path, programs: Path) -> bytes:
    """List the Python packages of a lock, with the hashes of their files.

    Raises:
        StackError: the lock cannot be read.

    """
    document = tools.run(
        programs / "cyclonedx-py",
        *("requirements", f"--spec-version={_VERSION}", "--output-reproducible", "--short-PURLs", str(requirements)),
    )
    return _steady(document.encode())


def _steady(document: bytes) -> bytes:
    """Encode a document so that equal documents give equal bytes."""
    return (json.dumps(json.loads(document), indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
