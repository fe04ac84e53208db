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
#ifndef FLASHINFER_MXFP4_WEIGHT_STREAM_CUH_
#define FLASHINFER_MXFP4_WEIGHT_STREAM_CUH_

// A warp multiplies its rows of an MXFP4 matrix by a few BF16 tokens. The rows come into registers
// by loads of 16 bytes, a stage or two ahead: for work so short that a ring in shared memory would
// not be full before its end.

#include "flashinfer/mxfp4/bf16_products.cuh"

namespace flashinfer {
namespace mxfp4 {

/// Where a lane reads its rows of a matrix whose scales are in rows, as in a checkpoint.
template <int kOctets>
class WeightRows {
 public:
  /// `rows(i)` is row i of this warp, negative where there is none: another is read in its place.
  template <typename Rows>
  __device__ __forceinline__ WeightRows(Matrix const& matrix, Rows const& rows, int lane)
      : last_(matrix.blocks - 1) {
#pragma unroll
    for (int octet = 0; octet < kOctets; ++octet) {
      int const row = rows(octet * kOctet + lane / 4);
      int64_t const there = row >= 0 ? row : 0;
      codes_[octet] = keep(reinterpret_cast<uint4 const*>(matrix.codes + there * matrix.row_bytes));
      scales_[octet] = keep(matrix.scales + there * matrix.blocks);
    }
  }

  /// Begins to load a block, or the last one in place of those after it.
  __device__ __forceinline__ void fetch(uint32_t block, WeightBlock<kOctets>& to) const {
    uint32_t const there = block < last_ ? block : last_;
#pragma unroll
    for (int octet = 0; octet < kOctets; ++octet)
      to.codes[octet] = load_once_16(codes_[octet] + there);
#pragma unroll
    for (int octet = 0; octet < kOctets; ++octet)
      to.scales[octet] = load_byte(scales_[octet] + there);
  }

 private:
  uint32_t last_;
  uint4 const* codes_[kOctets];
  uint8_t const* scales_[kOctets];
};

/// Streams a warp's part of the columns of its rows.
///
/// `Work` has: `matrix()`; `first()`, `stages()` and `step()`, the warp's stages, perhaps none;
/// `rows(place)`; `wait()`, called once before the first token is read, when weights
/// are on their way; `token(place)`, the token in that place, or another; `tokens()`, how many
/// there are; `done(sums)`.
template <int kOctets, int kTokenTiles, typename Work>
__device__ __forceinline__ void stream(Work& work, int lane) {
  constexpr int kAhead = 2;  // stages in registers
  int const stages = work.stages();
  if (work.first() >= stages) {
    work.wait();
    return;
  }
  Matrix const matrix = work.matrix();
  WeightRows<kOctets> const weights(matrix, [&work](int place) { return work.rows(place); }, lane);
  int ahead = work.first();  // the stage that is fetched
  auto const fetch = [&](WeightBlock<kOctets>& to) {
    if (ahead >= stages) return;
    weights.fetch(ahead * kStageBlocks + lane % 4, to);
    ahead += work.step();
  };
  WeightBlock<kOctets> fetched[kAhead];
#pragma unroll
  for (int slot = 0; slot < kAhead; ++slot) fetch(fetched[slot]);
  work.wait();

  uint32_t const last = matrix.blocks - 1;
  int const token_tiles = kTokenTiles == 1 ? 1 : divide_up(work.tokens(), kTileTokens);
  uint16_t const* tokens[kTokenTiles];  // this lane's in each tile, see Sums
#pragma unroll
  for (int tile = 0; tile < kTokenTiles; ++tile)
    tokens[tile] = work.token(tile * kTileTokens + lane / 4);
  Sums<kOctets, kTokenTiles> sums;
  sums.clear();
  int stage = work.first();
  while (stage < stages) {
#pragma unroll
    for (int slot = 0; slot < kAhead; ++slot) {
      if (stage < stages) {
        uint32_t const block = stage * kStageBlocks + lane % 4;
        uint32_t const there = block < last ? block : last;
        auto const columns = [&tokens, there](int tile, int word) {
          return load_16(tokens[tile] + there * kBlockColumns + word * 8);
        };
        multiply<kOctets, kTokenTiles>(fetched[slot], columns, block <= last, token_tiles, sums);
        fetch(fetched[slot]);
        stage += work.step();
      }
    }
  }
  work.done(sums);
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_WEIGHT_STREAM_CUH_
