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
#ifndef FLASHINFER_MXFP4_MOE_ROUTING_CUH_
#define FLASHINFER_MXFP4_MOE_ROUTING_CUH_

// A mixture of experts in MXFP4: what it is given, and what there is before and after the products
// of both launches, see moe_decode.cuh.

#include "flashinfer/mxfp4/fixed_point.cuh"

namespace flashinfer {
namespace mxfp4 {

constexpr int kMaxTokens = 1;
constexpr int kMaxChoices = 8;
constexpr int kMaxEntries = kMaxTokens * kMaxChoices;  // an entry is one choice of one token
constexpr int kNobody = -1;
constexpr int kTeamWarps = 4;    // of a block of the first launch, that share 32 columns
constexpr int kFewestWarps = 4;  // of a block of the second, where there is little room for rings
constexpr int kDownOctets = 3;   // of a block of the second launch
constexpr int kDownRows = kDownOctets * kOctet;
static_assert(kFewestWarps * kWarp >= kMaxEntries && kTeamWarps * kWarp >= kMaxEntries,
              "a thread for each entry, see route()");

/// `hidden` and `intermediate` are multiples of 32; the matrices may be wider ("stored"): the rest
/// of them is not read. An infinite limit is none.
struct MoeDecode {
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
  uint8_t* activated;           // [tokens choices, activated_bytes()], from one launch to the other
  uint16_t* output;             // [tokens, hidden], BF16
  int mapped, tokens, choices, experts;
  int hidden, intermediate, stored_hidden, stored_intermediate;
  float alpha, beta, limit;

  __host__ __device__ int entries() const { return tokens * choices; }
  /// Of an entry: the intermediate in fixed point, stage by stage.
  __host__ __device__ int64_t activated_bytes() const {
    return static_cast<int64_t>(divide_up(intermediate, kStageBlocks * kBlockColumns)) *
           bytes::kStoredStage;
  }
};

/// The matrices of all experts, one after the other.
struct Matrices {
  uint8_t const *codes, *scales;
  int64_t expert_codes, expert_scales;  // bytes of an expert
  int row_bytes, scale_rows_bytes;      // see Matrix and TiledScales
  int blocks;                           // of a row that are read

  __device__ __forceinline__ Matrix of(int expert) const {
    return Matrix{codes + expert * expert_codes, scales + expert * expert_scales, row_bytes,
                  blocks};
  }
  __device__ __forceinline__ TiledScales tiled() const { return TiledScales{scale_rows_bytes}; }
};

/// Describes matrices with `rows` rows and `stored` columns; only the first `columns` are read.
inline Matrices matrices_of(uint8_t const* codes, uint8_t const* scales, int rows, int stored,
                            int columns) {
  int const row_bytes = stored / 2;
  int const scale_rows_bytes = tiled_rows_bytes(stored / kBlockColumns);
  return Matrices{codes,
                  scales,
                  static_cast<int64_t>(rows) * row_bytes,
                  static_cast<int64_t>(divide_up(rows, 128)) * scale_rows_bytes,
                  row_bytes,
                  scale_rows_bytes,
                  columns / kBlockColumns};
}

/// Of a token in fixed point, in shared memory.
inline __host__ __device__ int token_bytes(MoeDecode const& moe) {
  return bytes::token_bytes(divide_up(moe.hidden / kBlockColumns, kStageBlocks));
}

/// The expert here that an id means.
__device__ __forceinline__ int expert_of(MoeDecode const& moe, int id) {
  int expert = id;
  if (moe.expert_map != nullptr) {
    expert =
        id >= 0 && id < moe.mapped ? static_cast<int>(load_word(moe.expert_map + id)) : kNobody;
  }
  return expert >= 0 && expert < moe.experts ? expert : kNobody;
}

struct Routing {
  int32_t expert[kMaxEntries];  // of an entry, or kNobody
  float weight[kMaxEntries];    // of an entry
  uint8_t entry[kMaxEntries];   // the entries that have an expert, in order
};

/// So many of a word's bits, from the lowest on.
__device__ __forceinline__ uint32_t bits_below(int count) {
  return count >= kWarp ? ~0u : (1u << count) - 1u;
}

/// Asks for the id of this thread's entry: as early as can be, since it takes long.
__device__ __forceinline__ int asked_id(MoeDecode const& moe) {
  return threadIdx.x < moe.entries() ? static_cast<int>(load_word(moe.ids + threadIdx.x)) : kNobody;
}

/// Lists the entries that have an expert, by all threads of a block; returns how many there are.
/// The expert of a thread's entry is that of its id.
__device__ __forceinline__ int route(MoeDecode const& moe, Routing& routing, int id) {
  static_assert(kMaxEntries <= kWarp, "the entries of one ballot");
  int const entry = threadIdx.x;
  if (entry < kWarp) {
    int const expert = entry < moe.entries() ? expert_of(moe, id) : kNobody;
    uint32_t const all = ballot(expert != kNobody);
    if (entry < moe.entries()) routing.expert[entry] = expert;
    if (expert != kNobody) {
      routing.entry[count_bits(all & bits_below(entry))] = static_cast<uint8_t>(entry);
    }
  }
  sync_block();
  int all = 0;
  for (int other = 0; other < moe.entries(); ++other) all += routing.expert[other] != kNobody;
  return all;
}

__device__ __forceinline__ float swiglu(MoeDecode const& moe, float up, float gate) {
  // By comparisons: fminf() would make the limit of a NaN.
  gate = gate > moe.limit ? moe.limit : gate;
  up = up > moe.limit ? moe.limit : up < -moe.limit ? -moe.limit : up;
  return (up + moe.beta) * (gate / (1.0f + expf(-moe.alpha * gate)));
}

/// The host's plan of the first launch.
struct UpPlan {
  Matrices matrices;
  int parts;                // of the intermediate, 32 columns each
  int groups_on, parts_on;  // from a team's piece to its next one
};

/// Values that the warps of a team exchange: twice, as one warp may be a piece ahead.
struct Exchange {
  uint8_t most[2][kTeamWarps];  // the largest exponent of a warp's columns
};

// Rings begin after it.
constexpr int kRoutingBytes = ring_aligned(sizeof(Routing));

/// Brings in what products of `rows` places are added up with, by all threads of a block: at the
/// end nothing else would be on its way. `row_of(place)` is a place's row of the output, or
/// kNobody.
template <typename RowOf>
__device__ __forceinline__ void gather(MoeDecode const& moe, Routing& routing, uint16_t* biases,
                                       int rows, RowOf const& row_of) {
  for (int index = threadIdx.x; index < moe.entries() * rows; index += blockDim.x) {
    int const entry = index / rows;
    int const place = index % rows;
    if (place == 0) routing.weight[entry] = load_float(moe.router_weights + entry);
    int const row = row_of(place);
    int64_t const expert = routing.expert[entry];
    if (moe.down_bias == nullptr || row == kNobody || expert == kNobody) continue;
    biases[index] = load_half(moe.down_bias + expert * moe.stored_hidden + row);
  }
}

/// Writes the output of `rows` places from biases and `partial`, [entries, rows], by all threads of
/// a block.
template <typename RowOf>
__device__ __forceinline__ void add_up(MoeDecode const& moe, Routing const& routing,
                                       float const* partial, uint16_t const* biases, int rows,
                                       RowOf const& row_of) {
  for (int index = threadIdx.x; index < moe.tokens * rows; index += blockDim.x) {
    int const place = index % rows;
    int const token = index / rows;
    int const row = row_of(place);
    if (row == kNobody) continue;
    float sum = 0.0f;
    for (int choice = 0; choice < moe.choices; ++choice) {
      int const entry = token * moe.choices + choice;
      if (routing.expert[entry] == kNobody) continue;
      float product = partial[entry * rows + place];
      if (moe.down_bias != nullptr) product += from_bf16(biases[entry * rows + place]);
      sum += routing.weight[entry] * product;
    }
    moe.output[static_cast<int64_t>(token) * moe.hidden + row] = to_bf16(sum);
  }
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_MOE_ROUTING_CUH_
