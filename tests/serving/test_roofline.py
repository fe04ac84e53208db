# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from stack.base.errors import StackError
from stack.deploy import checkpoints, formats, hardware, recipes
from stack.deploy.formats import BF16, MXFP4, QUANTIZED
from stack.deploy.recipes import Backends, Hardware, Recipe
from stack.serving import layout, roofline, traffic
from stack.serving.roofline import Roofline
from stack.validation.pack import recipes as pack

SPARK = hardware.load("spark")
H200 = hardware.load("h200")
FOR_GPUS = [
    name
    for name in recipes.known()
    if recipes.load(name).model.startswith("gpt-oss-") and "--speculative-config" not in recipes.load(name).arguments
]


def shape_of(name: str) -> checkpoints.Shape:
    found = checkpoints.load(name).shape
    assert found is not None
    return found


def serving(*arguments: str, **changes: Any) -> Recipe:
    found = recipes.load("gpt-oss-120b-spark")
    return dataclasses.replace(found, arguments=arguments, backends=Backends(), **changes)


def quantizing(**said: object) -> Recipe:
    return serving("--quantization-config", json.dumps(said))


def lying(recipe: Recipe, capability: str = "12.1") -> layout.Layout:
    return layout.of(recipe, shape_of("gpt-oss-120b"), capability)


def reached(name: str, **arguments: Any) -> Roofline:
    recipe = recipes.load(name)
    return roofline.of(recipe, roofline.machine(recipe), **arguments)


def test_the_way_to_the_recipe() -> None:
    found = reached("gpt-oss-120b-spark", contexts=(512,)).steps
    assert [(step.title, round(SPARK.bandwidth * 1e9 / step.points[0].weights)) for step in found] == [
        ("as released: dense layers in BF16, experts 3072 x 2944", 45),
        ("qkv and o in MXFP4", 62),
        ("lm_head in MXFP4", 80),
        ("experts 2944 x 2944", 82),
        ("experts 2880 x 2944", 83),
        ("KV in FP8", 83),
    ]
    assert round(found[0].points[0].weights / 1e9, 2) == 5.17
    assert round(found[0].points[0].weights / SPARK.bandwidth / 1e6, 1) == 22.3


@pytest.mark.parametrize("name", FOR_GPUS)
def test_a_way_ends_at_its_recipe_and_each_step_reads_less(name: str) -> None:
    found = reached(name, batches=(1, 4))
    ends = [(point.context, point.size) for point in found.steps[-1].points]
    assert ends == [(point.context, point.size) for point in found.points if point.batch == 1]
    sizes = [step.points[-1].size for step in found.steps]
    assert sizes == sorted(set(sizes), reverse=True)


def test_nothing_changes_on_the_way_to_the_release() -> None:
    [(title, only)] = roofline.way(lying(serving(), "9.0"))
    assert (title, only) == ("as released: dense layers in BF16, experts 2880 x 2880", lying(serving(), "9.0"))


@pytest.mark.parametrize("name", FOR_GPUS)
def test_measured_speeds_are_below_the_limit(name: str) -> None:
    found = reached(name)
    assert all(one.decode < point.limit for point in found.points for one in point.measured)


def test_what_was_measured_is_beside_the_limit() -> None:
    found = reached("gpt-oss-120b-spark")
    for point, decode in zip(found.points, (60.02, 59.36, 57.52), strict=True):
        [fork] = [one for one in point.measured if "the fork's container" in one.source]
        assert fork.decode == decode
        assert 0.72 < fork.decode / point.limit < 0.735
        # llama.cpp's was published without its context.
        assert [one.context for one in point.measured if "llama.cpp" in one.source] == [None]


def test_a_recipes_own_speeds_are_for_its_own_machine() -> None:
    recipe = serving(speeds=(recipes.Speed(512, 33.0, "somebody"), recipes.Speed(512, 60.0, "the fork, rounded")))
    sources = [one.source for one in roofline.of(recipe, SPARK, contexts=(512,)).points[0].measured]
    assert "somebody" in sources
    assert "the fork, rounded" not in sources
    assert "somebody" not in [one.source for one in roofline.of(recipe, H200, contexts=(512,)).points[0].measured]


def test_what_this_stack_measured_on_an_h200() -> None:
    """Each server of each verdict that is kept."""
    found = roofline.of(recipes.load("gpt-oss-120b-spark"), H200, contexts=(512, 8192))
    at_512 = {tuple(one.source.split(", ", 2)[2].split(": ")): round(one.decode, 1) for one in found.points[0].measured}
    assert len(at_512) == len(found.points[0].measured)
    assert at_512 == {
        ("h200-sm90.json", "default, dummy weights"): 235.2,
        ("h200-sm90.json", "marlin, dummy weights"): 275.2,
        ("h200-sm90.json", "marlin-padded, dummy weights"): 267.0,
        ("h200-kernels.json", "default, dummy weights"): 241.8,
        ("h200-upstream-decode.json", "upstream, dummy weights"): 256.6,
        ("h200-upstream-decode.json", "upstream-qkv-o, dummy weights"): 260.2,
        ("h200-stack-decode.json", "upstream, dummy weights"): 257.8,
        ("h200-stack-decode.json", "decode, dummy weights"): 435.9,
        ("h200-decode-server.json", "decode, dummy weights"): 412.6,
    }
    assert found.points[1].measured == ()


def test_what_was_measured_with_these_very_formats_says_so() -> None:
    def alike(recipe: Recipe) -> list[str]:
        found = roofline.of(recipe, H200, contexts=(512,)).points[0].measured
        return [one.source.rpartition(": ")[2].partition(",")[0] for one in found if one.alike]

    assert alike(recipes.load("gpt-oss-120b-h200")) == ["default", "default"]
    both = ("--moe-backend", "marlin", "--quantization-config", '{"linear":"mxfp4","lm_head":"mxfp4"}')
    assert alike(serving(*both)) == ["marlin"]
    assert alike(serving(*both, "--kv-cache-dtype", "fp8")) == []
    assert not [one for point in reached("gpt-oss-120b-spark").points for one in point.measured if one.alike]


@pytest.mark.parametrize(("server", "gigabytes"), [("default", 5.00), ("marlin", 2.79), ("marlin-padded", 2.92)])
def test_servers_of_an_h200(server: str, gigabytes: float) -> None:
    """What their weights were worked out to be when they were measured."""
    [one] = [one for one in pack.RECIPES if one.name == server]
    found = lying(serving(*one.arguments), "9.0")
    found = dataclasses.replace(found, rounding=layout.rounding(found.moe, released=pack.PADDING in one.without))
    assert round(sum(part.size for part in traffic.of(found, 0)) / 1e9, 2) == gigabytes


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("num_hidden_layers", 10**5, "num_hidden_layers is above 10000"),
        ("vocab_size", 10**400, "vocab_size is above"),
        ("num_experts_per_tok", 129, "chooses 129 of 128"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_no_model_has(name: str, value: int, said: str) -> None:
    shape = dataclasses.replace(shape_of("gpt-oss-120b"), **{name: value})
    with pytest.raises(StackError, match=said):
        layout.of(serving(), shape, "12.1")


def test_speeds_of_other_models_and_of_more_nodes_are_not_beside_it() -> None:
    assert roofline.of(serving(model="gpt-oss-20b", speeds=()), SPARK).points[0].measured == ()
    four = roofline.of(serving("--tensor-parallel-size", "4"), SPARK, contexts=(512,)).points[0]
    assert [one.decode for one in four.measured if "four" in one.source] == [82.01]
    assert not [one for one in four.measured if "on one" in one.source]


def test_several_requests_have_nothing_measured() -> None:
    found = reached("gpt-oss-120b-spark", contexts=(2048,), batches=(1, 4))
    assert [bool(point.measured) for point in found.points] == [True, False]
    assert found.points[0].limit < found.points[1].limit < 4 * found.points[0].limit


def test_limit() -> None:
    recipe = recipes.load("gpt-oss-120b-spark")
    assert roofline.limit(recipe, SPARK, 512) == reached("gpt-oss-120b-spark").points[0].limit
    assert roofline.limit(recipe, SPARK, 8192) < roofline.limit(recipe, SPARK, 2048)
    assert roofline.limit(recipe, H200, 512) == pytest.approx(roofline.limit(recipe, SPARK, 512) * 4800 / 232)


def test_bandwidth() -> None:
    recipe = recipes.load("gpt-oss-120b-spark")
    whole = roofline.of(recipe, roofline.machine(recipe, None, 273.0)).points[0]
    half = roofline.of(recipe, roofline.machine(recipe, "h200", 136.5)).points[0]
    assert half.limit == pytest.approx(whole.limit / 2)
    for bandwidth in (0.0, -1.0, 1e-320, float("nan"), float("inf")):
        with pytest.raises(StackError, match="--bandwidth"):
            roofline.machine(recipe, None, bandwidth)


def test_a_configuration_of_somebodys_own(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    shape = dataclasses.asdict(shape_of("gpt-oss-20b"))
    file.write_text(json.dumps(shape))
    recipe = recipes.load("gpt-oss-120b-spark")
    found = roofline.of(recipe, SPARK, config=file)
    assert found.points[0].size == roofline.of(dataclasses.replace(recipe, model="gpt-oss-20b"), SPARK).points[0].size
    assert found.points[0].measured == ()
    # Recipes without a model of their own have one then.
    given = dataclasses.replace(recipes.load("gpt-oss"), hardware=Hardware("spark", 1, 90))
    assert roofline.of(given, SPARK, config=file).points[0].limit > 50


@pytest.mark.parametrize(
    ("name", "said"),
    [("gpt-oss", "any model.*--config"), ("cpu-fp32", "a few MB.*--config")],
)
def test_recipes_without_a_published_model(name: str, said: str) -> None:
    with pytest.raises(StackError, match=said):
        roofline.of(recipes.load(name), SPARK)


def test_recipes_without_hardware() -> None:
    with pytest.raises(StackError, match=r"names no hardware.*spark"):
        roofline.machine(recipes.load("gpt-oss"))


@pytest.mark.parametrize(("contexts", "batches"), [((-1,), (1,)), ((131_073,), (1,)), ((512,), (0,)), ((512,), (10**9,))])
def test_out_of_range(contexts: tuple[int, ...], batches: tuple[int, ...]) -> None:
    with pytest.raises(StackError, match="out of range"):
        reached("gpt-oss-120b-spark", contexts=contexts, batches=batches)


@pytest.mark.parametrize(
    ("arguments", "capability", "padded"),
    [
        ((), "12.1", (2880, 2944)),
        ((), "9.0", (2880, 2880)),
        (("--moe-backend", "marlin"), "9.0", (2880, 2944)),
        (("--moe-backend=flashinfer_cutlass",), "12.1", (2944, 2944)),
        (("--moe_backend", "flashinfer_cutlass_afp8"), "12.1", (2944, 2944)),
        (("--quantization-config", '{"moe":{"activation":"mxfp8"}}'), "12.1", (2944, 2944)),
        (("--moe-backend", "flashinfer_trtllm"), "10.0", (3072, 2944)),
        (("--moe-backend", "flashinfer_decode"), "9.0", (2880, 2880)),
        (("--moe-backend", "flashinfer_decode", "-tp", "4"), "12.1", (2880, 736)),
        (("-tp", "4"), "12.1", (2880, 768)),
        (("--tensor-parallel-size", "2", "--moe-backend", "triton", "--tensor-parallel-size=4"), "9.0", (2880, 768)),
    ],
)
def test_padding_by_backend(arguments: tuple[str, ...], capability: str, padded: tuple[int, int]) -> None:
    found = lying(serving(*arguments), capability)
    assert (found.hidden, found.intermediate) == padded


def test_what_belongs_to_no_option_is_no_value() -> None:
    found = layout.options(("model", "--dtype=auto", "stray", "--enforce-eager", "-tp", "2", "--dtype", "float32"))
    assert found == {"--dtype": "float32", "--enforce-eager": "", "--tensor-parallel-size": "2"}
    assert layout.options(("--dtype=auto", "stray")) == {"--dtype": "auto"}


def test_what_the_log_has_to_say_comes_first() -> None:
    recipe = dataclasses.replace(serving(), backends=Backends(moe="FLASHINFER_CUTLASS_MXFP4_MXFP8"))
    assert lying(recipe).hidden == 2944


def test_decode_kernels_leave_padding_out() -> None:
    backends = Backends(moe="FLASHINFER_CUTLASS_MXFP4_MXFP8", decode="flashinfer_mxfp4_moe_decode")
    found = lying(dataclasses.replace(serving(), backends=backends))
    assert (found.moe, found.hidden, found.intermediate) == ("FLASHINFER_CUTLASS_MXFP4_MXFP8", 2880, 2880)


def test_dense_formats() -> None:
    assert set(lying(serving()).qkv) == {BF16}
    both = lying(quantizing(linear="mxfp4", lm_head="fp8"))
    assert (set(both.qkv), set(both.o), both.lm_head) == ({MXFP4}, {MXFP4}, QUANTIZED["fp8"])
    assert set(lying(quantizing(linear={"weight": "mxfp8"})).o) == {QUANTIZED["mxfp8"]}
    assert lying(quantizing(linear="mxfp4", lm_head="none")).lm_head == BF16
    assert set(lying(serving("--dtype", "float32")).qkv) == {formats.TYPES["float32"]}


def test_formats_by_pattern() -> None:
    found = lying(
        quantizing(
            targets={"*.qkv_proj": "mxfp4", "re:.*[02468].attn.o_proj": "fp8", "model.layers.1.attn.o_proj": "none"},
            lm_head="mxfp4",
        )
    )
    assert set(found.qkv) == {MXFP4}
    assert found.o == (QUANTIZED["fp8"], BF16) * 18
    assert found.lm_head == MXFP4
    # A fused layer by all of its parts, and not by some.
    assert set(lying(quantizing(targets={"re:.*[qkv]_proj": "fp8"})).qkv) == {QUANTIZED["fp8"]}
    assert set(lying(quantizing(targets={"*.q_proj": "fp8"})).qkv) == {BF16}


def test_ignored_layers() -> None:
    found = lying(quantizing(linear="mxfp4", lm_head="mxfp4", ignore=["model.layers.0.*", "lm_head"]))
    assert found.qkv == (BF16, *(MXFP4,) * 35)
    assert found.lm_head == BF16


@pytest.mark.parametrize(("name", "bits"), [("auto", 16), ("fp8", 8), ("fp8_e4m3", 8), ("bfloat16", 16)])
def test_caches(name: str, bits: int) -> None:
    assert lying(serving("--kv-cache-dtype", name)).kv.bits == bits


def test_a_cache_is_as_the_model_is() -> None:
    assert lying(serving("--dtype", "float32")).kv.bits == 32


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--enable-expert-parallel",), "--enable-expert-parallel.*not counted"),
        (("--pipeline-parallel-size", "2"), "--pipeline-parallel-size"),
        (("-dp", "2"), "--data-parallel-size"),
        (("--speculative-config", "{}"), "--speculative-config"),
        (("--tensor-parallel-size", "3"), "cannot be divided among 3 nodes"),
        (("--tensor-parallel-size", "${NODES}"), "is not a number of nodes"),
        (("--tensor-parallel-size", "0"), "is not a number of nodes"),
        (("--tensor-parallel-size",), "is not a number of nodes"),
        (("--dtype", "int3"), "--dtype 'int3'"),
        (("--kv-cache-dtype", "nvfp4"), "'nvfp4' is not counted.*fp8"),
        (("--quantization", "fp8"), "--quantization 'fp8'"),
        (("--moe-backend", "abacus"), "'ABACUS'"),
        (("--quantization-config", "mxfp4"), "is not valid JSON"),
        (("--quantization-config", "[" * 100_000), "is not valid JSON"),
        (("--quantization-config", "[]"), "is not an object"),
        (("--quantization-config.linear", "mxfp4"), "write --quantization-config and JSON"),
        (("--quantization-config", '{"head":"mxfp4"}'), "'head'"),
        (("--quantization-config", '{"linear":"fp3"}'), "'fp3' is not a format"),
        (("--quantization-config", '{"linear":["mxfp4"]}'), "is not a format"),
        (("--quantization-config", '{"moe":{"weight":"fp8_per_tensor"}}'), "quantizes the experts again"),
        (("--quantization-config", '{"moe":"mxfp4"}'), "quantizes the experts again"),
        (("--quantization-config", '{"targets":{"re:[":"mxfp4"}}'), "not a regular expression"),
        (("--quantization-config", '{"targets":[]}'), None),
        (("--quantization-config", '{"targets":["a"]}'), "targets is not an object"),
        (("--quantization-config", '{"linear":null,"moe":null,"ignore":null}'), None),
    ],
)
def test_what_is_not_counted(arguments: tuple[str, ...], said: str | None) -> None:
    if said is None:
        assert set(lying(serving(*arguments)).qkv) == {BF16}
        return
    with pytest.raises(StackError, match=said):
        lying(serving(*arguments))


def test_gpus_of_which_nothing_is_known() -> None:
    with pytest.raises(StackError, match=r"on 10\.0.*--moe-backend"):
        lying(serving(), "10.0")


def test_a_model_whose_shape_is_not_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checkpoints, "SHAPES", tmp_path)
    with pytest.raises(
        StackError,
        match=r"serves GadflyII/GLM-4\.7-Flash-NVFP4, whose shape is not known here: name its config.json with --config",
    ):
        reached("glm-4-7-flash-nvfp4-spark")
