# SPDX-License-Identifier: Apache-2.0
"""What a recipe that leaves patches out gets in place of vLLM's files, of the carried patches."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.model.stack import load
from stack.store import cache
from stack.validation.pack import archive_builder, recipes
from stack.validation.pack.recipes import PADDING, RECIPES, ROUTER

ROOT = Path(__file__).parents[3]
GATE = "vllm/model_executor/layers/fused_moe/router/gate_linear.py"


@pytest.fixture(name="stores", scope="module")
def _stores() -> Iterator[Stores]:
    with Stores(load(ROOT), Place(cache.root())) as stores:
        yield stores


def test_recipes_leave_out_patches_that_are_carried(stores: Stores) -> None:
    carried = {ref.path for ref in stores.stack.patches}
    assert {PADDING, ROUTER} <= carried & {path for recipe in RECIPES for path in recipe.without}


def test_upstreams_servers_have_upstreams_router(stores: Stores) -> None:
    files = archive_builder.lacking(stores, "sm90")
    for recipe in ("upstream", "upstream-qkv-o"):
        gate = files[f"without/{recipe}/{GATE}"].decode()
        assert "class GateLinear" in gate
        assert "tinygemm" not in gate
        assert f"without/{recipe}/vllm/model_executor/layers/fused_moe/oracle/mxfp4.py" in files
        assert not [path for path in files if path.endswith("tinygemm_router.py")]
    assert f"without/marlin-padded/{GATE}" not in files


def test_two_patches_of_one_file_are_refused(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    [upstream] = [recipe for recipe in RECIPES if recipe.name == "upstream"]
    monkeypatch.setattr(recipes, "RECIPES", (replace(upstream, without=(ROUTER, ROUTER)),))
    with pytest.raises(StackError, match=r"and another patch that upstream leaves out both change vllm/envs\.py"):
        archive_builder.lacking(stores, "sm90")


def test_a_patch_of_more_than_python_is_refused(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = "mxfp4-decode/flashinfer/add-an-experimental-mxfp4-moe-for-one-token.patch"
    objects, added = stores.objects("flashinfer"), "flashinfer/kernel.cu"
    monkeypatch.setattr(type(objects), "difference", lambda *_: [(added, None, None)])
    with pytest.raises(StackError, match=r"cannot be left out on another machine: it changes flashinfer/kernel\.cu"):
        archive_builder._left_out(stores, {ref.path: ref for ref in stores.stack.patches}[sources])
