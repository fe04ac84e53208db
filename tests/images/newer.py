# SPDX-License-Identifier: Apache-2.0
"""Programs of newer Debian suites, on the mirror that the machine's apt uses: unpacked into the cache, never into the system.

apt itself fetches it, with lists and sources of its own, so that signatures and hashes are checked as they always are.
"""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from stack.store import cache

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SOURCE = "Types: deb\nURIs: {site}\nSuites: {suite}\nComponents: main\nSigned-By: {keyring}\n"


def program(package: str, suite: str = "trixie") -> Path:
    """The folder of an unpacked package; without it the test is skipped, with STACK_CI=1 it fails."""
    target = cache.root() / "images" / f"{package}-{suite}"
    with cache.lock(target):
        if not target.exists():
            try:
                _unpack(package, suite, target)
            except (OSError, subprocess.CalledProcessError, LookupError) as failed:
                _missing(package, suite, failed)
    return target


def _unpack(package: str, suite: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{package}-", dir=target.parent) as name:
        folder = Path(name)
        for place in ("lists/partial", "cache/archives/partial", "new"):
            (folder / place).mkdir(parents=True)
        (folder / "newer.sources").write_text(_SOURCE.format(site=_site(), suite=suite, keyring=_KEYRING))
        own = {
            "Dir::Etc::SourceList": folder / "newer.sources",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State::Lists": folder / "lists",
            "Dir::Cache": folder / "cache",
            "Acquire::Languages": "none",
            "APT::Sandbox::User": "root",
        }
        options = [part for key, value in own.items() for part in ("-o", f"{key}={value}")]
        for step in ("update", "download"):
            what = [package] if step == "download" else []
            subprocess.run(["apt-get", *options, "-qq", step, *what], cwd=folder, check=True, capture_output=True)
        (file,) = folder.glob(f"{package}_*.deb")
        subprocess.run(["dpkg", "-x", file, folder / "new"], check=True, capture_output=True)
        (folder / "new").rename(target)


def _site() -> str:
    """The mirror of the machine's own suite."""
    targets = [
        "apt-get",
        "indextargets",
        "--format",
        "$(SITE) $(COMPONENT) $(TRUSTED)",
        "Created-By: Packages",
        "Label: Debian",
    ]
    lines = subprocess.run(targets, check=True, capture_output=True, text=True).stdout.splitlines()
    return next(line.split()[0] for line in lines if line.split()[1:2] == ["main"])


def _missing(package: str, suite: str, failed: Exception) -> None:
    how = "`apt-get update` as root may help"
    said = f"{package} is not to be had from Debian's {suite} by this machine's apt ({type(failed).__name__}); {how}"
    if os.environ.get("STACK_CI") == "1":
        pytest.fail(said, pytrace=False)
    pytest.skip(said)
