# SPDX-License-Identifier: Apache-2.0
"""A disk that is full while a verb writes: the stack stays as it was, and one line says what to do."""

import os
import re
import subprocess

import pytest

from .. import forked
from ..carry.importing.conftest import Project, project, tls, web
from .conftest import NO_BYTECODE

__all__ = ["project"]

BLOCK = 4096


def stack(project: Project, most: int | None, *args: object) -> subprocess.CompletedProcess[str]:
    """Run stack; `most` limits the bytes of each file that it writes, as a disk does that is almost full."""
    options = ["--root", str(project.root), "--cache", str(project.place / "cache")]
    who = NO_BYTECODE | {"GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "Me"}
    mail = {"GIT_CONFIG_KEY_1": "user.email", "GIT_CONFIG_VALUE_1": "me@example.org"}
    return forked.run([*options, *args], cwd=project.place / "here", env=os.environ | who | mail, largest=most)


@pytest.fixture
def there(project: Project) -> dict[str, bytes]:
    """A stack with two patches; its files."""
    (project.place / "here").mkdir()
    project.clone.commit(web({10: "x" * BLOCK}), "One")
    project.clone.commit(tls({10: "x"}), "Two")
    assert stack(project, None, "import", project.clone.path, "mine", "--no-triage").returncode == 0
    return files(project)


def files(project: Project) -> dict[str, bytes]:
    found = {path.relative_to(project.root): path for path in project.root.rglob("*") if path.is_file()}
    return {str(name): path.read_bytes() for name, path in found.items() if name.parts[0] != ".stack"}


@pytest.mark.parametrize("args", [("refresh", "web", "--signoff"), ("undo",)], ids=lambda args: args[0])
def test_the_stack_stays_as_it_was(project: Project, there: dict[str, bytes], args: tuple[str, ...]) -> None:
    for most in (0, 100, BLOCK // 2):
        ran = stack(project, most, *args)
        assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1), ran
        assert "Traceback" not in ran.stderr
        assert files(project) == there
    assert stack(project, None, *args).returncode == 0
    assert files(project) != there


def test_an_import_that_cannot_leave_the_rest_imports_nothing(project: Project, there: dict[str, bytes]) -> None:
    fixes = project.place / "fixes"
    fixes.mkdir()
    (fixes / "good.patch").write_text("--- a/Makefile\n+++ b/Makefile\n@@ -1,2 +1,2 @@\n-all:\n+all: web\n \ttrue\n")
    wrong = "--- a/Makefile\n+++ b/Makefile\n@@ -1 +1 @@\n-none\n+{}\n".format("x" * 64 * BLOCK)
    (fixes / "wrong.patch").write_text(wrong)
    ran = stack(project, 32 * BLOCK, "import", fixes, "--no-triage")
    assert ran.returncode == 2, ran
    assert ran.stderr == "stack: fixes-not-imported cannot be written (File too large): free disk space or check its rights\n"
    assert files(project) == there
    assert list((project.place / "here").iterdir()) == []
    assert stack(project, None, "import", fixes, "--no-triage").returncode == 1
    assert (project.place / "here/fixes-not-imported/wrong.patch").read_text() == wrong


def test_an_export_leaves_nothing(project: Project, there: dict[str, bytes]) -> None:
    out = project.place / "here/out"
    ran = stack(project, BLOCK, "export", "web", "--quilt", out)
    assert ran.returncode == 2, ran
    assert re.fullmatch(r"stack: \S+ cannot be written \(File too large\): free disk space or check its rights\n", ran.stderr)
    assert list(out.parent.iterdir()) == []
    assert files(project) == there
