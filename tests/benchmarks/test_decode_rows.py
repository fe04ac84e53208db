# SPDX-License-Identifier: Apache-2.0
"""The variant `rows` of the decode kernels: right on the emulated machine, and with one fault each refused by it."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import decode_variants
from stack.carry.bases import Place, Stores
from stack.model.stack import load
from stack.proof.compiling import toolkit
from stack.store import cache as places
from tests.validation.numerics import test_decode_kernels as carried
from tests.validation.numerics.test_decode_kernels import COPIED, FAR, NO_BARRIER, NOT_WAITED, OUTSIDE
from validation.kernels import carried_kernels
from validation.numerics.emulated import Machine
from validation.numerics.experts import Experts

ROOT = Path(__file__).parents[2]
ROWS = ROOT / "benchmarks/decode_variants/rows"
LEFT_OUT = "moe_one.cuh"
"""Of the carried kernels, what the variant has no use for."""
DECODE, ENTRIES, ROUTING, GEMV = "moe_decode.cuh", "moe_rows.cuh", "moe_routing.cuh", "gemv.cuh"
STREAM, PRODUCTS, BYTES, MATRIX, RING = (
    "row_stream.cuh",
    "row_products.cuh",
    "byte_products.cuh",
    "matrix.cuh",
    "weight_ring.cuh",
)
MIXED = Experts(6, experts=24, hidden=224, intermediate=160, top=2)
"""Entries that share an expert, and others; a tile of scales is there by half, in rows and in columns."""
FEW_MIXED = replace(MIXED, tokens=3, experts=6)
LONG = tuple(
    Experts(2, experts=12, hidden=hidden, intermediate=intermediate, top=2) for hidden, intermediate in ((3232, 64), (64, 3232))
)
"""More columns than a warp has registers for, of several tokens."""
TWICE = Experts(1, experts=6, hidden=96, intermediate=96, twice=True)
"""One token that has an expert twice."""
UNWRITTEN = "nobody has written it"
ONLY_READ = "loaded as what is only read"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows() -> dict[str, bytes]:
    with Stores(load(ROOT), Place(places.root())) as stores:
        headers = decode_variants.headers(ROWS, carried_kernels(stores))
    return {name: text for name, text in headers.items() if name != LEFT_OUT}


def mixed_judged(machine: Machine) -> str:
    return next(filter(None, (carried.as_stored(machine, layer) for layer in (MIXED, FEW_MIXED, *LONG, TWICE))), "")


EXPERTS = (mixed_judged, carried.one_judged, carried.experts_judged, carried.many_judged, carried.choices_judged)
JUDGES = (*EXPERTS, carried.columns_judged, carried.layer_judged)
LEAST = {
    MATRIX: EXPERTS,
    BYTES: EXPERTS,
    DECODE: EXPERTS,
    ENTRIES: EXPERTS,
    ROUTING: EXPERTS,
    GEMV: (carried.layer_judged,),
    RING: EXPERTS,
}
SYNC = "  sync_block();\n"
TEAM = "sync_team(warp / kTeamWarps, kTeamWarps * kWarp)"
FAULTS = [
    ("scales of another tile", MATRIX, "divide_up(stored_blocks, kStageBlocks) *", "(stored_blocks / kStageBlocks) *", FAR),
    ("what biases add to staged tokens", BYTES, "-(of_high * 256 + of_low);", "0;", FAR),
    ("groups take one entry too few", ROUTING, "left : kGroup;", "left : kGroup - 1;", FAR + "|" + UNWRITTEN),
    ("leaders are counted before they are there", ROUTING, SYNC + "  Groups groups{0, 0};", "  Groups groups{0, 0};", NO_BARRIER),
    ("a group is the one after it", ROUTING, "bits_below(highest_bit(mine))", "bits_below(highest_bit(mine) + 1)", FAR + "|" + UNWRITTEN),
    ("who shares an expert is alone", ROUTING, "leads && members == 1;", "leads;", FAR + "|" + NO_BARRIER),
    ("who has an expert twice is never alone", ROUTING, "leads && members == 1;", "leads && all == 1;", UNWRITTEN + "|" + NO_BARRIER),
    ("groups of several where those of one are", ROUTING, "before + (alone ? groups.shared : 0)", "before", FAR + "|" + NO_BARRIER + "|" + UNWRITTEN),
    ("who is alone has all slices", ROUTING, "routing.alone(entry) ? 1 : slices", "slices", UNWRITTEN),
    ("one slice only", ROUTING, "routing.alone(entry) ? 1 : slices", "1", FAR),
    ("up is gate", ENTRIES, "bytes::checked(sums[0])", "bytes::checked(sums[1])", FAR),
    ("bias of another expert", ENTRIES, "static_cast<int64_t>(expert(piece)) * 2", "static_cast<int64_t>(0) * 2", FAR),
    ("bias of the gate is that of up", ENTRIES, "load_half(bias + moe.stored_intermediate)", "load_half(bias)", FAR),
    ("rows of up where those of gate are", ENTRIES, "octet * up.gate()", "octet * 0", FAR),
    ("the second launch does not wait", ENTRIES, "row_of);\n    wait_for_predecessor();", "row_of);", NOT_WAITED),
    ("rows beyond the output", ENTRIES, "row >= moe.hidden ?", "row >= moe.stored_hidden ?", OUTSIDE + "|another block|" + NO_BARRIER),
    ("rows that are not there", ENTRIES, "row == kNobody ? 0 : row;", "row;", OUTSIDE + "|refuses"),
    ("a team does not meet", ENTRIES, f"    {TEAM};\n", "", NO_BARRIER),
    ("a team of three warps", ENTRIES, TEAM, f"{TEAM[:-1]} - kWarp)", "a team of|" + NO_BARRIER + "|" + FAR + "|never"),
    ("all teams are one", ENTRIES, TEAM, "sync_team(0, kTeamWarps * kWarp)", "comes to|" + NO_BARRIER + "|never"),
    ("a team says what it says over what it said", ENTRIES, "    turn ^= 1;\n", "", NO_BARRIER),
    ("the largest of half a warp's columns", ENTRIES, "      power = bytes::larger(power, exchange(power, 16));\n", "", FAR),
    ("the largest of three warps", ENTRIES, "bytes::larger(powers[2], powers[3])", "powers[2]", FAR),
    ("low digits where high ones are", ENTRIES, "digits[kBlockColumns] = static_cast<uint8_t>(whole)", "digits[0] = static_cast<uint8_t>(whole)",
     FAR + "|" + UNWRITTEN),
    ("high digits without the low ones' carry", ENTRIES, "(whole + 0x80u) >> 8", "whole >> 8", FAR),
    ("the scale of the first block", ENTRIES, "bytes::kScales + block * 4) =", "bytes::kScales) =", FAR + "|" + UNWRITTEN + "|" + NO_BARRIER),
    ("results to other entries", ENTRIES, "routing.member[piece.group][member] * moe.activated_bytes()", "member * moe.activated_bytes()",
     FAR + "|" + UNWRITTEN + "|another block|" + NO_BARRIER),
    ("tokens are read before they are there", ENTRIES, "copies.complete(to);\n    sync_block();", "copies.complete(to);", NO_BARRIER),
    ("the token of the piece before", ENTRIES, "entry != opened ||", "opened == kNobody ||", FAR),
    ("the first span again", ENTRIES, "entry != opened || blocks() > kSpanBlocks", "entry != opened", FAR),
    ("a span is left out", ENTRIES, "first += kSpanBlocks", "first += 2 * kSpanBlocks", FAR),
    ("the token of the group before", ENTRIES, "piece.group != opened ||", "opened == kNobody ||", FAR),
    ("the first span of the second launch again", ENTRIES, "piece.group != opened || blocks() > kSpanBlocks", "piece.group != opened", FAR),
    ("tokens are multiplied before they are copied", ENTRIES, "    wait_copies<kLater>();\n", "", COPIED),
    ("tokens are waited for as if all other copies were later", ENTRIES, "wait_copies<kLater>();", "wait_copies<kLater + 1>();", COPIED),
    ("a run ends early", ENTRIES, "halves = of_halves.last(warp);", "halves = of_halves.last(warp);\n      halves.end -= warp == 0;",
     FAR + "|" + UNWRITTEN),
    ("who has another slice has as many halves", ENTRIES, "      halves.end -= 2 * least(warp + 1, fewer);\n", "",
     FAR + "|" + UNWRITTEN + "|" + NO_BARRIER),
    ("who has more slices does not begin later", ENTRIES, "      halves.begin -= 2 * least(warp, fewer);\n", "", FAR + "|" + UNWRITTEN),
    ("few halves are nobody's", ENTRIES, "Shares(all, warps - fewer).last(warp - fewer)", "Run{0, 0}", UNWRITTEN),
    ("few octets are left out", ENTRIES, "least(2 * warp + 2, all)};", "least(2 * warp, all)};", UNWRITTEN),
    ("one of what is left over is nobody's", ENTRIES, "begin + each + (one >= less)", "begin + each", FAR + "|" + UNWRITTEN),
    ("one slice of what is left over is nobody's", ENTRIES, "begin + each + (one < over)", "begin + each", UNWRITTEN),
    ("a cut octet is whole", ENTRIES, "here + 1 < down.halves.end ? 2 : 1", "2", NO_BARRIER),
    ("a cut octet begins with its first half", ENTRIES, "here < down.halves.begin,", "0,", NO_BARRIER),
    ("the half that another warp has is written, too", ENTRIES, " || row / kHalf < its.begin || row / kHalf >= its.end", "", NO_BARRIER),
    ("pieces of entries alone begin with shared ones", ENTRIES, "up.at(up.groups.shared, up.number())", "up.at(0, up.number())",
     NO_BARRIER + "|" + UNWRITTEN + "|another block"),
    ("a list without its parts", ENTRIES, "{group + number / plan.parts, number % plan.parts}", "{group + number / plan.parts, 0}",
     UNWRITTEN + "|" + NO_BARRIER + "|another block"),
    ("pairs of rows beyond the matrix", ENTRIES, "2 * (pairs < 4 ? pairs : 4)", "kOctet", OUTSIDE),
    ("rows of pairs in another order", ENTRIES, "row % 2 * 4 + row / 2", "row", FAR),
    ("entries in one place", ENTRIES, "down.partial[entry * kDownRows", "down.partial[0 * kDownRows", FAR + "|" + UNWRITTEN + "|" + NO_BARRIER),
    ("up is gate, of who shares an expert", DECODE, "products.sum(four, 0)", "products.sum(four, 1)", FAR),
    ("rows of up where those of gate are, of who shares", DECODE, "(place < kOctet ? 0 : up.gate())", "0", FAR),
    ("warps share their rings", DECODE, "rings + warp * kUpRing", "rings", NO_BARRIER + "|" + COPIED),
    ("warps share the second launch's rings", DECODE, "rings + warp * kDownRing", "rings", NO_BARRIER + "|" + COPIED),
    ("warps do not meet before they add", DECODE, SYNC + "\n  auto const row_of = [&down]", "\n  auto const row_of = [&down]", NO_BARRIER),
    ("what a team says is another's", DECODE, "[warp / kTeamWarps];", "[0];", NO_BARRIER),
    ("shared memory without what teams say", DECODE, "sizeof(Exchange);\n  constexpr int kTeams", "0;\n  constexpr int kTeams", OUTSIDE),
    ("slices of one stage", DECODE, "stage_step() const { return down.plan.slices; }", "stage_step() const { return 1; }", FAR),
    ("activated columns beyond the last", DECODE, "of_token / kOfBlock < there ? 16 : 0", "16", UNWRITTEN + "|" + OUTSIDE),
    ("scales of activated columns beyond the last", DECODE, "? there * 4 :", "? 16 :", UNWRITTEN + "|" + OUTSIDE),
    ("tokens of the second launch are copied as what is only read", DECODE, "copy_late_16(", "copy_16(", ONLY_READ),
    ("the first token for all who share an expert", DECODE, "Stage::kTokens + member * bytes::kStoredStage", "Stage::kTokens", FAR),
    ("a token's first stage again", DECODE, "token + stage * bytes::kStoredStage", "token", FAR),
    ("groups of the second launch larger than their stages", DECODE, "kTogether < kDownGroup ? kTogether : kDownGroup", "kTogether",
     FAR + "|" + OUTSIDE + "|" + COPIED + "|" + NO_BARRIER),
    ("the last shared piece is nobody's", DECODE, "up.teams() - 1 - up.number()", "up.number() + 1", UNWRITTEN),
    ("tokens of the first stages are never copied", RING, "for (int stage = 0; stage < kAhead; ++stage) fetch<false, true>();",
     "to_ = kAhead * Stage::kBytes;",
     UNWRITTEN + "|" + FAR + "|" + NO_BARRIER),
    ("tokens of the first stages where others are", RING, "    if constexpr (Work::kCopiesTokens) {\n      rewind();",
     "    if constexpr (Work::kCopiesTokens) {",
     FAR + "|" + UNWRITTEN + "|" + NO_BARRIER + "|" + COPIED),
    ("sectors do not change places where they are read", RING, "place(lane / 4, block) * 16", "(lane / 4 * kStageBlocks + block) * 16", FAR),
    ("stages are waited for as if one less were on its way", RING, "wait_copies<kAhead - 1>();", "wait_copies<kAhead>();", COPIED),
    ("tokens are copied as what is only read", BYTES, "copy_late_16(", "copy_16(", ONLY_READ),
    ("four lanes do not meet before they write", BYTES, "  sync_warp();  // four lanes write where their numbers were\n", "", NO_BARRIER),
    ("blocks of tokens beyond the columns", BYTES, "here.block < blocks_ ? 16 : 0", "16", FAR + "|" + OUTSIDE),
    ("a step of tokens is left out", BYTES, "blocks_of_a_step())) {}", "blocks_of_a_step()) - 1) {}", UNWRITTEN),
    ("the scale of the first block for all", BYTES, "block < 3 ? exponents << (23 - 8 * block) : exponents >> 1", "exponents << 23", FAR),
    ("both digits are the high one", BYTES, "lane_ / 4 % 2 * kBlockColumns + lane_ % 4 * 8", "lane_ % 4 * 8", FAR),
    ("digits of the first columns for all lanes", BYTES, "kBlockColumns + lane_ % 4 * 8", "kBlockColumns", FAR),
    ("the digits of another token", BYTES, "(lane_ / 8 < last ? lane_ / 8 : last)", "0", FAR),
    ("the scale of another token", BYTES, "(lane_ % 4 < last ? lane_ % 4 : last)", "0", FAR),
    ("what biases add to three octets is not taken off", BYTES, "less[block] = its[2] * 256 + its[3];", "less[block] = 0;", FAR),
    ("codes beyond the columns", STREAM, "block < left_ ? 16 : 0", "16", OUTSIDE),
    ("scales of pairs beyond the columns", STREAM, "tile < whole ? 16 : 0", "16", OUTSIDE + "|" + FAR),
    ("scales beyond the columns", STREAM, "tile < whole ? 4 : 0", "4", OUTSIDE + "|" + FAR),
    ("half a tile of pairs twice", STREAM, "tile >= kSpanTiles || tile == half", "tile >= kSpanTiles", COPIED + "|" + NO_BARRIER),
    ("half a tile twice", STREAM, "tile != half);", "true);", COPIED + "|" + NO_BARRIER),
    ("no half tiles", STREAM, "if (half < kSpanTiles) {", "if (false) {", UNWRITTEN + "|" + FAR),
    ("pairs of rows one after the other", STREAM, "31 * near_ : near_", "near_ : near_", FAR),
    ("scales of pairs in another order", STREAM, "row % 2 * 16 + row / 2 * kStageBlocks", "row * kStageBlocks", FAR),
    ("scales of the first row", STREAM, "scales_of_ * Ring::kOctetScales + in_octet(half * kHalf + row);", "scales_of_ * Ring::kOctetScales;", FAR),
    ("scales of the first span", STREAM, "first_ / kStageBlocks * TiledScales::kTileBytes", "0", FAR),
    ("rows after the last", STREAM, "Work::kOrder == Order::kTogether || half_ * kHalf + row + 1 < rows_", "true", OUTSIDE),
    ("a second half that is not there", STREAM, "if (half_ * kHalf < rows_) codes_ +=", "codes_ +=", OUTSIDE),
    ("the second half is the first", STREAM, "half_ = halves_.begin;", "half_ = 0;", FAR),
    ("halves that are not wanted are copied, too", STREAM, "++half_ == halves_.end", "++half_ == 2", FAR + "|" + UNWRITTEN),
    ("the first half alone where the second is", PRODUCTS, "    if (halves.end < 2) fours[0] = fours[1];\n", "", FAR),
    ("who comes after finds the ring in use", DECODE, "  wait_copies<0>();\n  sync_warp();\n", "", NO_BARRIER + "|" + COPIED),
    ("what biases add is not taken off", PRODUCTS, "block.less = -block.of_biases();", "block.less = 0;", FAR),
    ("high digits where low ones are", PRODUCTS, "block.low[0] = Memory::load(digits + kBlockColumns);", "block.low[0] = Memory::load(digits);", FAR),
    ("what biases add to the first block", PRODUCTS, "kRecords + place * kRecordBytes", "kRecords", FAR),
    ("blocks that a token does not have", PRODUCTS, "(there ? number : 0) / kStageBlocks", "number / kStageBlocks", OUTSIDE + "|" + UNWRITTEN),
    ("a block that is not there counts", PRODUCTS, "bool const there = number < blocks;", "bool const there = true;",
     FAR + "|" + OUTSIDE + "|" + UNWRITTEN),
    ("blocks of the first span", PRODUCTS, "first + i * kWarp + lane", "i * kWarp + lane", FAR),
    ("wide, scales of the first span", GEMV, "octet_scales + first,", "octet_scales,", FAR),
    ("wide, scales of the next row where there are none", GEMV, "octet_scales + first, blocks() - first)", "octet_scales + first, blocks())",
     FAR + "|" + UNWRITTEN + "|" + COPIED),
    ("wide, the first span again", GEMV, "StagedSpan{token_at, first, blocks(), lane}", "StagedSpan{token_at, 0, blocks(), lane}", FAR),
]  # fmt: skip
"""What is new in the variant: what it has of the carried kernels has their faults in their test."""


def judged(machine: Machine) -> list[str]:
    return [one(machine) for one in (*JUDGES, carried.roomy_judged)]


def test_the_variant_is_right(rows: dict[str, bytes]) -> None:
    assert judged(carried.built(rows)) == [""] * (len(JUDGES) + 1)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_121a"])
def test_the_variant_compiles(rows: dict[str, bytes], architecture: str, tmp_path: Path) -> None:
    made = decode_variants.build({"rows": rows}, architecture, tmp_path, toolkit.find(places.root()))
    assert [path.read_bytes()[:4] for path in made] == [b"\x7fELF"] * 2


def refused(kernels: dict[str, bytes], name: str, was: str, becomes: str, says: str) -> None:
    text = kernels[name].decode()
    assert was in text, f"{name} has no {was}"
    machine = carried.built({**kernels, name: text.replace(was, becomes).encode()})
    carried.assert_refused(machine, LEAST.get(name, JUDGES), says)


@pytest.mark.parametrize(
    ("name", "was", "becomes", "says"), [one[1:] for one in FAULTS], ids=[f"{one[1]}: {one[0]}" for one in FAULTS]
)
def test_a_fault_in_the_text_is_refused(rows: dict[str, bytes], name: str, was: str, becomes: str, says: str) -> None:
    refused(rows, name, was, becomes, says)
