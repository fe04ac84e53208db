# SPDX-License-Identifier: Apache-2.0
"""Values of flags, where a tree declares all that there are."""

import pytest

from stack.carry.drift import check_values
from stack.carry.drift.tree import Files
from stack.vllm_project.choices import Choices, declared

from .test_drift_settings import tree
from .trees import Scratch

ENGINE = """\
from vllm.config import AConfig, Nested

class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        a_kwargs = get_kwargs(AConfig)
        other_kwargs = somehow(AConfig)
        parser.add_argument("--kind", **a_kwargs["kind"])
        kind_kwargs = a_kwargs["renamed"]
        kind_kwargs["type"] = str.lower
        parser.add_argument("--renamed", "-r", **kind_kwargs)
        parser.add_argument("--engine", **a_kwargs["engine"])
        parser.add_argument("--nested", **a_kwargs["nested"])
        parser.add_argument("--free", **a_kwargs["free"])
        parser.add_argument("--text", **a_kwargs["text"])
        parser.add_argument("--other", **other_kwargs["kind"])
        parser.add_argument("--own", choices=["x"], **a_kwargs["kind"])
        parser.add_argument("--number", **a_kwargs["number"])
"""
CONFIG = """\
from enum import Enum
from typing import Literal
from vllm.engines import Engine

Kind = Literal["one", "two_three"]

@config
class Nested:
    linear: str | None = None
    moe: str | None = None

class Derived(Nested):
    more: int = 1

@config
class AConfig:
    kind: Kind | None = None
    renamed: Literal["four"] | Kind = "four"
    engine: Engine | None = None
    nested: dict[str, int] | Nested | None = None
    free: Kind | str = "one"
    text: str = ""
    number: Literal[1, 2] = 1
"""
UPSTREAM = {
    "vllm/__init__.py": "",
    "vllm/config/__init__.py": "from vllm.config.some import AConfig, Derived, Nested\n",
    "vllm/config/some.py": CONFIG,
    "vllm/engines.py": "from enum import Enum\n\nclass Engine(Enum, metaclass=Meta):\n    FAST = 'a.b'\n    SLOW = 'a.c'\n",
    "vllm/engine/arg_utils.py": ENGINE,
    "vllm/reasoning/__init__.py": '_REASONING_PARSERS_TO_REGISTER = {\n    "gpt": ("a", "B"),\n}\n',
    "vllm/tool_parsers/__init__.py": "_TOOL_PARSERS_TO_REGISTER = dict(made())\n",
}


def test_what_a_tree_declares(scratch: Scratch) -> None:
    kinds = frozenset({"one", "two_three"})
    assert declared(Files(scratch.objects, tree(scratch, UPSTREAM))) == {
        "--kind": Choices(kinds),
        "--renamed": Choices(kinds | {"four"}),
        "--engine": Choices(frozenset({"auto", "FAST", "SLOW"})),
        "--nested": Choices(keys=frozenset({"linear", "moe"})),
        "--reasoning-parser": Choices(frozenset({"gpt"})),
    }


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--kind", "one", None),
        ("--kind", "Two-Three", None),
        ("--kind", "two_thre", "--kind does not take two_thre: the nearest is two_three"),
        ("--kind", "x", "--kind does not take x: it takes one, two_three"),
        ("--engine", "fast", None),
        ("--engine", "auto", None),
        ("--engine", "QUICK", "--engine does not take QUICK"),
        ("--nested", '{"linear": "a"}', None),
        ("--nested", '{"linear": "a", "lm_head": "a"}', "the JSON of --nested has no key lm_head: it takes linear, moe"),
        ("--nested", "no JSON", None),
        ("--nested", "[" * 100_000, None),
        ("--reasoning-parser", "gtp", "--reasoning-parser does not take gtp: it takes gpt"),
        ("--free", "x", None),
        ("--own", "y", None),
        ("--tool-call-parser", "y", None),
    ],
)
def test_values(scratch: Scratch, flag: str, value: str, said: str | None) -> None:
    found = check_values(scratch.objects, tree(scratch, UPSTREAM), [(flag, value)])
    assert [*found] == ([(flag, value)] if said else [])
    assert all(one.problem.startswith(said or "-") for one in found.values())


def test_what_is_no_vllm_declares_nothing(scratch: Scratch) -> None:
    assert check_values(scratch.objects, tree(scratch, {"x/__init__.py": ""}), [("--kind", "x")]) == {}


def test_names_that_begin_with_a_value_are_listed(scratch: Scratch) -> None:
    names = ["qwen3_coder", "qwen3_xml", "hermes", *(f"parser_{letter}" for letter in "abcdefghijkl")]
    parsers = "_TOOL_PARSERS_TO_REGISTER = {" + "".join(f'"{name}": ("a", "B"), ' for name in names) + "}\n"
    made = tree(scratch, UPSTREAM | {"vllm/tool_parsers/__init__.py": parsers})
    for value, said in (
        ("qwen3", "names that begin with it are qwen3_coder, qwen3_xml"),
        ("zz", "nothing there is named like it"),
    ):
        [found] = check_values(scratch.objects, made, [("--tool-call-parser", value)]).values()
        assert found.problem == f"--tool-call-parser does not take {value}: {said}"
