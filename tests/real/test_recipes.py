# SPDX-License-Identifier: Apache-2.0
"""What recipes and compose files name, against the pinned sources with the stack's patches, and its own parser of arguments."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stack.carry.drift import check_settings, check_values
from stack.carry.drift.tree import Files
from stack.carry.upstream_stores import Place, Stores
from stack.cli.validating.served import wheel
from stack.deploy import checkpoints, recipes, removed_settings
from stack.model.ids import CommitId
from stack.model.stack import load
from stack.serving.checking import check, given
from stack.serving.command import command
from stack.store import cache, git, sources
from stack.store.objects import Entry, Objects
from stack.validation import python_env
from stack.validation.serve import fixture_cache
from stack.vllm_project.choices import declared

ROOT = Path(__file__).parents[2]
WRONG = {
    "--nnodez=2": "the nearest is --nnodes",
    "--moe-backend=marlim": "the nearest is marlin",
    "--attention-backend=FLASHINFR": "the nearest is FLASHINFER",
    "--kv-cache-dtype=fp8_e4m4": "the nearest is fp8_e4m3",
    "--tool-call-parser=openapi": "the nearest is openai",
    "--reasoning-parser=openai_gpt": "the nearest is openai_gptoss",
    '--quantization-config={"linear":"mxfp4","lmhead":"mxfp4"}': "no key lmhead: the nearest is lm_head",
    "--mxfp4-backend=CUTLASS": "use --moe-backend=marlin or --moe-backend=flashinfer_cutlass_afp8",
    "VLLM_HOST_IPS": "the nearest is VLLM_HOST_IP",
    "FLASHINFER_CUDA_ARCHS_LIST": "the nearest is FLASHINFER_CUDA_ARCH_LIST",
    "VLLM_NVFP4_GEMM_BACKEND": "gone since vLLM 0.24.0; use --linear-backend=",
    "MAX_JOB": "no pinned source reads the environment variable MAX_JOB",
    "NCCL_SOCKET_IFNAMES": "no pinned source reads",
}
"""Settings that nothing takes, and what is said of them."""


@pytest.fixture(name="stores", scope="module")
def _stores() -> Iterator[Stores]:
    with Stores(load(ROOT), Place(cache.root())) as stores:
        yield stores


def unknown(stores: Stores, settings: list[str], commit: CommitId | None = None) -> list[str]:
    """Those that a vLLM, ours at the pins unless given, does not know, the values of flags included."""
    objects = stores.objects("vllm")
    tree = objects.tree_of(commit or stores.tip("vllm"))
    flags = [one for one in settings if one.startswith("-")]
    values = check_values(objects, tree, given(flags))
    settled = check_settings(objects, tree, {*settings} - {*flags}, flags)
    return [one.name for one in (*settled, *values.values())]


def names(one: removed_settings.RemovedSetting) -> list[str]:
    """The names that a pattern stands for."""
    meant = {
        "VLLM_USE_FLASHINFER_MOE_MXFP4_*": ["VLLM_USE_FLASHINFER_MOE_MXFP4_BF16"],
        "VLLM_USE_FLASHINFER_MOE_FP*": [f"VLLM_USE_FLASHINFER_MOE_FP{bits}" for bits in (16, 4, 8)],
    }
    return meant.get(one.name, [one.name])


def test_what_is_gone_is_gone_and_what_does_the_same_is_there(stores: Stores) -> None:
    asked = [name for one in removed_settings.known() for name in names(one)]
    assert sorted(unknown(stores, asked)) == sorted(asked)
    assert unknown(stores, [argument for one in removed_settings.known() for argument in one.by]) == []


def test_what_was_there_was_there_before(stores: Stores) -> None:
    """vLLM 0.17.1, on which the early forks stood, declares what is said to be gone since a later release, and nothing else of it."""
    asked = [(name, one.since is None) for one in removed_settings.known() for name in names(one)]
    found = unknown(stores, [name for name, _ in asked], stores.obtain("vllm", "v0.17.1").commit)
    assert sorted(found) == sorted(name for name, never in asked if never)


def test_the_recipes_name_nothing_that_is_not_there(stores: Stores) -> None:
    assert check(stores, map(recipes.load, recipes.known())) == ()


def test_what_is_not_there_is_named(stores: Stores) -> None:
    good = recipes.load("gpt-oss-120b-2-sparks")
    bad = [
        replace(good, name=setting, arguments=(*good.arguments, setting))
        if setting.startswith("-")
        else replace(good, name=setting, environment={**good.environment, setting: "1"})
        for setting in WRONG
    ]
    found = {one.recipe: one for one in check(stores, [good, *bad])}
    assert found.keys() == WRONG.keys()
    for name, one in found.items():
        assert one.setting == name.partition("=")[0]
        assert WRONG[name] in one.problem


def remote(store: Path, place: Path, tag: str) -> str:
    """A git remote that has the release's files and one more, and serves partial clones; return its commit."""
    git.run(["init", "--quiet", "--bare", "--template=", str(place)])
    env = {"GIT_DIR": str(place)}
    git.run(["fetch", "--quiet", str(store), f"refs/stack/archive/{tag}:refs/heads/main"], env=env)
    for key in ("allowFilter", "allowAnySHA1InWant"):
        git.run(["config", f"uploadpack.{key}", "true"], env=env)
    with Objects(place) as objects:
        released = objects.tree_of(CommitId(git.text(["rev-parse", "main"], cwd=place)))
        tree = objects.replaced(released, {"only-in-git.txt": Entry(0o100644, objects.write_blob(tag.encode()))})
    who = {f"GIT_{role}_{key}": "up@stream" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    commit = git.text(["commit-tree", "-p", "main", "-m", tag, tree], cwd=place, env=who)
    for name in ("refs/heads/main", f"refs/tags/{tag}"):
        git.run(["update-ref", name, commit], env=env)
    git.run(["symbolic-ref", "HEAD", "refs/heads/main"], env=env)
    return commit


@pytest.mark.slow
@pytest.mark.images  # it copies and fetches both stores: 20 seconds
def test_a_fetch_from_git_changes_no_answer(stores: Stores, tmp_path: Path) -> None:
    """A partial clone into the same stores: the trees of archives are as whole as before."""
    for pin in (stores.stack.pins.get(name) for name in ("vllm", "flashinfer")):
        assert pin.tag is not None
        stores.obtain(pin.upstream)
        store, copy = (cache.upstream_store(place, pin.upstream) for place in (stores.place.cache, tmp_path / "cache"))
        shutil.copytree(store, copy)
        address = tmp_path / f"{pin.upstream}-remote"
        commit = remote(store, address, pin.tag)
        there = replace(pin, git=f"file://{address}", commit=commit, archive=None, tree=None, stated_source="git")
        assert sources.obtain(there, cache=tmp_path / "cache").commit == commit
        assert [*copy.glob("objects/pack/*.promisor")]
    with Stores(load(ROOT), Place(tmp_path / "cache")) as fetched:
        test_what_is_not_there_is_named(fetched)
        test_the_recipes_name_nothing_that_is_not_there(fetched)


def test_what_the_series_add_is_not_there_without_them(stores: Stores) -> None:
    """Two names of backends and a key: the check looks at the patched source, and would miss them in the release."""
    added = ["--moe-backend=flashinfer_cutlass_afp8", '--quantization-config={"lm_head":"mxfp4"}']
    assert unknown(stores, added) == []
    assert unknown(stores, added, stores.base("vllm")) == ["--moe-backend", "--quantization-config"]


PARSE = """
import json, sys
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = FlexibleArgumentParser()
serve = ServeSubcommand().subparser_init(parser.add_subparsers())
choices = {flag: list(one.choices) for one in serve._actions if one.choices for flag in one.option_strings}
taken = []
for name, arguments in json.load(sys.stdin):
    try:
        parsed = parser.parse_args(arguments)
        taken.append([name, parsed.revision, parsed.tensor_parallel_size, parsed.nnodes, parsed.node_rank, parsed.headless])
    except SystemExit:
        taken.append([name])
print(json.dumps([taken, choices]))
"""


@pytest.mark.slow
@pytest.mark.images
def test_the_patched_vllm_parses_every_command(stores: Stores, tmp_path: Path) -> None:
    """What vLLM itself makes of the arguments, those of each node, and of two that are wrong."""
    asked, expected = [], []
    for recipe in map(recipes.load, recipes.known()):
        published = recipe.hardware is not None
        nodes = recipe.hardware.nodes if recipe.hardware is not None else 1
        for rank in range(nodes):
            variables = dict.fromkeys(recipe.variables, "10.0.0.1") | ({"NODE_RANK": str(rank)} if nodes > 1 else {})
            made = command(recipe, variables, model_path=None if published else Path("/model"))
            asked.append((recipe.name, made.arguments[1:]))
            revision = checkpoints.load(recipe.model).revision if published else None
            assert (revision is not None) == ("--revision" in made.arguments)
            expected.append([recipe.name, revision, nodes, nodes, rank, rank > 0])
    wrong = [("no flag", ("serve", "m", "--nnodez", "2")), ("no value", ("serve", "m", "--moe-backend", "marlim"))]
    kept = fixture_cache.prepare(cache.root(), lambda _: None)
    done = python_env.run(
        kept.installed(wheel(stores.stack, stores.place, tmp_path)), PARSE, given=json.dumps([*asked, *wrong])
    )
    assert done.returncode == 0, done.stderr
    taken, choices = json.loads(done.stdout.splitlines()[-1])
    assert taken == [*expected, ["no flag"], ["no value"]]
    # No value that the parser takes is one that the check would name: it may let more pass.
    read = declared(Files(stores.objects("vllm"), stores.objects("vllm").tree_of(stores.tip("vllm"))))
    both = {flag: read[flag].values for flag in choices if flag in read}
    more = {flag: {*choices[flag]} - {None, *(values or ())} for flag, values in both.items()}
    assert more == {flag: set() for flag in both}
    for flag in ("--moe-backend", "--linear-backend", "--kv-cache-dtype"):
        assert both[flag] == frozenset(choices[flag])
