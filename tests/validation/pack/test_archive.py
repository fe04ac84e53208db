# SPDX-License-Identifier: Apache-2.0
"""An archive is the same wherever it is made, holds what its target needs, and its script notices what is wrong with it or the machine."""

import json
import lzma
import os
import platform
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.model import digest
from stack.model import stack as stacks
from stack.validation import laboratory
from stack.validation.pack import archive, contents, fatbin, targets
from stack.validation.pack.targets import SM90, Target
from tests.validation.pack.factories import Made, library, wheel

ROOT = Path(__file__).parents[3]


def nothing(_: int, __: int) -> None:
    """Progress that nobody sees."""


def about(**other: object) -> dict[str, object]:
    said = {"gpu": "sm90", "capability": "9.0", "python": list(sys.version_info[:2]), "torch": [2, 11], "cuda": 13}
    return {**said, "platform": platform.machine(), "stack": "0" * 64, **other}


def packed(folder: Path, **other: object) -> Path:
    """An archive with our script in it, unpacked."""
    script = (laboratory.folder(Path(__file__).parents[3]) / "target/script.py").read_bytes()
    made = archive.write(
        folder / "pack-x.tar.xz", {"site/a.py": b"A = 1\n", archive.SCRIPT: script}, about(**other), nothing, 10**8
    )
    subprocess.run(["tar", "xf", made.path, "-C", folder], check=True)
    return folder / "pack-x"


def fake_torch(folder: Path, version: str = "2.11.0+cu130", cuda: str = "13.0", capability: str = "(9, 0)") -> Path:
    """A module in torch's place: no test machine has one for the GPU that the archive is for."""
    place = folder / "fake"
    place.mkdir()
    lines = [f"__version__ = {version!r}", "class version:", f"    cuda = {cuda!r}", "class cuda:"]
    lines += ["    @staticmethod", "    def is_available():", f"        return {capability != 'None'}"]
    lines += ["    @staticmethod", "    def get_device_capability():", f"        return {capability}"]
    (place / "torch.py").write_text("\n".join(lines))
    return place


def checked(folder: Path, path: Path | None = None) -> tuple[int, str]:
    """What the script says with --check: exit code, and everything it prints."""
    environment = os.environ | {"PYTHONPATH": str(path or "")}
    done = subprocess.run(
        [sys.executable, folder / "validate.py", "--check"], capture_output=True, text=True, check=False, env=environment
    )
    return done.returncode, done.stdout + done.stderr


def test_the_same_files_make_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    files = {"b": b"2", "a/c.py": b"1"}
    first = archive.write(tmp_path / "one" / "x.tar.xz", files, about(), nothing, 10**8)
    second = archive.write(tmp_path / "two" / "x.tar.xz", dict(reversed(files.items())), about(), nothing, 10**8)
    assert first.path.read_bytes() == second.path.read_bytes()
    other = archive.write(tmp_path / "three" / "x.tar.xz", {**files, "b": b"3"}, about(), nothing, 10**8)
    assert other.sha256 != first.sha256


def test_an_archive_in_pieces_reads_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_PIECE", 1000)
    made = archive.write(tmp_path / "x.tar.xz", {"a": os.urandom(5000)}, about(), nothing, 10**8)
    with lzma.open(made.path) as file:
        assert len(file.read()) > 5000


def test_an_archive_that_is_too_large_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StackError, match="larger than"):
        archive.write(tmp_path / "x.tar.xz", {"a": os.urandom(5000)}, about(), nothing, 1000)
    assert not list(tmp_path.iterdir())


def test_the_script_takes_the_machine_that_it_was_made_for(tmp_path: Path) -> None:
    assert checked(packed(tmp_path), fake_torch(tmp_path))[0] == 0


@pytest.mark.parametrize(
    ("fake", "other", "said"),
    [
        ({"capability": "(12, 1)"}, {}, "the GPU has compute capability 12.1: the archive is for 9.0"),
        ({"capability": "None"}, {}, "torch sees no GPU: the archive is for 9.0"),
        ({"version": "2.10.1"}, {}, "torch is 2.10.1: the archive needs 2.11 or newer"),
        ({"cuda": "12.8"}, {}, "torch is built for CUDA 12.8: the archive needs CUDA 13"),
        ({}, {"python": [3, 7]}, ": the archive is for 3.7"),
        ({}, {"platform": "aarch64"}, "the archive is for aarch64"),
    ],
)
def test_the_script_refuses_another_machine_in_one_line(
    tmp_path: Path, fake: dict[str, str], other: dict[str, object], said: str
) -> None:
    code, line = checked(packed(tmp_path, **other), fake_torch(tmp_path, **fake))
    assert code == 2
    assert line.startswith("validate: ")
    assert said in line
    assert line.count("\n") == 1


@pytest.mark.parametrize("harm", ["changed", "missing"])
def test_the_script_notices_a_file_that_is_not_as_it_was_packed(tmp_path: Path, harm: str) -> None:
    folder = packed(tmp_path)
    file = folder / "site/a.py"
    if harm == "changed":
        file.write_bytes(b"A = 2\n")
    else:
        file.unlink()
    code, line = checked(folder, fake_torch(tmp_path))
    assert code == 2
    assert "site/a.py" in line
    assert line.count("\n") == 1


@pytest.mark.parametrize("text", [None, "", '{"files": {', "[]", '{"files": {}}'])
def test_the_script_notices_that_what_says_so_is_damaged(tmp_path: Path, text: str | None) -> None:
    folder = packed(tmp_path)
    if text is None:
        (folder / "pack.json").unlink()
    else:
        (folder / "pack.json").write_text(text)
    said = "validate: pack.json is missing or damaged: copy the archive again, and unpack it again\n"
    assert checked(folder, fake_torch(tmp_path)) == (2, said)


def test_an_archive_that_was_damaged_on_its_way_does_not_unpack(tmp_path: Path) -> None:
    made = archive.write(tmp_path / "x.tar.xz", {"a": os.urandom(5000)}, about(), nothing, 10**8)
    data = bytearray(made.path.read_bytes())
    data[len(data) // 2] ^= 1
    with pytest.raises(lzma.LZMAError):
        lzma.decompress(bytes(data))


def test_wheels_go_in_as_they_install_without_what_the_target_leaves_out(tmp_path: Path) -> None:
    fat = library([[Made(80), Made(90, data=b"for this one"), Made(120)]])
    one = wheel(
        tmp_path,
        "one",
        {
            "vllm/_C.abi3.so": fat,
            "vllm/vllm-rs": b"rust",
            "vllm/third_party/deep_gemm/deep/x.py": b"",
            "one-1.0.data/purelib/more.py": b"B",
            "one-1.0.data/scripts/run": b"#!python",
            "one-1.0.dist-info/RECORD": b"",
            "one-1.0.dist-info/METADATA": b"Name: one",
        },
    )
    files = contents.installed([one], SM90, nothing)
    assert set(files) == {"site/vllm/_C.abi3.so", "site/more.py", "site/one-1.0.dist-info/METADATA"}
    left = [files["site/vllm/_C.abi3.so"][image.start : image.end] for image in fatbin.images(fat, "x")]
    assert [bool(data.strip(b"\0")) for data in left] == [False, True, False]


def test_two_wheels_with_different_files_at_one_place_are_an_error(tmp_path: Path) -> None:
    wheels = [wheel(tmp_path, name, {"same.py": name.encode()}) for name in ("one", "two")]
    with pytest.raises(StackError, match=r"same\.py"):
        contents.installed(wheels, SM90, nothing)


def test_the_stack_in_an_archive_has_the_digest_of_the_stack(tmp_path: Path) -> None:
    carried = stacks.load(ROOT)
    for path, data in contents.own(carried).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    assert digest.of(stacks.load(tmp_path)) == digest.of(carried)
    assert (tmp_path / "kernels/laboratory/target/runner.py").exists()


@pytest.mark.parametrize("target", targets.TARGETS.values(), ids=[*targets.TARGETS])
def test_nothing_that_the_stack_changes_is_left_out(target: Target) -> None:
    """The decode kernels are in FlashInfer's experimental folder. Other parts of that folder are left out."""
    carried = stacks.load(ROOT)
    changed = [
        path.decode()
        for patch in carried.patches.values()
        for path in re.findall(rb"^\+\+\+ b/(\S+)$", patch.diff, re.MULTILINE)
    ]
    packed = [path for path in changed if path.startswith(("vllm/", "flashinfer/"))]
    assert any(path.startswith("flashinfer/experimental/mxfp4_decode/") for path in packed)
    assert [path for path in packed if any(fnmatchcase(path, pattern) for pattern in target.left_out)] == []


@pytest.mark.parametrize("target", targets.TARGETS.values(), ids=[*targets.TARGETS])
def test_what_an_archive_carries_of_others_is_named_by_its_hash(target: Target) -> None:
    listed = (Path(targets.__file__).with_name(target.requirements)).read_text().splitlines()
    lines = [line for line in listed if not line.startswith("#")]
    assert len(lines) >= 40
    assert all("==" in line and " --hash=sha256:" in line for line in lines)


def test_no_archive_for_a_gpu_that_nobody_described() -> None:
    with pytest.raises(StackError, match="sm90"):
        targets.named("sm75")


def test_nothing_of_an_archive_is_kept_in_git() -> None:
    found = subprocess.run(
        ["git", "ls-files", "*.tar.xz", "*.whl", "*.so"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.dumps(found.stdout.split()) == "[]"
