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
#ifndef FLASHINFER_MXFP4_PREFILL_PLAN_CUH_
#define FLASHINFER_MXFP4_PREFILL_PLAN_CUH_

// The launches around both products of a mixture of experts with many tokens. They sort entries by
// expert, copy tokens to their entries, and sum a token's results.

#include "flashinfer/mxfp4/prefill_planes.cuh"
#include "flashinfer/mxfp4/primitives.cuh"

namespace flashinfer {
namespace mxfp4 {

constexpr int kNarrowRows = 64;       // entries of one expert that a tile may have: few
constexpr int kMostTileRows = 128;    // and many
constexpr int kPlanThreads = 1024;
constexpr int kNoRow = -1;

/// Some entries of an expert, up to MoePrefill::tile_rows: `count` rows from `first` on.
struct alignas(16) EntryTile {
  int32_t expert, first, count, unused;
};

/// `hidden` and `intermediate` are multiples of 32; the matrices may be wider ("stored"): the rest
/// of them is not read. An infinite limit is none.
struct MoePrefill {
  uint16_t const* hidden_states;  // [tokens, hidden], BF16
  uint8_t const* up_codes;        // [experts, 2 stored_intermediate, stored_hidden / 2]
  uint8_t const* up_scales;       // tiled, each expert's rows to a multiple of 128, blocks of 4
  uint16_t const* up_bias;        // [experts, 2 stored_intermediate], BF16, or null
  uint8_t const* down_codes;      // [experts, stored_hidden, stored_intermediate / 2]
  uint8_t const* down_scales;
  uint16_t const* down_bias;    // [experts, stored_hidden], BF16, or null
  int32_t const* ids;           // [tokens, choices]
  float const* router_weights;  // [tokens, choices]
  int32_t const* expert_map;    // [mapped], an id's expert here, negative: elsewhere; or null
  EntryTile* tiles;             // [most_tiles()]
  int32_t* tile_count;
  int32_t* row_of;      // [tokens, choices], an entry's row, or kNoRow
  uint16_t* gathered;   // planes of `rows` rows: the tokens of entries
  uint16_t* activated;  // planes of `rows` rows: the intermediate
  uint16_t* partial;    // [rows, hidden], BF16: results of entries. May be `gathered`
  uint16_t* output;     // [tokens, hidden], BF16
  int mapped, tokens, choices, experts, rows;
  int tile_rows;  // kNarrowRows or kMostTileRows
  int hidden, intermediate, stored_hidden, stored_intermediate;
  float alpha, beta, limit;

  __host__ __device__ int entries() const { return tokens * choices; }
};

/// Rows that entries may take.
inline int most_rows(int entries, int experts) {
  int const padded = entries < experts ? entries : experts;
  return padded_rows(entries + padded * (kRowsTogether - 1));
}

/// From how many entries on, on average, an expert's tiles are wide.
constexpr int kWideFrom = 40;

inline int tile_rows_for(int entries, int experts) {
  return entries < kWideFrom * experts ? kNarrowRows : kMostTileRows;
}

inline int most_tiles(int entries, int experts) { return entries / kNarrowRows + experts; }

__device__ __forceinline__ int prefill_expert(MoePrefill const& moe, int entry) {
  int expert = moe.ids[entry];
  if (moe.expert_map != nullptr) {
    expert = expert >= 0 && expert < moe.mapped ? moe.expert_map[expert] : -1;
  }
  return expert >= 0 && expert < moe.experts ? expert : -1;
}

/// The sum of `number` over this lane and those below it.
__device__ __forceinline__ int sum_below(int number, int lane) {
#pragma unroll
  for (int by = 1; by < kWarp; by *= 2) {
    int const other = __shfl_up_sync(0xffffffffu, number, by);
    if (lane >= by) number += other;
  }
  return number;
}

/// Gives each entry its row, and lists the tiles. One block.
__global__ void __launch_bounds__(kPlanThreads, 1) mxfp4_prefill_plan_kernel(MoePrefill moe) {
  int* const counts = reinterpret_cast<int*>(dynamic_shared());
  int* const first_rows = counts + moe.experts;
  int* const first_tiles = first_rows + moe.experts;
  int const thread = threadIdx.x;
  for (int expert = thread; expert < moe.experts; expert += kPlanThreads) counts[expert] = 0;
  sync_block();
  for (int entry = thread; entry < moe.entries(); entry += kPlanThreads) {
    int const expert = prefill_expert(moe, entry);
    moe.row_of[entry] = expert < 0 ? kNoRow : atomicAdd(counts + expert, 1);
  }
  sync_block();
  if (thread < kWarp) {
    int rows = 0, tiles = 0;
    for (int begin = 0; begin < moe.experts; begin += kWarp) {
      int const expert = begin + thread;
      int const count = expert < moe.experts ? counts[expert] : 0;
      int const its_rows = padded_rows(count);
      int const its_tiles = divide_up(count, moe.tile_rows);
      int const rows_here = sum_below(its_rows, thread);
      int const tiles_here = sum_below(its_tiles, thread);
      if (expert < moe.experts) {
        first_rows[expert] = rows + rows_here - its_rows;
        first_tiles[expert] = tiles + tiles_here - its_tiles;
      }
      rows += __shfl_sync(0xffffffffu, rows_here, kWarp - 1);
      tiles += __shfl_sync(0xffffffffu, tiles_here, kWarp - 1);
    }
    if (thread == 0) *moe.tile_count = tiles;
  }
  sync_block();
  for (int entry = thread; entry < moe.entries(); entry += kPlanThreads) {
    int const expert = prefill_expert(moe, entry);
    if (expert >= 0) moe.row_of[entry] += first_rows[expert];
  }
  // An expert's tiles have about the same number of rows.
  for (int expert = thread; expert < moe.experts; expert += kPlanThreads) {
    int const count = counts[expert];
    int const tiles = divide_up(count, moe.tile_rows);
    if (tiles == 0) continue;
    int const each = padded_rows(divide_up(count, tiles));
    for (int tile = 0; tile < tiles; ++tile) {
      int const left = count - tile * each;
      moe.tiles[first_tiles[expert] + tile] =
          EntryTile{expert, first_rows[expert] + tile * each, left < each ? left : each, 0};
    }
  }
}

constexpr int kGatherThreads = 128;

/// Copies a token to the rows of its entries. A block for each token.
__global__ void __launch_bounds__(kGatherThreads) mxfp4_prefill_gather_kernel(MoePrefill moe) {
  uint16_t* const row = reinterpret_cast<uint16_t*>(dynamic_shared());
  int const planes = planes_of(moe.hidden);
  uint16_t const* const token =
      moe.hidden_states + static_cast<int64_t>(blockIdx.x) * moe.hidden;
  for (int part = threadIdx.x; part < planes * kPlaneParts; part += kGatherThreads) {
    uint4 const words = part * 8 < moe.hidden ? reinterpret_cast<uint4 const*>(token)[part]
                                              : uint4{0, 0, 0, 0};
    reinterpret_cast<uint4*>(row)[part] = words;
  }
  sync_block();
  int32_t const* const rows = moe.row_of + static_cast<int64_t>(blockIdx.x) * moe.choices;
  for (int number = threadIdx.x; number < planes * kPlaneParts; number += kGatherThreads) {
    int const plane = number / kPlaneParts;
    int const part = number % kPlaneParts;
    uint16_t const* const from = row + plane * kPlaneColumns;
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = from[column_at(part, 2 * i)] |
                 static_cast<uint32_t>(from[column_at(part, 2 * i + 1)]) << 16;
    }
    for (int choice = 0; choice < moe.choices; ++choice) {
      int const to = rows[choice];
      if (to == kNoRow) continue;
      uint8_t* const place = reinterpret_cast<uint8_t*>(moe.gathered) +
                             part_offset(moe.rows, plane, to, part);
      *reinterpret_cast<uint4*>(place) = uint4{words[0], words[1], words[2], words[3]};
    }
  }
}

constexpr int kCombineThreads = 128;

/// Sums the results of a token's entries in the order of its choices. A block for each token.
__global__ void __launch_bounds__(kCombineThreads) mxfp4_prefill_combine_kernel(MoePrefill moe) {
  int64_t const token = blockIdx.x;
  int32_t const* const rows = moe.row_of + token * moe.choices;
  float const* const weights = moe.router_weights + token * moe.choices;
  for (int part = threadIdx.x; part < moe.hidden / 8; part += kCombineThreads) {
    float sums[8] = {};
    for (int choice = 0; choice < moe.choices; ++choice) {
      if (rows[choice] == kNoRow) continue;
      float const weight = weights[choice];
      uint4 const words = reinterpret_cast<uint4 const*>(
          moe.partial + static_cast<int64_t>(rows[choice]) * moe.hidden)[part];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t const word = word_of(words, i);
        sums[2 * i] += weight * from_bf16(static_cast<uint16_t>(word));
        sums[2 * i + 1] += weight * from_bf16(static_cast<uint16_t>(word >> 16));
      }
    }
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pairs[i] = to_bf16(sums[2 * i]) | static_cast<uint32_t>(to_bf16(sums[2 * i + 1])) << 16;
    }
    reinterpret_cast<uint4*>(moe.output + token * moe.hidden)[part] =
        uint4{pairs[0], pairs[1], pairs[2], pairs[3]};
  }
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_PREFILL_PLAN_CUH_
