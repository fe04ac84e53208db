# SPDX-License-Identifier: Apache-2.0
"""Bills of materials of an image (CycloneDX 1.6): its Debian packages, and its Python packages with their hashes."""

import json
import tempfile
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from stack.images import tools

_VERSION = "1.6"
_NAMESPACE = uuid.UUID("5a2f3d5e-7b7c-4c39-9d3a-6a1d1c0f8e44")
"""Of serial numbers: the same content has the same one."""


def system(ask: Callable[..., str], time: int, programs: Path) -> bytes:
    """The Debian packages of an image; `ask` runs a command in it, `time` (seconds since 1970) is what the document says.

    Raises:
        StackError: it is of no such system.

    """
    status, release = ask("cat", "/var/lib/dpkg/status"), ask("cat", "/etc/os-release")
    serial = uuid.uuid5(_NAMESPACE, status)
    with tempfile.TemporaryDirectory(prefix="stack-sbom-") as place:
        root = Path(place)
        for path, text in (("var/lib/dpkg/status", status), ("etc/os-release", release)):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        vendor = "ubuntu" if "ID=ubuntu" in release.splitlines() else "debian"
        tools.run(
            programs / "debsbom",
            *("generate", "--sbom-type=cdx", f"--cdx-schema-version={_VERSION}", f"--cdx-serialnumber={serial}"),
            *(f"--timestamp={datetime.fromtimestamp(time, UTC).isoformat()}", f"--base-distro-vendor={vendor}"),
            *(f"--distro-arch={ask('dpkg', '--print-architecture').strip()}", f"--root={root}", f"--out={root / 'system'}"),
        )
        return _steady((root / "system.cdx.json").read_bytes())


def python(requirements: Path, programs: Path) -> bytes:
    """The Python packages of a lock, with the hashes of their files.

    Raises:
        StackError: it cannot be read.

    """
    said = tools.run(
        programs / "cyclonedx-py",
        *("requirements", f"--spec-version={_VERSION}", "--output-reproducible", "--short-PURLs", str(requirements)),
    )
    return _steady(said.encode())


def _steady(document: bytes) -> bytes:
    """The same document, always the same bytes."""
    return (json.dumps(json.loads(document), indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
