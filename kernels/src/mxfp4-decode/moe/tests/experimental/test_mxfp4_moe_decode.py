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

# The output is rounded to BF16, by up to 2^-9 of each number; tokens and the intermediate have 14 bits. Wrong
# outputs begin at five times this.
BAR = 1e-2


def drawn(*shape):
    """Codes, scales 2^-8 to 2^-5, and their values in float64."""
    codes = torch.randint(0, 256, (*shape[:-1], shape[-1] // 2), dtype=torch.uint8)
    scales = torch.randint(119, 123, (*shape[:-1], shape[-1] // 32), dtype=torch.uint8)
    table = torch.tensor(E2M1 + [-value for value in E2M1], dtype=torch.float64)
    values = table[torch.stack([codes & 15, codes >> 4], dim=-1).long()].flatten(-2)
    factors = torch.exp2(scales.double() - 127).repeat_interleave(32, dim=-1)
    return codes, scales, values * factors


def tiled(scales):
    """Each expert's scales in tiles of 128 rows and 4 scales: rows r, r + 32, r + 64, r + 96 together."""
    rows, columns = scales.shape[1:]
    padded = torch.nn.functional.pad(scales, (0, -columns % 4, 0, -rows % 128))
    tiles = padded.unflatten(2, (-1, 4)).unflatten(1, (-1, 4, 32))
    return tiles.permute(0, 1, 4, 3, 2, 5).contiguous().cuda()


class Layer:
    def __init__(self, experts, hidden, intermediate, padding=0):
        torch.manual_seed(hidden + intermediate + experts)
        self.hidden, self.intermediate = hidden, intermediate
        wide, high = hidden + padding, intermediate + padding
        up = [drawn(experts, high, wide) for _ in range(2)]
        codes, scales, self.up = (
            torch.cat(parts, dim=1) for parts in zip(*up, strict=True)
        )
        self.w13, self.w13_scale = codes.cuda(), tiled(scales)
        codes, scales, self.down = drawn(experts, wide, high)
        self.w2, self.w2_scale = codes.cuda(), tiled(scales)
        self.w13_bias = torch.randn(experts, 2 * high, dtype=torch.bfloat16).cuda()
        self.w2_bias = torch.randn(experts, wide, dtype=torch.bfloat16).cuda()

    def reference(self, x, ids, weights, biases=True, limit=LIMIT):
        out = torch.zeros(x.shape, dtype=torch.float64)
        gates = self.up.shape[1] // 2
        w13_bias, w2_bias = self.w13_bias.double().cpu(), self.w2_bias.double().cpu()
        if not biases:
            w13_bias, w2_bias = torch.zeros_like(w13_bias), torch.zeros_like(w2_bias)
        limit = torch.inf if limit is None else limit
        for token, choice in torch.cartesian_prod(*map(torch.arange, ids.shape)):
            expert = ids[token, choice]
            if expert < 0:
                continue
            both = self.up[expert][:, : self.hidden] @ x[token].double()
            both += w13_bias[expert]
            up = both[: self.intermediate].clamp(-limit, limit)
            gate = both[gates : gates + self.intermediate].clamp(max=limit)
            act = (up + 1) * gate * torch.sigmoid(ALPHA * gate)
            down = self.down[expert][: self.hidden, : self.intermediate] @ act
            down += w2_bias[expert, : self.hidden]
            out[token] += weights[token, choice].double() * down
        return out

    def run(self, x, ids, weights, biases=True, limit=LIMIT, **more):
        return fused_moe.mxfp4_moe_decode(
            x.cuda(),
            self.w13,
            self.w13_scale,
            self.w2,
            self.w2_scale,
            ids.cuda(),
            weights.cuda(),
            w13_bias=self.w13_bias if biases else None,
            w2_bias=self.w2_bias if biases else None,
            intermediate_size=self.intermediate,
            alpha=ALPHA,
            limit=limit,
            **more,
        )


def routed(tokens, experts, choices):
    logits = torch.randn(tokens, experts)
    best = logits.topk(choices)
    return best.indices.int(), best.values.softmax(dim=-1)


def check(out, reference):
    out = out.double().cpu()
    assert ((out - reference).norm(dim=1) <= BAR * reference.norm(dim=1)).all(), (
        "a token is too far off"
    )


def has_sm80():
    return (
        torch.cuda.is_available()
        and get_compute_capability(torch.device("cuda"))[0] >= 8
    )


needs_sm80 = pytest.mark.skipif(not has_sm80(), reason="needs SM80 or later")


@needs_sm80
@pytest.mark.parametrize("choices", [1, 4, 8])
@pytest.mark.parametrize(
    "hidden,intermediate", [(2880, 2880), (96, 160), (512, 32), (8192, 32)]
)
def test_mxfp4_moe_decode(choices, hidden, intermediate):
    layer = Layer(8, hidden, intermediate)
    x = torch.randn(1, hidden, dtype=torch.bfloat16)
    ids, weights = routed(1, 8, choices)
    out = layer.run(x, ids, weights)
    check(out, layer.reference(x, ids, weights))
    assert all(torch.equal(out, layer.run(x, ids, weights)) for _ in range(5))


@needs_sm80
@pytest.mark.parametrize("tokens", [1])
@pytest.mark.parametrize("biases,limit", [(False, LIMIT), (True, None), (False, None)])
def test_without_biases_or_limit(tokens, biases, limit):
    layer = Layer(8, 512, 160)
    x = torch.randn(tokens, 512, dtype=torch.bfloat16)
    ids, weights = routed(tokens, 8, 4)
    out = layer.run(x, ids, weights, biases=biases, limit=limit)
    check(out, layer.reference(x, ids, weights, biases=biases, limit=limit))


@needs_sm80
@pytest.mark.parametrize("tokens", [1])
def test_padding_is_not_read(tokens):
    layer = Layer(4, 2880, 2880, padding=64)
    x = torch.randn(tokens, 2880, dtype=torch.bfloat16)
    ids, weights = routed(tokens, 4, 2)
    check(layer.run(x, ids, weights), layer.reference(x, ids, weights))


@needs_sm80
def test_experts_elsewhere_add_nothing():
    layer = Layer(4, 256, 128)
    x = torch.randn(1, 256, dtype=torch.bfloat16)
    ids, weights = routed(1, 8, 4)
    here = torch.tensor([2, -1, 0, -1, 3, -1, 1, -1], dtype=torch.int32)
    out = layer.run(x, ids, weights, expert_map=here.cuda())
    check(out, layer.reference(x, here[ids.long()], weights))


@needs_sm80
@pytest.mark.parametrize("tokens", [1])
@pytest.mark.parametrize("mapped", [True, False])
def test_ids_of_nobody_add_nothing(tokens, mapped):
    layer = Layer(4, 256, 128)
    x = torch.randn(tokens, 256, dtype=torch.bfloat16)
    ids, weights = routed(tokens, 4, 4)
    ids[:, 1] = torch.tensor([-1, 4, 1 << 20, -(1 << 31)])[torch.arange(tokens) % 4]
    here = {"expert_map": torch.arange(4).int().cuda()} if mapped else {}
    known = torch.where((ids >= 0) & (ids < 4), ids, -1)
    check(layer.run(x, ids, weights, **here), layer.reference(x, known, weights))


@needs_sm80
def test_in_a_graph():
    layer = Layer(8, 256, 128)
    ids, weights = routed(1, 8, 4)
    x = torch.randn(1, 256, dtype=torch.bfloat16)
    given, out = x.cuda(), torch.empty(1, 256, dtype=torch.bfloat16, device="cuda")
    chosen, weighted = ids.cuda(), weights.cuda()
    layer.run(given, chosen, weighted, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layer.run(given, chosen, weighted, out=out)
    x, (ids, weights) = torch.randn_like(x), routed(1, 8, 4)
    given.copy_(x), chosen.copy_(ids), weighted.copy_(weights)
    graph.replay()
    check(out, layer.reference(x, ids, weights))


# What follows needs no GPU: the checks of the arguments, as on SM121.


@pytest.fixture
def sm121(monkeypatch):
    monkeypatch.setattr(utils, "get_compute_capability", lambda device: (12, 1))


def call(tokens, **given):
    weights = [torch.empty(0)] * 4
    return fused_moe.mxfp4_moe_decode(torch.empty(tokens, 32), *weights, **given)


def test_only_one_token_is_taken(sm121):
    for tokens in (0, 2):
        chosen = torch.empty(tokens, 4)
        with pytest.raises(ValueError, match=f"takes one token, not {tokens}"):
            call(tokens, topk_ids=chosen, topk_weights=chosen)


def test_only_few_choices_are_taken(sm121):
    for choices in (0, 9):
        chosen = torch.empty(1, choices)
        with pytest.raises(ValueError, match=f"1 to 8 choices, not {choices}"):
            call(1, topk_ids=chosen, topk_weights=chosen)


def test_older_devices_are_refused(monkeypatch):
    monkeypatch.setattr(utils, "get_compute_capability", lambda device: (7, 5))
    chosen = torch.empty(1, 4)
    with pytest.raises(utils.BackendSupportedError, match="75"):
        call(1, topk_ids=chosen, topk_weights=chosen)


def test_the_api_is_marked():
    assert fused_moe.mxfp4_moe_decode.is_experimental
    assert fused_moe.mxfp4_moe_decode.is_compute_capability_supported(121)
