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
#ifndef FLASHINFER_MXFP4_BF16_PRODUCTS_CUH_
#define FLASHINFER_MXFP4_BF16_PRODUCTS_CUH_

// A warp multiplies rows of MXFP4 matrices by a few BF16 tokens: weights become BF16, scaled, and
// are multiplied sixteen rows by eight tokens at a time.
//
// Which of the columns is which product does not matter as long as the tokens have the same order:
//
//   word i of a lane's four has its block's columns 8 i .. 8 i + 7 as the nibbles 0 .. 7;
//   nibbles 0, 4 | 1, 5 make the words of one multiplication, 2, 6 | 3, 7 of the next.

#include "flashinfer/mxfp4/matrix.cuh"

namespace flashinfer {
namespace mxfp4 {

constexpr int kTileRows = 2 * kOctet;                 // of one multiplication
constexpr int kTileTokens = 8;                        // of one multiplication
constexpr float kUnscaled = 18446744073709551616.0f;  // 2^64, see scale_pair()

/// The nibbles `kPair` and `kPair` + 4 of a word as two BF16 numbers, their values by 2^-126: sign
/// and the three other bits go to where BF16 has its sign and the low end of its exponent.
template <int kPair>
__device__ __forceinline__ uint32_t spread(uint32_t codes) {
  static_assert(kPair == 0 || kPair == 1, "shift the word to have 2 and 3");
  constexpr uint32_t kNibbles = kPair ? 0x00F000F0u : 0x000F000Fu;
  constexpr uint32_t kTwice = kPair ? 0x0104u : 0x1040u;  // the nibble to bits 15 .. 12 and 9 .. 6
  return ((codes & kNibbles) * kTwice) & 0x81C081C0u;
}

/// Turns `spread` into the values of a block by 2^-64: 2^(scale - 127 + 126 - 64), twice. With
/// the 2^-64 every scale from 2^-61 to 2^65 gives numbers that BF16 has exactly; larger ones give
/// infinities.
__device__ __forceinline__ uint32_t scale_pair(uint32_t scale) {
  return (scale < 193u ? scale : 193u) * 0x00800080u + 62u * 0x00800080u;
}

/// A warp's sums of tiles of rows and of tokens. Where a tile has a place for more tokens than
/// there are, any one stands there: sums of different places never meet.
template <int kOctets, int kTokenTiles>
struct Sums {
  static constexpr int kRowTiles = (kOctets + 1) / 2;  // the last may be half of one
  float of[kRowTiles][kTokenTiles][4];                 // by 2^-64

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile)
#pragma unroll
      for (int tokens = 0; tokens < kTokenTiles; ++tokens)
#pragma unroll
        for (int place = 0; place < 4; ++place) of[tile][tokens][place] = 0.0f;
  }
};

/// A lane's block of each of its rows.
template <int kOctets>
struct WeightBlock {
  uint4 codes[kOctets];
  uint32_t scales[kOctets];
};

/// Selects the columns of a token that the first or the second multiplication with a word takes.
__device__ __forceinline__ void pairs(uint4 const& columns, int second, uint32_t (&words)[2]) {
  uint32_t const low = second ? columns.y : columns.x;
  uint32_t const high = second ? columns.w : columns.z;
  words[0] = permute_bytes(low, high, 0x5410u);
  words[1] = permute_bytes(low, high, 0x7632u);
}

/// Adds the products of a lane's block of the weights and of the tokens. `columns(tile, word)` are
/// the eight of a token that a word's are multiplied by. A block that is not `inside` the rows
/// counts as zeros.
template <int kOctets, int kTokenTiles, typename Columns>
__device__ __forceinline__ void multiply(WeightBlock<kOctets> const& weights,
                                         Columns const& columns_of, bool inside, int token_tiles,
                                         Sums<kOctets, kTokenTiles>& sums) {
  uint32_t scales[kOctets];
#pragma unroll
  for (int octet = 0; octet < kOctets; ++octet) {
    scales[octet] = inside ? scale_pair(weights.scales[octet]) : 0u;
  }
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    uint4 columns[kTokenTiles];
#pragma unroll
    for (int of = 0; of < kTokenTiles; ++of) {
      columns[of] = of < token_tiles ? columns_of(of, word) : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int second = 0; second < 2; ++second) {
      uint32_t b[kTokenTiles][2];
#pragma unroll
      for (int of = 0; of < kTokenTiles; ++of) pairs(columns[of], second, b[of]);
#pragma unroll
      for (int tile = 0; tile < sums.kRowTiles; ++tile) {
        uint32_t a[4] = {0u, 0u, 0u, 0u};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          int const octet = 2 * tile + half;
          if (octet == kOctets) break;
          uint32_t const codes = word_of(weights.codes[octet], word) >> (second ? 8 : 0);
          a[half] = multiply_bf16x2(spread<0>(codes), scales[octet]);
          a[half + 2] = multiply_bf16x2(spread<1>(codes), scales[octet]);
        }
#pragma unroll
        for (int of = 0; of < kTokenTiles; ++of) {
          if (of < token_tiles) mma_m16n8k16(sums.of[tile][of], a, b[of]);
        }
      }
    }
  }
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_BF16_PRODUCTS_CUH_
