# SPDX-License-Identifier: Apache-2.0
"""`stack wheel inspect`: what a wheel says, and every way in which it can be another than it says."""

import importlib.util
import json
import marshal
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.model import digest
from stack.proof import interpreters
from stack.wheels import inspection, metadata

from ..carry.world import World
from ..cli.conftest import Stack
from .conftest import PUBLISHED
from .factories import wheel


@pytest.fixture
def made(stack: Stack, published: Path, tmp_path: Path) -> Path:
    assert stack("build", "wheels", "gamma", "--platform=x86_64", "--out", tmp_path / "out").code == 0
    [path] = (tmp_path / "out").glob("*.whl")
    return path


def rewritten(path: Path, change: dict[str, bytes | None]) -> Path:
    """A copy of a wheel with members changed, added or (None) left out, and RECORD as it was."""
    other = path.with_name(f"other-{path.name}")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(other, "w") as new:
        content = {name: old.read(name) for name in old.namelist()}
        for name, data in (content | change).items():
            if data is not None:
                new.writestr(name, data)
    return other.replace(path.parent / "changed" / path.name) if (path.parent / "changed").mkdir() is None else other


def test_a_wheel(stack: Stack, world: World, made: Path) -> None:
    ran = stack("wheel", "inspect", made)
    assert ran.code == 0
    assert f"stack   {digest.of(world.load())}\n" in ran.out
    assert "file    gamma: gamma/main.py (100644 " in ran.out
    assert "edited  gamma/main.py is patched\n" in ran.out
    assert ran.out.endswith("files are as listed\n")
    said = json.loads(stack("wheel", "inspect", made, "--json").out)
    assert (said["whole"], said["name"], said["stack"]["mode"]) == (True, "gamma-pkg", "overlay")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"gamma/main.py": b"another\n"}, "gamma/main.py does not match RECORD"),
        ({"gamma/main.py": None}, "gamma/main.py is missing"),
        ({"gamma/more.py": b""}, "gamma/more.py is not in RECORD"),
    ],
)
def test_a_wheel_that_is_another_than_it_says(stack: Stack, made: Path, change: dict[str, bytes | None], problem: str) -> None:
    ran = stack("wheel", "inspect", rewritten(made, change))
    assert ran.code == 1
    assert f"WRONG   {problem}\n" in ran.out


def test_a_torn_wheel(stack: Stack, made: Path) -> None:
    data = bytearray(made.read_bytes())
    place = data.find(b"gamma/_C.abi3.so") + 200
    data[place : place + 4] = b"torn"
    made.chmod(0o644)
    made.write_bytes(data)
    ran = stack("wheel", "inspect", made)
    assert ran.code == 1
    assert "WRONG   gamma/_C.abi3.so is broken" in ran.out


def test_a_wheel_of_somebody_else(stack: Stack, tmp_path: Path) -> None:
    ran = stack("wheel", "inspect", wheel(tmp_path, PUBLISHED))
    assert ran.code == 0
    assert "it does not describe a stack" in ran.out
    (tmp_path / "x.whl").write_bytes(b"")
    assert "is not a readable wheel" in stack("wheel", "inspect", tmp_path / "x.whl").refused()
    assert "is missing" in stack("wheel", "inspect", tmp_path / "none.whl").refused()
    assert "no-such-package is not installed" in stack("wheel", "inspect", "no-such-package").refused()
    assert "does not answer as a Python" in stack("wheel", "inspect", "pip", "--python", "/bin/false").refused()
    assert "is a folder: name its interpreter" in stack("wheel", "inspect", "pip", "--python", tmp_path).refused()
    assert "cannot be run" in stack("wheel", "inspect", "pip", "--python", tmp_path / "python").refused()
    assert (
        "--bytecode apply to an installed package only"
        in stack("wheel", "inspect", tmp_path / "x.whl", "--python", "python3").refused()
    )


@pytest.mark.slow
def test_an_installed_package(stack: Stack, made: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    python = home / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    install = [*pip, "install", "--quiet", "--no-deps", "--no-index", str(made)]
    assert subprocess.run(install, check=False, capture_output=True).returncode == 0
    ask = ("wheel", "inspect", "gamma-pkg", "--python", python)
    ran = stack(*ask, "--against", made)
    assert ran.code == 0, ran.out
    assert "edited  gamma/main.py is patched\n" in ran.out
    [main] = home.glob("lib/*/site-packages/gamma/main.py")
    was = main.read_bytes()
    main.write_bytes(b"another\n")
    assert "WRONG   gamma/main.py is not what was installed\n" in stack(*ask).out
    main.unlink()
    assert "WRONG   gamma/main.py is missing\n" in stack(*ask).out
    main.write_bytes(was)
    assert stack(*ask).code == 0
    [compiled] = main.parent.glob("__pycache__/__init__.*.pyc")
    assert stack(*ask, "--bytecode").code == 0
    as_made = compiled.read_bytes()
    compiled.write_bytes(as_made[:16] + marshal.dumps(compile("x = 1", "__init__.py", "exec")))
    assert stack(*ask).code == 0
    wrong = f"WRONG   gamma/__pycache__/{compiled.name} is not compiled from its source\n"
    assert wrong in stack(*ask, "--bytecode").out
    compiled.write_bytes(as_made[:16] + b"torn")
    assert wrong in stack(*ask, "--bytecode").out
    compiled.write_bytes(b"another release's" + as_made[16:])
    assert stack(*ask, "--bytecode").code == 0
    compiled.write_bytes(as_made)
    # An installation of another wheel is whole in itself.
    against = wheel(tmp_path / "other", PUBLISHED)
    ran = stack(*ask, "--against", against)
    assert ran.code == 1
    assert f"WRONG   gamma/main.py is not that of {against.name}\n" in ran.out
    [record] = home.glob("lib/*/site-packages/gamma_pkg-*/RECORD")
    noted = record.read_text()
    (main.parent / "more.py").write_text("")
    assert "WRONG   gamma/more.py is not in RECORD\n" in stack(*ask).out
    (main.parent / "more.py").unlink()
    record.write_text("".join(f"{line}\n" if "main.py" not in line else "gamma/main.py,,\n" for line in noted.splitlines()))
    assert "WRONG   gamma/main.py has no hash in RECORD\n" in stack(*ask).out
    record.unlink()
    assert "WRONG   there is no RECORD: the installed files are unknown\n" in stack(*ask).out


def test_descriptions_that_are_none(stack: Stack, tmp_path: Path) -> None:
    for number, text in enumerate((b"[]", b"{}", b'{"base": null}', b"[" * 100_000, b"no")):
        path = wheel(tmp_path / str(number), PUBLISHED | {"gamma_pkg-2.0.dist-info/x_stack.json": text})
        assert "it was not made by `stack build wheels`" in stack("wheel", "inspect", path).refused()


def test_a_record_that_no_wheel_has(stack: Stack, tmp_path: Path) -> None:
    """70 MB of nothing, in a wheel of 70 kB."""
    path = wheel(tmp_path, PUBLISHED)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, b"," * 70_000_000 if name.endswith("RECORD") else data)
    assert path.stat().st_size < 1_000_000
    assert "RECORD has more than 64 MB" in stack("wheel", "inspect", path).refused()


def test_wheels_is_another_word(stack: Stack, made: Path) -> None:
    assert stack("wheels", "index", made.parent).code == 0
    assert "  wheels " not in stack("--help", root=None).out


@pytest.mark.parametrize(("bit", "why"), [(0x1, "is encrypted"), (0x20, "is a patch for another file"), (0x40, "is encrypted")])
def test_members_that_nobody_can_read(stack: Stack, tmp_path: Path, bit: int, why: str) -> None:
    path = wheel(tmp_path, PUBLISHED)
    data = bytearray(path.read_bytes())
    data[data.find(b"PK\1\2") + 8] |= bit
    path.write_bytes(data)
    assert why in stack("wheel", "inspect", path).refused()


def test_a_torn_directory(tmp_path: Path) -> None:
    """Whatever stands in a ZIP file's directory, it is one line or a problem."""
    path = wheel(tmp_path, {"gamma/main.py": b"x = 1\n"})
    whole = path.read_bytes()
    start = whole.find(b"PK\1\2")
    found, chance = 0, random.Random(7)
    for _ in range(600):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 4))):
            data[chance.randrange(start, len(data))] = chance.choice((0, 0x7F, 0xFF, chance.randrange(256)))
        path.write_bytes(data)
        try:
            found += bool(inspection.wheel(path).problems)
        except StackError:
            found += 1
    assert found > 300


@pytest.mark.parametrize("said", [{"pins": {"x": 1}}, {"files": [1]}, {"files": ["x"]}, {"files": 1}])
def test_descriptions_with_odd_parts(stack: Stack, tmp_path: Path, said: dict[str, object]) -> None:
    text = json.dumps({"pins": {}, "base": {}, "files": [], "edited": [], "left_out": []} | said).encode()
    path = wheel(tmp_path, PUBLISHED | {"gamma_pkg-2.0.dist-info/x_stack.json": text})
    assert "has an incomplete description" in stack("wheel", "inspect", path).refused()


def test_a_wheel_of_the_first_format_is_read(stack: Stack, tmp_path: Path) -> None:
    """It lists the patches."""
    text = json.dumps({"digest": "ab", "pins": {}, "base": {}, "patches": [{}], "edited": [], "left_out": []}).encode()
    path = wheel(tmp_path, PUBLISHED | {"gamma_pkg-2.0.dist-info/x_stack.json": text})
    assert "stack   ab\n" in stack("wheel", "inspect", path).out


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where this interpreter finds gamma-pkg installed."""
    folder = tmp_path / "site"
    with zipfile.ZipFile(wheel(tmp_path, PUBLISHED)) as archive:
        archive.extractall(folder)
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.mark.parametrize("line", [b"gamma/\xff.py,,\n", b"gamma/x.py,,,,\n", b"\n", b'"gamma'])
def test_a_record_that_cannot_be_read(stack: Stack, site: Path, line: bytes) -> None:
    record = site / "gamma_pkg-2.0.dist-info/RECORD"
    assert stack("wheel", "inspect", "gamma-pkg").code == 0
    record.write_bytes(record.read_bytes() + line)
    ran = stack("wheel", "inspect", "gamma-pkg")
    assert ran.code == 1
    assert "WRONG   RECORD cannot be read (" in ran.out


def test_odd_installations(stack: Stack, site: Path) -> None:
    info = site / "gamma_pkg-2.0.dist-info"
    noted = (info / "RECORD").read_text()
    (info / "RECORD").write_text(noted + "gamma/none.py,sha256=x,many\n")
    assert "WRONG   gamma/none.py is missing\n" in stack("wheel", "inspect", "gamma-pkg").out
    (info / "RECORD").write_text(noted + '"gamma/x\nwhole: 3 files are as listed",,\n')
    ran = stack("wheel", "inspect", "gamma-pkg")
    assert ran.code == 1
    assert "\nwhole" not in ran.out
    assert "WRONG   gamma/x\\nwhole: 3 files" in ran.out
    (info / "RECORD").write_text("")
    assert "WRONG   there is no RECORD" in stack("wheel", "inspect", "gamma-pkg").out
    (info / "METADATA").write_bytes(b"Name: \xff\n")
    assert "METADATA of the installed package cannot be read" in stack("wheel", "inspect", "gamma-pkg").refused()


def test_a_name_that_is_no_text(stack: Stack, site: Path) -> None:
    (site / os.fsdecode(b"gamma/\xff.py")).write_text("")
    assert "WRONG   gamma/\\udcff.py is not in RECORD\n" in stack("wheel", "inspect", "gamma-pkg").out
    assert json.loads(stack("wheel", "inspect", "gamma-pkg", "--json").out)["problems"] == ["gamma/\udcff.py is not in RECORD"]


def test_what_can_be_imported_beside(stack: Stack, site: Path, tmp_path: Path) -> None:
    kept = site / "gamma/__pycache__"
    kept.mkdir()
    for name in ("main.cpython-311.pyc", "main.f-1.py311.nbi"):
        (kept / name).write_bytes(b"")
    assert stack("wheel", "inspect", "gamma-pkg").code == 0
    for name in ("evil.py", "evil.pyc", "evil.abi3.so", "evil/__init__.py", "evil/__pycache__/x.cpython-311.pyc"):
        (kept / name).parent.mkdir(exist_ok=True)
        (kept / name).write_bytes(b"")
        assert f"WRONG   gamma/__pycache__/{name} is not in RECORD\n" in stack("wheel", "inspect", "gamma-pkg").out
    (tmp_path / "elsewhere").mkdir()
    (site / "gamma/linked").symlink_to(tmp_path / "elsewhere")
    assert "WRONG   gamma/linked is not in RECORD\n" in stack("wheel", "inspect", "gamma-pkg").out


def test_against_a_wheel_that_is_not_whole(stack: Stack, site: Path, tmp_path: Path) -> None:
    [path] = tmp_path.glob("*.whl")
    assert stack("wheel", "inspect", "gamma-pkg", "--against", path).code == 0
    other = rewritten(path, {"gamma/main.py": b"another\n"})
    ran = stack("wheel", "inspect", "gamma-pkg", "--against", other)
    assert ran.code == 1
    assert f"WRONG   {other.name}: gamma/main.py does not match RECORD\n" in ran.out
    os.mkfifo(tmp_path / "pipe.whl")
    assert "pipe.whl is not a file" in stack("wheel", "inspect", "gamma-pkg", "--against", tmp_path / "pipe.whl").refused()


def test_against_a_wheel_that_has_less(stack: Stack, site: Path, tmp_path: Path) -> None:
    """What is in the package's RECORD and not in the wheel was added, whatever RECORD says of it; installers' own notes are not."""
    [path] = tmp_path.glob("*.whl")
    with (site / "gamma_pkg-2.0.dist-info/RECORD").open("a") as noted:
        for name in ("gamma_pkg-2.0.dist-info/INSTALLER", "gamma/__pycache__/main.cpython-311.pyc", "gamma/evil.py"):
            (site / name).parent.mkdir(exist_ok=True)
            (site / name).write_bytes(b"")
            noted.write(",".join((name, *metadata.row(b""))) + "\n")
    assert stack("wheel", "inspect", "gamma-pkg").code == 0
    ran = stack("wheel", "inspect", "gamma-pkg", "--against", path)
    assert [line for line in ran.out.splitlines() if line.startswith("WRONG")] == [
        f"WRONG   gamma/evil.py is not in {path.name}"
    ]


def test_libraries_in_a_data_folder(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installer moves them beside the others."""
    path = wheel(tmp_path, PUBLISHED | {"gamma_pkg-2.0.data/purelib/gamma/pure.py": b""})
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "site/gamma_pkg-2.0.data/purelib/gamma/pure.py").rename(tmp_path / "site/gamma/pure.py")
    record = tmp_path / "site/gamma_pkg-2.0.dist-info/RECORD"
    record.write_text(record.read_text().replace("gamma_pkg-2.0.data/purelib/", ""))
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert stack("wheel", "inspect", "gamma-pkg", "--against", path).code == 0
    (tmp_path / "site/gamma/pure.py").unlink()
    record.write_text("".join(line for line in record.read_text().splitlines(keepends=True) if "pure" not in line))
    assert "WRONG   gamma/pure.py was not installed" in stack("wheel", "inspect", "gamma-pkg", "--against", path).out


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("vllm-9.9-py3-none-any.whl", "the file's name says vllm 9.9, its METADATA gamma-pkg 2"),
        ("gamma_pkg-2.1-py3-none-any.whl", "the file's name says gamma-pkg 2.1, its METADATA gamma-pkg 2"),
        ("gamma.whl", "the file's name is not one of a wheel ("),
    ],
)
def test_a_wheel_under_another_name(stack: Stack, tmp_path: Path, name: str, problem: str) -> None:
    path = wheel(tmp_path, PUBLISHED)
    assert stack("wheel", "inspect", path).code == 0
    ran = stack("wheel", "inspect", path.rename(tmp_path / name))
    assert ran.code == 1
    assert f"WRONG   {problem}" in ran.out


@pytest.mark.parametrize("name", ["", " ", "-", "./gamma"])
def test_what_is_no_name(stack: Stack, name: str) -> None:
    assert f"{name!r} is not a package name" in stack("wheel", "inspect", name).refused()


def test_compiled_files_that_are_none(stack: Stack, site: Path) -> None:
    ask = ("wheel", "inspect", "gamma-pkg", "--bytecode")
    assert stack(*ask).code == 0
    kept = site / "gamma/__pycache__"
    kept.mkdir()
    tag = sys.implementation.cache_tag
    head = importlib.util.MAGIC_NUMBER + bytes(12)
    names = [
        f"main.{tag}.pyc",
        f"main.{tag}.opt-1.pyc",
        f"main.{tag}.opt-2.pyc",
        f"main.{tag}.opt-x.pyc",
        f"__init__.{tag}.pyc",
    ]
    (kept / names[0]).mkdir()
    os.mkfifo(kept / names[1])
    (kept / names[2]).symlink_to("/dev/zero")
    (kept / names[3]).write_bytes(head)
    (kept / names[4]).write_bytes(head + b"(\xff\xff\xff\x7f")  # a tuple of 2 ** 31 - 1
    ran = stack(*ask)
    assert ran.code == 1
    for name in names:
        assert f"WRONG   gamma/__pycache__/{name} is not compiled from its source\n" in ran.out
    (site / "gamma/main.py").unlink()
    assert "WRONG   gamma/main.py is missing\n" in stack(*ask).out


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("text", [r"printf '\377\376'", "echo 1", "echo '{}'", "kill -SEGV $$"])
def test_what_is_no_python(stack: Stack, tmp_path: Path, text: str) -> None:
    python = script(tmp_path / "python", text)
    assert "does not answer as a Python" in stack("wheel", "inspect", "pip", "--python", python).refused()


def test_a_python_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreters, "_SECONDS", 0.2)
    with pytest.raises(StackError, match="has not answered for"):
        interpreters.paths(script(tmp_path / "python", "exec sleep 30"))


@pytest.mark.parametrize(
    "verb", [("build", "wheels", "--aot=x"), ("compile-check",), ("prove",), ("rebase", "gamma", "--prove")]
)
def test_a_python_that_cannot_be_run(stack: Stack, tmp_path: Path, verb: tuple[str, ...]) -> None:
    (tmp_path / "text").write_text("")
    for name, problem in (
        (tmp_path, "is a folder: name its interpreter, such as"),
        (tmp_path / "none", "cannot be run (No such file or directory): name an interpreter"),
        (tmp_path / "text", "cannot be run (Permission denied): name an interpreter"),
    ):
        assert f"{name} {problem}" in stack(*verb, "--python", name).refused()


def test_a_python_beside_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path becomes an absolute one; a link, as a virtual environment's interpreter is, stays one."""
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv/python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    assert interpreters.found(Path("venv/python")) == tmp_path / "venv/python"
    assert interpreters.found(Path("sh")).is_absolute()
