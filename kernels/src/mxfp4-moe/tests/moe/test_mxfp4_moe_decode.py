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

from flashinfer.fused_moe import mxfp4_moe_decode
from flashinfer.utils import get_compute_capability

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
ALPHA, LIMIT = 1.702, 7.0

# The output is rounded to BF16, by up to 2^-9 of each number; tokens and the intermediate have 14 bits. Wrong
# outputs begin at five times this.
BAR = 1e-2
# Both ways of a product, by rows and by matrix multiplications, add up the same numbers in another order, so that
# few outputs are rounded to a neighbour.
REORDERED = 1e-3


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

    def reference(self, x, ids, weights):
        out = torch.zeros(x.shape, dtype=torch.float64)
        gates = self.up.shape[1] // 2
        w13_bias, w2_bias = self.w13_bias.double().cpu(), self.w2_bias.double().cpu()
        for token, choice in torch.cartesian_prod(*map(torch.arange, ids.shape)):
            expert = ids[token, choice]
            if expert < 0:
                continue
            both = self.up[expert][:, : self.hidden] @ x[token].double()
            both += w13_bias[expert]
            up = both[: self.intermediate].clamp(-LIMIT, LIMIT)
            gate = both[gates : gates + self.intermediate].clamp(max=LIMIT)
            act = (up + 1) * gate * torch.sigmoid(ALPHA * gate)
            down = self.down[expert][: self.hidden, : self.intermediate] @ act
            down += w2_bias[expert, : self.hidden]
            out[token] += weights[token, choice].double() * down
        return out

    def run(self, x, ids=None, weights=None, **more):
        return mxfp4_moe_decode(
            x.cuda(),
            self.w13,
            self.w13_scale,
            self.w2,
            self.w2_scale,
            None if ids is None else ids.cuda(),
            None if weights is None else weights.cuda(),
            w13_bias=self.w13_bias,
            w2_bias=self.w2_bias,
            intermediate_size=self.intermediate,
            alpha=ALPHA,
            limit=LIMIT,
            **more,
        )


def routed(tokens, experts, choices):
    logits = torch.randn(tokens, experts)
    best = logits.topk(choices)
    return best.indices.int(), best.values.softmax(dim=-1)


def check(out, reference):
    out = out.double().cpu()
    assert (
        (out - reference).norm(dim=1) <= BAR * reference.norm(dim=1)
    ).all(), "a token is too far off"


@pytest.fixture(autouse=True)
def _device():
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    if get_compute_capability(torch.device("cuda"))[0] < 8:
        pytest.skip("needs SM80 or later")


@pytest.mark.parametrize("tokens", [1, 2, 7, 8, 9, 16])
@pytest.mark.parametrize("choices", [1, 4, 8])
# 8192 columns of 16 tokens have no room in a block's shared memory at a time.
@pytest.mark.parametrize(
    "hidden,intermediate", [(2880, 2880), (96, 160), (512, 32), (8192, 32)]
)
def test_mxfp4_moe_decode(tokens, choices, hidden, intermediate):
    layer = Layer(8, hidden, intermediate)
    x = torch.randn(tokens, hidden, dtype=torch.bfloat16)
    ids, weights = routed(tokens, 8, choices)
    out = layer.run(x, ids, weights)
    check(out, layer.reference(x, ids, weights))
    assert all(torch.equal(out, layer.run(x, ids, weights)) for _ in range(5))


@pytest.mark.parametrize("tokens", [1, 16])
def test_padding_is_not_read(tokens):
    layer = Layer(4, 2880, 2880, padding=64)
    x = torch.randn(tokens, 2880, dtype=torch.bfloat16)
    ids, weights = routed(tokens, 4, 2)
    check(layer.run(x, ids, weights), layer.reference(x, ids, weights))


def test_experts_elsewhere_add_nothing():
    layer = Layer(4, 256, 128)
    x = torch.randn(5, 256, dtype=torch.bfloat16)
    ids, weights = routed(5, 8, 4)
    here = torch.tensor([2, -1, 0, -1, 3, -1, 1, -1], dtype=torch.int32)
    out = layer.run(x, ids, weights, expert_map=here.cuda())
    check(out, layer.reference(x, here[ids.long()], weights))


@pytest.mark.parametrize("tokens", [1, 5, 16])
@pytest.mark.parametrize("mapped", [True, False])
def test_ids_of_nobody_add_nothing(tokens, mapped):
    layer = Layer(4, 256, 128)
    x = torch.randn(tokens, 256, dtype=torch.bfloat16)
    ids, weights = routed(tokens, 4, 4)
    ids[:, 1] = torch.tensor([-1, 4, 1 << 20, -(1 << 31)])[torch.arange(tokens) % 4]
    here = {"expert_map": torch.arange(4).int().cuda()} if mapped else {}
    known = torch.where((ids >= 0) & (ids < 4), ids, -1)
    check(layer.run(x, ids, weights, **here), layer.reference(x, known, weights))


@pytest.mark.parametrize("tokens", [1, 2, 5, 16])
@pytest.mark.parametrize("ids,choices", [(8, 4), (128, 4), (300, 8)])
@pytest.mark.parametrize("hidden,intermediate", [(256, 128), (8192, 32)])
def test_experts_are_chosen_by_logits(tokens, ids, choices, hidden, intermediate):
    torch.manual_seed(ids + tokens)
    layer = Layer(8, hidden, intermediate)
    x = torch.randn(tokens, hidden, dtype=torch.bfloat16)
    # Steps of a half, so that several are equal: of these the first ones are chosen.
    logits = (torch.randn(tokens, ids) * 2).round() / 2 - 1
    order = logits.sort(dim=1, descending=True, stable=True)
    best, weights = order.indices[:, :choices], order.values[:, :choices].softmax(-1)
    here = torch.randperm(ids).int() % 12
    here[here >= 8] = -1
    given = {
        "routing_logits": logits.bfloat16().cuda(),
        "top_k": choices,
        "expert_map": here.cuda(),
    }
    out = layer.run(x, **given)
    check(out, layer.reference(x, here[best], weights))
    assert all(torch.equal(out, layer.run(x, **given)) for _ in range(5))


@pytest.mark.parametrize("tokens", [1, 5, 16])
@pytest.mark.parametrize("hidden,intermediate", [(256, 128), (8192, 32)])
def test_padding_chooses_no_experts(tokens, hidden, intermediate):
    layer = Layer(8, hidden, intermediate)
    x = torch.randn(tokens, hidden, dtype=torch.bfloat16)
    given = {
        "routing_logits": torch.randn(tokens, 8).bfloat16().cuda(),
        "top_k": 4,
    }
    padding = torch.arange(tokens, device="cuda") % 3 == 0
    whole = layer.run(x, **given)
    out = layer.run(x, **given, is_padding=padding)
    apart = (out - whole)[~padding].float().norm()
    assert apart <= REORDERED * whole[~padding].float().norm()
    assert whole[padding].any() and not out[padding].any()
    # The contents of padding make no difference at all.
    x[padding.cpu()] = torch.nan
    given["routing_logits"][padding] = torch.randn(8).bfloat16().cuda()
    assert torch.equal(layer.run(x, **given, is_padding=padding), out)


def test_ids_or_logits():
    layer = Layer(4, 256, 128)
    x, logits = torch.zeros(1, 256, dtype=torch.bfloat16), torch.zeros(1, 4).bfloat16()
    for given in (
        {},
        {"routing_logits": logits.cuda()},
        {"weights": torch.zeros(1, 1), "routing_logits": logits.cuda(), "top_k": 1},
        {"ids": torch.zeros(1, 1, dtype=torch.int32), "routing_logits": logits.cuda()},
    ):
        with pytest.raises(ValueError, match="topk_ids and topk_weights, or"):
            layer.run(x, **given)


def test_in_a_graph():
    layer = Layer(8, 256, 128)
    ids, weights = routed(4, 8, 4)
    x = torch.randn(4, 256, dtype=torch.bfloat16)
    given, out = x.cuda(), torch.empty(4, 256, dtype=torch.bfloat16, device="cuda")
    chosen, weighted = ids.cuda(), weights.cuda()
    layer.run(given, chosen, weighted, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layer.run(given, chosen, weighted, out=out)
    x, (ids, weights) = torch.randn_like(x), routed(4, 8, 4)
    given.copy_(x), chosen.copy_(ids), weighted.copy_(weights)
    graph.replay()
    check(out, layer.reference(x, ids, weights))


@pytest.mark.parametrize("tokens", [1, 4])
def test_logits_in_a_graph(tokens):
    # The layer's output makes the next one's logits: both launches begin early behind a kernel that writes them.
    layer = Layer(8, 256, 128)
    x = torch.randn(tokens, 256, dtype=torch.bfloat16).cuda()
    start = torch.randn(tokens, 8, dtype=torch.bfloat16).cuda()
    logits, out = start.clone(), torch.empty_like(x)

    def steps(count):
        logits.copy_(start)
        for _ in range(count):
            layer.run(x, routing_logits=logits, top_k=2, out=out)
            logits.copy_(out[:, :8])
        return out

    expected = []
    for count in range(1, 9):
        before = start if count == 1 else expected[-1][:, :8].contiguous()
        expected.append(layer.run(x, routing_logits=before.clone(), top_k=2))
        torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        steps(8)
    for _ in range(5):
        graph.replay()
        assert torch.equal(out, expected[-1])


def test_too_many_tokens_are_refused():
    layer = Layer(4, 256, 128)
    with pytest.raises(ValueError, match="1 to 16 tokens"):
        layer.run(torch.zeros(17, 256, dtype=torch.bfloat16), *routed(17, 4, 2))
