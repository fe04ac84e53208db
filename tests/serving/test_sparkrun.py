# SPDX-License-Identifier: Apache-2.0
"""Recipes in the Spark community's form: what is exported says the same when it is imported again."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.deploy import imported_recipes, node_settings, recipe_text, recipes
from stack.deploy.recipes import Recipe
from stack.doctor import importing
from stack.serving.sparkrun import _header, export

PUBLISHED = [one for one in map(recipes.load, recipes.known()) if one.hardware is not None]
SPARK = recipes.load("gpt-oss-120b-spark")


def imported(recipe: Recipe, folder: Path, **options: str) -> Recipe:
    """Export a recipe, import what was written, write that as a recipe, and read it."""
    shared = folder / "shared.yaml"
    shared.write_text(export(recipe, **options), encoding="utf-8")
    made = importing.read(shared, ())
    assert made.to_look_at == ()
    file = folder / "again.toml"
    file.write_text(recipe_text.text(made.draft, shared.name), encoding="utf-8")
    return recipes.read(file)


def groups(recipe: Recipe) -> list[tuple[str, ...]]:
    """The flags of a recipe with their values, without those between nodes, whose place differs."""
    found: list[tuple[str, ...]] = []
    for word in recipe.arguments:
        found = [*found, (word,)] if word.startswith("-") else [*found[:-1], (*found[-1], word)]
    return [group for group in found if group[0] not in node_settings.BETWEEN]


def alike(one: Recipe, other: Recipe) -> None:
    """All that makes the server the same."""
    assert groups(one) == groups(other)
    assert sorted(one.arguments) == sorted(other.arguments)
    assert dict(one.environment) == dict(other.environment)
    assert set(one.variables) == set(other.variables)
    assert (one.model, one.revision, one.title) == (other.model, other.revision, other.title)
    assert one.hardware is not None and other.hardware is not None
    assert (one.hardware.name, one.hardware.nodes) == (other.hardware.name, other.hardware.nodes)


@pytest.mark.parametrize("recipe", PUBLISHED, ids=lambda recipe: recipe.name)
def test_our_own_come_back(recipe: Recipe, tmp_path: Path) -> None:
    again = imported(recipe, tmp_path)
    alike(recipe, again)
    assert (again.proven, again.speeds) == (None, ())


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="$"), min_size=1, max_size=12)
VALUE = st.one_of(
    st.sampled_from(
        [
            "fp8",
            "0.70",
            "131072",
            "1",
            "true",
            "null",
            "~",
            "yes",
            "0x1f",
            "1e3",
            "12.1a",
            "a b",
            "it's",
            '"',
            "\\",
            "#x",
            "a: b",
        ]
    ),
    st.sampled_from(
        [
            '{"a":{"b":1}}',
            '{"a":"it\'s"}',
            "{",
            "}}",
            "{{x}",
            "[1, 2]",
            "*x",
            "&x",
            "!x",
            "%x",
            "@x",
            "`id`",
            "a;b",
            "a|b",
            "*",
            "~/x",
        ]
    ),
    TEXT,
)
FLAG = st.sampled_from(
    ["--seed", "--max-model-len", "--dtype", "--a.b_c", "--tensor-parallel-size-x", "--revision-x", "--x", "--host-x"]
)


def holds(text: str) -> bool:
    """Values that a recipe and this form can both hold."""
    return text.isprintable() and bool(text.strip()) and not text.startswith("-") and not imported_recipes._FILE.fullmatch(text)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(FLAG, st.one_of(st.none(), VALUE.filter(holds))), max_size=6),
    st.dictionaries(st.from_regex(r"(?:OMP_)?[A-Z][A-Z0-9_]{0,8}", fullmatch=True), VALUE.filter(holds), max_size=4),
    st.integers(1, 3),
)
def test_any_settings_come_back(
    tmp_path_factory: pytest.TempPathFactory,
    flags: list[tuple[str, str | None]],
    environment: dict[str, str],
    nodes: int,
) -> None:
    made = imported_recipes.draft(
        title="Any",
        model="some/Model",
        revision=None,
        flags=[("--tensor-parallel-size", str(nodes)), ("--gpu-memory-utilization", "0.7"), *flags],
        environment=environment,
        machine="spark",
    )
    folder = tmp_path_factory.mktemp("any")
    file = folder / "one.toml"
    file.write_text(recipe_text.text(made, "a file"), encoding="utf-8")
    one = recipes.read(file)
    assert [word for words in made.arguments for word in words] == [*one.arguments]
    try:
        again = imported(one, folder)
    except StackError as refused:
        assert "takes for a placeholder" in str(refused)
        return
    alike(one, again)


ODD = [
    "a b",
    "it's",
    '"',
    "\\",
    "#x",
    "a: b",
    "a;b",
    "`id`",
    "*",
    "null",
    "~",
    '{"a":"it\'s"}',
    "{",
    "}}",
    "{{",
    "[1, 2]",
    "!x",
    "@x",
    "\u00e4",
]


def test_odd_values_come_back(tmp_path: Path) -> None:
    """As arguments, in defaults and in the command itself, and as variables; a flag's name does not become a command either."""
    arguments = [word for number, value in enumerate(ODD) for word in (f"--x{number}", value, "--again", value)]
    one = replace(
        recipes.load("qwen3-6-27b-nvfp4-spark"),
        arguments=("--gpu-memory-utilization", "0.7", "--a;b", *arguments),
        environment={f"VLLM_X{number}": value for number, value in enumerate(ODD)},
    )
    again = imported(one, tmp_path)
    assert again.arguments == one.arguments
    assert dict(again.environment) == dict(one.environment)


def test_the_form(tmp_path: Path) -> None:
    """As the runners read it: values that people change are defaults, and the command names them."""
    text = export(SPARK, "localhost/stack:1")
    content = yaml.safe_load(text)
    assert content["recipe_version"] == "2"
    assert (content["model"], content["container"]) == ("openai/gpt-oss-120b", "localhost/stack:1")
    assert content["defaults"]["gpu_memory_utilization"] == 0.7
    assert content["defaults"]["host"] == "127.0.0.1"
    assert content["env"]["MAX_JOBS"] == "2"
    # run-recipe.py of eugr/spark-vllm-docker fills placeholders by str.format.
    filled = content["command"].format(model=content["model"], **content["defaults"])
    assert '--quantization-config \'{"linear":"mxfp4","lm_head":"mxfp4"}\'' in filled
    assert "{" not in filled.replace('{"linear":"mxfp4","lm_head":"mxfp4"}', "")
    assert "Unproven." in text.splitlines()[0]
    assert "# Add `container`" in export(SPARK)


def test_nodes_are_left_to_the_runner() -> None:
    content = yaml.safe_load(export(recipes.load("gpt-oss-120b-2-sparks")))
    assert (content["min_nodes"], content["max_nodes"], content["defaults"]["tensor_parallel"]) == (2, 2, 2)
    assert "--nnodes" not in content["command"]
    assert content["env"] == {"FLASHINFER_CUDA_ARCH_LIST": "12.1a", "MAX_JOBS": "2"}


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (recipes.load("cpu-fp32"), "recipe cpu-fp32 has no published model"),
        (recipes.load("gpt-oss"), "recipe gpt-oss has no published model"),
        (replace(SPARK, arguments=("--x", "a\nb")), "has control characters"),
        (replace(SPARK, title="a\x1bb"), "has control characters"),
        (replace(SPARK, arguments=("--x", "{word}")), "takes for a placeholder"),
        (replace(SPARK, arguments=("--x", "a${B}"), variables={"B": "b"}), "takes for a placeholder"),
    ],
)
def test_what_cannot_be_exported(recipe: Recipe, said: str) -> None:
    with pytest.raises(StackError, match=said):
        export(recipe)


def test_a_fact_of_the_head_is_one_line() -> None:
    """A line break in a backend's name would add a key to the file."""
    hostile = replace(SPARK, backends=replace(SPARK.backends, moe="X\ncommand: |\n  touch X\n#"))
    with pytest.raises(StackError, match="has control characters"):
        export(hostile)
    assert all("\n" not in line for line in _header(hostile, None))
