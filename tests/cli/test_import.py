# SPDX-License-Identifier: Apache-2.0
"""`stack import`: what it prints, its exit codes, and what it leaves."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from stack.cli import cli
from stack.model import stack as stacks
from stack.store import git

from ..carry.importing.conftest import FILES, Project, project, tls, web
from ..documented import keys, verb

__all__ = ["project"]


@pytest.fixture
def imported(project: Project, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run `stack import ARGS` in an empty folder."""
    (project.place / "here").mkdir()
    monkeypatch.chdir(project.place / "here")

    def run(*args: object) -> Result:
        options = ["--root", str(project.root), "--cache", str(project.place / "cache"), "import"]
        return CliRunner().invoke(cli, [*options, *map(str, args)])

    return run


@pytest.fixture
def folder(project: Project) -> Path:
    """Two patches; one of them does not apply."""
    (project.place / "fixes").mkdir()
    (project.place / "fixes/good.patch").write_text(
        "--- a/Makefile\n+++ b/Makefile\n@@ -1,2 +1,2 @@\n-all:\n+all: web\n \ttrue\n"
    )
    (project.place / "fixes/wrong.patch").write_text(
        "--- a/Makefile\n+++ b/Makefile\n@@ -1,2 +1,2 @@\n-none:\n+all: web\n \ttrue\n"
    )
    return project.place / "fixes"


def test_the_rest_is_left_in_a_folder(project: Project, folder: Path, imported: Any) -> None:
    ran = imported(folder)
    assert ran.exit_code == 1
    lines = ran.output.splitlines()
    assert lines[0] == "fixes: 1 patch"
    assert lines[-2:] == ["1 imported in 1 series, 1 does not apply", "no triage: release-1.1.0 is the newest release"]
    assert "    Makefile:1: the lines that it changes are not there" in lines
    left = Path("fixes-not-imported")
    assert (left / "wrong.patch").read_bytes() == (folder / "wrong.patch").read_bytes()
    assert project.series() == {"fixes": ["web/good.patch"]}
    again = imported(folder).output.splitlines()
    assert again[:2] == ["in the stack already:", "  good.patch: as fixes/web/good.patch"]
    assert [path.name for path in Path().iterdir()] == ["fixes-not-imported"]  # nothing else was left than before
    (left / "wrong.patch").write_text("a person's work\n")
    assert imported(folder, "--json").exit_code == 1
    assert (left / "wrong.patch").read_text() == "a person's work\n"
    assert (Path("fixes-not-imported-2") / "wrong.patch").read_bytes() == (folder / "wrong.patch").read_bytes()


def test_what_is_left_keeps_its_name_and_git_ignores_it(project: Project, folder: Path, imported: Any) -> None:
    (folder / "sub").mkdir()
    (folder / "wrong.patch").rename(folder / "sub/0007-CVE-2024-1.diff")
    git.run(["init", "--quiet", "."])
    assert imported(folder).exit_code == 1
    assert Path("fixes-not-imported/sub/0007-CVE-2024-1.diff").is_file()
    assert git.text(["status", "--porcelain"]) == ""


def test_what_is_left_can_be_imported_from_there(project: Project, folder: Path, imported: Any) -> None:
    assert imported(folder).exit_code == 1
    left = Path("fixes-not-imported/wrong.patch")
    left.write_text(left.read_text().replace("-none:", "-all: web").replace("+all: web", "+all: web tls"))
    assert imported(left.parent, "--series", "fixes").exit_code == 0
    assert project.series() == {"fixes": ["web/good.patch", "web/wrong.patch"]}


def test_all_or_nothing_and_dry_run(project: Project, folder: Path, imported: Any) -> None:
    refused = imported(folder, "--all-or-nothing")
    assert refused.exit_code == 1
    assert refused.output.splitlines()[-2].startswith("nothing was imported, 1 does not apply: leave --all-or-nothing")
    (folder / "wrong.patch").unlink()
    dry = imported(folder, "--dry-run", "--series", "other")
    assert dry.exit_code == 0
    assert "dry run: nothing was written" in dry.output
    assert project.series() == {}
    assert not list(Path().iterdir())


def test_json(project: Project, folder: Path, imported: Any) -> None:
    ran = imported(folder, "--json")
    found = json.loads(ran.output)
    assert ran.exit_code == 1
    assert (found["written"], found["directory"]) == (True, "fixes-not-imported")
    assert [one["file"] for one in found["imported"]] == ["web/good.patch"]
    assert keys(found) - {"fixes"} == verb("import")


def test_a_report_shows_the_triage(project: Project, imported: Any) -> None:
    project.pin("release-1.0.0")
    project.clone.git("checkout", "--quiet", "-b", "early", "release-1.0.0")
    project.clone.commit({"src/web.c": FILES["src/web.c"].replace(b"web 100\n", b"release\n")}, "Landed")
    ran = imported(project.clone.path, "early", "--report", "r.json")
    assert ran.exit_code == 0
    found = json.loads(Path("r.json").read_text())
    [ladder] = found["ladders"]
    assert ladder["releases"] == ["release-1.1.0"]
    assert [row["outcome"] for row in ladder["rows"]] == ["landed"]
    assert found["title"].startswith("Import of early")
    assert "leave --no-triage out" in imported(project.clone.path, "early", "--report", "r.md", "--no-triage").output


def test_triage_in_the_last_line(project: Project, imported: Any) -> None:
    project.pin("release-1.0.0")
    project.clone.git("checkout", "--quiet", "-b", "early", "release-1.0.0")
    project.clone.commit({"src/web.c": FILES["src/web.c"].replace(b"web 100\n", b"release\n")}, "Landed")
    project.clone.commit(tls({10: "x"}), "Ours")
    ran = imported(project.clone.path, "early")
    assert ran.exit_code == 0, ran
    assert ran.output.splitlines()[-3:] == [
        "2 imported in 1 series",
        "1 has landed in release-1.1.0",
        "next: stack rebase web --onto release-1.1.0 --dry-run",
    ]
    assert max(map(len, ran.output.splitlines())) <= 80
    again = imported(project.clone.path, "early", "--no-triage")
    assert again.output.splitlines()[-1] == "0 imported in 0 series, 2 in the stack already"


def test_editor(project: Project, imported: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    project.clone.commit(web({10: "x"}), "One")
    monkeypatch.setattr(click, "edit", lambda text, extension: text.replace("mine  ", "chosen  "))
    assert imported(project.clone.path, "mine", "--edit", "--no-triage").exit_code == 0
    assert [one.name for one in stacks.load(project.root).series] == ["chosen"]


def test_the_editor_orders_patches(project: Project, imported: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, files in (("one", web({10: "x"})), ("two", web({10: "y"})), ("three", tls({10: "x"})), ("four", {"new": b"new"})):
        project.clone.commit(files, name)

    def reverse(text: str, extension: str) -> str:
        lines = text.splitlines()
        return "\n".join([*lines[:2], *reversed(lines[2:])])

    monkeypatch.setattr(click, "edit", reverse)
    ran = imported(project.clone.path, "mine", "--edit", "--no-triage")
    assert ran.exit_code == 0, ran
    assert "note: 'two' stays after 'one': they do not commute" in ran.output.splitlines()
    assert project.series() == {"mine": ["web/four.patch", "web/three.patch", "web/one.patch", "web/two.patch"]}
    assert project.tip() == project.head()
    # Patches in an unchanged order give no note.
    project.clone.commit(web({10: "z"}), "five")
    monkeypatch.setattr(click, "edit", lambda text, extension: text)
    assert "note:" not in imported(project.clone.path, "mine", "--edit", "--no-triage").output


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((), "name what to import"),
        (("nowhere",), "nowhere does not exist"),
        (("nowhere", "--by", "x"), "--by 'x' is not a rule"),
        (("nowhere", "--series", "No"), None),
        (("nowhere", "--upstream", "other"), "unknown upstream"),
    ],
)
def test_wrong_usage(project: Project, imported: Any, args: tuple[str, ...], text: str | None) -> None:
    ran = imported(*args)
    assert ran.exit_code != 0
    assert text is None or text in str(ran.exception) + ran.output
    assert project.series() == {}
