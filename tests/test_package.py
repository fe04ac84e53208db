# SPDX-License-Identifier: Apache-2.0
"""The wheel of this project in an environment of its own: commands, data and types, without the checkout."""

import configparser
import subprocess
import sys
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from stack.model.stack import load
from stack.projects import Project, known
from stack.store import git

ROOT = Path(__file__).parents[1]
PROGRAM = """
from stack.carry.triage import Range

span: Range = Range("v1", "v2", ("v1.5",))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(next(iter(WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel"))))))


def test_one_package_with_its_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"stack", f"{wheel.name.split('-py3')[0]}.dist-info"}
    data = {"stack/data/gates.toml", "stack/data/recipes/cpu-fp32.toml", "stack/data/texts/almanac.txt"}
    schemas = {f"stack/cli/schemas/{name}.json" for name in ("status", "common", "files/pins.toml")}
    assert {"stack/py.typed"} | data | schemas <= {*names}
    assert any(name.endswith("/LICENSE") for name in names)
    assert [name for name in names if name.endswith(".log") or "__pycache__" in name or "verdicts/archive" in name] == []


def test_it_declares_the_plug_in_that_our_stack_names(wheel: Path) -> None:
    declared = configparser.ConfigParser(delimiters="=")
    with zipfile.ZipFile(wheel) as archive:
        [place] = [name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt")]
        declared.read_string(archive.read(place).decode())
    plugins = dict(declared[known.GROUP])
    assert [*plugins] == [*load(ROOT).plugins]
    for name, value in plugins.items():
        assert isinstance(EntryPoint(name, value, known.GROUP).load(), Project)


@pytest.mark.images
def test_it_works_where_nothing_else_is(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}", "mypy"]
    subprocess.run(install, check=True, cwd=tmp_path)

    def stack(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [tmp_path / "venv/bin/stack", "--cache", tmp_path / "cache", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert "Try patches on another revision" in stack("--help").stdout
    assert "gpt-oss-120b-spark" in stack("recipe", "list").stdout
    repository = tmp_path / "upstream"
    author = {f"GIT_{who}_{what}": "ada@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    git.run(["init", "-q", str(repository)])
    lines = "".join(f"line {number}\n" for number in range(20))
    for tag, text in (("v1", lines), ("v2", f"above\n{lines}"), ("mine", f"{lines}mine\n")):
        if tag == "mine":
            git.run(["checkout", "-q", "v1"], cwd=repository)
        (repository / "file").write_text(text)
        git.run(["add", "."], cwd=repository)
        git.run(["commit", "-q", "-m", f"Make {tag}"], cwd=repository, env=author)
        git.run(["tag", tag], cwd=repository)
    git.run(["format-patch", "-q", "-1", "--full-index", "-o", str(tmp_path)], cwd=repository)
    done = stack("triage", "--repo", "upstream", "--base", "v1", "--onto", "v2", "0001-Make-mine.patch")
    assert (done.returncode, "moved" in done.stdout) == (0, True)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    typed = [python, "-m", "mypy", "--strict", "program.py"]
    assert subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=False).returncode == 0
    program.write_text(PROGRAM.replace('"v1.5"', "1.5"))
    assert subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=False).returncode == 1
