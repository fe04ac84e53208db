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
#ifndef FLASHINFER_MXFP4_BYTE_PRODUCTS_CUH_
#define FLASHINFER_MXFP4_BYTE_PRODUCTS_CUH_

// A warp multiplies rows of MXFP4 matrices by a few tokens on the tensor cores (IMMA), both as
// bytes, see fixed_point.cuh.
//
// A stage is 128 columns, and a multiplication takes a block of 16 rows. Each of the four lanes of
// a row has eight columns; its eight columns of tokens are both digits of four of them. So
// a lane gets a block's sums of one token.

#include "flashinfer/mxfp4/fixed_point.cuh"
#include "flashinfer/mxfp4/weight_ring.cuh"

namespace flashinfer {
namespace mxfp4 {
namespace bytes {

/// A lane's sums of two or three rows and of every fourth of up to `kTokens`, stage by stage.
/// The second tile of three octets has a half without rows, which has the bytes of zeros: its sums
/// are what biases add to all, so that tokens need no records.
template <int kTokens, int kOctets>
class Products {
  static_assert(kTokens % 4 == 0 && (kOctets == 2 || kOctets == 3), "four tokens, and two tiles");

 public:
  static constexpr int kFours = kTokens / 4;

  __device__ __forceinline__ Products(uint32_t one, int lane) : tables_(one, lane), lane_(lane) {}

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int four = 0; four < kFours; ++four) {
#pragma unroll
      for (int octet = 0; octet < kOctets; ++octet) sums_[four][octet] = 0.0f;
    }
  }

  /// Adds the products of a stage of a ring with `tokens` tokens; `token(i)` is where that
  /// token's stage is. All blocks side by side: one after the other each would wait for its own.
  template <typename Stage, typename Token>
  __device__ __forceinline__ void add(uint8_t const* stage, Token const& token, int tokens) {
    uint32_t a[kStageBlocks][4], odd[kStageBlocks][4];
#pragma unroll
    for (int block = 0; block < kStageBlocks; ++block) {
#pragma unroll
      for (int octet = 0; octet < 2; ++octet)
        look_up(a[block], octet, Stage::codes(stage, octet, block, lane_));
      if constexpr (kOctets == 3) {
        look_up(odd[block], 0, Stage::codes(stage, 2, block, lane_));
        odd[block][1] = odd[block][3] = kBiases;
      }
    }
    float factors[kOctets][kStageBlocks];
#pragma unroll
    for (int octet = 0; octet < kOctets; ++octet) {
      uint32_t const exponents = Stage::scales(stage, octet, lane_);
#pragma unroll
      for (int block = 0; block < kStageBlocks; ++block)
        factors[octet][block] = factor(exponents, block);
    }
#pragma unroll
    for (int four = 0; four < kFours; ++four) {
      // The last one in the place of those that are not there.
      int const last = tokens - 1 - 4 * four;
      if (last < 0) break;
      uint8_t const* const digits = token(4 * four + (lane_ / 8 < last ? lane_ / 8 : last)) +
                                    lane_ / 4 % 2 * kBlockColumns + lane_ % 4 * 8;
      uint8_t const* const mine = token(4 * four + (lane_ % 4 < last ? lane_ % 4 : last));
      uint2 both[kStageBlocks];
#pragma unroll
      for (int block = 0; block < kStageBlocks; ++block)
        both[block] = *reinterpret_cast<uint2 const*>(digits + block * kDigitsBytes);
      uint4 const scales = *reinterpret_cast<uint4 const*>(mine + kScales);
      int32_t products[kStageBlocks][4] = {};
      int32_t less[kStageBlocks] = {};
      if constexpr (kOctets == 2) {
        uint4 const records = *reinterpret_cast<uint4 const*>(mine + kRecords);
#pragma unroll
        for (int block = 0; block < kStageBlocks; ++block) {
          products[block][1] = products[block][3] = static_cast<int32_t>(word_of(records, block));
        }
      } else {
        int32_t others[kStageBlocks][4] = {};
#pragma unroll
        for (int block = 0; block < kStageBlocks; ++block) {
          uint32_t const b[2] = {both[block].x, both[block].y};
          mma_m16n8k32(others[block], odd[block], b);
        }
#pragma unroll
        for (int block = 0; block < kStageBlocks; ++block) {
          int32_t const(&its)[4] = others[block];
          less[block] = its[2] * 256 + its[3];
          sums_[four][2] += to_float(its[0] * 256 + its[1] - less[block]) *
                            (factors[2][block] * float_of_bits(word_of(scales, block)));
        }
      }
#pragma unroll
      for (int block = 0; block < kStageBlocks; ++block) {
        uint32_t const b[2] = {both[block].x, both[block].y};
        mma_m16n8k32(products[block], a[block], b);
      }
#pragma unroll
      for (int block = 0; block < kStageBlocks; ++block) {
        int32_t const(&its)[4] = products[block];
#pragma unroll
        for (int octet = 0; octet < 2; ++octet) {
          sums_[four][octet] += to_float(its[2 * octet] * 256 + its[2 * octet + 1] - less[block]) *
                                (factors[octet][block] * float_of_bits(word_of(scales, block)));
        }
      }
    }
  }

  /// Of this lane's row of an octet, the product with that of four tokens which is as far from the
  /// first one as the lane is from the first of four.
  __device__ __forceinline__ float sum(int four, int octet) const {
    return checked(sums_[four][octet]);
  }

 private:
  __device__ __forceinline__ void look_up(uint32_t (&a)[4], int half, uint32_t codes) const {
    a[half] = tables_.look_up(codes);
    a[half + 2] = tables_.look_up(codes >> 16);
  }

  /// The scale of a block, by the four exponents of a row.
  __device__ __forceinline__ static float factor(uint32_t exponents, int block) {
    uint32_t const bits = block < 3 ? exponents << (23 - 8 * block) : exponents >> 1;
    return float_of_bits(bits & 0x7F800000u);
  }

  Tables tables_;
  int lane_;
  float sums_[kFours][kOctets];
};

}  // namespace bytes
}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_BYTE_PRODUCTS_CUH_
