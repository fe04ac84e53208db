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
#ifndef FLASHINFER_MXFP4_PREFILL_WEIGHTS_CUH_
#define FLASHINFER_MXFP4_PREFILL_WEIGHTS_CUH_

// MXFP4 weights become BF16 in the registers of a matrix multiplication, exactly. A lane loads 16
// neighbouring codes of a row; since the columns of entries are permuted alike (`column_at`), no code
// has to go to another lane.

#include "flashinfer/mxfp4/primitives.cuh"

namespace flashinfer {
namespace mxfp4 {

/// Weights of 32 columns of a warp's 16 rows: of two multiplications.
struct Weights {
  uint32_t a[2][4];
};

/// A lane's part of a plane and a block, as it is in memory: 16 codes of each of its two rows and
/// their scales. A word of codes makes one half of a row's `Weights`.
struct StoredWeights {
  uint2 codes[2];
  uint32_t scale[2];
  bool large;  // does a lane of the warp have a scale of kLargeScale or more?
};

/// Two codes, in bits 4 i and 4 i + 16 of a word and the next three of each, as BF16 numbers divided
/// by 2^126. The product has each code twice, apart: its sign is taken of one, the rest of the other.
template <int i>
__device__ __forceinline__ uint32_t code_pair(uint32_t word) {
  constexpr uint32_t kTwice = (1u << 6 | 1u << 12) >> 4 * i;
  return (word & 0x000F000Fu << 4 * i) * kTwice & 0x81C081C0u;
}

/// Two BF16 numbers with these exponent bits.
__device__ __forceinline__ uint32_t power_pair(uint32_t exponent) { return exponent * 0x00800080u; }

/// E8M0 scales from here on are multiplied in steps, this one apart.
constexpr uint32_t kLargeScale = 128;

/// Multiplies by 2^kLargeScale what has such a scale.
__device__ __forceinline__ void enlarge(Weights& weights, StoredWeights const& stored) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t const by =
        power_pair(stored.scale[half] >= kLargeScale ? kLargeScale / 2 + 127 : 127);
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
      for (int word = half; word < 4; word += 2) {
        uint32_t const once = multiply_bf16x2(weights.a[step][word], by);
        weights.a[step][word] = multiply_bf16x2(once, by);
      }
    }
  }
}

template <int kWord>
__device__ __forceinline__ void convert(Weights& weights, StoredWeights const& stored) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    // Codes were divided by 2^126, and 127 is the bias of the scale and of the product.
    uint32_t const by = power_pair(stored.scale[half] % kLargeScale + 126);
    uint32_t const low = kWord == 0 ? stored.codes[half].x : stored.codes[half].y;
    uint32_t const high = low >> 8;
    weights.a[0][half] = multiply_bf16x2(code_pair<0>(low), by);
    weights.a[0][2 + half] = multiply_bf16x2(code_pair<1>(low), by);
    weights.a[1][half] = multiply_bf16x2(code_pair<0>(high), by);
    weights.a[1][2 + half] = multiply_bf16x2(code_pair<1>(high), by);
  }
  if (stored.large) enlarge(weights, stored);
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_PREFILL_WEIGHTS_CUH_
