# SPDX-License-Identifier: Apache-2.0
"""Wheels are unpacked for an image's Python: the same files on every machine, with its paths, and complete."""

import hashlib
import os
from pathlib import Path

import pytest
from packaging.version import Version

from stack.base.errors import StackError
from stack.images import completeness, installing, users
from stack.images.system import Python

from ..wheels.factories import wheel

PYTHON = Python(Version("3.11.2"), "aarch64", Version("2.36"))
PLAIN = "Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n"
SITE = "opt/stack/lib/python3.11/site-packages"


def contents(root: Path) -> dict[str, tuple[str, int]]:
    """Each file's hash or link's target, and its permissions."""
    found = {}
    for path in sorted(root.rglob("*")):
        data = (
            str(path.readlink())
            if path.is_symlink()
            else hashlib.sha256(path.read_bytes()).hexdigest()
            if path.is_file()
            else ""
        )
        found[str(path.relative_to(root))] = (data, path.lstat().st_mode & 0o777)
    return found


def test_programs_name_the_images_python(tmp_path: Path) -> None:
    entry = "gamma-1.0.dist-info/entry_points.txt"
    made = wheel(
        tmp_path,
        {
            "gamma/__init__.py": b"",
            entry: b"[console_scripts]\ngamma = gamma:main\n",
            "gamma-1.0.data/scripts/old": b"#!python\nprint()\n",
            "gamma-1.0.data/data/share/gamma.txt": b"data",
        },
        name="gamma",
        version="1.0",
        about=PLAIN,
    )
    installing.install([made], PYTHON, tmp_path / "root", link_cuda=True)
    root = tmp_path / "root"
    for name in ("gamma", "old"):
        script = root / "opt/stack/bin" / name
        assert script.read_text().startswith("#!/opt/stack/bin/python\n")
        assert script.stat().st_mode & 0o777 == 0o755
    assert (root / "opt/stack/share/gamma.txt").read_bytes() == b"data"
    assert (root / SITE / "gamma-1.0.dist-info/INSTALLER").read_text() == "stack\n"
    assert "gamma/__init__.py,sha256=" in (root / SITE / "gamma-1.0.dist-info/RECORD").read_text()
    assert (root / "opt/stack/bin/python").readlink() == Path("python3")
    assert (root / "opt/stack/bin/python3").readlink() == Path("/usr/bin/python3")
    assert "version = 3.11.2\n" in (root / "opt/stack/pyvenv.cfg").read_text()
    assert not (root / "usr").exists()


def test_the_umask_changes_nothing_and_the_last_wheel_wins(tmp_path: Path) -> None:
    wheels = [
        wheel(tmp_path, {f"{name}/one.py": b"1", "shared/__init__.py": name.encode()}, name=name, version="1.0", about=PLAIN)
        for name in ("beta", "alpha")
    ]
    installing.install(wheels, PYTHON, tmp_path / "first", link_cuda=True)
    before = os.umask(0o077)
    try:
        installing.install(wheels, PYTHON, tmp_path / "second", link_cuda=True)
    finally:
        os.umask(before)
    assert contents(tmp_path / "first") == contents(tmp_path / "second")
    assert (tmp_path / "first" / SITE / "shared/__init__.py").read_bytes() == b"alpha"


def test_a_compiler_of_wheels_stands_where_build_tools_look(tmp_path: Path) -> None:
    files = {"nvidia/cu13/bin/nvcc": b"program", "nvidia/cu13/lib/libcudart.so.13": b"library"}
    made = wheel(tmp_path, files, name="nvidia-cuda", version="13.0", about=PLAIN)
    installing.install([made], PYTHON, tmp_path / "root", link_cuda=True)
    home = tmp_path / "root" / SITE / "nvidia/cu13"
    assert (tmp_path / "root/usr/local/cuda").readlink() == Path("/", SITE, "nvidia/cu13")
    assert (home / "lib64/libcudart.so").read_bytes() == b"library"
    installing.install([made], PYTHON, tmp_path / "other", link_cuda=False)
    assert not (tmp_path / "other/usr").exists()


def test_a_broken_wheel_is_named(tmp_path: Path) -> None:
    (tmp_path / "gamma-1.0-py3-none-any.whl").write_bytes(b"not a wheel")
    with pytest.raises(StackError, match=r"gamma-1\.0-py3-none-any\.whl cannot be installed"):
        installing.install([tmp_path / "gamma-1.0-py3-none-any.whl"], PYTHON, tmp_path / "root", link_cuda=True)


def test_no_file_stands_outside_of_the_environment(tmp_path: Path) -> None:
    made = wheel(tmp_path, {"gamma-1.0.data/data/../../../../../escaped": b"mine"}, name="gamma", version="1.0", about=PLAIN)
    with pytest.raises(StackError, match="cannot be installed"):
        installing.install([made], PYTHON, tmp_path / "a/b/root", link_cuda=True)
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize("name", ["scripts/python3", "data/lib64/one.py"])
def test_no_file_is_written_through_a_link(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's Python is a link to /usr/bin/python3, which is this machine's while the image is made."""
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine/python3").write_text("this machine's")
    made = wheel(tmp_path, {f"gamma-1.0.data/{name}": b"mine"}, name="gamma", version="1.0", about=PLAIN)
    environment = installing._environment

    def linked(place: Path, python: Python) -> None:
        environment(place, python)
        (place / "bin/python3").unlink()
        (place / "bin/python3").symlink_to(tmp_path / "machine/python3")
        (place / "lib64").symlink_to(tmp_path / "machine")

    monkeypatch.setattr(installing, "_environment", linked)
    with pytest.raises(StackError, match=r"gamma-1\.0-.* cannot be installed \(.* would be written through a link\)"):
        installing.install([made], PYTHON, tmp_path / "root", link_cuda=True)
    assert {path.name: path.read_text() for path in (tmp_path / "machine").iterdir()} == {"python3": "this machine's"}


def test_what_the_images_processor_needs_has_to_be_there(tmp_path: Path) -> None:
    needs = PLAIN + (
        'Requires-Dist: beta[fast]>=2; platform_machine == "aarch64"\n'
        'Requires-Dist: other; platform_machine == "x86_64"\n'
        'Requires-Dist: newer; python_version >= "3.12"\n'
    )
    gamma = wheel(tmp_path, {}, name="gamma", version="1.0", about=needs)
    extra = PLAIN + 'Provides-Extra: fast\nRequires-Dist: delta==1.0; extra == "fast"\nRequires-Dist: never; extra == "slow"\n'
    old = wheel(tmp_path, {}, name="beta", version="1.0", about=extra)
    beta = wheel(tmp_path, {}, name="beta", version="2.1+local", about=extra)
    delta = wheel(tmp_path, {}, name="delta", version="1.0", about=PLAIN)
    assert completeness.unmet([gamma], PYTHON) == ("gamma needs beta>=2, which is not there",)
    assert completeness.unmet([gamma, old], PYTHON) == ("gamma needs beta>=2, but there is 1.0",)
    assert completeness.unmet([gamma, beta], PYTHON) == ("beta needs delta==1.0, which is not there",)
    assert completeness.unmet([gamma, beta, delta], PYTHON) == ()


def test_the_user_stands_behind_those_of_the_base_once(tmp_path: Path) -> None:
    before = {"/etc/passwd": b"root:x:0:0:root:/root:/bin/bash\n", "/etc/group": b"root:x:0:\n"}
    users.add(before.__getitem__, tmp_path)
    text = (tmp_path / "root/etc/passwd").read_text()
    assert text == "root:x:0:0:root:/root:/bin/bash\nstack:x:10001:10001::/home/stack:/bin/sh\n"
    again = {path: (tmp_path / "root" / path[1:]).read_bytes() for path in before}
    users.add(again.__getitem__, tmp_path)
    assert (tmp_path / "root/etc/passwd").read_text() == text
