# SPDX-License-Identifier: Apache-2.0
"""`stack wheel inspect`: what a wheel says, and every way in which it can be another than it says."""

import json
import marshal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from stack.model import digest

from ..carry.world import World
from ..cli.conftest import Stack
from .conftest import PUBLISHED
from .making import wheel


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
    assert "patch   one: Hook main (gamma, " in ran.out
    assert "edited  gamma/main.py is patched\n" in ran.out
    assert ran.out.endswith("files are what they should be\n")
    said = json.loads(stack("wheel", "inspect", made, "--json").out)
    assert (said["whole"], said["name"], said["stack"]["mode"]) == (True, "gamma-pkg", "overlay")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"gamma/main.py": b"another\n"}, "gamma/main.py is not what RECORD says"),
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
    assert "it does not say of which stack it is" in ran.out
    (tmp_path / "x.whl").write_bytes(b"")
    assert "is no wheel that can be read" in stack("wheel", "inspect", tmp_path / "x.whl").refused()
    assert "is missing" in stack("wheel", "inspect", tmp_path / "none.whl").refused()
    assert "no-such-package is not installed" in stack("wheel", "inspect", "no-such-package").refused()
    assert "does not answer as a Python" in stack("wheel", "inspect", "pip", "--python", "/bin/false").refused()
    assert "is a folder: name its interpreter" in stack("wheel", "inspect", "pip", "--python", tmp_path).refused()
    assert "cannot be run" in stack("wheel", "inspect", "pip", "--python", tmp_path / "python").refused()
    assert (
        "--bytecode go with an installed package"
        in stack("wheel", "inspect", tmp_path / "x.whl", "--python", "python3").refused()
    )


@pytest.mark.slow
def test_an_installed_package(stack: Stack, made: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    python = home / "bin/python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(made)]
    assert subprocess.run(install, check=False, capture_output=True).returncode == 0
    ask = ("wheel", "inspect", "gamma-pkg", "--python", python)
    ran = stack(*ask, "--against", made)
    assert ran.code == 0, ran.out
    assert "patch   one: Hook main" in ran.out
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
    assert "WRONG   there is no RECORD: what was installed cannot be told\n" in stack(*ask).out


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
