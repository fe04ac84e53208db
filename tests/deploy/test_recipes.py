# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.deploy import hardware, recipe_checks, recipes
from stack.model import document, verdict

ROOT = Path(__file__).parents[2]

GOOD = """
title = "A server"
model = "tiny"
arguments = ["--dtype", "float32"]
flags = []
log = ["Using X"]
environment = { VLLM_CPU_KVCACHE_SPACE = "1" }
bar = { measure = "largest", at = 1e-4 }
"""


def published(name: str) -> dict[int, float]:
    """How fast a baseline decoded 32 tokens, by the tokens of the prompt."""
    speeds = document.load(ROOT / f"validation/baselines/{name}.toml").table("decode").table("32")
    return {int(context): speeds.number(context) for context in speeds}


def measured(server: str) -> dict[int, float]:
    """How fast one of the servers of a kept verdict decoded."""
    start = f"bench/{server}/decode/"
    cases = verdict.load(ROOT / "validation/verdicts/archive/h200-kernels.json").cases
    found = {case.name.removeprefix(start): case.measured["tok/s"] for case in cases if case.name.startswith(start)}
    return {int(context): float(rate) for context, rate in found.items()}


def stated(speed: str) -> dict[int, float]:
    """Read a page's speed without a baseline here: tokens of the prompt and tokens a second."""
    context, decode = speed.split(": ")
    return {int(context): float(decode)}


SOURCES = {
    "gpt-oss-120b-spark": (published, "fork-one-spark"),
    "gpt-oss-120b-2-sparks": (stated, "1024: 69.0"),
    "gpt-oss-120b-4-sparks": (published, "community-four-sparks"),
    "gpt-oss-120b-h200": (measured, "default"),
    "nemotron-3-super-nvfp4-spark": (stated, "1024: 16.29"),
    "qwen3-6-35b-a3b-nvfp4-spark": (stated, "8192: 97.7"),
}
TOGETHER = {
    "gpt-oss-120b-spark-batch": (32, 318.7),
    "gpt-oss-120b-2-sparks-batch": (32, 471.7),
    "nemotron-3-super-nvfp4-spark": (32, 83.50),
}
"""Requests at once and tokens a second of all of them, as their pages state them."""


def read(folder: Path, text: str) -> recipes.Recipe:
    file = folder / "some-server.toml"
    file.write_text(text)
    return recipes.read(file)


def test_a_recipe(tmp_path: Path) -> None:
    recipe = read(tmp_path, GOOD)
    assert (recipe.name, recipe.arguments) == ("some-server", ("--dtype", "float32"))
    assert recipe.bar == recipes.Bar("largest", 1e-4)


@pytest.mark.parametrize("name", recipes.known())
def test_our_own_can_be_read(name: str) -> None:
    recipe = recipes.load(name)
    assert recipe.is_ours == (recipe.bar is not None) == bool(recipe.log)
    assert (recipe.hardware is not None) == (not recipe.is_ours and recipe.model != recipes.GIVEN)


@pytest.mark.parametrize("name", recipes.known())
def test_a_published_speed_is_what_its_source_says(name: str) -> None:
    """Speeds stand in recipes rounded; baselines and verdicts have them as they were published or measured."""
    source, of = SOURCES.get(name, (lambda _: {}, ""))
    found = {one.context: one.decode for one in recipes.load(name).speeds}
    assert found == pytest.approx(source(of), abs=0.051)


def test_speeds_of_several_requests_are_apart() -> None:
    """A comparison with one request must not use the speeds of many."""
    found = {name: [(one.requests, one.decode) for one in recipes.load(name).batch_speeds] for name in recipes.known()}
    assert {name: tuple(speeds) for name, speeds in found.items() if speeds} == {name: (one,) for name, one in TOGETHER.items()}
    for name in TOGETHER:
        assert all(one.requests == 1 for one in recipes.load(name).speeds)


def test_what_was_not_run_says_so() -> None:
    """In its first lines: only a recipe with a kept verdict has been run by us."""
    for name in recipes.known():
        recipe = recipes.load(name)
        if recipe.hardware is None or recipe.proven:
            continue
        comment = (recipes.FOLDER / f"{name}.toml").read_text().partition("title")[0].lower()
        assert "unproven" in comment or "nothing of it has run on sm121" in comment, name
        memory = (recipes.FOLDER / f"{name}.toml").read_text().partition("[hardware]")[0].rpartition("\n\n")[2].lower()
        assert any(words in memory for words in ("* 10^9 bytes", "of what each node has", "as the base")), name


@pytest.mark.parametrize("name", [name for name in recipes.known() if recipes.load(name).hardware])
def test_the_memory_is_the_share_that_the_server_takes(name: str) -> None:
    recipe = recipes.load(name)
    assert recipe.hardware is not None
    share = float(recipe.arguments[recipe.arguments.index("--gpu-memory-utilization") + 1])
    whole = 150.8 if recipe.hardware.name == "h200" else hardware.load(recipe.hardware.name).memory  # as its driver reports it
    assert round(share * whole) == recipe.hardware.memory


@pytest.mark.parametrize("name", [name for name in recipes.known() if recipes.load(name).proven])
def test_what_proves_a_recipe_is_of_its_machine_and_its_backends(name: str) -> None:
    recipe = recipes.load(name)
    found = verdict.load(ROOT / str(recipe.proven))
    assert found.whole
    assert recipe.hardware is not None
    assert [gpu.capability for gpu in found.machine.gpus] == [
        hardware.load(recipe.hardware.name).capability
    ] * recipe.hardware.nodes
    _, server = SOURCES[name]
    said = {case.name: case for case in found.cases}[f"serve/{server}/backends"]
    assert said.outcome is verdict.Outcome.PASSED
    assert {f"'{recipe.backends.moe}'", recipe.backends.attention} <= {*str(said.measured["log"]).split()}


def test_ours_are_those_with_a_model_of_our_own() -> None:
    assert recipes.ours() == ("cpu-fp32", "cpu-mxfp4")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('model = "tiny"', 'model = "huge"', "model is 'huge'"),
        ('log = ["Using X"]', "log = []", "log is empty"),
        ('bar = { measure = "largest", at = 1e-4 }', "", "bar is missing"),
        ("at = 1e-4", "at = 0", "at is 0"),
        ("at = 1e-4", "at = nan", "at is nan"),
        ('"largest"', '"mean"', "measure is 'mean'"),
        ("flags = []", "flag = []", "flag"),
        ('"--dtype", "float32"', '"--dtype", "${TYPE}"', "the arguments disagree on TYPE"),
        ('"--dtype", "float32"', '"--dtype", "$TYPE"', "has '$TYPE'"),
        ("flags = []", 'flags = []\nvariables = { TYPE = "a type" }', "the arguments disagree on TYPE"),
        ('model = "tiny"', 'model = "gpt-oss-20b"', "hardware is missing"),
        ("flags = []", 'flags = []\nhardware = { name = "toaster", nodes = 1, memory = 1 }', "hardware.name is 'toaster'"),
        ("flags = []", 'flags = []\nhardware = { name = "spark", nodes = 0, memory = 1 }', "hardware.nodes are 0"),
        (
            "flags = []",
            'flags = []\nhardware = { name = "spark", nodes = 65, memory = 1 }',
            "hardware.nodes are 65: write at most 64",
        ),
        ("flags = []", 'flags = []\nhardware = { name = "spark", nodes = 2, memory = 1 }', "disagree on NODE_RANK"),
        ("flags = []", "flags = []\nbackends = { graph = true }", "backends.graph is an unknown key"),
        ("flags = []", 'flags = []\nspeed = [{ context = 1, decode = 0, source = "me" }]', "decode is 0"),
        ("flags = []", 'flags = []\nspeed = [{ context = 1, decode = 1, source = "me", requests = 0 }]', "requests is 0"),
        ("flags = []", f'flags = []\nrevision = "{"a" * 40}"', "revision is of tiny, which is no repository"),
        ("flags = []", 'flags = []\nwithout = ["--dtype"]', "without is given, and base is not"),
        ('"float32"', '"float\\u001b32"', "has control characters"),
        ('= { VLLM_CPU_KVCACHE_SPACE = "1" }', '= { "A=1; touch X; B" = "1" }', "is no name of a variable"),
        ('= { VLLM_CPU_KVCACHE_SPACE = "1" }', '= { "1A" = "1" }', "is no name of a variable"),
        ('= { VLLM_CPU_KVCACHE_SPACE = "1" }', '= { "\u00c4" = "1" }', "is no name of a variable"),
        ("flags = []", 'flags = []\nbackends = { moe = "X\\ncommand: |\\n  touch X" }', "backends has control characters"),
        ("flags = []", 'flags = ["a\\u001b[31mb"]', "flags has control characters"),
        ("Using X", "Using\\nX", "log has control characters"),
        ("at = 1e-4", 'at = 1e-4, blind = ["a\\u202eb"]', "bar has control characters"),
        ("flags = []", 'flags = []\nproven = "/dev/zero"', "proven is '/dev/zero'"),
        ("flags = []", 'flags = []\nproven = "validation/verdicts/../../x.json"', "proven is"),
        ("flags = []", 'flags = []\nproven = "validation/verdicts/a\\n.json"', "proven is"),
        ('= { VLLM_CPU_KVCACHE_SPACE = "1" }', "= { VLLM_CPU_KVCACHE_SPACE = 1 }", "VLLM_CPU_KVCACHE_SPACE"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(StackError) as refused:
        read(tmp_path, GOOD.replace(old, new))
    assert said in str(refused.value)


def test_a_verdict_is_not_read_through_a_link(tmp_path: Path) -> None:
    folder = tmp_path / "validation/verdicts"
    folder.mkdir(parents=True)
    (folder / "a.json").touch()
    (folder / "b.json").symlink_to("/dev/zero")
    (folder / "c").symlink_to(folder)
    validation = tmp_path / "validation"
    assert recipe_checks.proof(validation, "validation/verdicts/a.json") == folder / "a.json"
    for name in ("b.json", "c/a.json"):
        with pytest.raises(StackError, match="is a link"):
            recipe_checks.proof(validation, f"validation/verdicts/{name}")
    with pytest.raises(StackError, match="is no path of a verdict"):
        recipe_checks.proof(validation, "/dev/zero")


def test_a_verdict_lies_where_its_recipe_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = recipes.load("gpt-oss-120b-h200")
    assert recipes.verdict_file(ours, tmp_path) == ROOT / str(ours.proven)
    own = tmp_path / "validation/recipes"
    own.mkdir(parents=True)
    (own / f"{ours.name}.toml").write_bytes((recipes.FOLDER / f"{ours.name}.toml").read_bytes())
    assert recipes.verdict_file(recipes.load(ours.name, tmp_path), tmp_path) == tmp_path / str(ours.proven)
    # An installed package has no archived verdicts.
    monkeypatch.setattr(recipes, "DATA", tmp_path / "stack/data")
    assert recipes.verdict_file(ours) is None


def test_unknown() -> None:
    with pytest.raises(StackError, match=rf"unknown recipe 'gpu': `stack recipe list` lists all {len(recipes.known())}$"):
        recipes.load("gpu")
