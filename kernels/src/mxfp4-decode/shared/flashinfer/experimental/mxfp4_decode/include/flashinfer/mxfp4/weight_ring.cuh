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
#ifndef FLASHINFER_MXFP4_WEIGHT_RING_CUH_
#define FLASHINFER_MXFP4_WEIGHT_RING_CUH_

// Rows of MXFP4 matrices come to a warp by asynchronous copies, through a ring of stages in shared
// memory that it has for itself, one piece of its work after the other without a gap. Copies are
// waited for in their order, where loads into registers are waited for all at once.

#include "flashinfer/mxfp4/matrix.cuh"

namespace flashinfer {
namespace mxfp4 {

constexpr int kStageCodes = 64;  // bytes of a row in a stage

/// A stage of a warp's rows, 128 columns, in a ring of `kStages`, one in use by the multiplication:
/// for each row 64 bytes of codes and four scales, and `kOfTokens` bytes of tokens.
template <int kOctets, int kStages, int kOfTokens = 0>
struct RingStage {
  static_assert(kStages >= 2, "one on its way, at least");
  static constexpr int kCodes = kOctets * kWarp * 16;
  static constexpr int kTokens = kCodes + kOctets * kOctet * kStageBlocks;  // where they begin
  static constexpr int kBytes = kTokens + kOfTokens;
  static constexpr int kRing = ring_aligned(kStages * kBytes);
  static_assert(kOctets * kOctet <= kWarp, "a lane for the scales of each row");
  static_assert(kTokens % 16 == 0 && kBytes % 16 == 0, "copied by 16 bytes");

  /// Where a block of a row of an octet is, by 16 bytes: sectors change places in every other two
  /// rows, so that lanes of fewer rows read the same banks.
  __device__ __forceinline__ static int place(int row, int block) {
    return row * kStageBlocks + (block ^ (row & 2));
  }
  /// Of a block of a lane's row, the eight codes that it multiplies.
  __device__ __forceinline__ static uint32_t codes(uint8_t const* stage, int octet, int block,
                                                   int lane) {
    uint8_t const* const its = stage + octet * kWarp * 16 + place(lane / 4, block) * 16;
    return *reinterpret_cast<uint32_t const*>(its + lane % 4 * 4);
  }
  /// The four of a lane's row, a byte each.
  __device__ __forceinline__ static uint32_t scales(uint8_t const* stage, int octet, int lane) {
    return *reinterpret_cast<uint32_t const*>(stage + kCodes +
                                              (octet * kOctet + lane / 4) * kStageBlocks);
  }
};

/// Brings all of a warp's pieces.
///
/// `Work` has: `kOctets`, eight rows each, and `Stage`, a RingStage; `first()`, `has(piece)`,
/// `next(piece)`; `matrix(piece)`, and `row(piece, place)`; `stages()`, `first_stage(piece)` and
/// `stage_step()`; `prepare()`, called once, when weights are on their way; then for each piece
/// `begin(piece)`, `multiply(piece, stage, where it is)` and `done(piece)`; and `scales()`, which
/// come with the stages. Where `kCopiesTokens`, `copy_tokens(piece, stage, to)` begins to copy what
/// a stage has of tokens, never before `prepare()`.
template <typename Work>
class WeightRing {
 public:
  __device__ __forceinline__ WeightRing(Work& work, uint8_t* ring, int lane)
      : work_(work), ring_(ring), lane_(lane) {
    rewind();
  }

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int stage = 0; stage < kAhead; ++stage) fetch<true, false>();
    work_.prepare();
    if constexpr (Work::kCopiesTokens) {
      rewind();
#pragma unroll 1
      for (int stage = 0; stage < kAhead; ++stage) fetch<false, true>();
    }
    int from = 0;
#pragma unroll 1
    for (Piece piece = work_.first(); work_.has(piece); piece = work_.next(piece)) {
      work_.begin(piece);
#pragma unroll 1
      for (int stage = work_.first_stage(piece); stage < work_.stages();
           stage += work_.stage_step()) {
        wait_copies<kAhead - 1>();
        sync_warp();
        fetch<true, true>();
        work_.multiply(piece, stage, ring_ + from);
        from = after(from);
      }
      work_.done(piece);
    }
  }

 private:
  using Stage = typename Work::Stage;
  static constexpr int kAhead = Work::kStages - 1;

  __device__ __forceinline__ static int after(int stage) {
    return stage == kAhead * Stage::kBytes ? 0 : stage + Stage::kBytes;
  }

  /// From now on fetches the first piece.
  __device__ __forceinline__ void rewind() {
    to_ = 0;
    left_ = 0;
    piece_ = work_.first();
    if (work_.has(piece_)) open();
  }

  /// From now on fetches the piece that comes next.
  __device__ __forceinline__ void open() {
    Matrix const matrix = work_.matrix(piece_);
    stage_ = work_.first_stage(piece_);
    left_ = matrix.blocks - stage_ * kStageBlocks;
#pragma unroll
    for (int octet = 0; octet < Work::kOctets; ++octet) {
      int64_t const row = work_.row(piece_, octet * kOctet + lane_ / 4);
      codes_[octet] = matrix.codes + row * matrix.row_bytes + lane_ % 4 * 16 + stage_ * kStageCodes;
    }
    int const row = work_.row(piece_, lane_ % (Work::kOctets * kOctet));
    scales_ = matrix.scales + work_.scales().row(row) + stage_ * TiledScales::kTileBytes;
  }

  /// Begins to copy the next stage, if there is one: its weights, or its tokens, or both.
  template <bool kWeights, bool kTokens>
  __device__ __forceinline__ void fetch() {
    if (left_ > 0) {
      uint8_t* const to = ring_ + to_;
      int const step = work_.stage_step();
#pragma unroll
      for (int octet = 0; octet < Work::kOctets; ++octet) {
        if constexpr (kWeights) {
          copy_16(to + (octet * kWarp + Stage::place(lane_ / 4, lane_ % 4)) * 16, codes_[octet],
                  lane_ % 4 < left_ ? 16 : 0);
        }
        codes_[octet] += step * kStageCodes;
      }
      if constexpr (kWeights) {
        copy_4(to + Stage::kCodes + lane_ * 4, scales_, left_ < kStageBlocks ? left_ : kStageBlocks,
               lane_ < Work::kOctets * kOctet);
      }
      if constexpr (kTokens && Work::kCopiesTokens) {
        work_.copy_tokens(piece_, stage_, to + Stage::kTokens);
      }
      scales_ += step * TiledScales::kTileBytes;
      stage_ += step;
      left_ -= step * kStageBlocks;
      if (left_ <= 0) {
        piece_ = work_.next(piece_);
        if (work_.has(piece_)) open();
      }
    }
    commit_copies();
    to_ = after(to_);
  }

  Work& work_;
  uint8_t* const ring_;
  int const lane_;
  Piece piece_;               // that is fetched,
  int stage_ = 0, left_ = 0;  // its stage, and blocks of it
  int to_ = 0;                // the stage of the ring
  uint8_t const* codes_[Work::kOctets];
  uint8_t const* scales_;
};

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_WEIGHT_RING_CUH_
