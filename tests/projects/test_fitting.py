# SPDX-License-Identifier: Apache-2.0
"""`stack init` and `stack import` name the installed plug-ins that know the upstream; none is ever taken from a checkout."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stack.carry import fitting_plugins
from stack.cli import cli
from stack.model import new_stack, switch
from stack.model.stack import load
from stack.projects import known

from ..store.factories import Remote
from .plugging import OURS, entry, install

FERRY = """
from stack.projects import Owner, Project


class Ferry(Project):
    def owners(self):
        return (Owner("FERRY_", "ferry", marks=("src/ferry.rs",), sources=("*.rs",)),)


class Broken(Project):
    def owners(self):
        raise RuntimeError("on purpose")


project = Ferry()
broken = Broken()
"""
ENTRIES = entry("ferry", "ferry_for_stack:project") + "broken = ferry_for_stack:broken\nmissing = nowhere:project\n"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Forget the list of installed plug-ins, which a process keeps."""
    known.forget()
    yield
    known.forget()


@pytest.fixture
def ferry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch, "ferry-for-stack", ENTRIES, FERRY)


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    made = Remote(tmp_path / "ferry")
    made.commit({"src/ferry.rs": b"fn main() {}\n", "a.txt": b"one\n"}, "One")
    made.tag("v1.0")
    return made


def run(tmp_path: Path, *args: str) -> Result:
    (tmp_path / "stack").mkdir(exist_ok=True)
    return CliRunner().invoke(cli, ["--root", str(tmp_path / "stack"), "--cache", str(tmp_path / "cache"), *args])


@pytest.mark.usefixtures("ferry")
def test_init_names_what_fits_and_nothing_else(remote: Remote, tmp_path: Path) -> None:
    begun = run(tmp_path, "init", "--git", remote.url, "--json")
    assert json.loads(begun.stdout)["plugins"] == ["ferry"]
    text = (tmp_path / "stack/stacks/stack.toml").read_text()
    assert text == '# The series in the order in which they apply.\nseries = []\nplugins = ["ferry"]\n'
    plain = Remote(tmp_path / "plain")
    plain.commit({"main.c": b"int a;\n"}, "One")
    plain.tag("v1.0")
    added = run(tmp_path, "init", "--git", plain.url, "--json")
    assert json.loads(added.stdout)["plugins"] == []
    assert (tmp_path / "stack/stacks/stack.toml").read_text() == text


@pytest.mark.usefixtures("ferry")
def test_a_second_upstream_brings_its_plugin_and_undo_takes_it_back(remote: Remote, tmp_path: Path) -> None:
    plain = Remote(tmp_path / "plain")
    plain.commit({"main.c": b"int a;\n"}, "One")
    plain.tag("v1.0")
    assert "plug-in" not in run(tmp_path, "init", "--git", plain.url).output
    said = run(tmp_path, "init", "--git", remote.url).output
    assert "stacks/stack.toml names the plug-in ferry, which knows ferry\n" in said
    assert load(tmp_path / "stack").plugins == ("ferry",)
    switch.undo(tmp_path / "stack")
    assert (load(tmp_path / "stack").plugins, load(tmp_path / "stack").pins.names()) == ((), ("plain",))


def test_import_names_what_was_installed_later(remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known.forget()
    assert json.loads(run(tmp_path, "init", "--git", remote.url, "--json").stdout)["plugins"] == []
    install(tmp_path / "site", monkeypatch, "ferry-for-stack", ENTRIES, FERRY)
    patch = tmp_path / "fix.patch"
    patch.write_text("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n")
    said = run(tmp_path, "import", str(patch), "--series", "mine", "--no-triage")
    assert said.exit_code == 0, said.output
    assert "note: stacks/stack.toml names ferry now: the plug-in knows ferry\n" in said.output
    loaded = load(tmp_path / "stack")
    assert (loaded.plugins, [one.name for one in loaded.series]) == (("ferry",), ["mine"])
    known.forget()
    again = run(tmp_path, "import", str(patch), "--series", "mine", "--no-triage", "--json")
    assert json.loads(again.stdout)["plugins"] == []


@pytest.mark.parametrize(
    ("text", "names", "after"),
    [
        ('series = [\n  "a",\n]\n\n[lint]\nproof = "optional"\n', ("x",), ("x",)),
        ('plugins = ["x"] # why\nseries = []\n', ("x", "y"), ("x", "y")),
        ("plugins = []\nseries = []\n[lint]\n", ("x",), ("x",)),
        ('series = []\nplugins = [\n  "x", # one\n]\n', ("y",), ("x", "y")),
    ],
)
def test_the_list_is_written_where_it_counts(text: str, names: tuple[str, ...], after: tuple[str, ...], tmp_path: Path) -> None:
    written = new_stack.with_plugins(text, names)
    before, found = tomllib.loads(text), tomllib.loads(written)
    assert tuple(found["plugins"]) == after
    assert {key: value for key, value in found.items() if key != "plugins"} == {
        key: value for key, value in before.items() if key != "plugins"
    }
    assert written.count("#") == text.count("#")
    assert new_stack.with_plugins(written, names) == written


EVIL = """
from pathlib import Path

Path({trace!r}).touch()
project = None
"""


@pytest.mark.parametrize("inside", ["", "plugins", "stacks", ".stack", "stacks/plugins"])
def test_a_plugin_of_a_checkout_is_never_loaded(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    """Neither by its name in stack.toml, nor because the command runs in the folder that has it."""
    assert run(tmp_path, "init", "--git", remote.url).exit_code == 0
    root, trace = tmp_path / "stack", tmp_path / "ran"
    place = root / inside
    info = place / "evil-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry("evil", "evil:project"))
    for name in ("evil", "stack_plugins", "sitecustomize", "conftest", "setup"):
        (place / f"{name}.py").write_text(EVIL.format(trace=str(trace)))
    (root / "stacks/stack.toml").write_text('series = []\nplugins = ["evil"]\n')
    monkeypatch.chdir(root)
    known.forget()
    said = run(tmp_path, "check")
    assert "names the plug-in 'evil', which is not installed" in str(said.exception)
    for verb in (("status",), ("pins", "show"), ("init", "--git", remote.url, "--tag", "v1.0"), ("lint",), ("log",)):
        run(tmp_path, *verb)
    # As its own process, which Python may start with the current folder on the path of modules.
    for command in ([sys.executable, "-m", "stack", "status"], [sys.executable, "-m", "stack", "check"]):
        subprocess.run([*command, "--root", str(root)], cwd=root, capture_output=True, check=False, text=True)
    assert not trace.exists()


def test_ours_fits_vllm_and_flashinfer_only() -> None:
    known.forget()
    if "vllm" not in known.names():
        pytest.skip(f"{OURS} is not installed")
    for mark, fits in (("vllm/envs.py", True), ("flashinfer/jit/core.py", True), ("src/main.c", False)):
        assert ("vllm" in known.fitting({mark: b""}.get)) == fits
    assert fitting_plugins.PATH == "stacks/stack.toml"
