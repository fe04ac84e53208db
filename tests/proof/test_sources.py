# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from stack.proof.sources import closure, digest

FILES = {
    "proofs/test_it.py": "import os\nimport helper\n\ndef test():\n    from shared.deep import low\n",
    "proofs/helper.py": "import importlib\nlazy = importlib.import_module('late')\n",
    "proofs/late.py": "import helper\n",
    "proofs/unused.py": "import helper\n",
    "shared/__init__.py": "",
    "shared/table.toml": "",
    "shared/other.py": "other = 1\n",
    "shared/deep/__init__.py": "from . import sibling\n",
    "shared/deep/low.py": "from ..near import name\n",
    "shared/deep/sibling.py": "",
    "shared/deep/kernel.cpp": "",
    "shared/near/__init__.py": "name = 1\n",
    "shared/near/texts/one.txt": "",
}
NEEDED = {
    "proofs/test_it.py",
    "proofs/helper.py",
    "proofs/late.py",
    "shared/__init__.py",
    "shared/deep/__init__.py",
    "shared/deep/low.py",
    "shared/deep/sibling.py",
    "shared/deep/kernel.cpp",
    "shared/near/__init__.py",
    "shared/near/texts/one.txt",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def needed(root: Path) -> tuple[Path, ...]:
    return closure([root / "proofs/test_it.py"], (root / "proofs", root))


def test_what_a_module_imports_is_found_and_nothing_else(root: Path) -> None:
    assert {path.relative_to(root.resolve()).as_posix() for path in needed(root)} == NEEDED


def test_compiled_files_do_not_count(root: Path) -> None:
    before = needed(root)
    (root / "shared/deep/__pycache__").mkdir()
    (root / "shared/deep/__pycache__/low.cpython-311.pyc").touch()
    (root / "shared/deep/__pycache__/low.cpython-311.pyc.123").touch()
    assert needed(root) == before


def test_a_module_that_is_no_python_imports_nothing(root: Path) -> None:
    (root / "proofs/test_it.py").write_text("import helper\nfrom (\n")
    assert needed(root) == ((root / "proofs/test_it.py").resolve(),)


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_each_file_that_counts_changes_the_digest(root: Path, name: str) -> None:
    before = digest(needed(root), root)
    assert digest(needed(root), root) == before
    with (root / name).open("a") as file:
        file.write("\n# changed\n")
    assert digest(needed(root), root) != before


@pytest.mark.parametrize("name", sorted(FILES.keys() - NEEDED))
def test_other_files_do_not_change_it(root: Path, name: str) -> None:
    before = digest(needed(root), root)
    (root / name).write_text("\n# changed\n")
    assert digest(needed(root), root) == before


def test_a_renamed_or_missing_file_changes_the_digest(root: Path) -> None:
    one, other = root / "shared/other.py", root / "shared/another.py"
    before = digest([one], root)
    one.rename(other)
    assert len({before, digest([other], root), digest([one], root), digest([one, other], root)}) == 4


def test_files_that_are_left_out_are_not_followed(root: Path) -> None:
    places = (root / "proofs", root)
    found = closure([root / "proofs/test_it.py"], places, [root / "proofs/helper.py", root / "shared/deep/low.py"])
    names = {path.relative_to(root.resolve()).as_posix() for path in found}
    left = {"proofs/helper.py", "proofs/late.py", "shared/deep/low.py"} | {name for name in NEEDED if "/near/" in name}
    assert names == NEEDED - left
