# SPDX-License-Identifier: Apache-2.0
"""How kernels pad, by the pinned sources' own functions, with this stack's patches and without."""

import ast
import math
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.model.ids import CommitId
from stack.model.stack import load
from stack.serving import layout, traffic
from stack.store import cache

ROOT = Path(__file__).parents[2]
EXPERTS = "vllm/model_executor/layers/fused_moe/oracle/mxfp4.py"
MARLIN = "vllm/model_executor/layers/quantization/utils/marlin_utils.py"
ELSEWHERE = ("AITER", "XPU", "NONE", "FLASHINFER_MOE_EP", "BATCHED_MARLIN")
"""Other vendors', those that deal experts out, and Marlin's for that."""


@pytest.fixture(name="stores", scope="module")
def _stores() -> Iterator[Stores]:
    with Stores(load(ROOT), Place(cache.root())) as stores:
        yield stores


def taken(stores: Stores, commit: CommitId, path: str, *names: str) -> dict[str, Any]:
    """Definitions of an upstream module, run on their own: on CUDA, with what they use of others beside them."""
    objects = stores.objects("vllm")
    found = objects.entry(objects.tree_of(commit), path)
    assert found is not None
    module = ast.parse(objects.read(found.id))
    wanted = [
        one
        for one in module.body
        if (isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name in names)
        or (isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and one.targets[0].id in names)
    ]
    assert len(wanted) == len(names)
    space: dict[str, Any] = {
        "Enum": Enum,
        "math": math,
        "MoEActivation": object,
        "MoEBackend": str,
        "OCP_MX_BLOCK_SIZE": 32,
        "round_up": lambda size, multiple: math.ceil(size / multiple) * multiple,
        "logger": SimpleNamespace(warning_once=lambda *_: None),
        "current_platform": SimpleNamespace(is_xpu=lambda: False, is_rocm=lambda: False),
    }
    exec(compile(ast.Module(wanted, []), path, "exec"), space)
    return space


def padding(stores: Stores, commit: CommitId) -> dict[str, Any]:
    lists = ("TRTLLM_BACKENDS", "B12X_BACKENDS", "FLASHINFER_MOE_EP_MXFP4_BACKENDS")
    functions = ("mxfp4_round_up_hidden_size_and_intermediate_size", "map_mxfp4_backend")
    return taken(stores, commit, EXPERTS, "Mxfp4MoeBackend", *lists, *functions)


def padded(multiples: tuple[int, int], hidden: int, intermediate: int) -> tuple[int, int]:
    one, two = (math.ceil(size / multiple) * multiple for size, multiple in zip((hidden, intermediate), multiples, strict=True))
    return one, two


@pytest.mark.parametrize("released", [False, True])
def test_experts_are_padded_as_vllm_pads_them(stores: Stores, *, released: bool) -> None:
    space = padding(stores, stores.base("vllm") if released else stores.tip("vllm"))
    round_up: Callable[..., tuple[int, int]] = space["mxfp4_round_up_hidden_size_and_intermediate_size"]
    counted = [one for one in space["Mxfp4MoeBackend"] if not one.name.startswith(ELSEWHERE)]
    assert len(counted) > 10
    for backend in counted:
        multiples = layout.rounding(backend.value, released=released)
        for sizes in ((2880, 2880), (2880, 720), (2881, 1440), (4096, 1), (64, 736)):
            assert padded(multiples, *sizes) == round_up(backend, *sizes), backend


def test_names_on_the_command_line_are_padded_as_what_they_mean(stores: Stores) -> None:
    space = padding(stores, stores.tip("vllm"))
    names = ("marlin", "triton", "flashinfer_cutlass", "flashinfer_cutlass_afp8", "flashinfer_trtllm", "b12x", "humming", "cpu")
    for name in (*names, "deep_gemm", "emulation", "triton_unfused", "flashinfer_trtllm_afp8"):
        meant = {layout.rounding(one.value) for one in space["map_mxfp4_backend"](name)}
        assert meant == {layout.rounding(name.upper())}
    for name in ("aiter", "xpu", "flashinfer_moe_ep_cutedsl"):
        with pytest.raises(StackError, match="is not known"):
            layout.rounding(name.upper())


def test_dense_layers_are_padded_as_marlin_pads_them(stores: Stores) -> None:
    pad = taken(stores, stores.tip("vllm"), MARLIN, "marlin_padded_nk")["marlin_padded_nk"]
    for sizes in (
        (5120, 2880),
        (2880, 4096),
        (201088, 2880),
        (100544, 2880),
        (50272, 2880),
        (2880, 1024),
        (1280, 2880),
        (96, 96),
    ):
        assert traffic.tiles(*sizes) == pad(*sizes, 32)
