/*
 * Copyright (c) 2026 by FlashInfer team.
 *
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at
 *
 *   http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */
#ifndef FLASHINFER_MXFP4_MOE_ROWS_CUH_
#define FLASHINFER_MXFP4_MOE_ROWS_CUH_

// A mixture of experts in MXFP4, row by row: a warp multiplies the rows of an expert by a token
// that it has in registers, see row_products.cuh.

#include "flashinfer/mxfp4/moe_routing.cuh"
#include "flashinfer/mxfp4/row_products.cuh"

namespace flashinfer {
namespace mxfp4 {

constexpr int kMoeWarps = 16;  // as many as the registers for a token leave
using MoeRows = RowRing<true>;

/// A warp of the first launch and its team. The team has 32 columns of the intermediate for an
/// entry, eight for each warp; then others.
struct UpWarp {
  MoeDecode const& moe;
  UpPlan const& plan;
  Routing const& routing;
  int const all;  // entries that have an expert
  uint8_t* const tokens_at;
  Exchange& exchanged;  // the team's
  int const warp, lane;
  int turn = 0;  // of exchanged

  __device__ int blocks() const { return plan.matrices.blocks; }
  __device__ TiledScales scales() const { return plan.matrices.tiled(); }
  /// Of all teams of all blocks.
  __device__ int number() const { return warp / kTeamWarps * gridDim.x + blockIdx.x; }
  __device__ int teams() const { return blockDim.x / kWarp / kTeamWarps * gridDim.x; }
  /// The piece of this number in the list that begins with a group.
  __device__ Piece at(int group, int number) const {
    return {group + number / plan.parts, number % plan.parts};
  }
  __device__ Piece next(Piece piece) const {
    return piece.on(plan.groups_on, plan.parts_on, plan.parts);
  }
  __device__ int expert(Piece piece) const { return routing.expert[routing.entry[piece.group]]; }
  __device__ Matrix matrix(Piece piece) const { return plan.matrices.of(expert(piece)); }
  /// The first of the warp's rows of up; its rows of gate are a fixed distance behind.
  __device__ int row(Piece piece) const {
    return piece.part * kBlockColumns + warp % kTeamWarps * kOctet;
  }
  __device__ int gate() const { return moe.stored_intermediate; }
  __device__ uint8_t* token(int entry) const {
    return tokens_at + entry / moe.choices * token_bytes(moe);
  }

  /// The biases of up and gate of one of the warp's columns: zeros where there are none.
  __device__ void load_biases(Piece piece, int column, int16_t& up, int16_t& gate) const {
    if (moe.up_bias == nullptr) return;
    uint16_t const* const bias = moe.up_bias +
                                 static_cast<int64_t>(expert(piece)) * 2 * moe.stored_intermediate +
                                 row(piece) + column;
    up = load_half(bias);
    gate = load_half(bias + moe.stored_intermediate);
  }

  /// Makes fixed point of what a team has: each lane of one of the warp's columns, and one of four
  /// neighbouring lanes writes.
  __device__ void store(Piece piece, float activated, int column) {
    uint8_t(&most)[kTeamWarps] = exchanged.most[turn];
    uint32_t power = bits_of_float(activated) >> 23 & 0xFFu;
    power = bytes::larger(power, exchange(power, 4));
    power = bytes::larger(power, exchange(power, 8));
    power = bytes::larger(power, exchange(power, 16));
    if (lane == 0) most[warp % kTeamWarps] = static_cast<uint8_t>(power);
    sync_team(warp / kTeamWarps, kTeamWarps * kWarp);
    turn ^= 1;
    if (lane % 4 != 0) return;
    int const of_block = warp % kTeamWarps * kOctet + column;
    bytes::Fixed const fixed(
        bytes::larger(bytes::larger(most[0], most[1]), bytes::larger(most[2], most[3])));
    uint32_t const whole = to_whole(activated, fixed.by);
    uint8_t* const stage = moe.activated + routing.entry[piece.group] * moe.activated_bytes() +
                           piece.part / kStageBlocks * bytes::kStoredStage;
    auto const put = [stage, of_block](int block, uint32_t whole, uint32_t scale) {
      uint8_t* const digits = stage + block * bytes::kDigitsBytes + of_block;
      digits[0] = static_cast<uint8_t>((whole + 0x80u) >> 8);
      digits[kBlockColumns] = static_cast<uint8_t>(whole);
      if (of_block == 0) *reinterpret_cast<uint32_t*>(stage + bytes::kScales + block * 4) = scale;
    };
    int const block = piece.part % kStageBlocks;
    put(block, whole, fixed.scale);
    // The last stage is read as a whole.
    if (piece.part + 1 == plan.parts) {
      for (int absent = block + 1; absent < kStageBlocks; ++absent) put(absent, 0u, 0u);
    }
  }
};

/// The work of a warp of the first launch: eight rows of up, then of gate.
struct UpRows {
  static constexpr Order kOrder = Order::kTogether;
  static constexpr int kOctets = 2;
  UpWarp& up;
  bytes::TokenCopies const& copies;
  bytes::RowProducts products;
  int opened = kNobody;  // the entry whose token is in registers

  __device__ int blocks() const { return up.blocks(); }
  __device__ TiledScales scales() const { return up.scales(); }
  __device__ Piece first() const { return up.at(0, up.number()); }
  __device__ bool has(Piece piece) const { return piece.group < up.all; }
  __device__ Piece next(Piece piece) const { return up.next(piece); }
  __device__ Matrix matrix(Piece piece) const { return up.matrix(piece); }
  __device__ int row(Piece piece, int octet) const { return up.row(piece) + octet * up.gate(); }
  __device__ int rows_there(Piece, int) const { return kOctet; }
  __device__ Run halves(Piece) const { return kBothHalves; }
  /// The token becomes fixed point, for all who multiply by it: by all threads of a block.
  __device__ void prepare() {
    wait_copies<kRingRows - 1>();
    copies.complete(up.tokens_at);
    sync_block();
  }

  template <typename Rows>
  __device__ void piece(Rows& rows, Piece piece) {
    int const column = bytes::lane_row(up.lane);
    int16_t biases[kOctets] = {0, 0};
    up.load_biases(piece, column, biases[0], biases[1]);
    int const entry = uniform(up.routing.entry[piece.group]);
    float sums[kOctets];
#pragma unroll 1
    for (int octet = 0; octet < kOctets; ++octet) {
      sums[0] = octet == 0 ? 0.0f : sums[1];
      sums[1] = 0.0f;
#pragma unroll 1
      for (int first = 0; first < blocks(); first += kSpanBlocks) {
        if (entry != opened || blocks() > kSpanBlocks) {
          products.open(bytes::StagedSpan{up.token(entry), first, blocks(), up.lane});
          opened = entry;
        }
        sums[1] += products.times(rows);
      }
    }
    up.store(piece,
             swiglu(up.moe, bytes::checked(sums[0]) + from_bf16(static_cast<uint16_t>(biases[0])),
                    bytes::checked(sums[1]) + from_bf16(static_cast<uint16_t>(biases[1]))),
             column);
  }
};

/// Row `place` of a tile of `rows` rows: fours whose scales are neighbours, one after the other.
__device__ __forceinline__ int tile_row(int tile, int rows, int place) {
  int const four = tile * (rows / 4) + place / 4;
  return four / 32 * 128 + place % 4 * 32 + four % 32;
}

inline int tiles_of(int all, int rows) { return divide_up(divide_up(all, 128) * 32, rows / 4); }

__host__ __device__ __forceinline__ int least(int a, int b) { return a < b ? a : b; }

/// A list in `of` parts that follow each other: each has `each` items, and some have one more.
struct Shares {
  int of, each, over;

  __device__ Shares(int all, int of) : of(of), each(all / of), over(all % of) {}
  /// The part of one, where the last ones have more.
  __device__ Run last(int one) const {
    int const less = of - over;
    int const begin = each * one + (one < less ? 0 : one - less);
    return {begin, begin + each + (one >= less)};
  }
};

/// A warp of the second launch, and what its block has: a tile of rows for all experts.
struct DownWarp {
  MoeDecode const& moe;
  Matrices const& matrices;
  Routing& routing;
  int const all;  // entries that have an expert
  int const tile, warps, warp, lane;
  float* const partial;    // [entries, kDownRows]
  uint16_t* const biases;  // [entries, kDownRows], BF16
  Run halves{};            // of this warp, see share()

  __device__ int blocks() const { return matrices.blocks; }
  __device__ TiledScales scales() const { return matrices.tiled(); }
  __device__ Matrix matrix(Piece piece) const {
    return matrices.of(routing.expert[routing.entry[piece.group]]);
  }
  __device__ int output_row(int place) const {
    int const row = tile_row(tile, kDownRows, place);
    return row >= moe.hidden ? kNobody : row;
  }
  /// Another is read in the place of one that is not there.
  __device__ int row(int place) const {
    int const row = output_row(place);
    return row == kNobody ? 0 : row;
  }
  __device__ uint8_t const* token(int entry) const {
    return moe.activated + entry * moe.activated_bytes();
  }

  /// Of the halves of octets each warp has as many as others, the last ones one more. Where there
  /// are no more octets than warps, none is cut: two would load the same token.
  __device__ void share() {
    int const halves_of_all = all * 2 * kDownOctets;
    halves = halves_of_all <= 2 * warps
                 ? Run{least(2 * warp, halves_of_all), least(2 * warp + 2, halves_of_all)}
                 : Shares(halves_of_all, warps).last(warp);
  }

  __device__ void prepare() {
    auto const row_of = [this](int place) { return output_row(place); };
    gather(moe, routing, biases, kDownRows, row_of);
    wait_for_predecessor();
  }
};

/// The work of a warp of the second launch: a run of all octets of all entries.
struct DownRows {
  static constexpr Order kOrder = Order::kPairs;
  static constexpr int kOctets = 1;
  DownWarp& down;
  bytes::RowProducts products;
  int opened = kNobody;  // the place in Routing::entry of what is in registers

  __device__ int blocks() const { return down.blocks(); }
  __device__ TiledScales scales() const { return down.scales(); }
  __device__ Piece first() const {
    int const octet = down.halves.begin / 2;
    return {octet / kDownOctets, octet % kDownOctets};
  }
  /// The halves of the run before those of a piece.
  __device__ int before(Piece piece) const { return (piece.group * kDownOctets + piece.part) * 2; }
  __device__ bool has(Piece piece) const { return before(piece) < down.halves.end; }
  __device__ Run halves(Piece piece) const {
    int const here = before(piece);
    return {here < down.halves.begin, here + 1 < down.halves.end ? 2 : 1};
  }
  __device__ Piece next(Piece piece) const { return piece.on(0, 1, kDownOctets); }
  __device__ Matrix matrix(Piece piece) const { return down.matrix(piece); }
  __device__ int row(Piece piece, int) const { return down.row(piece.part * kOctet); }
  /// Of pairs of rows, each 32 behind the one before.
  __device__ int rows_there(Piece piece, int) const {
    int const pairs = divide_up(down.moe.hidden - row(piece, 0), 32);
    return 2 * (pairs < 4 ? pairs : 4);
  }

  __device__ void prepare() { down.prepare(); }

  template <typename Rows>
  __device__ void piece(Rows& rows, Piece piece) {
    float sum = 0.0f;
#pragma unroll 1
    for (int first = 0; first < blocks(); first += kSpanBlocks) {
      if (piece.group != opened || blocks() > kSpanBlocks) {
        uint8_t const* const token = down.token(down.routing.entry[piece.group]);
        products.open(bytes::StoredSpan{token, first, blocks(), down.lane});
        opened = piece.group;
      }
      sum += products.times(rows, halves(piece));
    }
    int const row = bytes::lane_row(down.lane);
    Run const its = halves(piece);
    if (down.lane % 4 != 0 || row / kHalf < its.begin || row / kHalf >= its.end) return;
    int const entry = down.routing.entry[piece.group];
    down.partial[entry * kDownRows + piece.part * kOctet + row % 2 * 4 + row / 2] =
        bytes::checked(sum);
  }
};

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_MOE_ROWS_CUH_
