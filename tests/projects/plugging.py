# SPDX-License-Identifier: Apache-2.0
"""Install project plug-ins as pip leaves them: a module and a dist-info folder on the search path."""

from pathlib import Path

import pytest

from stack.projects import known

OURS = "git-carry"
"""The distribution that declares the plug-in for vLLM."""


def install(site: Path, monkeypatch: pytest.MonkeyPatch, name: str, entries: str = "", module: str = "") -> Path:
    """Install a distribution that shadows another one of the same name; return its file of entry points."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entries)
    if module:
        (site / f"{name.replace('-', '_')}.py").write_text(module)
    monkeypatch.syspath_prepend(site)
    known.forget()
    return info / "entry_points.txt"


def entry(name: str, value: str) -> str:
    return f"[{known.GROUP}]\n{name} = {value}\n"
