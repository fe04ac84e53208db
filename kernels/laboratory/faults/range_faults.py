# SPDX-License-Identifier: Apache-2.0
"""Faults of the decode kernels that show only at the ends of what they promise, each with the case of the command that refuses it.

The first part are the faults of an independent examination (November 2026), which every case and test of that time accepted, in each
header that could have them. The second part are faults of other kinds: fifty were written down before anybody looked at what the cases
see, and these are the ones that first passed. Two of the fifty still pass: the place of a row in a dense weight of more than 2^31 bytes is
computed in 32 bits. A CPU cannot run so many rows.
"""

from laboratory.faults.decode_faults import FAR, OUTSIDE, UNWRITTEN
from laboratory.faults.judges import BF16, BYTES, CHOOSE, FIXED, MOE, PRODUCTS, RING, ROUTE, ROWS

_IDS = "kernels/moe/mxfp4-decode-emulated/range"
_LOGITS = "kernels/moe/mxfp4-decode-choosing-emulated/range"
_DENSE = "kernels/linear/mxfp4-gemv-emulated/range"
_FOUR = "return float_of_bits(bits & 0x7F800000u);"
_EACH = "float_of_bits(exponent << 23)"
_CAPPED = "(scale < 193u ? scale : 193u)"
_WEIGHT = "load_float(moe.router_weights + entry)"

RANGE_FAULTS = [
    ("block scales below 2^-15 become 0, row by row", PRODUCTS, _EACH, "float_of_bits(exponent < 112u ? 0u : exponent << 23)", FAR,
     f"{_IDS}/scales=all-first/intermediate=96/m=1"),
    ("block scales below 2^-15 become 0, shared", BYTES, _FOUR,
     "return float_of_bits((bits & 0x7F800000u) < (112u << 23) ? 0u : bits & 0x7F800000u);", FAR,
     f"{_IDS}/scales=all-second/intermediate=736/m=5"),
    ("block scales below 2^-15 become 0, dense", BF16, "return (scale < 193u", "if (scale < 112u) return 0u;\n  return (scale < 193u", FAR,
     f"{_DENSE}/scales=all/m=4"),
    ("scales from 2^0 on are off by 2, row by row", PRODUCTS, _EACH,
     "float_of_bits((exponent < 127u || exponent > 253u ? exponent : exponent + 1u) << 23)", FAR,
     f"{_IDS}/scales=all-second/intermediate=736/m=1"),
    ("scales from 2^0 on are off by 2, shared", BYTES, _FOUR,
     "uint32_t const its = bits & 0x7F800000u;\n    return float_of_bits(its < (127u << 23) || its > (253u << 23) ? its : its + (1u << 23));",
     FAR, f"{_IDS}/scales=all-first/intermediate=96/m=5"),
    ("scales from 2^0 on are off by 2, dense", BF16, f"return {_CAPPED}", "return (scale < 127u ? scale : scale < 192u ? scale + 1u : 193u)",
     FAR, f"{_DENSE}/scales=all/m=4"),
    ("activations lose two of 14 bits", FIXED, "13u - kept) << 23);\n    scale = power == 255u ? kNan : (kept - 13u",
     "11u - kept) << 23);\n    scale = power == 255u ? kNan : (kept - 11u", FAR, f"{_IDS}/outliers-beside/intermediate=160/m=5"),
    ("expert * bytes in int32", ROUTE, "codes + expert * expert_codes",
     "codes + static_cast<int32_t>(expert * static_cast<uint32_t>(expert_codes))", OUTSIDE, f"{_IDS}/w13=2^32-bytes/intermediate=288/m=3"),
    ("softmax without subtracting the maximum", ROUTE, " - logits[0])", ")", FAR, f"{_LOGITS}/logits=200/intermediate=160/m=14"),
    ("the padding mask ignored", ROUTE, "load_late_byte(moe.padding + token) != 0", "false", FAR,
     f"{_LOGITS}/padding/intermediate=160/m=8"),
    ("a last tile with three blocks loses a scale, shared", RING, "left_ < kStageBlocks ? left_ : kStageBlocks",
     "left_ < kStageBlocks ? (left_ == 3 ? 2 : left_) : kStageBlocks", FAR, f"{_IDS}/last-tile=736/intermediate=736/m=5"),
    ("a last tile with three blocks loses a scale, row by row", ROWS, "int const rest = left_ % kStageBlocks;",
     "int const rest = left_ % kStageBlocks == 3 ? 2 : left_ % kStageBlocks;", FAR, f"{_IDS}/last-tile=96/intermediate=96/m=1"),
    ("one token: columns beyond 2048 dropped", PRODUCTS, "bool const there = number < blocks;",
     "bool const there = number < blocks && number < 64;", FAR, f"{_IDS}/columns=2880-first/intermediate=64/m=1"),
    ("NaN lost in activations", FIXED, "power == 255u ? kNan : ", "", FAR, f"{_IDS}/no-number=input/intermediate=160/m=1"),
    ("NaN lost in sums", FIXED, "return is_finite(sum) ? sum : float_of_bits(kNan);", "return is_finite(sum) ? sum : 0.0f;", FAR,
     f"{_IDS}/no-numbers/intermediate=160/m=12"),
    ("unknown id becomes expert 0", ROUTE, "expert < moe.experts ? expert : kNobody;", "expert < moe.experts ? expert : 0;", FAR,
     f"{_IDS}/unknown-ids/intermediate=160/m=10"),
    # Of fifty faults of other kinds, those that the first cases at the ends let through.
    ("gates limited below, too", ROUTE, "gate = gate > moe.limit ? moe.limit : gate;",
     "gate = gate > moe.limit ? moe.limit : gate < -moe.limit ? -moe.limit : gate;", FAR, f"{_IDS}/flat-activation/intermediate=160/m=5"),
    ("logits beyond 1024", CHOOSE, "first < routed; first", "first < routed && first < 1024; first", FAR,
     f"{_LOGITS}/logits=3000/intermediate=32/m=2"),
    ("tokens choose by sixteen warps", ROUTE, "token < moe.tokens; token += warps", "token < moe.tokens; token += 16", UNWRITTEN,
     f"{_LOGITS}/padding-in-parts/intermediate=32/m=14"),
    ("the fifth member of a group", BYTES, "if (last < 0) break;", "if (last <= 0) break;", FAR, f"{_IDS}/together/intermediate=96/m=5"),
    ("padding of the first part", MOE, "part.padding = moe.padding + first;", "part.padding = moe.padding;", UNWRITTEN,
     f"{_LOGITS}/padding-in-parts/intermediate=32/m=14"),
    ("router weights without their sign", ROUTE, _WEIGHT, f"fabsf({_WEIGHT})", FAR, f"{_IDS}/weights-of-both-signs/intermediate=160/m=5"),
    ("router weights at most 1", ROUTE, _WEIGHT, f"fminf({_WEIGHT}, 1.0f)", FAR, f"{_IDS}/weights-of-both-signs/intermediate=160/m=5"),
    ("a NaN from the router's weights", ROUTE, "sum += routing.weight[entry] * product;",
     "if (routing.weight[entry] == routing.weight[entry]) sum += routing.weight[entry] * product;", FAR,
     f"{_IDS}/no-number=weight/intermediate=160/m=1"),
    ("a NaN scale is 2^127, shared", BYTES, _FOUR,
     "return float_of_bits((bits & 0x7F800000u) == 0x7F800000u ? 0x7F000000u : bits & 0x7F800000u);", FAR,
     f"{_IDS}/no-number=first-scale/intermediate=160/m=6"),
]  # fmt: skip
