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
#ifndef FLASHINFER_MXFP4_CHOOSE_CUH_
#define FLASHINFER_MXFP4_CHOOSE_CUH_

// A warp chooses the experts of a token by the router's logits, the largest first.

#include "flashinfer/mxfp4/primitives.cuh"

namespace flashinfer {
namespace mxfp4 {

constexpr int kMaxRouted = 0xFFFF;  // experts to choose from, see rank_of()
constexpr int kLaneLogits = 4;      // at a time
constexpr int kNoRank = INT32_MIN;  // of nobody

/// Orders the experts of a token by their logits in BF16, equal ones by their numbers: the largest
/// is chosen first, before it every NaN.
__device__ __forceinline__ int rank_of(int16_t logit, int expert) {
  int order = logit ^ (logit < 0 ? 0x7FFF : 0);
  if (logit == INT16_MIN) order = 0;  // -0
  if ((logit & 0x7FFF) > 0x7F80) order = 0x7FFF;
  return order * 0x10000 + (kMaxRouted - expert);
}

__device__ __forceinline__ int ranked_expert(int rank) { return kMaxRouted - (rank & 0xFFFF); }

__device__ __forceinline__ float ranked_logit(int rank) {
  int const order = rank >> 16;
  return from_bf16(static_cast<uint16_t>(order ^ (order < 0 ? 0x7FFF : 0)));
}

/// The ranks of a token's experts from `first` on that a lane has, the largest first.
struct Ranks {
  int of[kLaneLogits];

  __device__ __forceinline__ Ranks(int16_t const* logits, int routed, int first, int lane) {
#pragma unroll
    for (int i = 0; i < kLaneLogits; ++i) {
      int const expert = first + i * kWarp + lane;
      of[i] = kNoRank;
      if (expert < routed) of[i] = rank_of(load_half(logits + expert), expert);
    }
#pragma unroll
    for (int i = 0; i < kLaneLogits; ++i)
#pragma unroll
      for (int j = i % 2; j + 1 < kLaneLogits; j += 2) order(of[j], of[j + 1]);
  }

  __device__ __forceinline__ static void order(int& larger, int& smaller) {
    int const other = larger < smaller ? larger : smaller;
    larger = larger < smaller ? smaller : larger;
    smaller = other;
  }

  __device__ __forceinline__ void drop_first() {
#pragma unroll
    for (int i = 0; i + 1 < kLaneLogits; ++i) of[i] = of[i + 1];
    of[kLaneLogits - 1] = kNoRank;
  }
};

/// Chooses a token's experts by a warp: returns the rank of choice `lane` if it is one of the first
/// `choices`. There are at most as many choices as experts (`routed`).
__device__ __forceinline__ int choose(int16_t const* logits, int routed, int choices, int lane) {
  int chosen = kNoRank;
  for (int first = 0; first < routed; first += kLaneLogits * kWarp) {
    Ranks ranks(logits, routed, first, lane);
    int before = chosen;  // of the experts before these, one a lane
#pragma unroll 1
    for (int choice = 0; choice < choices; ++choice) {
      int const mine = before > ranks.of[0] ? before : ranks.of[0];
      int const best = largest(mine);
      if (lane == choice) chosen = best;
      if (mine != best) continue;
      if (before == best) {
        before = kNoRank;
      } else {
        ranks.drop_first();
      }
    }
  }
  return chosen;
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_CHOOSE_CUH_
