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
#ifndef FLASHINFER_MXFP4_ROW_PRODUCTS_CUH_
#define FLASHINFER_MXFP4_ROW_PRODUCTS_CUH_

// A warp multiplies rows of MXFP4 matrices by one token, which it has in registers: each lane the
// same blocks of it as of the rows. Both are bytes, see fixed_point.cuh; four products at a time
// are added up in whole numbers, a block's are scaled once, and what lanes have of eight rows is
// added up together.

#include "flashinfer/mxfp4/fixed_point.cuh"
#include "flashinfer/mxfp4/row_stream.cuh"

namespace flashinfer {
namespace mxfp4 {
namespace bytes {

/// A block of a token: its digits, its scale, and what biases of weights add to its products, the
/// other way.
struct TokenBlock {
  uint4 high[2], low[2];
  float scale;  // 0 where there is no such block
  int32_t less;

  /// The products of 32 weights, as bytes, with this exponent.
  __device__ __forceinline__ float times(uint32_t const (&weights)[8], uint32_t exponent) const {
    int32_t of_high = 0, of_low = less;
#pragma unroll
    for (int word = 0; word < 8; ++word) add(weights[word], word, of_high, of_low);
    return to_float(of_high * 256 + of_low) * (float_of_bits(exponent << 23) * scale);
  }

  /// The sum that biases add.
  __device__ __forceinline__ int32_t of_biases() const {
    int32_t of_high = 0, of_low = 0;
#pragma unroll
    for (int word = 0; word < 8; ++word) add(kBiases, word, of_high, of_low);
    return of_high * 256 + of_low;
  }

 private:
  __device__ __forceinline__ void add(uint32_t weights, int word, int32_t& of_high,
                                      int32_t& of_low) const {
    of_high = dot_bytes(weights, word_of(high[word / 4], word % 4), of_high);
    of_low = dot_bytes(weights, word_of(low[word / 4], word % 4), of_low);
  }
};

/// A token that is in shared memory whole, as `TokenCopies` leaves it.
struct InShared {
  static constexpr int kStage = kTokenStage;
  static constexpr bool kHasRecords = true;
  __device__ __forceinline__ static uint4 load(uint8_t const* at) {
    return *reinterpret_cast<uint4 const*>(at);
  }
  __device__ __forceinline__ static float number(uint8_t const* at) {
    return *reinterpret_cast<float const*>(at);
  }
};

/// One that lies in global memory, as the first launch of experts leaves it.
struct InGlobal {
  static constexpr int kStage = kStoredStage;
  static constexpr bool kHasRecords = false;
  __device__ __forceinline__ static uint4 load(uint8_t const* at) { return load_16(at); }
  __device__ __forceinline__ static float number(uint8_t const* at) { return load_4(at); }
};

/// A span of a token.
template <typename Memory>
struct Span {
  uint8_t const* token;
  int first, blocks, lane;  // its first block, and the number of all blocks

  /// Of a block that is not there nothing but the scale counts.
  __device__ __forceinline__ void load(TokenBlock& block, int i) const {
    int const number = first + i * kWarp + lane;
    bool const there = number < blocks;
    uint8_t const* const stage = token + (there ? number : 0) / kStageBlocks * Memory::kStage;
    int const place = there ? number % kStageBlocks : 0;
    uint8_t const* const digits = stage + place * kDigitsBytes;
    block.high[0] = Memory::load(digits);
    block.high[1] = Memory::load(digits + 16);
    block.low[0] = Memory::load(digits + kBlockColumns);
    block.low[1] = Memory::load(digits + kBlockColumns + 16);
    block.scale = there ? Memory::number(stage + kScales + place * 4) : 0.0f;
    if constexpr (Memory::kHasRecords) {
      block.less = *reinterpret_cast<int32_t const*>(stage + kRecords + place * kRecordBytes);
    }
  }

  /// Called when all loads of the block have begun.
  __device__ __forceinline__ static void complete(TokenBlock& block) {
    if constexpr (!Memory::kHasRecords) block.less = -block.of_biases();
  }
};
using StagedSpan = Span<InShared>;
using StoredSpan = Span<InGlobal>;

/// Of eight rows, the one whose sum a lane has in the end: four neighbours have the same one.
__device__ __forceinline__ int lane_row(int lane) {
  return lane / 16 % 2 + lane / 8 % 2 * 2 + lane / 4 % 2 * 4;
}

/// A span of a token, in a warp's registers.
class RowProducts {
 public:
  __device__ __forceinline__ RowProducts(uint32_t one, int lane)
      : tables_(one, lane), lane_(lane) {}

  /// From now on multiplies by this span.
  template <typename Span>
  __device__ __forceinline__ void open(Span const& span) {
#pragma unroll
    for (int i = 0; i < kLaneBlocks; ++i) span.load(blocks_[i], i);
#pragma unroll
    for (int i = 0; i < kLaneBlocks; ++i) span.complete(blocks_[i]);
  }

  /// The product of this lane's row of the next eight, see lane_row(); where not both halves are
  /// wanted, any number for the rows of the other one.
  template <typename Rows>
  __device__ __forceinline__ float times(Rows& rows, Run halves = kBothHalves) const {
    float fours[2] = {0.0f, 0.0f};  // sums of rows of both halves
    rows.begin_octet();
#pragma unroll 1
    for (int half = halves.begin; half < halves.end; ++half) {
      float sums[kHalf];
#pragma unroll
      for (int i = 0; i < kHalf; ++i) {
        uint4 codes[kLaneBlocks];
        uint32_t exponents[kLaneBlocks];
        rows.next(half, i, codes, exponents);
        sums[i] = 0.0f;
#pragma unroll
        for (int block = 0; block < kLaneBlocks; ++block) {
          uint32_t weights[8];
#pragma unroll
          for (int word = 0; word < 4; ++word) {
            weights[2 * word] = tables_.look_up(word_of(codes[block], word));
            weights[2 * word + 1] = tables_.look_up(word_of(codes[block], word) >> 16);
          }
          sums[i] += blocks_[block].times(weights, exponents[block]);
        }
      }
      fours[0] = fours[1];
      fours[1] = folded(folded(sums[0], sums[1], 16), folded(sums[2], sums[3], 16), 8);
    }
    rows.end_octet();
    if (halves.end < 2) fours[0] = fours[1];
    float sum = folded(fours[0], fours[1], 4);
    sum += exchange(sum, 2);
    return sum + exchange(sum, 1);
  }

 private:
  /// Of two numbers of each lane and of the one that differs by this bit, the sum of the first
  /// ones, for the lane without the bit, or of the second ones.
  __device__ __forceinline__ float folded(float first, float second, int bit) const {
    bool const has = lane_ & bit;
    return (has ? second : first) + exchange(has ? first : second, bit);
  }

  Tables tables_;
  int lane_;
  TokenBlock blocks_[kLaneBlocks];
};

}  // namespace bytes
}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_ROW_PRODUCTS_CUH_
