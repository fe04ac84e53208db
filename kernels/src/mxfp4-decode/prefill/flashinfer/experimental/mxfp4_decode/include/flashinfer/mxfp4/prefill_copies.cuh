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
#ifndef FLASHINFER_MXFP4_PREFILL_COPIES_CUH_
#define FLASHINFER_MXFP4_PREFILL_COPIES_CUH_

// How weights and entries come to the products of a mixture of experts with many tokens: 64 columns
// of a tile at a time, through a ring in shared memory. See prefill_products.cuh.

#include "flashinfer/mxfp4/prefill_plan.cuh"
#include "flashinfer/mxfp4/prefill_weights.cuh"
#include "flashinfer/mxfp4/warpgroup.cuh"

namespace flashinfer {
namespace mxfp4 {

constexpr int kBlocks = 2;  // of a tile
constexpr int kProductWarps = 8;
constexpr int kProductThreads = kProductWarps * kWarp;
constexpr int kCopyWarps = 4;
constexpr int kCopyThreads = kCopyWarps * kWarp;
constexpr int kCopyRegisters = 40;
constexpr int kProductRegisters = 232;
constexpr int kSlots = 7;
constexpr int kWarpCodes = 16 * (kPlaneColumns / 2);  // of a warp and a block
constexpr int kWarpScales = 16 * 4;
constexpr int kUnits = kBlocks * kProductWarps;  // warp w has units w and w + 8
constexpr int kSlotEntries = kMostTileRows * kPlaneRowBytes;
constexpr int kSlotCodes = kUnits * kWarpCodes;
constexpr int kSlotScales = kUnits * kWarpScales;
constexpr int kSlotBytes = (kSlotEntries + kSlotCodes + kSlotScales + 1023) / 1024 * 1024;
constexpr int kBarrierBytes = 1024;
constexpr int kStageBytes = kBlocks * kSlotEntries;
constexpr int kProductShared = 1024 + kBarrierBytes + kSlots * kSlotBytes + kStageBytes;

/// An expert's matrix for all experts.
struct ProductMatrix {
  uint8_t const *codes, *scales;
  uint16_t const* bias;                 // of an expert's rows, or null
  int64_t expert_codes, expert_scales;  // bytes of an expert
  int expert_rows;
  int row_bytes, scale_rows_bytes;
  int columns;      // that are read
  int outputs;      // rows that are there, in each half
  int gate;         // where the second half begins
  int tiles;        // of rows
};

/// Which rows of a matrix lanes have. Lane 4 g + t of warp w has two of them, for `half` 0 and 1.
template <bool kUp>
struct RowOrder;

/// Up in the first half and gate in the second, of 64 columns of the intermediate. A warp has a
/// part of the rows of a plane, in the order of `column_at`.
template <>
struct RowOrder<true> {
  static constexpr int kOutputs = kPlaneColumns;
  __device__ static int of_lane(int g) { return g / 2 * 16 + g % 2 * 4; }
  __device__ static int of_unit(int unit) {
    return unit / 8 * kOutputs + unit / 4 % 2 * 8 + unit / 2 % 2 * 2 + unit % 2;
  }
};

/// Neighbours: two rows of the output in each lane.
template <>
struct RowOrder<false> {
  static constexpr int kOutputs = 2 * kPlaneColumns;
  __device__ static int of_lane(int g) { return 2 * g; }
  __device__ static int of_unit(int unit) { return 16 * unit; }
};

/// A place in the ring and the parity of its barriers.
struct RingPlace {
  int slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1u;
    }
  }
};

struct ProductShared {
  uint64_t *full, *empty;
  uint8_t *slots, *stage;

  __device__ explicit ProductShared(uint8_t* shared) {
    uint8_t* const aligned = shared + (1024u - (shared_address(shared) & 1023u)) % 1024u;
    full = reinterpret_cast<uint64_t*>(aligned);
    empty = full + kSlots;
    slots = aligned + kBarrierBytes;
    stage = slots + kSlots * kSlotBytes;
  }
  __device__ __forceinline__ uint8_t* slot(int number) const { return slots + number * kSlotBytes; }
};

/// The warpgroup that copies. `warp` is one of its own.
template <bool kUp>
__device__ __forceinline__ void copy_tiles(MoePrefill const& moe, ProductMatrix const& matrix,
                                           ProductShared const& shared, uint16_t const* entries,
                                           int warp, int lane) {
  using Order = RowOrder<kUp>;
  constexpr int kCodes = kUnits / kCopyWarps;        // units whose codes a warp copies
  constexpr int kScales = kUnits / 2 / kCopyWarps;   // pairs of units whose scales it copies
  int const all = *moe.tile_count * matrix.tiles;
  int const planes = planes_of(matrix.columns);
  int const half = lane / 16, g = lane / 2 % 8, part = lane % 2;
  int const scale_half = lane / 8 % 2, scale_g = lane % 8;
  TiledScales const tiled{matrix.scale_rows_bytes};
  RingPlace place;
  for (int number = blockIdx.x; number < all; number += gridDim.x) {
    EntryTile const tile = moe.tiles[number / matrix.tiles];
    int const output = number % matrix.tiles * (kBlocks * Order::kOutputs);
    uint8_t const* codes[kCodes];
    uint8_t const* scales[kScales];
    int code_bytes[kCodes], scale_bytes[kScales];
#pragma unroll
    for (int i = 0; i < kCodes; ++i) {
      int const row = output + Order::of_unit(warp * kCodes + i) + Order::of_lane(g) +
                      (kUp ? 0 : half);
      codes[i] = matrix.codes + tile.expert * matrix.expert_codes + part * 16 +
                 static_cast<int64_t>(row + (kUp ? half * matrix.gate : 0)) * matrix.row_bytes;
      code_bytes[i] = row < matrix.outputs ? 16 : 0;
    }
#pragma unroll
    for (int i = 0; i < kScales; ++i) {
      int const unit = 2 * (warp * kScales + i) + lane / 16;
      int const row = output + Order::of_unit(unit) + Order::of_lane(scale_g) +
                      (kUp ? 0 : scale_half);
      scales[i] = matrix.scales + tile.expert * matrix.expert_scales +
                  tiled.row(row + (kUp ? scale_half * matrix.gate : 0));
      scale_bytes[i] = row < matrix.outputs ? 4 : 0;
    }
    uint8_t const* from = reinterpret_cast<uint8_t const*>(entries) +
                          static_cast<int64_t>(tile.first) * kPlaneRowBytes;
    uint32_t const bytes = padded_rows(tile.count) * kPlaneRowBytes;
#pragma unroll 1
    for (int plane = 0; plane < planes; ++plane) {
      wait_barrier(shared.empty + place.slot, place.parity ^ 1u);
      uint8_t* const slot = shared.slot(place.slot);
      uint64_t* const full = shared.full + place.slot;
      if (warp == 0 && lane == 0) {
        arrive_expecting(full, bytes);
        copy_bulk(slot, from, bytes, full);
      }
      bool const there = plane * kPlaneColumns + part * 32 < matrix.columns;
#pragma unroll
      for (int i = 0; i < kCodes; ++i) {
        copy_16(slot + kSlotEntries + (warp * kCodes + i) * kWarpCodes + lane * 16,
                codes[i] + plane * (kPlaneColumns / 2), there ? code_bytes[i] : 0);
      }
#pragma unroll
      for (int i = 0; i < kScales; ++i) {
        copy_4(slot + kSlotEntries + kSlotCodes + (warp * kScales + i) * 2 * kWarpScales + lane * 4,
               scales[i] + plane / 2 * TiledScales::kTileBytes, scale_bytes[i], true);
      }
      arrive_after_copies(full);
      from += static_cast<int64_t>(moe.rows) * kPlaneRowBytes;
      place.advance();
    }
  }
}

/// Loads a lane's part of a plane; `unit` is the place of its warp's rows in the slot.
__device__ __forceinline__ StoredWeights load_weights(uint8_t const* slot, int unit, int lane,
                                                      int plane) {
  uint8_t const* const codes = slot + kSlotEntries + unit * kWarpCodes + lane * 8;
  uint8_t const* const scales = slot + kSlotEntries + kSlotCodes + unit * kWarpScales +
                                lane / 4 * 4 + plane % 2 * 2 + lane % 4 / 2;
  StoredWeights stored;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    stored.codes[half] = *reinterpret_cast<uint2 const*>(codes + half * (kWarpCodes / 2));
    stored.scale[half] = scales[half * (kWarpScales / 2)];
  }
  stored.large = ballot(((stored.scale[0] | stored.scale[1]) & kLargeScale) != 0) != 0;
  return stored;
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_PREFILL_COPIES_CUH_
