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
        parser.add_argument("--dtype", **a_kwargs["dtype"])
        parser.add_argument("--odd", **a_kwargs["odd"])
        parser.add_argument("--count", **a_kwargs["count"])
        parser.add_argument("--most", **{**a_kwargs["most"], "default": None})
        parser.add_argument("--typed", **{**a_kwargs["most"], "type": str})
        parser.add_argument("--share", **a_kwargs["share"])
        parser.add_argument("--method", **a_kwargs["method"])
        parser.add_argument("--unclear", **a_kwargs["unclear"])
"""
CONFIG = """\
from enum import Enum
from typing import Literal
from vllm.engines import Engine

if TYPE_CHECKING:
    from vllm.methods import Method
else:
    Method = str

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
    dtype: Kind | torch.dtype = "one"
    odd: torch.dtype | None = None
    count: int = Field(default=1, ge=1)
    most: int | None = None
    share: int | float = 1
    method: Method | str | None = None
    unclear: Unheard | str = ""
"""
UPSTREAM = {
    "vllm/__init__.py": "",
    "vllm/config/__init__.py": "from vllm.config.some import AConfig, Derived, Nested\n",
    "vllm/config/some.py": CONFIG,
    "vllm/engines.py": "from enum import Enum\n\nclass Engine(Enum, metaclass=Meta):\n    FAST = 'a.b'\n    SLOW = 'a.c'\n",
    "vllm/methods/__init__.py": 'Method = Literal["fp8", "gptq", "compressed-tensors"]\n',
    "vllm/methods/more.py": '@register_method("ours")\nclass Ours:\n    """>>> @register_method("example")"""\n',
    "vllm/engine/arg_utils.py": ENGINE,
    "vllm/reasoning/__init__.py": '_REASONING_PARSERS_TO_REGISTER = {\n    "gpt": ("a", "B"),\n    "deep_r1": ("a", "B"),\n}\n',
    "vllm/tool_parsers/__init__.py": "_TOOL_PARSERS_TO_REGISTER = dict(made())\n",
}


def test_what_a_tree_declares(scratch: Scratch) -> None:
    kinds = frozenset({"one", "two_three"})
    assert declared(Files(scratch.objects, tree(scratch, UPSTREAM))) == {
        "--kind": Choices(kinds),
        "--renamed": Choices(kinds | {"four"}),
        "--engine": Choices(frozenset({"auto", "FAST", "SLOW"})),
        "--nested": Choices(keys=frozenset({"linear", "moe"})),
        "--reasoning-parser": Choices(frozenset({"gpt", "deep_r1"}), is_exact=True),
        "--dtype": Choices(kinds),
        "--count": Choices(is_number=True),
        "--most": Choices(is_number=True),
        "--free": Choices(kinds, is_open=True),
        "--method": Choices(frozenset({"fp8", "gptq", "compressed-tensors", "ours"}), is_open=True),
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
        ("--reasoning-parser", "gtp", "--reasoning-parser does not take gtp: it takes deep_r1, gpt"),
        ("--reasoning-parser", "deep_r1", None),
        ("--reasoning-parser", "deep-r1", "--reasoning-parser does not take deep-r1: the nearest is deep_r1"),
        ("--reasoning-parser", "GPT", "--reasoning-parser does not take GPT"),
        ("--dtype", "one", None),
        ("--dtype", "bf16", "--dtype does not take bf16: it takes one, two_three"),
        ("--odd", "x", None),
        ("--count", "abc", "--count does not take abc: it takes a whole number"),
        ("--count", "8", None),
        ("--count", "-1", None),
        ("--count", "1_000", None),
        ("--most", "eight", "--most does not take eight: it takes a whole number"),
        ("--most", "8k", None),
        ("--most", "None", None),
        ("--most", "auto", None),
        ("--most", "$MOST", None),
        ("--most", "${MOST:-8}", None),
        ("--most", "{most}", None),
        ("--typed", "abc", None),
        ("--share", "abc", None),
        ("--free", "x", "--free x is none of vLLM's own: it works only if an installed plug-in registers that name"),
        ("--method", "FP8", None),
        ("--method", "ours", None),
        ("--method", "fp-8", "--method has no fp-8: did you mean fp8?"),
        ("--method", "compressed_tensors", "--method has no compressed_tensors: did you mean compressed-tensors?"),
        ("--method", "gguf", "--method gguf is none of vLLM's own"),
        ("--method", "example", "--method example is none of vLLM's own"),
        ("--method", "$METHOD", None),
        ("--unclear", "x", None),
        ("--own", "y", None),
        ("--tool-call-parser", "y", None),
    ],
)
def test_values(scratch: Scratch, flag: str, value: str, said: str | None) -> None:
    found = check_values(scratch.objects, tree(scratch, UPSTREAM), [(flag, value)])
    assert [*found] == ([(flag, value)] if said else [])
    assert all(one.problem.startswith(said or "-") for one in found.values())


def test_only_a_slip_is_certain_where_plug_ins_add_values(scratch: Scratch) -> None:
    given = [("--method", value) for value in ("fp-8", "gguf")]
    found = check_values(scratch.objects, tree(scratch, UPSTREAM), given)
    assert [(one.near, one.is_certain) for one in found.values()] == [("fp8", True), (None, False)]


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
