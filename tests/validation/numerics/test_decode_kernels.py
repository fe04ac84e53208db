# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's MXFP4 decode kernels on a CPU: right as they are carried, and with one fault each refused by a case or the machine.

VALIDATION_FLASHINFER names a source tree of FlashInfer in place of the carried one, for work on the kernels.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

from stack.carry.bases import Place, Stores
from stack.model.stack import load
from stack.store import cache as places
from validation.kernels import carried_kernels
from validation.numerics.blocks import Rounding
from validation.numerics.cases import BFLOAT16_BAR
from validation.numerics.emulated import SHARED_LIMIT, KernelFault, Machine, building
from validation.numerics.experts import Experts, swiglu
from validation.numerics.formats import bfloat16
from validation.numerics.judging import Truth, judge, measure
from validation.numerics.kernels import emulated
from validation.numerics.kernels.emulated import both, decoded, every_number, multiplied, quantized, reference, tiled
from validation.numerics.linear import Linear

ROOT = Path(__file__).parents[3]
MOE, CHOOSE, GEMV = "moe_decode.cuh", "choose.cuh", "gemv.cuh"
ROUTE, ONE = "moe_routing.cuh", "moe_one.cuh"
ROWS, PRODUCTS = "row_stream.cuh", "row_products.cuh"
QUANTIZE, STREAM = "quantize.cuh", "weight_stream.cuh"
BF16, BYTES, RING, MATRIX = "bf16_products.cuh", "byte_products.cuh", "weight_ring.cuh", "matrix.cuh"
EXPERTS = Experts(4, experts=4, hidden=96, intermediate=160, elsewhere=1)
WIDE = (128, 288)
CROWDED = Experts(16, experts=4, hidden=96, intermediate=96, twice=True)
FEW_CROWDED = Experts(4, experts=4, hidden=96, intermediate=96, twice=True)
DEEP = tuple(
    Experts(tokens, experts=4, hidden=hidden, intermediate=intermediate)
    for tokens in (2, 5)
    for hidden, intermediate in ((2880, 32), (32, 2880))
)
MANY = Experts(14, experts=3, hidden=2880, intermediate=32, top=2)
"""More tokens than have room at a time on a GPU with little shared memory: they come in two launches."""
ONE_LEFT = replace(MANY, tokens=10)
ALL_ENTRIES = Experts(16, experts=10, hidden=64, intermediate=32, top=8)
UNEVEN = Experts(5, experts=10, hidden=64, intermediate=288, top=8)
"""Its second launch has 16 warps, and each of its groups three slices: a warp has another slice each time."""
ALONE = Experts(1, experts=160, hidden=64, intermediate=32)
ALL_CHOICES = Experts(1, experts=10, hidden=64, intermediate=32, top=8)
LONG = tuple(
    Experts(1, experts=4, hidden=hidden, intermediate=intermediate) for hidden, intermediate in ((3200, 32), (32, 3200))
)
"""One token of more columns than a warp has registers for."""
OF_MANY = Experts(5, experts=300, hidden=64, intermediate=32, top=8, elsewhere=40)
ROOMY = Experts(16, experts=20, hidden=2880, intermediate=160, top=8)
H200_SHARED = 232_448
"""Bytes of shared memory of a block on an H200: a ring for each of the most warps, beside all tokens."""
LAYER = Linear(9, 5152, 56, "mxfp4")
BROAD = Linear(9, 1312, 244, "mxfp4")
NARROW = Linear(9, 160, 56, "mxfp4")
MANY_ROWS = Linear(1, 512, 1100, "mxfp4")
SHAPES = (
    (LAYER, 48),  # blocks of 16 rows
    (BROAD, 4),  # 32 rows
    (BROAD, 1),  # 32 rows and few warps
    (NARROW, 48),  # columns for two warps only
    (MANY_ROWS, 1),  # one token and many rows: a block for each multiprocessor
    (Linear(1, 2880, 1100, "mxfp4"), 1),  # of fewer warps, where there is no room for all,
    (Linear(1, 3104, 1100, "mxfp4"), 1),  # or more columns than a warp has registers for;
    (Linear(2, 512, 1100, "mxfp4"), 1),  # but not two tokens
)
"""Layers, and multiprocessors."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kernels() -> dict[str, bytes]:
    named = os.environ.get("VALIDATION_FLASHINFER")
    if named:
        return building.headers(Path(named))
    with Stores(load(ROOT), Place(places.root())) as stores:
        return carried_kernels(stores)


def built(kernels: dict[str, bytes]) -> Machine:
    plan = building.plan(kernels)
    place = places.root() / "emulated" / plan.name
    with places.lock(place):
        return Machine.load(plan.build(place))


def mutated(kernels: dict[str, bytes], name: str, was: str, becomes: str) -> Machine:
    """The kernels that need the file `name`, with other text in one of theirs, wherever it stands."""
    beside = {
        MOE: {GEMV, QUANTIZE},
        ROUTE: {GEMV, QUANTIZE},
        ONE: {GEMV, QUANTIZE},
        CHOOSE: {GEMV, QUANTIZE},
        ROWS: {QUANTIZE},
        PRODUCTS: {QUANTIZE},
        GEMV: {MOE, CHOOSE, QUANTIZE},
        QUANTIZE: {MOE, CHOOSE, GEMV},
        STREAM: {MOE, CHOOSE, QUANTIZE},
        BF16: {MOE, CHOOSE, QUANTIZE},
        BYTES: {QUANTIZE},
        RING: {QUANTIZE},
        MATRIX: {QUANTIZE},
    }[name]
    text = kernels[name].decode()
    assert was in text, f"{name} has no {was}"
    changed = {**kernels, name: text.replace(was, becomes).encode()}
    return built({one: data for one, data in changed.items() if one not in beside})


def refused(run: Callable[[], object]) -> str:
    """What is said of a kernel with a fault; nothing where it passes."""
    try:
        return str(run())
    except (KernelFault, RuntimeError) as fault:
        return str(fault)


def assert_refused(machine: Machine, judges: Sequence[Callable[[Machine], str]], says: str) -> None:
    """One of these says of a kernel with a fault one of what is expected, with bars between."""
    said: list[str] = []
    for judged in judges:
        said.append(refused(partial(judged, machine)))
        if any(one in said[-1] for one in says.split("|")):
            return
    pytest.fail(f"it says {said}")


@cache
def truth(layer: Experts | Linear) -> Truth:
    return layer.truth()


def experts_judged(machine: Machine) -> str:
    few = judge(decoded(machine, EXPERTS, WIDE), truth(EXPERTS), BFLOAT16_BAR).why
    found = (as_stored(machine, layer) for layer in (CROWDED, FEW_CROWDED, ALL_ENTRIES, UNEVEN, ALONE))
    return few or next(filter(None, found), "")


@cache
def tied() -> Experts:
    """Experts of equal logits, all negative, of which a token is to choose the first; of one token they are zeros of both signs."""
    layer = Experts(5, experts=160, hidden=64, intermediate=32, elsewhere=1)
    layer.logits[:] = np.round(layer.logits * 2) / 2 - 8
    layer.logits[0] = np.where(layer.logits[0] > -8, -0.0, 0.0)
    return layer


def choices_judged(machine: Machine) -> str:
    """Experts that the kernels choose."""
    layers = (EXPERTS, ALONE, OF_MANY, tied())
    found = (
        judge(decoded(machine, one, (one.hidden, one.intermediate), chooses=True), truth(one), BFLOAT16_BAR).why
        for one in layers
    )
    if said := next(filter(None, found), ""):
        return said
    return padding_judged(machine, EXPERTS) or ("" if spoils(machine, -np.nan) else "a NaN is not chosen")


def padding_judged(machine: Machine, layer: Experts) -> str:
    """Tokens that only pad a batch: zeros, and the others as they are without."""
    padding = np.arange(layer.tokens) % 4 == 1
    sizes = (layer.hidden, layer.intermediate)
    found = decoded(machine, layer, sizes, chooses=True, padding=padding)
    whole = decoded(machine, layer, sizes, chooses=True)
    if found[padding].any():
        return "padding is not zeros"
    return "" if np.array_equal(found[~padding], whole[~padding]) else "other tokens are not as without padding"


def spoils(machine: Machine, logit: float) -> bool:
    """Whether such a logit makes its token NaN, and changes no other."""
    bad, good = replace(EXPERTS, experts=9), replace(EXPERTS, experts=9)
    bad.logits[2, 7] = logit
    found, whole = (decoded(machine, one, (96, 160), chooses=True) for one in (bad, good))
    return bool(np.isnan(found[2]).all()) and np.array_equal(np.delete(found, 2, axis=0), np.delete(whole, 2, axis=0))


def one_judged(machine: Machine) -> str:
    """One token: experts of stored sizes, more columns than registers are for, and choices."""
    few = replace(EXPERTS, tokens=1)
    found = judge(decoded(machine, few, WIDE), truth(few), BFLOAT16_BAR).why
    said = found or next(filter(None, (as_stored(machine, layer) for layer in (ALONE, ALL_CHOICES, *LONG))), "")
    return said or judge(decoded(machine, ALONE, (96, 64), chooses=True), truth(ALONE), BFLOAT16_BAR).why


def columns_judged(machine: Machine) -> str:
    """Experts with more columns than are in registers at a time."""
    return next(filter(None, (as_stored(machine, layer) for layer in DEEP)), "")


def many_judged(machine: Machine) -> str:
    """Tokens that come in two launches, the last of them alone, too."""
    sizes = (MANY.hidden, MANY.intermediate)
    found = (
        judge(decoded(machine, layer, sizes, chooses=chooses), truth(layer), BFLOAT16_BAR).why
        for layer in (MANY, ONE_LEFT)
        for chooses in (False, True)
    )
    return next(filter(None, found), "") or padding_judged(machine, MANY)


def as_stored(machine: Machine, layer: Experts) -> str:
    return judge(decoded(machine, layer, (layer.hidden, layer.intermediate)), truth(layer), BFLOAT16_BAR).why


def layer_judged(machine: Machine) -> str:
    found = (judge(multiplied(machine, layer, processors), truth(layer), BFLOAT16_BAR).why for layer, processors in SHAPES)
    return (
        next(filter(None, found), "") or judge(multiplied(machine, MANY_ROWS, 1, beyond=1), truth(MANY_ROWS), BFLOAT16_BAR).why
    )


@cache
def numbers_and_codes(rounding: Rounding) -> tuple[np.ndarray, np.ndarray]:
    bits = every_number()
    return bits, both(reference(bits, rounding))


def quantizer_judged(machine: Machine) -> str:
    return codes_judged(machine, Rounding.FLOOR) or codes_judged(machine, Rounding.EVEN)


def codes_judged(machine: Machine, rounding: Rounding) -> str:
    bits, codes = numbers_and_codes(rounding)
    differing = np.count_nonzero(both(quantized(machine, bits, rounding)) != codes)
    return f"{differing} differ" if differing else ""


FAR = "as far from the reference as allowed"
OUTSIDE = "outside of every buffer"
NO_BARRIER = "no barrier between|nobody has written it"
NOT_WAITED = "it was not waited for"
CACHED = "the first cache may have an older one"
COPIED = "it is still being copied"
RAN = "rings + warp * kRing, lane).run();\n"
DENSE = "stream<kOctets, kTokenTiles>(work, lane);\n"
SYNC = "  sync_block();"
WAITED = "wait_copies<Work::kStages - 2>();\n"
FAULTS = [
    ("nibbles in another order", BF16, "kPair ? 0x00F000F0u : 0x000F000Fu", "kPair ? 0x000F000Fu : 0x00F000F0u", FAR),
    ("the second half of a word is its first", BF16, ">> (second ? 8 : 0)", ">> (second ? 4 : 0)", FAR),
    ("tokens in another order", BF16, "permute_bytes(low, high, 0x5410u)", "permute_bytes(high, low, 0x5410u)", FAR),
    ("tokens as what is only read", STREAM, "load_16(tokens[tile]", "load_once_16(tokens[tile]", "loaded as what is only read"),
    ("tokens of the first tile twice", STREAM, "tile * kTileTokens + lane / 4", "lane / 4", FAR),
    ("one tile of tokens only", STREAM, "kTokenTiles == 1 ? 1 : divide_up(work.tokens(), kTileTokens)", "1", FAR),
    ("tokens beyond the columns", STREAM, "there = block < last ? block : last;\n        auto", "there = block;\n        auto", OUTSIDE),
    ("rows of scale tiles swapped", MATRIX, "row % 32 * kRowBytes + row % 128 / 32 * 4", "row % 32 * 4 + row % 128 / 32 * 128", FAR),
    ("scales of another tile", MATRIX, "divide_up(stored_blocks, kStageBlocks);", "(stored_blocks / kStageBlocks);", FAR),
    ("all scales of a row are its first", STREAM, "load_byte(scales_[octet] + there)", "load_byte(scales_[octet])", FAR),
    ("scales of another block", STREAM, "load_byte(scales_[octet] + there)", "load_byte(scales_[octet] + (there ? there - 1 : 0))", FAR),
    ("scales by two", BF16, "62u * 0x00800080u", "63u * 0x00800080u", FAR),
    ("blocks of another lane", STREAM, "ahead * kStageBlocks + lane % 4", "ahead * kStageBlocks + (lane % 4 ^ 1)", FAR),
    ("rows of another lane", STREAM, "rows(octet * kOctet + lane / 4)", "rows(octet * kOctet + lane % 8)", FAR),
    ("rows that are not there", STREAM, "row >= 0 ? row : 0", "row", OUTSIDE),
    ("blocks beyond the columns", STREAM, "block < last_ ? block : last_", "block", OUTSIDE),
    ("the last block is the one before it", STREAM, "block < last_ ? block : last_", "block < last_ ? block : last_ - 1", FAR + "|" + OUTSIDE),
    ("blocks beyond the columns count", BF16, "inside ? scale_pair(weights.scales[octet]) : 0u", "scale_pair(weights.scales[octet])", FAR),
    ("the last block does not count", STREAM, "block <= last, token_tiles", "block < last, token_tiles", FAR),
    ("no stage but the first two", STREAM, "fetch(fetched[slot]);\n        stage", "stage", FAR),
    ("stages into another's registers", STREAM, "fetch(fetched[slot]);\n        stage", "fetch(fetched[1 - slot]);\n        stage", FAR),
    ("nobody waits", STREAM, "work.wait();\n\n", "\n", NOT_WAITED),
    ("who has nothing to do does not wait", STREAM, "if (work.first() >= stages) {\n    work.wait();", "if (work.first() >= stages) {", NOT_WAITED),
    ("gate and up swapped", MOE, "swiglu(moe, up, gate)", "swiglu(moe, gate, up)", FAR),
    ("up not limited below", ROUTE, "up < -moe.limit ? -moe.limit : up", "up", FAR),
    ("gate not limited", ROUTE, "gate > moe.limit ? moe.limit : gate", "gate", FAR),
    ("another alpha", ROUTE, "-moe.alpha * gate", "-gate", FAR),
    ("bias of another expert", MOE, "moe.up_bias + first + piece", "moe.up_bias + piece", FAR),
    ("bias of the gate is that of up", MOE, "load_half(bias + moe.stored_intermediate)", "load_half(bias)", FAR),
    ("second bias missing", ROUTE, "if (moe.down_bias != nullptr)", "if (false)", FAR),
    ("second bias of the first expert", ROUTE, "moe.down_bias + expert * moe.stored_hidden", "moe.down_bias", FAR),
    ("second bias of rows that are not there", ROUTE, "row == kNobody || expert == kNobody) continue", "expert == kNobody) continue", OUTSIDE),
    ("biases where sums are", MOE, "(partial + plan.slices * moe.entries() * kDownRows)", "(partial)", "no barrier between"),
    ("shared memory without biases", MOE, " + static_cast<int>(sizeof(uint16_t)));", ");", OUTSIDE),
    ("weights of the router missing", ROUTE, "routing.weight[entry] * product", "product", FAR),
    ("weights of the first entry", ROUTE, "load_float(moe.router_weights + entry)", "load_float(moe.router_weights)", FAR),
    ("weights of the router from the first cache", ROUTE, "load_float(moe.router_weights + entry)", "moe.router_weights[entry]", CACHED),
    ("a map is not followed", ROUTE, "static_cast<int>(load_word(moe.expert_map + id)) : kNobody", "id : kNobody", FAR),
    ("another token", ROUTE, "entry / moe.choices", "entry % moe.tokens", FAR),
    ("groups take one entry too few", ROUTE, "all - rank : Shape::kGroup;", "all - rank : Shape::kGroup - 1;",
     FAR + "|not written|nobody has written it"),
    ("groups of eight where four are multiplied", ROUTE, "rank % Shape::kGroup", "rank % kMaxGroup",
     FAR + "|not written|nobody has written it"),
    ("an entry is before itself", ROUTE, "bits_below(entry - word * kWarp)", "bits_below(entry + 1 - word * kWarp)", FAR + "|" + NO_BARRIER),
    ("entries that are not there", ROUTE, "entry < moe.entries() ? routing.expert[entry] : kNobody", "routing.expert[entry]",
     "nobody has written it"),
    ("warps that are not whole", MOE, "uniform(threadIdx.x / kWarp)", "uniform(threadIdx.x / 16)", "comes to uniform with"),
    ("experts are read before they are there", ROUTE, SYNC + "\n  int const expert = entry", "  int const expert = entry", NO_BARRIER),
    ("leaders are counted before they are there", ROUTE, SYNC + "\n  int groups", "  int groups", NO_BARRIER),
    ("a group is the one after it", ROUTE, "bits_below(highest_bit(before))", "bits_below(highest_bit(before) + 1)", FAR + "|nobody has written it"),
    ("nobody where there are no entries", ROUTE, "  if (entry >= moe.entries() && entry < kWords * kWarp) routing.expert[entry] = kNobody;\n", "",
     "nobody has written it"),
    ("groups are read before they are there", ROUTE, SYNC + "\n  return groups", "  return groups", NO_BARRIER),
    ("of equal logits the last", CHOOSE, "kMaxRouted - ", "", FAR),
    ("zeros have a sign", CHOOSE, "if (logit == INT16_MIN) order = 0;", "", FAR),
    ("NaN have a sign", CHOOSE, "if ((logit & 0x7FFF) > 0x7F80) order = 0x7FFF;", "", "a NaN is not chosen"),
    ("negative logits in another order", CHOOSE, "logit ^ (logit < 0 ? 0x7FFF : 0)", "logit", FAR),
    ("negative logits of a rank", CHOOSE, "order ^ (order < 0 ? 0x7FFF : 0)", "order", FAR),
    ("logits beyond the last", CHOOSE, "if (expert < routed) of[i]", "of[i]", OUTSIDE),
    ("logits of the first experts only", CHOOSE, "first < routed; first", "first < 1; first", FAR),
    ("experts before these are forgotten", CHOOSE, "int before = chosen;", "int before = kNoRank;", FAR),
    ("experts before these again and again", CHOOSE, "        before = kNoRank;\n", "", FAR),
    ("the best again and again", CHOOSE, "        ranks.drop_first();\n", "", FAR),
    ("a lane's experts in no order", CHOOSE, "order(of[j], of[j + 1]);", "(void)j;", FAR),
    ("a lane's experts in the other order", CHOOSE, "larger < smaller ? larger : smaller", "larger < smaller ? smaller : larger", FAR),
    ("logits from the first cache", CHOOSE, "rank_of(load_half(logits + expert), expert)", "rank_of(logits[expert], expert)", CACHED),
    ("logits of another token", ROUTE, "logits + static_cast<int64_t>(token) * routed", "logits", FAR),
    ("logits as weights", ROUTE, "routing.weight[entry] * product", "(moe.logits != nullptr ? routing.logit : routing.weight)[entry] * product", FAR),
    ("weights of the best", ROUTE, "expf(routing.logit[entry] - logits[0]) / sum", "1.0f / sum", FAR),
    ("weights of no softmax", ROUTE, "- logits[0]) / sum", "- logits[0])", FAR),
    ("choices of another token", ROUTE, "int const entry = token * moe.choices + lane;", "int const entry = lane;",
     "no barrier between|nobody has written it"),
    ("who pads a batch has experts", ROUTE, "load_late_byte(moe.padding + token) != 0", "false", "padding is not zeros"),
    ("who pads a batch is the first token", ROUTE, "load_late_byte(moe.padding + token)", "load_late_byte(moe.padding)",
     "padding is not zeros|other tokens"),
    ("who pads a batch, from the first cache", ROUTE, "load_late_byte(moe.padding + token)", "moe.padding[token]", CACHED),
    ("who pads the first part", MOE, "part.padding = moe.padding + first;", "part.padding = moe.padding;",
     "padding is not zeros|other tokens|nobody has written it"),
    ("ids from the first cache", ROUTE, "static_cast<int>(load_word(moe.ids + entry))", "moe.ids[entry]", CACHED),
    ("a map from the first cache", ROUTE, "static_cast<int>(load_word(moe.expert_map + id))", "moe.expert_map[id]", CACHED),
    ("warps do not meet before they add", MOE, RAN + SYNC, RAN, NO_BARRIER),
    ("warps share their rings", MOE, RAN, "rings, lane).run();\n", "no barrier between|" + COPIED),
    ("shared memory without the tokens", MOE, "kRoutingBytes + moe.tokens * token_bytes(moe);", "kRoutingBytes;", OUTSIDE),
    ("the first launch does not wait", MOE, "  wait_for_predecessor();\n  release_successor();", "  release_successor();", NOT_WAITED),
    ("the first launch lets the second begin too early", MOE, "  wait_for_predecessor();\n  release_successor();",
     "  release_successor();\n  wait_for_predecessor();", NOT_WAITED),
    ("the second launch does not wait", MOE, "row_of);\n    wait_for_predecessor();", "row_of);", NOT_WAITED),
    ("a group's results to other entries", MOE, "routing.member[piece.group][member] * moe.activated_bytes() +", "member * moe.activated_bytes() +",
     "another block of this launch|no barrier between|nobody has written it"),
    ("rows beyond the output", MOE, "row >= moe.hidden ?", "row >= moe.stored_hidden ?", OUTSIDE + "|another block|no barrier"),
    ("rows of up where those of gate are", MOE, "place < kOctet ? row : row + moe.stored_intermediate", "row", FAR),
    ("one slice only", ROUTE, "slice < slices; ++slice", "slice < 1; ++slice", FAR),
    ("columns in several slices", MOE, "int stage_step() const { return plan.slices; }", "int stage_step() const { return 1; }", FAR),
    ("slices begin at the first stage", MOE, "first_stage(Piece piece) const { return piece.part; }", "first_stage(Piece) const { return 0; }", FAR),
    ("a warp's next slice is its first", MOE, "warps / slices, warps % slices}", "warps / slices, 0}", FAR + "|" + NO_BARRIER),
    ("tokens of other members", MOE, "<< 4 * member;", "<< 2 * member;", FAR + "|" + OUTSIDE),
    ("tokens of another stage", MOE, "tokens_at + stage * bytes::kTokenStage]", "tokens_at]", FAR),
    ("tokens are read before they are there", MOE, "tokens.complete(tokens_at);\n    sync_block();", "tokens.complete(tokens_at);", NO_BARRIER),
    ("tokens of the piece before", MOE, "    if (has(ahead)) open_token();\n", "", FAR + "|" + OUTSIDE + "|nobody has written it"),
    ("activated columns beyond the last", MOE, "stage * kStageBlocks + lane % 4 < blocks());", "true);", "nobody has written it|" + OUTSIDE),
    ("activated columns of the stage before", MOE, "ahead_stage += stage_step()", "ahead_stage += 2 * stage_step()", FAR + "|" + OUTSIDE),
    ("sums go on from piece to piece", MOE, "begin(Piece) { products.clear(); }", "begin(Piece piece) { if (piece.group == 0) products.clear(); }",
     FAR),
    ("all members are the first", MOE, "if (member == 0) return fetched;", "return fetched;", FAR),
    ("members but the first of the first stage", MOE, "load(block, from, stage);", "load(block, from, 0);", FAR),
    ("a team does not meet", MOE, "    sync_team(warp / kTeamWarps, kTeamWarps * kWarp);\n", "", NO_BARRIER),
    ("a team of three warps", MOE, "sync_team(warp / kTeamWarps, kTeamWarps * kWarp)", "sync_team(warp / kTeamWarps, kTeamWarps * kWarp - kWarp)",
     NO_BARRIER + "|waits at sync_team"),
    ("all teams are one", MOE, "sync_team(warp / kTeamWarps, kTeamWarps * kWarp)", "sync_team(0, kTeamWarps * kWarp)",
     NO_BARRIER + "|waits at sync_team"),
    ("a team says what it says over what it said", MOE, "    turn ^= 1;\n", "", NO_BARRIER),
    ("what a team says is another's", MOE, "(tokens_at + staged)[warp / kTeamWarps]", "(tokens_at + staged)[0]", NO_BARRIER),
    ("shared memory without what teams say", MOE, "kRing + sizeof(Exchange);\n  constexpr int kTeams = UpShape<kFew>",
     "kRing;\n  constexpr int kTeams = UpShape<kFew>", OUTSIDE),
    ("the largest of half a warp's columns", MOE, "      size = bytes::larger(size, exchange(size, 16));\n", "", FAR),
    ("the largest of three warps", MOE, "bytes::larger(sizes[2], sizes[3])", "sizes[2]", FAR),
    ("low digits where high ones are", MOE, "digits[kBlockColumns] = static_cast<uint8_t>(whole)", "digits[0] = static_cast<uint8_t>(whole)",
     FAR + "|nobody has written it"),
    ("high digits without the low ones' carry", MOE, "(whole + 0x80u) >> 8", "whole >> 8", FAR),
    ("the scale of the first block", MOE, "bytes::kScales + piece.part % kStageBlocks * 4)", "bytes::kScales)",
     "another block|no barrier|nobody has written it"),
    ("parts where all have room", MOE, "return room < 1 ? 1 : room;", "return 8;", "3 launches, 2 are allowed"),
    ("all tokens at once", MOE, "return room < 1 ? 1 : room;", "return 16;", "refuses its arguments"),
    ("tokens of the first part", MOE, "  part.hidden_states += static_cast<int64_t>(first) * moe.hidden;\n", "", FAR),
    ("ids of the first part", MOE, "moe.ids + static_cast<int64_t>(first) * moe.choices", "moe.ids", FAR),
    ("logits of the first part", MOE, "moe.logits + static_cast<int64_t>(first) * moe.routed", "moe.logits", FAR),
    ("results where those of the first part are", MOE, "  part.activated += first * moe.choices * moe.activated_bytes();\n", "",
     FAR + "|nobody has written it"),
    ("stages are not waited for", RING, WAITED, "", COPIED),
    ("a stage too few is waited for", RING, WAITED, WAITED.replace("2", "1"), COPIED),
    ("lanes do not meet", RING, "        sync_warp();\n", "", NO_BARRIER + "|" + COPIED),
    ("the stage that is multiplied is fetched", RING, "        fetch();\n        work_", "        fetch();\n        fetch();\n        work_",
     COPIED + "|" + FAR),
    ("codes beyond the columns", RING, "lane_ % 4 < left_ ? 16 : 0", "16", OUTSIDE),
    ("scales beyond the columns", RING, "left_ < kStageBlocks ? left_ : kStageBlocks", "kStageBlocks", FAR),
    ("codes of another row", RING, "work_.row(piece_, octet * kOctet + lane_ / 4)", "work_.row(piece_, octet * kOctet + lane_ % 8)", FAR),
    ("scales of another row", RING, "lane_ % (Work::kOctets * kOctet)", "0", FAR),
    ("slices' codes begin at the first stage", RING, " + stage * kStageCodes;", ";", FAR),
    ("slices' scales begin at the first stage", RING, " + stage * TiledScales::kTileBytes;", ";", FAR),
    ("parts that do not go over", RING, "part + parts >= of", "false", FAR + "|" + OUTSIDE + "|" + NO_BARRIER),
    ("no piece but the first", RING, "        if (work_.has(piece_)) open();\n", "", FAR + "|nobody has written it"),
    ("a stage's scales where others' are", RING, "stage[kCodes + octet * kWarp + lane]", "stage[kCodes + lane]", FAR),
    ("no bias of the first byte", BYTES, "0x8C8C8C8Bu", "0x8C8C8C8Cu", FAR),
    ("negative codes in another order", BYTES, "0x88868480u * one", "0x80848688u * one", FAR),
    ("no upper nibbles", BYTES, "word_of(codes[half], word) >> 16", "word_of(codes[half], word)", FAR),
    ("the low digit's carry", BYTES, "bytes(0x80u, 0x0051u)", "bytes(0u, 0x0051u)", FAR),
    ("digits are not scaled", BYTES, "kept - 13u - 1u", "kept - 13u", FAR),
    ("digits of small numbers", BYTES, "larger(power, 15u)", "larger(power, 138u)", FAR),
    ("the largest of four lanes", BYTES, "  most = larger(most, exchange(most, 2));\n", "", FAR),
    ("digits where others' weights are", BYTES, "mine(lane / 8 == lane % 4)", "mine(true)", FAR),
    ("columns of a token that it does not have", BYTES, "next_.token < count_ && next_.block < blocks_", "next_.token < count_", OUTSIDE + "|" + FAR),
    ("tokens that are not there", BYTES, "next_.token < count_ && next_.block < blocks_", "next_.block < blocks_", OUTSIDE),
    ("tokens in another order", BYTES, "      next_ = after(next_);\n", "", FAR),
    ("what biases add to the third octet's sums", BYTES, "others[2] * 256 + others[3]", "others[2] * 256", FAR),
    ("a half of a tile without biases", BYTES, "last[word][1] = last[word][3] = kBiases;", "last[word][1] = last[word][3] = 0u;", FAR),
    ("no upper nibbles of the third octet", BYTES, "word_of(codes[2], word) >> 16", "word_of(codes[2], word)", FAR),
    ("scales of the second octet", BYTES, "(factors[2] * block.scale)", "(factors[1] * block.scale)", FAR),
    ("sums of two lanes", BYTES, "checked(sum + exchange(sum, 2))", "checked(sum)", FAR),
    ("lanes give away what they keep", BYTES, "exchange(odd ? front : back, 1)", "exchange(odd ? back : front, 1)", FAR),
    ("members in another order", BYTES, "later ? pairs[1] : pairs[0]", "later ? pairs[0] : pairs[1]", FAR),
    ("scales of the other octet", BYTES, "(factors[1] * of_token)", "(factors[0] * of_token)", FAR),
    ("one token: gate and up swapped", ONE, "swiglu(moe, up, gate)", "swiglu(moe, gate, up)", FAR),
    ("one token: bias of another expert", ONE, "moe.up_bias + first + piece", "moe.up_bias + piece", FAR),
    ("one token: bias of the gate is that of up", ONE, "load_half(bias + moe.stored_intermediate)", "load_half(bias)", FAR),
    ("one token: rows of up where those of gate are", ONE, "octet * moe.stored_intermediate", "octet * 0", FAR),
    ("one token: the first launch does not wait", ONE, "  wait_for_predecessor();\n  release_successor();", "  release_successor();", NOT_WAITED),
    ("one token: the first launch lets the second begin too early", ONE, "  wait_for_predecessor();\n  release_successor();",
     "  release_successor();\n  wait_for_predecessor();", NOT_WAITED),
    ("one token: the second launch does not wait", ONE, "row_of);\n    wait_for_predecessor();", "row_of);", NOT_WAITED),
    ("one token: rows beyond the output", ONE, "row >= moe.hidden ?", "row >= moe.stored_hidden ?",
     OUTSIDE + "|another block|" + NO_BARRIER),
    ("one token: octets that are not there", ONE, "return left < kDownOctets ? left : kDownOctets;", "return kDownOctets;",
     OUTSIDE + "|another block|nobody has written it"),
    ("one token: a warp has one octet", ONE, "warps / octets(), warps % octets(), octets()", "warps, 0, octets()", FAR + "|" + NO_BARRIER),
    ("one token: a team does not meet", ONE, "    sync_team(warp / kTeamWarps, kTeamWarps * kWarp);\n", "", NO_BARRIER),
    ("one token: a team says what it says over what it said", ONE, "    turn ^= 1;\n", "", NO_BARRIER),
    ("one token: what a team says is another's", ONE, "(token_at + token_bytes(moe))[warp / kTeamWarps]", "(token_at + token_bytes(moe))[0]",
     NO_BARRIER),
    ("one token: the largest of half a warp's columns", ONE, "    size = bytes::larger(size, exchange(size, 16));\n", "", FAR),
    ("one token: the largest of three warps", ONE, "bytes::larger(sizes[2], sizes[3])", "sizes[2]", FAR),
    ("one token: low digits where high ones are", ONE, "digits[kBlockColumns] = static_cast<uint8_t>(whole)",
     "digits[0] = static_cast<uint8_t>(whole)", FAR + "|nobody has written it"),
    ("one token: high digits without the low ones' carry", ONE, "(whole + 0x80u) >> 8", "whole >> 8", FAR),
    ("one token: the scale of the first block", ONE, "bytes::kScales + block * 4)", "bytes::kScales)",
     "another block|no barrier|nobody has written it"),
    ("one token: its second span is not read", ONE, "first += kSpanBlocks", "first += 2 * kSpanBlocks", FAR),
    ("one token: it is read before it is there", ONE, "tokens.complete(token_at);\n    sync_block();", "tokens.complete(token_at);", NO_BARRIER),
    ("one token: warps do not meet before they add", ONE, "lane).run();\n" + SYNC, "lane).run();\n", NO_BARRIER),
    ("one token: warps share their rings", ONE, "rings + warp * OneRing::kBytes", "rings", "no barrier between|" + COPIED),
    ("one token: shared memory without it", ONE, "kRoutingBytes + token_bytes(moe) +", "kRoutingBytes +", OUTSIDE),
    ("one token: biases where sums are", ONE, "(partial + moe.entries() * kDownRows)", "(partial)", "no barrier between"),
    ("one token: choices in one place", ONE, "entry(piece) * moe.activated_bytes()", "0 * moe.activated_bytes()",
     "another block|no barrier|nobody has written it"),
    ("rows are not waited for", ROWS, "wait_copies<kAhead - 1>();", "", COPIED),
    ("a row too few is waited for", ROWS, "wait_copies<kAhead - 1>();", "wait_copies<kAhead>();", COPIED),
    ("lanes do not meet before they read scales", ROWS, "    sync_warp();\n", "", NO_BARRIER + "|" + COPIED),
    ("the row that is multiplied is fetched", ROWS, "    fetch(ahead);\n", "    fetch(ahead);\n    fetch(ahead);\n", COPIED + "|" + FAR),
    ("codes beyond the columns", ROWS, "i * kWarp + lane_ < left_ ? 16 : 0", "16", OUTSIDE),
    ("scales beyond the columns", ROWS, "left < kStageBlocks ? left", "left < 0 ? left", FAR),
    ("scales where those of the octet before are", ROWS, "    scales_to_ ^= 1;\n", "", FAR + "|" + NO_BARRIER + "|" + COPIED),
    ("scales of the octet before", ROWS, "{ scales_of_ ^= 1; }", "{}", FAR + "|" + NO_BARRIER + "|" + COPIED),
    ("scales of the first row", ROWS, "scales_of_ * Ring::kOctetScales + row * kSpanBlocks;", "scales_of_ * Ring::kOctetScales;", FAR),
    ("scales of another row", ROWS, "lane_ % kOctet * TiledScales::kRowBytes", "lane_ / 4 * TiledScales::kRowBytes", FAR + "|" + OUTSIDE),
    ("no rows but the first eight", ROWS, "    if (ahead == 0) advance();\n", "", FAR + "|" + OUTSIDE + "|nobody has written it"),
    ("a span of columns is left out", ROWS, "    first_ += kSpanBlocks;\n", "    first_ += 2 * kSpanBlocks;\n", FAR + "|nobody has written it"),
    ("codes of the first span", ROWS, "(first_ + lane_) * 16", "lane_ * 16", FAR),
    ("scales of the first span", ROWS, "first_ / kStageBlocks + lane_ / kOctet", "lane_ / kOctet", FAR),
    ("rows after the last", ROWS, "if (Work::kTiled || row + 1 < rows_) codes_", "codes_", OUTSIDE),
    ("no piece but the first", ROWS, "    if (work_.has(piece_)) open();\n  }\n\n  Work", "  }\n\n  Work", FAR + "|nobody has written it"),
    ("what biases add is not taken off", PRODUCTS, "less = -(of_high * 256 + of_low);", "less = 0;", FAR),
    ("no upper nibbles", PRODUCTS, "word_of(codes[block], word) >> 16", "word_of(codes[block], word)", FAR),
    ("high digits where low ones are", PRODUCTS, "low[0] = Memory::load(digits + kBlockColumns);", "low[0] = Memory::load(digits);", FAR),
    ("scales of the first block of four", PRODUCTS, "stage + kScales + place * 4", "stage + kScales", FAR),
    ("blocks that a token does not have", PRODUCTS, "(there ? block : 0) / kStageBlocks", "block / kStageBlocks", OUTSIDE + "|nobody has written it"),
    ("a block that is not there counts", PRODUCTS, "block, block < blocks", "block, true", FAR + "|" + OUTSIDE + "|nobody has written it"),
    ("rows in another order", PRODUCTS, "lane / 16 % 2 + lane / 8 % 2 * 2", "lane / 16 % 2 * 2 + lane / 8 % 2", FAR),
    ("the first four rows' scales twice", PRODUCTS, "rows.next(half * 4 + i", "rows.next(i", FAR + "|" + OUTSIDE + "|nobody has written it"),
    ("halves of sums change places", PRODUCTS, "(has ? second : first) +", "(has ? first : second) +", FAR),
    ("sums of two of four lanes", PRODUCTS, "    sum += exchange(sum, 2);\n", "", FAR),
    ("blocks of the first span", PRODUCTS, "first + i * kWarp + lane_", "i * kWarp + lane_", FAR),
    ("three launches", MOE, "  return moe_decode_down(moe, stream, early, processor);", "  (void)moe_decode_down(moe, stream, early, processor);\n"
     "  return moe_decode_down(moe, stream, early, processor);", "3 launches, 2 are allowed"),
    ("rows beyond the weight", GEMV, "first_row + place < gemv.rows ? first_row + place : -1", "first_row + place", OUTSIDE),
    ("rows beyond the output", GEMV, "if (row >= gemv.rows) return;", "", OUTSIDE + "|another block|no barrier"),
    ("bias of rows that are not there", GEMV, "gemv.bias != nullptr && row() < gemv.rows", "gemv.bias != nullptr", OUTSIDE),
    ("a thread's rows differ", GEMV, "threadIdx.x % (kOctets * kOctet)", "threadIdx.x % kOctet", FAR + "|no barrier between"),
    ("bias missing", GEMV, "if (gemv.bias != nullptr)", "if (false)", FAR),
    ("the last warp's part missing", GEMV, "other < kWarps &&", "other < kWarps - 1 &&", FAR),
    ("sums of warps that have none", GEMV, "other < kWarps && other < work.stages()", "other < kWarps", "nobody has written it"),
    ("columns of two warps", GEMV, "int step() const { return kWarps; }", "int step() const { return kWarps - 1; }", FAR),
    ("one token too many", GEMV, "place < gemv.tokens ? place : 0", "place", OUTSIDE),
    ("sums of two octets in one place", GEMV, "token * kOctets * kOctet + row", "token * kOctet + row", "no barrier between"),
    ("warps do not meet before they add", GEMV, DENSE + SYNC, DENSE, NO_BARRIER),
    ("the launch does not wait", GEMV, "load_half(gemv.bias + row());\n    wait_for_predecessor();", "load_half(gemv.bias + row());", NOT_WAITED),
    ("the wide launch does not wait", GEMV, "void prepare() {\n    wait_for_predecessor();", "void prepare() {", NOT_WAITED),
    ("wide without room", GEMV, "wide_gemv_shared_bytes(gemv, warps) > processor.shared_bytes", "false", "bytes of shared memory, there are"),
    ("wide, scales of the first span", GEMV, "octet_scales + first_block;", "octet_scales;", FAR),
    ("wide, scales of the next row where there are none", GEMV, "return blocks() - first_block;", "return kSpanBlocks;",
     FAR + "|nobody has written it|" + COPIED),
    ("wide, the first span again", GEMV, "products.open(token_at, first_block, blocks());", "products.open(token_at, 0, blocks());", FAR),
    ("wide with scales anywhere", GEMV, "reinterpret_cast<uintptr_t>(gemv.scales) % 16 == 0", "true", "misaligned"),
    ("wide for two tokens", GEMV, "gemv.tokens == 1 &&", "", FAR + "|not written"),
    ("wide, scales of the rows before", GEMV, "piece.part * kRows", "0 * kRows", FAR + "|" + NO_BARRIER + "|" + COPIED),
    ("wide, scales beyond the weight", GEMV, "left >= 16 ? 16 : left > 0 ? static_cast<int>(left) : 0", "16", OUTSIDE),
    ("wide, rows beyond the weight", GEMV, "return left < 0 ? 0 : left < kOctet ? left : kOctet;", "return kOctet;", OUTSIDE),
    ("wide, rows beyond the output", GEMV, "lane % 4 == 0 && row < gemv.rows", "lane % 4 == 0", OUTSIDE),
    ("wide, bias of another row", GEMV, "from_bf16(gemv.bias[row])", "from_bf16(gemv.bias[row / 2])", FAR),
    ("wide, scales of the first octet", GEMV, "scales(piece) + octet * kOctet * blocks();", "scales(piece);", FAR),
    ("wide, a warp's rows again", GEMV, "blockDim.x / kWarp * gridDim.x), piece", "(blockDim.x / kWarp + 1) * gridDim.x), piece",
     "not written|another block|no barrier"),
    ("warps that are not whole", GEMV, "uniform(threadIdx.x / kWarp)", "uniform((threadIdx.x + 1) / kWarp)", "comes to uniform with"),
    *((f"tie at {number} / 2048", QUANTIZE, f"eighths {was} {number}u", f"eighths {becomes} {number}u", "differ")
      for number, was, becomes in ((512, ">", ">="), (1536, ">=", ">"), (2560, ">", ">="), (3584, ">=", ">"),
                                   (5120, ">", ">="), (7168, ">=", ">"), (10240, ">", ">="))),
    ("half of a scale's last bit", QUANTIZE, "kHalf = 0x20u", "kHalf = 0x40u", "differ"),
    ("scale of infinities", QUANTIZE, "return 254u;", "return 255u;", "differ"),
    ("scale of NaN", QUANTIZE, "if (largest > kBf16Infinity) return kScaleNan;", "", "differ"),
    ("subnormal numbers", QUANTIZE, "(field ? 0x80u : 0u)", "0x80u", "differ"),
    ("the sign of zero", QUANTIZE, "if (shift > 11) return sign;", "if (shift > 11) return 0;", "differ"),
]  # fmt: skip
JUDGES = {
    MOE: (experts_judged, choices_judged, columns_judged, many_judged),
    ROUTE: (experts_judged, choices_judged, many_judged),
    ONE: (one_judged,),
    CHOOSE: (choices_judged,),
    GEMV: (layer_judged,),
    QUANTIZE: (quantizer_judged,),
    STREAM: (layer_judged,),
    BF16: (layer_judged,),
    BYTES: (experts_judged, columns_judged, layer_judged),
    ROWS: (one_judged, layer_judged),
    PRODUCTS: (one_judged, layer_judged),
    RING: (experts_judged, columns_judged, layer_judged),
    MATRIX: (experts_judged, columns_judged, layer_judged),
}


def test_the_kernels_are_right_as_they_are_carried(kernels: dict[str, bytes]) -> None:
    machine = built(kernels)
    assert [judged(machine) for judged in (*JUDGES[MOE], one_judged, layer_judged, quantizer_judged)] == [""] * 7


def roomy_judged(machine: Machine) -> str:
    found = decoded(machine, ROOMY, (ROOMY.hidden, ROOMY.intermediate), shared_limit=H200_SHARED)
    return judge(found, truth(ROOMY), BFLOAT16_BAR).why


def test_they_are_right_where_a_block_has_an_h200_s_shared_memory(kernels: dict[str, bytes]) -> None:
    machine = built(kernels)
    assert roomy_judged(machine) == ""
    assert machine.shared > SHARED_LIMIT


@pytest.mark.parametrize(
    ("name", "was", "becomes", "says"), [one[1:] for one in FAULTS], ids=[f"{one[1]}: {one[0]}" for one in FAULTS]
)
def test_a_fault_in_their_text_is_refused(kernels: dict[str, bytes], name: str, was: str, becomes: str, says: str) -> None:
    assert_refused(mutated(kernels, name, was, becomes), JUDGES[name], says)


def ideal(layer: Experts) -> np.ndarray:
    """The output of a kernel that rounds to bfloat16 what is between the multiplications, and the output, and nothing else."""
    output = np.zeros((layer.tokens, layer.hidden))
    for one in layer.routed():
        expert = layer.expert(one.expert)
        gate_up = layer.inputs[one.rows].astype(np.float64) @ expert.gate_up.values().T + expert.gate_up_bias
        hidden = bfloat16(swiglu(gate_up)).astype(np.float64)
        output[one.rows] += one.weights[:, None] * (hidden @ expert.down.values().T + expert.down_bias)
    return bfloat16(output)


@pytest.mark.parametrize("tokens", [1, 8, 16])
def test_nothing_is_rounded_but_what_has_to_be(kernels: dict[str, bytes], tokens: int) -> None:
    machine = built(kernels)
    layer = Experts(tokens, experts=8, hidden=192, intermediate=352)
    found = measure(decoded(machine, layer, (192, 352)), truth(layer))
    assert found.overall <= 1.05 * measure(ideal(layer), truth(layer)).overall
    dense = Linear(tokens, 1184, 244, "mxfp4")
    bar = 1.05 * measure(bfloat16(truth(dense).reference), truth(dense)).overall
    for processors in (48, 4, 1):  # a shape of blocks each
        assert measure(multiplied(machine, dense, processors), truth(dense)).overall <= bar


def test_a_number_that_is_none_spoils_its_own_token_and_no_other(kernels: dict[str, bytes]) -> None:
    machine = built(kernels)
    good = decoded(machine, replace(CROWDED), (96, 96))
    for number in (np.nan, np.inf):
        spoiled = replace(CROWDED)
        spoiled.inputs[5, 7] = number
        found = decoded(machine, spoiled, (96, 96))
        assert np.isnan(found[5]).all()
        assert np.array_equal(np.delete(found, 5, axis=0), np.delete(good, 5, axis=0))
    assert all(spoils(machine, logit) for logit in (np.nan, -np.nan))
    layer = replace(LAYER)
    layer.x[2, 9] = np.nan
    found, good = multiplied(machine, layer), multiplied(machine, LAYER)
    assert np.isnan(found[2]).all()
    assert np.array_equal(np.delete(found, 2, axis=0), np.delete(good, 2, axis=0))


def test_a_scale_that_is_none_is_seen_behind_a_limit(kernels: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(layer: Experts, sizes: emulated.Sizes) -> emulated.Stored:
        weights = emulated_stored(layer, sizes)
        weights.up_scales[:, 0] = 255  # of the first block of up's first row
        return weights

    emulated_stored = emulated.stored
    monkeypatch.setattr(emulated, "stored", spoiled)
    assert np.isnan(decoded(built(kernels), replace(EXPERTS, elsewhere=0), (96, 160))).all()


def test_who_cannot_choose_is_refused(kernels: dict[str, bytes]) -> None:
    machine = built(kernels)
    with pytest.raises(KernelFault, match="refuses its arguments"):
        decoded(machine, Experts(1, experts=4, hidden=64, intermediate=32, top=5), (64, 32), chooses=True)


def test_what_no_expert_here_has_is_zero(kernels: dict[str, bytes]) -> None:
    layers = (Experts(1, experts=4, hidden=96, intermediate=96, top=1, elsewhere=3, seed=seed) for seed in range(100))
    far = next(layer for layer in layers if (layer.route[0] < layer.elsewhere).all())
    assert not decoded(built(kernels), far, (96, 96)).any()


def test_what_a_case_says_of_its_experts_is_so() -> None:
    assert CROWDED.route[0].shape == (16, 4)
    assert np.array_equal(CROWDED.route[0][:, 0], CROWDED.route[0][:, 1])
    most = max(np.count_nonzero(CROWDED.route[0] == expert) for expert in range(4))
    assert most > 16  # more than two groups of those that are multiplied together
    assert (EXPERTS.route[0] < EXPERTS.elsewhere).any()
    best = [np.sort(row)[::-1][: tied().top + 1] for row in tied().logits]
    assert any(row[-1] == row[-2] for row in best)  # who comes last is chosen by its number
    assert len(set(np.signbit(tied().logits[0, :8]))) == 2
    assert tied().logits[1:].max() < 0
    few = replace(EXPERTS, experts=64)
    assert len({one.expert for one in few.routed()}) < 63


def test_scales_are_tiled_as_their_definition_says() -> None:
    scales = np.random.default_rng(0).integers(0, 256, (160, 6), dtype=np.uint8)
    found = tiled(scales)
    assert found.size == 256 * 8
    for row in range(160):
        for block in range(6):
            place = (row // 128 * 2 + block // 4) * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4
            assert found[place] == scales[row, block]
