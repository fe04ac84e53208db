# SPDX-License-Identifier: Apache-2.0
"""Small files that stand for much: values that are named again and again, and services that are one another's aliases."""

import time

import pytest
import yaml

from stack.base.errors import StackError
from stack.doctor import community, nodes, script

LONG = "A " * 60_000
RECIPE = f"recipe_version: '1'\ndefaults:\n  a: '{LONG}'\nmodel: m/x\ncommand: |\n  vllm serve {{model}} {'{a} ' * 20_000}\n"
SWAP = f"models:\n  m:\n    cmd: |\n      vllm serve m/x {'${a} ' * 40_000}\nmacros:\n  a: '{LONG}'\n"
COMPOSE = f"x: &x\n  image: vllm/vllm-openai\n  command: [{', '.join(['--max-model-len', '1'] * 50)}]\nservices:\n" + "".join(
    f"  s{number}: *x\n" for number in range(2000)
)
MERGES = f"x: &x {{{', '.join(f'a{key}: 1' for key in range(600))}}}\n" + "".join(
    f"m{number}: {{<<: *x}}\n" for number in range(350)
)
LAUGHS = "a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 9)
)
MERGED_LISTS = f"x: &x {{a: 1}}\nl: &l [{', '.join(['*x'] * 1200)}]\n" + "".join(
    f"m{number}: {{<<: *l}}\n" for number in range(1200)
)
MERGED_AGAIN = "m0: &m0 {a: 1}\n" + "".join(
    f"m{level}: &m{level} {{<<: [{', '.join([f'*m{level - 1}'] * 100)}]}}\n" for level in range(1, 200)
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (RECIPE, "characters of values"),
        (SWAP, "characters of values"),
        (COMPOSE, "2000 services"),
        (LAUGHS, "line 7 stands for more than 1000000 values: its aliases"),
        (MERGED_LISTS, "line 1 stands for more than 1000000 values"),
        (MERGED_AGAIN, "line 4 stands for more than 1000000 values"),
        (MERGES, r"the merges \(<<\) up to line 334 add more than 200000 keys"),
    ],
)
def test_they_are_refused_in_one_line(text: str, says: str) -> None:
    began = time.process_time()
    with pytest.raises(StackError, match=says):
        script.parse("serve.yaml", text)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("text", [LAUGHS, MERGED_LISTS], ids=["lists", "merges"])
def test_a_shared_recipe_is_as_bounded(text: str) -> None:
    with pytest.raises(StackError, match="stands for more than 1000000 values"):
        community.parse("recipe.yaml", f"model: m/x\ncommand: vllm serve m/x\n{text}")


def test_aliases_of_every_day_and_those_that_name_themselves_are_read() -> None:
    text = "x: &x {image: vllm/vllm-openai, command: [m/x, --port, '1']}\nservices:\n" + "".join(
        f"  s{number}: {{<<: *x, container_name: c{number}}}\n" for number in range(100)
    )
    assert len(script.parse("compose.yml", text).serves) == 100
    assert script.parse("compose.yml", "x: &x [*x, *x]\nservices: {a: {image: vllm/vllm-openai, command: m/x}}\n").serves


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
