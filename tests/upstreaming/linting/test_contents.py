# SPDX-License-Identifier: Apache-2.0
"""Tests, documentation, licences, and lines that must not be added."""

import pytest

from stack.upstreaming.linting import contents

from .factories import CUTLASS, FLASHINFER, VLLM, Making, said

CODE = {"vllm/a.py": "a = 1\n"}
ENVS = 'environment_variables = {\n    "VLLM_OLD": lambda: 1,\n}\n'
FLAG = 'def add(parser):\n    parser.add_argument("--old", help="x")\n'


def test_code_with_a_test(making: Making) -> None:
    change = making.change(CODE, {"vllm/a.py": "a = 2\n", "tests/v1/test_a.py": "def test(): ...\n"})
    assert said(contents.tests(VLLM.tests, change)) == []


def test_code_without_a_test(making: Making) -> None:
    change = making.change(CODE, {"vllm/a.py": "a = 2\n", "tests/conftest.py": "a = 2\n"})
    assert said(contents.tests(VLLM.tests, change)) == [("tests", "error", "vllm/a.py")]
    assert said(contents.tests(None, change)) == []


def test_taking_a_test_away_is_no_test(making: Making) -> None:
    change = making.change(CODE | {"tests/test_a.py": "a\nb\n"}, {"vllm/a.py": "a = 2\n", "tests/test_a.py": "a\n"})
    assert said(contents.tests(VLLM.tests, change)) == [("tests", "error", "vllm/a.py")]


def test_documentation_needs_no_test(making: Making) -> None:
    assert said(contents.tests(VLLM.tests, making.change({"docs/a.md": "a"}, {"docs/a.md": "b"}))) == []


@pytest.mark.parametrize(
    ("path", "before", "after", "expected"),
    [
        ("vllm/envs.py", ENVS, ENVS.replace("}\n", '    "VLLM_NEW": lambda: 1,\n}\n'), "vllm/envs.py:3"),
        ("vllm/envs.py", ENVS, ENVS.replace("}\n", '    # What it is for.\n    "VLLM_NEW": lambda: 1,\n}\n'), ""),
        ("vllm/envs.py", ENVS, ENVS.replace("lambda: 1", "lambda: 2"), ""),
        ("vllm/cli.py", FLAG, FLAG + '    parser.add_argument("--new")\n', "vllm/cli.py:3"),
        ("vllm/cli.py", FLAG, FLAG + '    parser.add_argument(\n        "--new",\n    )\n', "vllm/cli.py:4"),
        ("vllm/cli.py", FLAG, FLAG + '    parser.add_argument("--new", help="It is new.")\n', ""),
        ("tests/cli.py", FLAG, FLAG + '    parser.add_argument("--new")\n', ""),
        (
            "vllm/config/k.py",
            'A = Literal[\n    "old",\n]\n',
            'A = Literal[\n    "old",\n    "fresh",\n]\n',
            "vllm/config/k.py:3",
        ),
        (
            "vllm/config/k.py",
            'A = Literal[\n    "old",\n]\n',
            'A = Literal[\n    "old",\n    "fresh",\n]\n\n\n\n\n\n\n\n- "fresh": it is new\n',
            "",
        ),
    ],
)
def test_what_users_see(making: Making, path: str, before: str, after: str, expected: str) -> None:
    change = making.change({path: before}, {path: after})
    assert said(contents.docs(VLLM.docs, change)) == ([("docs", "error", expected)] if expected else [])
    told = making.change({path: before}, {path: after, "docs/use.md": "`--new`, VLLM_NEW and `fresh` are new.\n"})
    assert said(contents.docs(VLLM.docs, told)) == []
    assert said(contents.docs(None, change)) == []


def test_new_files_name_their_licence(making: Making) -> None:
    header = "// SPDX-License-Identifier: BSD-3-Clause\n"
    change = making.change(
        {"include/old.h": "a\n"},
        {
            "include/old.h": "b\n",
            "include/good.h": f"{header}b\n",
            "include/bad.h": "b\n",
            "README": "b\n",
            "include/empty.h": "",
        },
    )
    assert said(contents.headers(CUTLASS.header, change)) == [("header", "error", "include/bad.h:1")]
    assert said(contents.headers(None, change)) == []


def test_lines_that_must_not_be_added(making: Making) -> None:
    before = {"include/a.cuh": "#include <torch/all.h>\n", "csrc/a.cu": "\n"}
    after = {"include/a.cuh": "#include <torch/all.h>\n#include <ATen/a.h>\n", "csrc/a.cu": "#include <torch/all.h>\n"}
    assert said(contents.forbidden(FLASHINFER.forbidden, making.change(before, after))) == [
        ("forbidden", "error", "include/a.cuh:2")
    ]


def test_odd_names_show(making: Making) -> None:
    change = making.change({"x": "x"}, {"x": "x", "a b.py": "b\n", "größe.py": "b\n", "fine.py": "b\n"})
    assert [place for _, _, place in said(contents.names(change))] == ["a b.py", "größe.py"]
