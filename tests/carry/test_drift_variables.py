# SPDX-License-Identifier: Apache-2.0
"""Environment variables that added lines name."""

import pytest

from stack.carry.drift import Drift, check
from stack.model.ids import TreeId
from stack.store.objects import EMPTY_TREE, Entry

from .trees import Scratch

UPSTREAM = {
    "vllm/__init__.py": "",
    "vllm/envs.py": 'import os\nif True:\n    VLLM_TYPED: int = 1\nenvironment = {\n    "VLLM_PORT": lambda: os.getenv("VLLM_PORT"),\n}\n',
    "vllm/other.py": 'import os\nx = os.environ.get("VLLM_READ_ELSEWHERE")\nnames = ["VLLM_IN_A_LIST"]\n',
    "csrc/native.cpp": 'auto x = std::getenv("VLLM_NATIVE");\n// VLLM_IN_A_COMMENT\n',
    "CMakeLists.txt": "if (VLLM_PYTHON_EXECUTABLE)\n",
    "docs/old.md": "VLLM_IN_DOCS\n",
    "tests/test_old.py": 'monkeypatch.setenv("VLLM_ONLY_TESTED", "1")\nx = os.environ["VLLM_TEST_READ"]\n',
    "docker/Dockerfile": "ARG VLLM_IMAGE_ARG\n",
}


def tree(scratch: Scratch, files: dict[str, str]) -> TreeId:
    write = scratch.objects.write_blob
    return scratch.objects.replaced(EMPTY_TREE, {path: Entry(0o100644, write(text.encode())) for path, text in files.items()})


def checked(
    scratch: Scratch,
    text: str,
    path: str = "vllm/mine.py",
    changed: dict[str, str] | None = None,
    before: dict[str, str] | None = None,
) -> tuple[Drift, ...]:
    """What is found in a file of which all lines are added."""
    files = UPSTREAM | (changed or {}) | {path: text}
    then = tree(scratch, UPSTREAM | before | {path: text}) if before is not None else None
    added = {path: frozenset(range(1, text.count("\n") + 2))}
    return check(scratch.objects, tree(scratch, files), added, before=then)


IMPORTS = "import os, subprocess\nimport vllm\nfrom vllm import envs\n"


@pytest.mark.parametrize(
    "line",
    [
        "envs.VLLM_GONE",
        "vllm.envs.VLLM_GONE",
        "envs.VLLM_GONE.lower()",
        'os.environ["VLLM_GONE"] = "1"',
        'os.environ.setdefault("VLLM_GONE", "1")',
        'monkeypatch.setenv("VLLM_GONE", "1")',
        'subprocess.run([], env={"VLLM_GONE": "1"})',
        'subprocess.run([], env={**os.environ, "VLLM_GONE": str(1)})',
        'env = {"VLLM_GONE": f"{1}"}',
        'raise ValueError("set VLLM_GONE=1 to go on")',
        'print(f"VLLM_GONE={1}")',
        'os.environ["VLLM_ONLY_TESTED"] = "1"',
        'os.environ["VLLM_IN_DOCS"] = "1"',
        'os.environ["VLLM_IN_A_COMMENT"] = "1"',
    ],
)
def test_found(scratch: Scratch, line: str) -> None:
    found = checked(scratch, f"{IMPORTS}{line}\n")
    assert {drift.line for drift in found} == {4}
    assert "nothing in this tree reads the environment variable VLLM_" in found[0].problem


@pytest.mark.parametrize(
    "line",
    [
        "envs.VLLM_PORT, envs.VLLM_TYPED",
        'os.environ["VLLM_READ_ELSEWHERE"] = "1"',
        'os.environ["VLLM_NATIVE"] = "1"',
        'os.environ["VLLM_IN_A_LIST"] = "1"',
        'os.environ["VLLM_TEST_READ"] = "1"',
        'os.environ["VLLM_IMAGE_ARG"] = "1"',
        'env = {"VLLM_PYTHON_EXECUTABLE": "x"}',
        'os.environ["VLLM_MINE"] = os.environ["VLLM_MINE"]',
        'os.environ["VLLM_MINE"] = os.getenv("VLLM_MINE")',
        'os.environ["VLLM_MINE"] = "1" if "VLLM_MINE" in os.environ else "2"',
        'table = {"VLLM_MINE": lambda: 1}\nos.environ["VLLM_MINE"] = "1"',
        'for name in ("VLLM_MINE",):\n    os.environ[name]\nos.environ["VLLM_MINE"] = "1"',
        'NAME = "VLLM_MINE"\nos.environ["VLLM_MINE"] = "1"',
        'TABLE_ENV = {"VLLM_OLD": "new"}',
        'shown_env = {"VLLM_SHOWN": os.cpu_count()}',
        'backend = "VLLM_BACKEND"',
        'use(["VLLM_BACKEND"])',
        'x = {"VLLM_BACKEND": "1"}',
        '"""VLLM_GONE=1 in a docstring"""',
        "# VLLM_GONE=1",
        'os.environ["FLASHINFER_GONE"] = "1"',
        'os.environ["NCCL_GONE"] = "1"',
        "other.VLLM_GONE",
        "envs.VLLM_GONE = 1",
        "VLLM_GONE = 1\nprint(VLLM_GONE)",
    ],
)
def test_silent(scratch: Scratch, line: str) -> None:
    assert checked(scratch, f"{IMPORTS}{line}\n") == ()


def test_a_variable_that_the_patch_declares(scratch: Scratch) -> None:
    table = UPSTREAM["vllm/envs.py"].replace("}", '    "VLLM_MINE": lambda: 1,\n}')
    assert checked(scratch, f"{IMPORTS}envs.VLLM_MINE\n", changed={"vllm/envs.py": table}) == ()


def test_the_nearest_is_named(scratch: Scratch) -> None:
    (found,) = checked(scratch, f"{IMPORTS}envs.VLLM_PORTS\n")
    assert found.problem == "nothing in this tree reads the environment variable VLLM_PORTS: the nearest is VLLM_PORT"


def test_a_variable_that_only_the_patch_still_reads(scratch: Scratch) -> None:
    text = 'import os\nx = os.environ.get("VLLM_DROPPED")\n'
    table = UPSTREAM["vllm/envs.py"].replace("}", '    "VLLM_DROPPED": lambda: 1,\n}')
    assert checked(scratch, text) == ()
    assert checked(scratch, text, before={}) == ()
    (found,) = checked(scratch, text, before={"vllm/envs.py": table})
    assert found.line == 2
    assert "the upstream no longer knows the environment variable VLLM_DROPPED" in found.problem


@pytest.mark.parametrize(
    ("path", "text", "lines"),
    [
        ("serve.sh", "export VLLM_GONE=1\nVLLM_GONE=1 vllm serve\n# VLLM_GONE=1\n", [1, 2]),
        ("docker/Dockerfile.mine", "ENV VLLM_GONE=1\n", [1]),
        ("docker/compose.yaml", "environment:\n  VLLM_GONE: 1\n  - VLLM_GONE=1\n", [2, 3]),
        ("serve.sh", "export VLLM_PORT=1\n", []),
        ("serve.sh", 'VLLM_MINE=1\necho "${VLLM_MINE}"\n', []),
        ("docker/Dockerfile.mine", "ARG VLLM_MINE=1\n", []),
        (".github/run.sh", "export VLLM_GONE=1\n", []),
        ("notes.md", "export VLLM_GONE=1\n", []),
        ("tests/test_text.py", 'x = "VLLM_GONE=1"\n', []),
    ],
)
def test_other_files(scratch: Scratch, path: str, text: str, lines: list[int]) -> None:
    assert [drift.line for drift in checked(scratch, text, path)] == lines


def test_a_tree_without_a_table(scratch: Scratch) -> None:
    files = {
        "flashinfer/__init__.py": "",
        "flashinfer/jit/env.py": 'import os\nFLASHINFER_BASE = os.getenv("FLASHINFER_WORKSPACE_BASE")\n',
        "tests/test_mine.py": 'm.setenv("FLASHINFER_WORKSPACE_BASE", "1")\nm.setenv("FLASHINFER_WORKSPACE_BASES", "1")\nm.setenv("VLLM_X", "1")\n',
    }
    (found,) = check(scratch.objects, tree(scratch, files), {"tests/test_mine.py": frozenset({1, 2, 3})})
    assert found.line == 2
    assert "the nearest is FLASHINFER_WORKSPACE_BASE" in found.problem
