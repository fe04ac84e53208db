# SPDX-License-Identifier: Apache-2.0
"""Small files that stand for much: values that are named again and again, and services that are one another's aliases."""

import time

import pytest
import yaml

from stack.base.errors import StackError
from stack.doctor import nodes, script

LONG = "A " * 60_000
RECIPE = f"recipe_version: '1'\ndefaults:\n  a: '{LONG}'\nmodel: m/x\ncommand: |\n  vllm serve {{model}} {'{a} ' * 20_000}\n"
SWAP = f"models:\n  m:\n    cmd: |\n      vllm serve m/x {'${a} ' * 40_000}\nmacros:\n  a: '{LONG}'\n"
COMPOSE = f"x: &x\n  image: vllm/vllm-openai\n  command: [{', '.join(['--max-model-len', '1'] * 8000)}]\nservices:\n" + "".join(
    f"  s{number}: *x\n" for number in range(2000)
)
MERGES = f"x: &x {{{', '.join(f'a{key}: 1' for key in range(600))}}}\n" + "".join(
    f"m{number}: {{<<: *x}}\n" for number in range(350)
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (RECIPE, "characters of values"),
        (SWAP, "characters of values"),
        (COMPOSE, "2000 services"),
        (MERGES, r"the merges \(<<\) up to line 334 add more than 200000 keys"),
    ],
)
def test_they_are_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(StackError, match=says):
        script.parse("serve.yaml", text)


def test_own_keys_count_before_merged_ones() -> None:
    top = yaml.compose("a: 1\n<<: [{a: 2, b: 3}, {b: 4, c: 5, <<: {c: 6, d: 7}}]\n", Loader=yaml.SafeLoader)
    assert {key: nodes.text(value) for key, value in nodes.items(top)} == {"a": "1", "b": "3", "c": "5", "d": "7"}
    assert [key for key, _ in nodes.items(top)] == ["c", "d", "b", "a"]


def test_a_mapping_that_merges_itself_is_read() -> None:
    top = yaml.compose("&x\na: 1\n<<: *x\n", Loader=yaml.SafeLoader)
    nodes.demand_few_merges(top)
    assert nodes.text(nodes.value(top, "a")) == "1"


def test_a_long_list_takes_linear_time() -> None:
    content = [yaml.ScalarNode("tag:yaml.org,2002:str", "a") for _ in range(200_000)]
    began = time.process_time()
    assert not [*nodes.walk(yaml.SequenceNode("tag:yaml.org,2002:seq", content))]
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "text", ["A b\n" * 120_000, "CMD [" + ", ".join([r'"\u0061"'] * 30_000) + "]\n"], ids=["lines", "list"]
)
def test_a_long_dockerfile_takes_linear_time(text: str) -> None:
    began = time.process_time()
    script.parse("Dockerfile", text)
    assert time.process_time() - began < 2


def test_the_lines_of_a_list_in_a_dockerfile() -> None:
    text = 'FROM x\nCMD ["vllm", "serve", "m/x", \\\n  "--\\u0061", "é", \\\n  "--b", "é"]\n'
    flags = script.parse("Dockerfile", text).serves[0].flags
    assert [(flag.name, flag.value, flag.line) for flag in flags] == [("--a", "é", 3), ("--b", "é", 4)]
