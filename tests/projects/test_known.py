# SPDX-License-Identifier: Apache-2.0
"""Another kind of project, by an installed package: a C project that states in CMake which release of another one it needs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry.lint import lint
from stack.carry.rebase import Conclusion, Request, conclude, rebase
from stack.carry.upstream_stores import Place, Stores
from stack.model import stack as stacks
from stack.projects import known as projects

from ..store.factories import Remote
from .plugging import entry, install

PLUGIN = r"""
import re
from stack.projects import Project, Required

class CMake(Project):
    def required(self, read):
        text = (read("CMakeLists.txt") or b"").decode("utf-8", "replace")
        for name, version in re.findall(r"find_package\((\w+) ([\d.]+) EXACT", text):
            yield Required(name, version, "CMakeLists.txt")

class Broken(Project):
    def required(self, read):
        return [1 / 0]

project, broken = CMake(), Broken()
"""


def cmake(version: str) -> dict[str, bytes]:
    return {"CMakeLists.txt": f"project(app C)\nfind_package(Lib {version} EXACT REQUIRED)\n".encode()}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with an entry point; a test writes which object it names."""
    yield install(tmp_path / "site", monkeypatch, "cmake-for-stack", module=PLUGIN)
    projects.forget()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A stack on two projects in git: `app` 2.0 needs `lib` 1.1, in 1.0 it needs 1.0."""
    app, lib = Remote(tmp_path / "app"), Remote(tmp_path / "lib")
    commits = {
        "app": [app.commit(cmake("1.0"))],
        "lib": [lib.commit({"lib.c": b"1\n"})],
    }
    app.tag("app-1.0")
    lib.tag("release-1.0")
    app.commit(cmake("1.1"), "Need more")
    app.tag("app-2.0")
    lib.commit({"lib.c": b"2\n"}, "Do more")
    lib.tag("release-1.1")
    root = tmp_path / "root"
    (root / "stacks").mkdir(parents=True)
    (root / "stacks/stack.toml").write_text("series = []\n")
    pins = [("app", app.url, "app-1.0"), ("lib", lib.url, "release-1.0")]
    text = "".join(f'[{name}]\ngit = "{url}"\ntag = "{tag}"\ncommit = "{commits[name][0]}"\n' for name, url, tag in pins)
    (root / "pins.toml").write_text(text)
    return root


def test_what_it_requires_moves_along(root: Path, tmp_path: Path, installed: Path) -> None:
    installed.write_text(entry("cmake", "cmake_for_stack:project"))
    with Stores(stacks.load(root), Place(tmp_path / "cache")) as stores:
        assert lint(stores) == ()
        alone = rebase(stores, Request("app", "app-2.0"))
        assert [need.sentence(stores.stack.pins.get("lib")) for need in alone.unmet] == [
            "app app-2.0 names Lib==1.1 (CMakeLists.txt), the pin is release-1.0"
        ]
        assert conclude(alone) is Conclusion.MISMATCH
        assert conclude(rebase(stores, Request("app", "app-2.0", with_required=True))) is Conclusion.SWITCHED
    assert [pin.tag for pin in stacks.load(root).pins] == ["app-2.0", "release-1.1"]


def test_without_it_nothing_is_required(root: Path, tmp_path: Path) -> None:
    projects.forget()
    with Stores(stacks.load(root), Place(tmp_path / "cache")) as stores:
        assert rebase(stores, Request("app", "app-2.0")).unmet == ()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("no_such_module:project", r"cmake = no_such_module:project of stack\.plugins cannot be loaded \(No module named"),
        ("cmake_for_stack:PLUGIN", "cannot be loaded"),
        ("cmake_for_stack:CMake", "is no project: it has to be an object"),
        ("cmake_for_stack:re", "is no project: it has to be an object"),
        ("cmake_for_stack:broken", r"the project plug-in Broken failed \(ZeroDivisionError"),
    ],
)
def test_a_package_that_does_not_work_is_named(root: Path, tmp_path: Path, installed: Path, value: str, said: str) -> None:
    installed.write_text(entry("cmake", value))
    with Stores(stacks.load(root), Place(tmp_path / "cache")) as stores, pytest.raises(StackError, match=said):
        rebase(stores, Request("app", "app-2.0"))


def test_nothing_is_loaded_from_the_stack(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (root, root / "plugins"):
        info = folder / "evil-1.dist-info"
        info.mkdir(parents=True)
        (folder / "evil.py").write_text("raise SystemExit('taken over')\n")
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[{projects.GROUP}]\nevil = evil:project\n")
    monkeypatch.chdir(root)
    projects.forget()
    with Stores(stacks.load(root), Place(tmp_path / "cache")) as stores:
        assert rebase(stores, Request("app", "app-2.0")).unmet == ()
