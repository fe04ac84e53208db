# SPDX-License-Identifier: Apache-2.0
"""Where the compiler comes from: PATH, else wheels that real pip takes from a folder."""

import os
import shutil
import zipfile
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.proof.compiling import jobs, toolkit
from stack.proof.compiling.toolkit import Toolkit

PROGRAM = "#!/bin/sh\necho '{}'\necho '#$ TOP={}' >&2\n"


def wheel(folder: Path, name: str, version: str, files: dict[str, str], requires: str = "") -> None:
    """A wheel with these files; what stands in a bin/ is a program."""
    info = f"{name}-{version}.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            member = zipfile.ZipInfo(path)
            member.external_attr = (0o100755 if "/bin/" in path else 0o100644) << 16
            archive.writestr(member, text)


def program(path: Path, release: str, home: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PROGRAM.format(f"Cuda compilation tools, release {release}, V{release}.1", home))
    path.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, with gcc in it; wheels are in another one."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    wheels = tmp_path / "wheels"
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    extras = {"nvcc": "nvidia-cuda-nvcc", "curand": "nvidia-curand"} | dict.fromkeys(
        ("nvvm", "crt", "cudart", "cccl"), "nvidia-rest"
    )
    requires = "".join(f'Provides-Extra: {name}\nRequires-Dist: {what}; extra == "{name}"\n' for name, what in extras.items())
    wheel(wheels, "cuda_toolkit", "13.0.9", {}, requires)
    wheel(wheels, "nvidia_rest", "13.0.2", {"nvidia/cu13/include/crt.h": "//", "nvidia/cu13/lib/libx.a": "heavy"})
    wheel(wheels, "nvidia_cuda_nvcc", "13.0.1", {"nvidia/cu13/bin/nvcc": "#!", "nvidia/cu13/nvvm/bin/cicc": "#!"})
    wheel(
        wheels, "nvidia_curand", "10.4", {"nvidia/cu13/include/curand_kernel.h": "//", "nvidia/cu13/lib/libcurand.so": "heavy"}
    )
    for name in ("cuobjdump", "nvdisasm"):
        wheel(wheels, f"nvidia_cuda_{name}", "13.2.5", {f"nvidia/cu13/bin/{name}": "#!"})
    folder = tmp_path / "path"
    folder.mkdir()
    for name in ("gcc", "g++"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    (folder / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(folder))
    return folder


def files(folder: Path) -> set[str]:
    return {one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file() and one.suffix != ".stamp"}


@pytest.mark.slow
def test_wheels_are_taken_apart_once(path: Path, tmp_path: Path) -> None:
    said: list[str] = []
    found = toolkit.find(tmp_path / "cache", said.append)
    home = tmp_path / "cache/compilers/cuda-13.0"
    assert found == Toolkit(
        home,
        home / "bin/nvcc",
        "13.0",
        tmp_path / "cache/compilers/disassembler/bin/cuobjdump",
        tmp_path / "cache/compilers/headers-13.0",
    )
    assert files(home) == {"bin/nvcc", "nvvm/bin/cicc", "include/crt.h"}
    assert os.access(found.nvcc, os.X_OK)
    assert os.access(home / "nvvm/bin/cicc", os.X_OK)
    assert not os.access(home / "include/crt.h", os.X_OK)
    assert files(found.cuobjdump.parents[1]) == {"bin/cuobjdump", "bin/nvdisasm"}
    shutil.rmtree(tmp_path / "wheels")
    assert toolkit.find(tmp_path / "cache") == found


@pytest.mark.slow
def test_headers_of_libraries_come_when_they_are_missing(path: Path, tmp_path: Path) -> None:
    found = toolkit.find(tmp_path / "cache")
    assert not toolkit.add_header(found, "own.h")
    assert toolkit.add_header(found, "curand_kernel.h")
    assert files(found.headers) == {"include/curand_kernel.h"}
    assert not toolkit.add_header(found, "curand_kernel.h")  # it was there, and the compiler did not find it
    with pytest.raises(StackError, match=r"pip cannot download cuda-toolkit\[cublas\]==13\.0\.\*.*check the network"):
        (tmp_path / "wheels/nvidia_curand-10.4-py3-none-any.whl").unlink()
        (tmp_path / "wheels/cuda_toolkit-13.0.9-py3-none-any.whl").unlink()
        toolkit.add_header(found, "cublasLt.h")


@pytest.mark.slow
def test_a_failed_download_is_done_again(path: Path, tmp_path: Path) -> None:
    kept = tmp_path / "nvidia_rest-13.0.2-py3-none-any.whl"
    shutil.move(tmp_path / "wheels" / kept.name, kept)
    with pytest.raises(StackError, match="put nvcc, cuobjdump and nvdisasm on PATH"):
        toolkit.find(tmp_path / "cache")
    shutil.move(kept, tmp_path / "wheels" / kept.name)
    assert toolkit.find(tmp_path / "cache").nvcc.is_file()
    assert [one.name for one in (tmp_path / "cache/compilers").iterdir() if one.name.startswith("download-")] == []


def test_what_is_on_path_is_taken(path: Path, tmp_path: Path) -> None:
    home = tmp_path / "usr/cuda-13.1"
    program(path / "nvcc", "13.1", home / "bin/..")
    for name in ("cuobjdump", "nvdisasm"):
        program(path / name, "13.1", home)
    assert toolkit.find(tmp_path / "cache") == Toolkit(
        home, path / "nvcc", "13.1", path / "cuobjdump", tmp_path / "cache/compilers/headers-13.1"
    )
    assert not (tmp_path / "cache/compilers").exists()


@pytest.mark.slow
def test_a_compiler_that_does_not_know_sm121_is_not_taken(path: Path, tmp_path: Path) -> None:
    program(path / "nvcc", "12.8", tmp_path)
    assert toolkit.find(tmp_path / "cache").version == "13.0"


@pytest.mark.parametrize("name", ["gcc", "g++"])
def test_without_a_compiler_for_the_host(path: Path, tmp_path: Path, name: str) -> None:
    (path / name).unlink()
    with pytest.raises(StackError, match=r"nvcc needs gcc and g\+\+, which are not on PATH: apt-get install g\+\+"):
        toolkit.find(tmp_path / "cache")


def test_jobs_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < jobs.available_memory() < 2**50
    processors = len(os.sched_getaffinity(0))
    assert 1 <= jobs.that_fit() <= processors
    monkeypatch.setattr(jobs, "EACH", 1)
    assert jobs.that_fit() == processors
    monkeypatch.setattr(jobs, "EACH", 2**60)
    assert jobs.that_fit() == 1
