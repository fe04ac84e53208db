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
#ifndef FLASHINFER_MXFP4_ROW_STREAM_CUH_
#define FLASHINFER_MXFP4_ROW_STREAM_CUH_

// Rows of MXFP4 matrices come to a warp by asynchronous copies, through a ring of rows in shared
// memory that it has for itself, one row after the other as they lie in memory, and one piece of
// its work after the other without a gap. Each lane has other blocks of a row, which it has copied
// itself. Memory that is read so takes less time and less power than by stages of many rows, see
// weight_ring.cuh, which matrix multiplications ask for.

#include "flashinfer/mxfp4/matrix.cuh"

namespace flashinfer {
namespace mxfp4 {

constexpr int kLaneBlocks = 3;                    // of a row that a lane has at a time
constexpr int kSpanBlocks = kLaneBlocks * kWarp;  // of a row that a warp has at a time: a span
constexpr int kSpanTiles = kSpanBlocks / kStageBlocks;
constexpr int kHalf = 4;          // rows of an octet: half of it
constexpr int kRingRows = kHalf;  // one is in use by the multiplication

/// A part of a list, from `begin` to before `end`.
struct Run {
  int begin, end;
};
constexpr Run kBothHalves{0, 2};

/// Which rows are an octet, and how their scales lie.
enum class Order {
  kPlain,     // eight neighbours; scales lie as rows, too
  kTogether,  // eight neighbours, the first at a multiple of eight; scales are tiled
  kPairs,  // rows r and r + 1, r + 32 and r + 33, and so on, whose scales are neighbours in a tile
};

/// A ring of rows; where scales are tiled, with those of two octets of rows.
template <bool kTiled>
struct RowRing {
  static constexpr int kRow = kSpanBlocks * 16;
  static constexpr int kOctetScales = kOctet * kSpanBlocks;
  static constexpr int kScales = kRingRows * kRow;  // where scales begin
  static constexpr int kBytes = ring_aligned(kScales + (kTiled ? 2 * kOctetScales : 0));
};

/// Brings the rows of all of a warp's pieces, by eights, each eight of them span by span.
///
/// `Work` has: `kOrder`; `kOctets` of a piece; `first()`, `has(piece)`, `next(piece)`;
/// `matrix(piece)`; `row(piece, octet)`, the first of eight rows; `rows_there(piece, octet)`, how
/// many of them exist; `halves(piece)`, how many are wanted; `blocks()` of a row; `prepare()`,
/// which is called once, when weights are on their way; then for each piece `piece(rows, piece)`,
/// which takes all of its rows: between `begin_octet()` and `end_octet()` the `next()` of the
/// halves that are wanted, where a row's place in the ring is the same in both, so that the
/// compiler knows it.
/// Tiled scales come with the rows, by its `scales()`, which are TiledScales; others it begins to
/// copy itself by `open(piece)`, and says where they are by `use_scales()`.
template <typename Work>
class RowStream {
 public:
  __device__ __forceinline__ RowStream(Work& work, uint8_t* ring, int lane)
      : work_(work), ring_(ring), lane_(lane), piece_(work.first()) {
    if (work_.has(piece_)) open();
  }

  __device__ __forceinline__ void run() {
#pragma unroll
    for (int row = 0; row < kAhead; ++row) fetch(row);
    work_.prepare();
#pragma unroll 1
    for (Piece piece = work_.first(); work_.has(piece); piece = work_.next(piece))
      work_.piece(*this, piece);
    wait_copies<0>();  // of zeros, behind the last row
  }

  /// Where the scales of the next eight rows are, from the first block of the span on, which has so
  /// many.
  __device__ __forceinline__ void use_scales(uint8_t const* scales, int blocks) {
    plain_ = scales;
    plain_blocks_ = blocks;
  }

  __device__ __forceinline__ void begin_octet() {
    // Its scales are of other lanes' copies.
    wait_copies<kAhead - 1>();
    sync_warp();
  }

  __device__ __forceinline__ void end_octet() { scales_of_ ^= 1; }

  /// Returns a lane's part of the next row: its blocks' codes and scales, zeros for missing blocks.
  /// `row` of a half of eight.
  __device__ __forceinline__ void next(int half, int row, uint4 (&codes)[kLaneBlocks],
                                       uint32_t (&scales)[kLaneBlocks]) {
    wait_copies<kAhead - 1>();
    int const ahead = (row + kAhead) % kHalf;
    if (ahead == 0 && ++half_ == halves_.end) advance();
    fetch(ahead);
    uint8_t const* const here = place(row);
#pragma unroll
    for (int i = 0; i < kLaneBlocks; ++i)
      codes[i] = *reinterpret_cast<uint4 const*>(here + i * kWarp * 16);
    uint8_t const* its;
    if constexpr (kTiled) {
      its = ring_ + Ring::kScales + scales_of_ * Ring::kOctetScales + in_octet(half * kHalf + row);
    } else {
      its = plain_ + (half * kHalf + row) * work_.blocks();
    }
#pragma unroll
    for (int i = 0; i < kLaneBlocks; ++i) {
      int const block = i * kWarp + lane_;
      if constexpr (Work::kOrder == Order::kPairs) {
        scales[i] = its[block / kStageBlocks * kPairBytes + block % kStageBlocks];
      } else if constexpr (kTiled) {
        scales[i] = its[block];
      } else {
        scales[i] = block < plain_blocks_ ? its[block] : 0u;
      }
    }
  }

 private:
  static constexpr int kAhead = kRingRows - 1;
  static constexpr bool kTiled = Work::kOrder != Order::kPlain;
  static constexpr int kPairBytes = kOctet * kStageBlocks;  // scales of an octet in a tile
  using Ring = RowRing<kTiled>;

  /// Where a lane's blocks of a row of a half are.
  __device__ __forceinline__ uint8_t* place(int row) const {
    return ring_ + row * Ring::kRow + lane_ * 16;
  }

  /// Of eight rows' scales, where those of one begin.
  __device__ __forceinline__ static int in_octet(int row) {
    return Work::kOrder == Order::kPairs ? row % 2 * 16 + row / 2 * kStageBlocks
                                         : row * kSpanBlocks;
  }

  /// From now on fetches the eight rows that come next, whose scales come with the first of them.
  __device__ __forceinline__ void open() {
    Matrix const matrix = work_.matrix(piece_);
    int const row = work_.row(piece_, octet_);
    rows_ = work_.rows_there(piece_, octet_);
    near_ = matrix.row_bytes;
    far_ = Work::kOrder == Order::kPairs ? 31 * near_ : near_;
    halves_ = work_.halves(piece_);
    half_ = halves_.begin;
    codes_ = matrix.codes + static_cast<int64_t>(row) * matrix.row_bytes + first_ * 16;
    if (half_ * kHalf < rows_) codes_ += half_ * (kHalf / 2) * (near_ + far_);
    left_ = rows_ > 0 ? matrix.blocks - first_ : 0;
    if constexpr (kTiled) {
      scales_ =
          matrix.scales + work_.scales().row(row) + first_ / kStageBlocks * TiledScales::kTileBytes;
      if (left_ > 0) fetch_scales(ring_ + Ring::kScales + scales_to_ * Ring::kOctetScales);
    } else {
      if (octet_ == 0 && first_ == 0) work_.open(piece_);
    }
  }

  /// Begins to copy a row of a half, if there is one. Where a block is not there nothing is read.
  __device__ __forceinline__ void fetch(int row) {
    uint8_t* const to = place(row);
    // A missing row is read as zeros: one condition less for all others.
#pragma unroll
    for (int i = 0; i < kLaneBlocks; ++i) {
      int const block = i * kWarp + lane_;
      copy_16(to + i * kWarp * 16, codes_ + block * 16, block < left_ ? 16 : 0);
    }
    // The last row is read in the place of those that are not there.
    if (Work::kOrder == Order::kTogether || half_ * kHalf + row + 1 < rows_)
      codes_ += row % 2 == 0 ? near_ : far_;
    commit_copies();
  }

  /// Of all eight rows. Tiles that are not there are zeros, and so are blocks in one that is there
  /// by half.
  __device__ __forceinline__ void fetch_scales(uint8_t* to) const {
    int const whole = left_ / kStageBlocks;
    int const rest = left_ % kStageBlocks;
    int const half = rest != 0 ? whole : kSpanTiles;
    if constexpr (Work::kOrder == Order::kPairs) {
      // A lane has half of what eight rows have in a tile.
#pragma unroll
      for (int i = 0; i < divide_up(2 * kSpanTiles, kWarp); ++i) {
        int const tile = (i * kWarp + lane_) / 2;
        if (tile >= kSpanTiles || tile == half) continue;
        copy_16(to + (i * kWarp + lane_) * 16,
                scales_ + tile * TiledScales::kTileBytes + lane_ % 2 * 16, tile < whole ? 16 : 0);
      }
      if (half < kSpanTiles) {
        copy_4(to + half * kPairBytes + lane_ * kStageBlocks,
               scales_ + half * TiledScales::kTileBytes + lane_ * kStageBlocks, rest,
               lane_ < kOctet);
      }
    } else {
      // A lane has a row's four at a time.
      constexpr int kTiles = kWarp / kOctet;
      uint8_t* const of_row = to + lane_ % kOctet * kSpanBlocks;
      uint8_t const* const from = scales_ + lane_ % kOctet * TiledScales::kRowBytes;
#pragma unroll
      for (int i = 0; i < kSpanTiles / kTiles; ++i) {
        int const tile = i * kTiles + lane_ / kOctet;
        copy_4(of_row + tile * kStageBlocks, from + tile * TiledScales::kTileBytes,
               tile < whole ? 4 : 0, tile != half);
      }
      if (half < kSpanTiles) {
        copy_4(of_row + half * kStageBlocks, from + half * TiledScales::kTileBytes, rest,
               lane_ < kOctet);
      }
    }
  }

  __device__ __forceinline__ void advance() {
    scales_to_ ^= 1;
    first_ += kSpanBlocks;
    if (first_ >= work_.blocks()) {
      first_ = 0;
      if (++octet_ == Work::kOctets) {
        octet_ = 0;
        piece_ = work_.next(piece_);
      }
    }
    left_ = 0;
    if (work_.has(piece_)) open();
  }

  Work& work_;
  uint8_t* const ring_;
  int const lane_;
  int scales_of_ = 0;          // are the scales of the octet that is multiplied the second ones?
  Piece piece_;                // that is fetched,
  int octet_ = 0, first_ = 0;  // and its octet, and the first block of the span
  Run halves_{};               // that are wanted of it,
  int half_ = 0;               // and which of them is fetched
  int rows_ = 0, left_ = 0;    // rows of it that are there, and blocks of a row
  int scales_to_ = 0;
  int near_ = 0, far_ = 0;  // from a row of eight to the next, from even ones and from odd ones
  uint8_t const* codes_ = nullptr;
  uint8_t const* scales_ = nullptr;
  uint8_t const* plain_ = nullptr;  // of the octet that is multiplied
  int plain_blocks_ = 0;
};

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_ROW_STREAM_CUH_
