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

// A mixture of experts in MXFP4: what it is given, who chooses whom, and what there is before and
// after the products of both launches, see moe_decode.cuh.

#include "flashinfer/mxfp4/byte_products.cuh"
#include "flashinfer/mxfp4/choose.cuh"

namespace flashinfer {
namespace mxfp4 {

constexpr int kMaxTokens = 16;
constexpr int kMaxChoices = 8;
constexpr int kMaxEntries = kMaxTokens * kMaxChoices;  // an entry is one choice of one token
constexpr int kNobody = -1;
// Entries with the same expert, as many as are multiplied together, are a group, and one that is
// left over is a group by itself, "alone". Larger ones would cost every group what few of them
// need; an expert with two groups is read twice, and comes from the second cache where both are
// read at about the same time.
constexpr int kMaxGroup = 8;
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
  int16_t const* logits;        // [tokens, routed], BF16, or null: then there are
  uint8_t const* padding;       // [tokens], not 0: no experts; or null; with logits only
  int32_t const* ids;           // [tokens, choices]
  float const* router_weights;  // [tokens, choices]
  int32_t const* expert_map;    // [mapped], an id's expert here, negative: elsewhere; or null
  uint8_t* activated;           // [tokens choices, activated_bytes()], from one launch to the other
  uint16_t* output;             // [tokens, hidden], BF16
  int routed, mapped, tokens, choices, experts;
  int hidden, intermediate, stored_hidden, stored_intermediate;
  float alpha, beta, limit;

  __host__ __device__ int entries() const { return tokens * choices; }
  /// Of an entry: the intermediate in fixed point, stage by stage.
  __host__ __device__ int64_t activated_bytes() const {
    return static_cast<int64_t>(divide_up(intermediate, kStageBlocks * kBlockColumns)) *
           bytes::kStoredStage;
  }
  __device__ int16_t const* logits_of(int token) const {
    return logits + static_cast<int64_t>(token) * routed;
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
  int32_t expert[kMaxEntries];             // of an entry, or kNobody
  float logit[kMaxEntries];                // of an entry that is chosen here
  float weight[kMaxEntries];               // of an entry: its softmax, where it is chosen here
  uint8_t member[kMaxEntries][kMaxGroup];  // entries of a group, in order
  uint8_t members[kMaxEntries];            // how many
  // A bit for each entry: is it a group by itself? And is it the first of a larger one?
  uint32_t single[kMaxEntries / kWarp];
  uint32_t leaders[kMaxEntries / kWarp];

  __device__ bool alone(int entry) const { return single[entry / kWarp] >> entry % kWarp & 1u; }
};

/// How many groups there are. Those of several entries, which share an expert, come first.
struct Groups {
  int shared, all;

  __device__ int alone() const { return all - shared; }
};

/// A token's experts, chosen by a warp.
__device__ __forceinline__ void choose_experts(MoeDecode const& moe, int token, int lane,
                                               Routing& routing) {
  bool const padding = moe.padding != nullptr && load_late_byte(moe.padding + token) != 0;
  int const rank = choose(moe.logits_of(token), moe.routed, moe.choices, lane);
  if (lane >= moe.choices) return;
  int const entry = token * moe.choices + lane;
  routing.expert[entry] = padding ? kNobody : expert_of(moe, ranked_expert(rank));
  routing.logit[entry] = ranked_logit(rank);
}

/// So many of a word's bits, from the lowest on: none where it is less than 0, all where it is more
/// than there are.
__device__ __forceinline__ uint32_t bits_below(int count) {
  return count >= kWarp ? ~0u : count <= 0 ? 0u : (1u << count) - 1u;
}

/// Asks for the id of this thread's entry where ids are given: as early as can be, since it takes
/// long.
template <bool kChooses>
__device__ __forceinline__ int asked_id(MoeDecode const& moe) {
  bool const has = !kChooses && threadIdx.x < moe.entries();
  return has ? static_cast<int>(load_word(moe.ids + threadIdx.x)) : kNobody;
}

/// Makes groups of up to `kGroup` entries of up to `kTokens` tokens, by all threads of a block. The
/// expert of a thread's entry is that of its id, or is chosen before.
template <bool kChooses, int kTokens, int kGroup>
__device__ __forceinline__ Groups route(MoeDecode const& moe, Routing& routing, int id) {
  constexpr int kWords = divide_up(kTokens * kMaxChoices, kWarp);
  constexpr bool kAlone = kGroup == 1;  // is everybody?
  int const entry = threadIdx.x;
  if (kChooses) {
    int const warps = blockDim.x / kWarp;
    for (int token = uniform(threadIdx.x / kWarp); token < moe.tokens; token += warps) {
      choose_experts(moe, token, threadIdx.x % kWarp, routing);
    }
  } else if (entry < moe.entries()) {
    routing.expert[entry] = expert_of(moe, id);
  }
  if (entry >= moe.entries() && entry < kWords * kWarp) routing.expert[entry] = kNobody;
  sync_block();
  int const expert = entry < moe.entries() ? routing.expert[entry] : kNobody;
  uint32_t same[kWords];  // a bit for each entry with this one's expert
  int rank = 0, all = 0;  // how many there are before this one, and at all
#pragma unroll
  for (int word = 0; word < kWords; ++word) {
    same[word] = 0;
    if (expert == kNobody || word * kWarp >= moe.entries()) continue;
#pragma unroll
    for (int other = 0; other < kWarp; ++other) {
      if (routing.expert[word * kWarp + other] == expert) same[word] |= 1u << other;
    }
    rank += count_bits(same[word] & bits_below(entry - word * kWarp));
    all += count_bits(same[word]);
  }
  int const left = all - rank;  // from this one on
  int const members = left < kGroup ? left : kGroup;
  bool const leads = expert != kNobody && rank % kGroup == 0;
  bool const alone = leads && members == 1;
  uint32_t const single = ballot(alone);
  uint32_t const leaders = kAlone ? 0u : ballot(leads && !alone);
  if (entry < kWords * kWarp && entry % kWarp == 0) {
    routing.single[entry / kWarp] = single;
    routing.leaders[entry / kWarp] = leaders;
  }
  sync_block();
  Groups groups{0, 0};
  int before = 0;  // groups of this entry's kind before its own
#pragma unroll
  for (int word = 0; word < kWords; ++word) {
    uint32_t const ones = routing.single[word];
    uint32_t const others = kAlone ? 0u : routing.leaders[word];
    uint32_t const mine =
        (alone ? ones : others) & same[word] & bits_below(entry + 1 - word * kWarp);
    if (mine != 0) {
      before = (alone ? groups.all : groups.shared) +
               count_bits((alone ? ones : others) & bits_below(highest_bit(mine)));
    }
    groups.all += count_bits(ones);
    groups.shared += count_bits(others);
  }
  groups.all += groups.shared;
  if (expert != kNobody) {
    int const group = before + (alone ? groups.shared : 0);
    routing.member[group][rank % kGroup] = static_cast<uint8_t>(entry);
    if (leads) routing.members[group] = static_cast<uint8_t>(members);
  }
  sync_block();
  return groups;
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
  int tokens;               // that have room at a time
};

/// Values that the warps of a team exchange: twice, as one warp may be a piece ahead.
struct Exchange {
  uint8_t most[2][kMaxGroup][kTeamWarps];  // the largest exponent of a warp's columns
};

// Rings begin after it.
constexpr int kRoutingBytes = ring_aligned(sizeof(Routing));

/// The share of an entry that is chosen here: where others wait for weights, as it takes long.
__device__ __forceinline__ void weigh(MoeDecode const& moe, Routing& routing, int entry) {
  float const* const logits = routing.logit + entry / moe.choices * moe.choices;
  float sum = 0.0f;
#pragma unroll 1
  for (int choice = 0; choice < moe.choices; ++choice) sum += expf(logits[choice] - logits[0]);
  routing.weight[entry] = expf(routing.logit[entry] - logits[0]) / sum;
}

/// Brings in what products of `rows` places are added up with, by all threads of a block: at the
/// end nothing else would be on its way. `row_of(place)` is a place's row of the output, or
/// kNobody.
template <bool kChooses, typename RowOf>
__device__ __forceinline__ void gather(MoeDecode const& moe, Routing& routing, uint16_t* biases,
                                       int rows, RowOf const& row_of) {
  if (kChooses && threadIdx.x < moe.entries()) weigh(moe, routing, threadIdx.x);
  for (int index = threadIdx.x; index < moe.entries() * rows; index += blockDim.x) {
    int const entry = index / rows;
    int const place = index % rows;
    if (!kChooses && place == 0) routing.weight[entry] = load_float(moe.router_weights + entry);
    int const row = row_of(place);
    int64_t const expert = routing.expert[entry];
    if (moe.down_bias == nullptr || row == kNobody || expert == kNobody) continue;
    biases[index] = load_half(moe.down_bias + expert * moe.stored_hidden + row);
  }
}

/// Writes the output of `rows` places from biases and `partial`, [slices, entries, rows]; an entry
/// that is alone with its expert has the first slice only. All threads of a block take part.
template <typename RowOf>
__device__ __forceinline__ void add_up(MoeDecode const& moe, Routing const& routing,
                                       float const* partial, int slices, uint16_t const* biases,
                                       int rows, RowOf const& row_of) {
  for (int index = threadIdx.x; index < moe.tokens * rows; index += blockDim.x) {
    int const place = index % rows;
    int const token = index / rows;
    int const row = row_of(place);
    if (row == kNobody) continue;
    float sum = 0.0f;
    for (int choice = 0; choice < moe.choices; ++choice) {
      int const entry = token * moe.choices + choice;
      if (routing.expert[entry] == kNobody) continue;
      float product = 0.0f;
      int const its = routing.alone(entry) ? 1 : slices;
      for (int slice = 0; slice < its; ++slice) {
        product += partial[(slice * moe.entries() + entry) * rows + place];
      }
      if (moe.down_bias != nullptr) product += from_bf16(biases[entry * rows + place]);
      sum += routing.weight[entry] * product;
    }
    moe.output[static_cast<int64_t>(token) * moe.hidden + row] = to_bf16(sum);
  }
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_MOE_ROUTING_CUH_
