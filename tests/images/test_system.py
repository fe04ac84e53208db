# SPDX-License-Identifier: Apache-2.0
"""An image's system is read from its files: nothing of it runs, so its processor does not matter."""

from pathlib import Path

import pytest
from packaging.version import Version

from stack.base.errors import StackError
from stack.images import processors, reading, system

RELEASE = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n'


def status(**versions: str) -> str:
    """A package database; a version that begins with `-` is of a package that was removed."""
    paragraphs = []
    for name, version in versions.items():
        state = "deinstall ok config-files" if version.startswith("-") else "install ok installed"
        paragraphs.append(
            f"Package: {name}\nStatus: {state}\nArchitecture: arm64\nVersion: {version.lstrip('-')}\n"
            "Conffiles:\n /etc/one 0123456789abcdef\nDescription: words\n Package: none\n"
        )
    return "\n".join(paragraphs)


def read(text: str) -> system.System:
    files = {system.STATUS: text.encode(), system.RELEASE: RELEASE.encode()}

    def file(path: str) -> bytes:
        if path not in files:
            raise StackError(f"no {path}")
        return files[path]

    return system.read(file)


def test_python_and_glibc_are_those_of_the_packages() -> None:
    found = read(status(libc6="2.36-9+deb12u10", python3="3.11.2-1+b1", bash="5.2.15-2+b8"))
    assert found.architecture == "arm64"
    assert found.python == system.Python(Version("3.11.2"), "aarch64", Version("2.36"))
    assert found.python.short == "3.11"
    ubuntu = read(status(libc6="2.39-0ubuntu8.4", python3="1:3.12.3-0ubuntu2"))
    assert ubuntu.python.version == Version("3.12.3")


def test_what_was_removed_is_lacking() -> None:
    found = read(status(libc6="2.36-9", openssl="-3.0.1-1", python3="3.11.2-1"))
    assert found.lacking(["python3", "openssl", "g++"]) == ("openssl", "g++")


def test_other_systems_are_refused() -> None:
    with pytest.raises(StackError, match=r"Python 3\.10\.12.*3\.11 or newer"):
        _ = read(status(libc6="2.35-0ubuntu3", python3="3.10.12-1")).python
    with pytest.raises(StackError, match="has no package python3"):
        _ = read(status(libc6="2.36-9")).python

    def none(path: str) -> bytes:
        raise StackError(f"no {path}")

    with pytest.raises(StackError, match="neither Debian nor Ubuntu"):
        system.read(none)


def test_a_link_of_an_image_does_not_lead_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    root = tmp_path / "image"
    (root / "etc").mkdir(parents=True)
    (root / "usr").mkdir()
    (root / "usr/file").write_text("its own")
    (root / "etc/inside").symlink_to("../usr/file")
    (root / "etc/outside").symlink_to(tmp_path / "secret")
    (root / "up").symlink_to("..")
    assert reading._inside(root, "/etc/inside").read_text() == "its own"
    for path in ("/etc/outside", "/up/secret", "/../secret"):
        with pytest.raises(StackError, match="outside"):
            reading._inside(root, path)


def test_a_processor_runs_here_if_it_is_this_machines_or_the_kernel_has_an_emulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "_EMULATORS", tmp_path)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert processors.own() == "amd64"
    assert processors.runs("amd64")
    assert not processors.runs("arm64")
    (tmp_path / "qemu-aarch64").write_text("disabled\ninterpreter /usr/bin/qemu-aarch64-static\n")
    assert not processors.runs("arm64")
    (tmp_path / "qemu-aarch64").write_text("enabled\ninterpreter /usr/bin/qemu-aarch64-static\n")
    assert processors.runs("arm64")
