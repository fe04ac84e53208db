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
#ifndef FLASHINFER_MXFP4_MATRIX_CUH_
#define FLASHINFER_MXFP4_MATRIX_CUH_

// MXFP4 matrices as they lie in memory, and what a warp reads of them at a time: a stage is 128
// columns, 64 bytes of a row, and each of the four lanes of a row has a block of 32 columns.
//
// Copies go to rings in shared memory. A copy of 16 bytes for each lane takes each sector of 32
// bytes from L2 once if it lies in shared memory as it lies in global memory, and twice if a sector
// is torn there: rings begin at kRingAlignment.

#include "flashinfer/mxfp4/primitives.cuh"

namespace flashinfer {
namespace mxfp4 {

constexpr int kBlockColumns = 32;  // that share a scale
constexpr int kStageBlocks = 4;    // blocks of a row in a stage
constexpr int kOctet = 8;          // rows; a lane has one of them
constexpr int kRingAlignment = 64;

inline __host__ __device__ constexpr int divide_up(int number, int by) {
  return (number + by - 1) / by;
}

/// Up to the next multiple of kRingAlignment.
inline __host__ __device__ constexpr int ring_aligned(int bytes) {
  return (bytes + kRingAlignment - 1) / kRingAlignment * kRingAlignment;
}

/// A warp's piece of work: a part of a group of tokens that share a matrix.
struct Piece {
  int group, part;

  /// The piece `groups` groups and `parts` parts further; each group has `of` parts.
  __device__ __forceinline__ Piece on(int groups, int parts, int of) const {
    bool const over = part + parts >= of;
    return {group + groups + over, part + parts - (over ? of : 0)};
  }
};

/// A matrix: `codes` two a byte, the low nibble first, `row_bytes` from row to row; `scales` E8M0,
/// one for 32 columns of a row, in rows or tiled. `blocks` of a row are read; there may be more.
struct Matrix {
  uint8_t const* codes;
  uint8_t const* scales;
  int row_bytes;
  int blocks;
};

/// Scales in tiles of 128 rows and 4 blocks, as CUTLASS reads them: the four of a row are
/// neighbours, and those of rows r, r + 32, r + 64, r + 96.
struct TiledScales {
  static constexpr int kTileBytes = 512;
  static constexpr int kRowBytes = 16;  // from a row to the next, of 32
  int rows_bytes;                       // of 128 rows, all their tiles

  /// Where a row's first is.
  __device__ __forceinline__ int64_t row(uint32_t row) const {
    return static_cast<int64_t>(row / 128) * rows_bytes +
           (row % 32 * kRowBytes + row % 128 / 32 * 4);
  }
};

/// The bytes of 128 rows of tiles with `stored_blocks` blocks in each row.
inline __host__ __device__ int tiled_rows_bytes(int stored_blocks) {
  return divide_up(stored_blocks, kStageBlocks) * TiledScales::kTileBytes;
}

__device__ __forceinline__ uint32_t word_of(uint4 const& words, int word) {
  return word == 0 ? words.x : word == 1 ? words.y : word == 2 ? words.z : words.w;
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_MATRIX_CUH_
