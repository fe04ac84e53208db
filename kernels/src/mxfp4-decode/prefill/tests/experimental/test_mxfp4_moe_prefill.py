"""
Copyright (c) 2026 by FlashInfer team.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

  http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
"""

import pytest
import torch

from flashinfer import fused_moe, utils
from flashinfer.utils import get_compute_capability

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
ALPHA, LIMIT = 1.702, 7.0

# The output, the intermediate and each choice's result are rounded to BF16, by up to 2^-9 of each number. Wrong
# outputs begin at five times this.
BAR = 1e-2


def drawn(*shape, scales=(119, 123)):
    """Codes, scales, and their values in float32, exactly."""
    codes = torch.randint(0, 256, (*shape[:-1], shape[-1] // 2), dtype=torch.uint8)
    scales = torch.randint(*scales, (*shape[:-1], shape[-1] // 32), dtype=torch.uint8)
    table = torch.tensor(E2M1 + [-value for value in E2M1])
    values = table[torch.stack([codes & 15, codes >> 4], dim=-1).long()].flatten(-2)
    factors = torch.exp2(scales.double() - 127).float().repeat_interleave(32, dim=-1)
    return codes.cuda(), scales.cuda(), (values * factors).cuda()


def tiled(scales):
    """Each expert's scales in tiles of 128 rows and 4 scales: rows r, r + 32, r + 64, r + 96 together."""
    rows, columns = scales.shape[1:]
    padded = torch.nn.functional.pad(scales, (0, -columns % 4, 0, -rows % 128))
    tiles = padded.unflatten(2, (-1, 4)).unflatten(1, (-1, 4, 32))
    return tiles.permute(0, 1, 4, 3, 2, 5).contiguous()


class Layer:
    def __init__(self, experts, hidden, intermediate, padding=0, scales=(119, 123)):
        torch.manual_seed(hidden + intermediate + experts)
        self.hidden, self.intermediate = hidden, intermediate
        wide, high = hidden + padding, intermediate + padding
        codes, scale, self.up = drawn(experts, 2 * high, wide)
        self.w13, self.w13_scale = codes, tiled(scale)
        codes, scale, self.down = drawn(experts, wide, high, scales=scales)
        self.w2, self.w2_scale = codes, tiled(scale)
        self.w13_bias = torch.randn(experts, 2 * high, dtype=torch.bfloat16).cuda()
        self.w2_bias = torch.randn(experts, wide, dtype=torch.bfloat16).cuda()

    def reference(self, x, ids, weights, biases=True, limit=LIMIT):
        out = torch.zeros(x.shape, device="cuda")
        gates = self.up.shape[1] // 2
        limit = torch.inf if limit is None else limit
        for expert in range(len(self.up)):
            rows, places = torch.nonzero(ids == expert, as_tuple=True)
            both = x[rows].float() @ self.up[expert][:, : self.hidden].T
            both += biases * self.w13_bias[expert].float()
            up = both[:, : self.intermediate].clamp(-limit, limit)
            gate = both[:, gates : gates + self.intermediate].clamp(max=limit)
            act = (up + 1) * gate * torch.sigmoid(ALPHA * gate)
            down = act @ self.down[expert][: self.hidden, : self.intermediate].T
            down += biases * self.w2_bias[expert, : self.hidden].float()
            out.index_add_(0, rows, weights[rows, places, None] * down)
        return out

    def run(self, x, ids, weights, biases=True, limit=LIMIT, **more):
        return fused_moe.mxfp4_moe_prefill(
            x,
            self.w13,
            self.w13_scale,
            self.w2,
            self.w2_scale,
            ids,
            weights,
            w13_bias=self.w13_bias if biases else None,
            w2_bias=self.w2_bias if biases else None,
            intermediate_size=self.intermediate,
            alpha=ALPHA,
            limit=limit,
            **more,
        )


def inputs(tokens, hidden):
    return torch.randn(tokens, hidden, dtype=torch.bfloat16, device="cuda")


def routed(tokens, experts, choices, skew=0.0):
    logits = torch.randn(tokens, experts) + skew * torch.randn(experts)
    best = logits.topk(choices)
    return best.indices.int().cuda(), best.values.softmax(dim=-1).cuda()


def check(out, reference):
    distance = (out.float() - reference).norm(dim=1)
    assert (distance <= BAR * reference.norm(dim=1)).all(), "a token is too far off"


def has_sm90():
    return torch.cuda.is_available() and get_compute_capability(
        torch.device("cuda")
    ) == (9, 0)


needs_sm90 = pytest.mark.skipif(not has_sm90(), reason="needs SM90")


@needs_sm90
@pytest.mark.parametrize("skew", [0.0, 2.0])
@pytest.mark.parametrize("tokens", [1, 17, 40, 170, 600])
@pytest.mark.parametrize(
    "hidden,intermediate,choices",
    [(2880, 2880, 4), (96, 160, 2), (64, 64, 1), (320, 224, 8)],
)
def test_mxfp4_moe_prefill(hidden, intermediate, choices, tokens, skew):
    layer = Layer(8, hidden, intermediate)
    x, (ids, weights) = inputs(tokens, hidden), routed(tokens, 8, choices, skew)
    out = layer.run(x, ids, weights)
    check(out, layer.reference(x, ids, weights))
    assert all(torch.equal(out, layer.run(x, ids, weights)) for _ in range(5))


@needs_sm90
@pytest.mark.parametrize("biases,limit", [(False, LIMIT), (True, None), (False, None)])
def test_without_biases_or_limit(biases, limit):
    layer = Layer(8, 512, 160)
    x, (ids, weights) = inputs(90, 512), routed(90, 8, 4)
    out = layer.run(x, ids, weights, biases=biases, limit=limit)
    check(out, layer.reference(x, ids, weights, biases=biases, limit=limit))


@needs_sm90
@pytest.mark.parametrize("scales", [(66, 70), (126, 131), (180, 193)])
def test_scales_over_their_range(scales):
    layer = Layer(4, 256, 128, scales=scales)
    x, (ids, weights) = inputs(90, 256), routed(90, 4, 2)
    out = layer.run(x, ids, weights, biases=False)
    check(out, layer.reference(x, ids, weights, biases=False))


@needs_sm90
def test_padding_is_not_read():
    layer = Layer(4, 2880, 2880, padding=64)
    x, (ids, weights) = inputs(90, 2880), routed(90, 4, 2)
    check(layer.run(x, ids, weights), layer.reference(x, ids, weights))


@needs_sm90
def test_experts_elsewhere_and_ids_of_nobody_add_nothing():
    layer = Layer(4, 256, 128)
    x, (ids, weights) = inputs(90, 256), routed(90, 8, 4)
    here = torch.tensor([2, -1, 0, -1, 3, -1, 1, -1], dtype=torch.int32).cuda()
    out = layer.run(x, ids, weights, expert_map=here)
    check(out, layer.reference(x, here[ids.long()], weights))
    ids[:, 1] = torch.tensor([-1, 4, 1 << 20, -(1 << 31)]).cuda()[torch.arange(90) % 4]
    known = torch.where((ids >= 0) & (ids < 4), ids, -1)
    check(layer.run(x, ids, weights), layer.reference(x, known, weights))


@needs_sm90
def test_nan_and_infinity_keep_to_their_tokens():
    layer = Layer(4, 256, 128)
    x, (ids, weights) = inputs(90, 256), routed(90, 4, 2)
    x[17, 3], x[40, 255] = torch.nan, torch.inf
    finite = layer.run(x, ids, weights).isfinite().all(dim=1)
    assert torch.nonzero(~finite).flatten().tolist() == [17, 40]


@needs_sm90
def test_in_a_graph():
    layer = Layer(8, 256, 128)
    given, (chosen, weighted) = inputs(70, 256), routed(70, 8, 4)
    out = torch.empty_like(given)
    layer.run(given, chosen, weighted, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layer.run(given, chosen, weighted, out=out)
    ids, weights = routed(70, 8, 4, skew=2.0)
    given.copy_(inputs(70, 256)), chosen.copy_(ids), weighted.copy_(weights)
    graph.replay()
    check(out, layer.reference(given, ids, weights))


# What follows needs no GPU: the checks of the arguments.


def call(tokens, choices):
    chosen = torch.empty(tokens, choices)
    weights = [torch.empty(0)] * 4
    return fused_moe.mxfp4_moe_prefill(torch.empty(tokens, 32), *weights, chosen, chosen)


def test_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(utils, "get_compute_capability", lambda device: (9, 0))
    for tokens, choices in ((0, 4), (4, 0)):
        with pytest.raises(ValueError, match=f"not {tokens} and {choices}"):
            call(tokens, choices)


@pytest.mark.parametrize("capability", [(8, 0), (10, 0), (12, 1)])
def test_other_devices_are_refused(monkeypatch, capability):
    monkeypatch.setattr(utils, "get_compute_capability", lambda device: capability)
    with pytest.raises(utils.BackendSupportedError):
        call(20, 4)


def test_the_api_is_marked():
    assert fused_moe.mxfp4_moe_prefill.is_experimental
    assert fused_moe.mxfp4_moe_prefill.is_compute_capability_supported(90)
    assert not fused_moe.mxfp4_moe_prefill.is_compute_capability_supported(121)
