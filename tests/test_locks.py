# SPDX-License-Identifier: Apache-2.0
"""The lock files of this repository: each line has hashes, no index address stands there, and they fit what they lock.

Where one of these fails after a change of a range: `make lock`.
"""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from stack.proof.requirements import SUFFIX, unpinned

ROOT = Path(__file__).parents[1]
EXTRAS = {"requirements/dev.txt": "dev", "requirements/docs.txt": "docs"}
PACKED = "tools/stack/validation/pack/requirements-sm90.txt"
"""Written by hand, for one Python and one machine."""
LINE = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+( ; [^;#]+?)?( --hash=sha256:[0-9a-f]{64})+")
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")


def tracked(ending: str) -> list[str]:
    # Also files that are new: a lock counts before it is committed.
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", f"*{ending}"]
    return sorted(subprocess.check_output(listed, cwd=ROOT, text=True).split("\0")[:-1])


LISTS = [file for file in tracked("requirements.txt") if (ROOT / file).is_file()]
LOCKS = [*EXTRAS, *(file for file in tracked(f"requirements{SUFFIX}") if (ROOT / file).is_file())]


def requirement_lines(text: str) -> list[str]:
    joined = re.sub(r" \\\n +", " ", text)
    return [line for line in joined.splitlines() if not line.lstrip().startswith("#")]


def asked_with(extra: str) -> str:
    """List the requirements of pyproject.toml with an extra, and to build for development."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = [*project["build-system"]["requires"]] if extra == "dev" else []
    return "\n".join([*asked, *project["project"]["dependencies"], *project["project"]["optional-dependencies"][extra]])


def test_each_list_of_requirements_has_a_lock() -> None:
    assert LISTS
    assert [str(Path(file).with_suffix(SUFFIX)) for file in LISTS] == LOCKS[len(EXTRAS) :]


@pytest.mark.parametrize("file", [*LOCKS, PACKED])
def test_each_line_has_hashes_and_nothing_names_an_index(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert requirement_lines(text)
    assert [line for line in requirement_lines(text) if not LINE.fullmatch(line)] == []
    assert re.findall(r"\w+://|--(?:extra-)?index-url|--find-links|file:", text) == []


@pytest.mark.parametrize("line", ["helper==1.0", "helper>=1 --hash=sha256:" + "a" * 64, "--index-url x", "./helper.whl"])
def test_other_lines_would_be_found(line: str) -> None:
    assert not LINE.fullmatch(line)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_pins_what_is_asked_for(lock: str, python: str, machine: str) -> None:
    asked = asked_with(EXTRAS[lock]) if lock in EXTRAS else (ROOT / lock).with_suffix(".txt").read_text(encoding="utf-8")
    marks = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_version": f"{python}.0",
        "platform_machine": machine,
        "sys_platform": "linux",
        "platform_system": "Linux",
    }
    assert [str(one) for one in unpinned(asked, (ROOT / lock).read_text(encoding="utf-8"), marks, ("torch",))] == []
