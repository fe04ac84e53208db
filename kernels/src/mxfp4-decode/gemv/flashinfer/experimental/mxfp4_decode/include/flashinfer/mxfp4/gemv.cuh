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
#ifndef FLASHINFER_MXFP4_GEMV_CUH_
#define FLASHINFER_MXFP4_GEMV_CUH_

// A dense layer in MXFP4 for up to 16 BF16 tokens: a block for 16 or 32 rows of the weight, whose
// warps share the columns; for one token and many rows a block for each SM, whose warps
// have 16 rows each, then others. Codes and scales lie in rows, as in a checkpoint.

#include "flashinfer/mxfp4/row_products.cuh"
#include "flashinfer/mxfp4/weight_stream.cuh"

namespace flashinfer {
namespace mxfp4 {

constexpr int kGemvMaxTokens = 16;
constexpr int kGemvWarps = 16;  // at a time on an SM, which bounds each one's registers
constexpr int kWideGemvWarps = 16;  // as many as the registers for a token leave
constexpr int kFewestWideWarps = 4;

/// `columns` is a multiple of 32.
struct Gemv {
  uint16_t const* input;  // [tokens, columns], BF16
  uint8_t const* codes;   // [rows, columns / 2]
  uint8_t const* scales;  // [rows, columns / 32]
  uint16_t const* bias;   // [rows], BF16, or null
  uint16_t* output;       // [tokens, rows], BF16
  int tokens, rows, columns;
};

template <int kOctets, int kWarps>
struct GemvWork {
  Gemv const& gemv;
  int first_row, warp, lane;
  float* partial;     // [tokens, 8 kOctets] of this warp
  uint16_t bias = 0;  // of this thread's row, see row()

  __device__ int stages() const { return divide_up(gemv.columns, kStageBlocks * kBlockColumns); }
  __device__ int first() const { return warp; }
  __device__ int step() const { return kWarps; }
  __device__ int tokens() const { return gemv.tokens; }

  /// The row that a thread completes, for all of its tokens.
  __device__ int row() const { return first_row + threadIdx.x % (kOctets * kOctet); }

  __device__ void wait() {
    // Here, since at the end nothing else would be on its way.
    if (gemv.bias != nullptr && row() < gemv.rows) bias = load_half(gemv.bias + row());
    wait_for_predecessor();
  }

  __device__ Matrix matrix() const {
    return Matrix{gemv.codes, gemv.scales, gemv.columns / 2, gemv.columns / kBlockColumns};
  }
  __device__ int rows(int place) const {
    return first_row + place < gemv.rows ? first_row + place : -1;
  }
  __device__ uint16_t const* token(int place) const {
    return gemv.input + static_cast<int64_t>(place < gemv.tokens ? place : 0) * gemv.columns;
  }

  template <int kTokenTiles>
  __device__ void done(Sums<kOctets, kTokenTiles> const& sums) const {
#pragma unroll
    for (int octet = 0; octet < kOctets; ++octet)
#pragma unroll
      for (int tokens_of = 0; tokens_of < kTokenTiles; ++tokens_of)
#pragma unroll
        for (int second = 0; second < 2; ++second) {
          int const token = tokens_of * kTileTokens + lane % 4 * 2 + second;
          int const row = octet * kOctet + lane / 4;
          partial[token * kOctets * kOctet + row] =
              sums.of[octet / 2][tokens_of][octet % 2 * 2 + second];
        }
  }
};

template <int kOctets, int kTokenTiles, int kWarps>
constexpr int gemv_shared_bytes() {
  return kWarps * kTokenTiles * kTileTokens * kOctets * kOctet * static_cast<int>(sizeof(float));
}

template <int kOctets, int kTokenTiles, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp, kGemvWarps / kWarps) mxfp4_gemv_kernel(Gemv gemv) {
  constexpr int kRows = kOctets * kOctet;
  static_assert(kWarps * kWarp % kRows == 0, "see GemvWork::row()");
  constexpr int kPartial = kTokenTiles * kTileTokens * kRows;
  float* const partial = reinterpret_cast<float*>(dynamic_shared());
  int const warp = uniform(threadIdx.x / kWarp);
  int const lane = threadIdx.x % kWarp;
  int const first_row = blockIdx.x * kRows;

  release_successor();
  GemvWork<kOctets, kWarps> work{gemv, first_row, warp, lane, partial + warp * kPartial};
  stream<kOctets, kTokenTiles>(work, lane);
  sync_block();

  int const row = work.row();
  if (row >= gemv.rows) return;
  for (int index = threadIdx.x; index < gemv.tokens * kRows; index += kWarps * kWarp) {
    float sum = 0.0f;
    for (int other = 0; other < kWarps && other < work.stages(); ++other) {
      sum += partial[other * kPartial + index];
    }
    sum *= kUnscaled;
    if (gemv.bias != nullptr) sum += from_bf16(work.bias);
    gemv.output[static_cast<int64_t>(index / kRows) * gemv.rows + row] = to_bf16(sum);
  }
}

template <int kOctets, int kWarps>
cudaError_t gemv_rows(Gemv const& gemv, cudaStream_t stream, bool early) {
  dim3 const grid(divide_up(gemv.rows, kOctets * kOctet));
  return gemv.tokens <= kTileTokens
             ? launch(mxfp4_gemv_kernel<kOctets, 1, kWarps>, grid, kWarps * kWarp,
                      gemv_shared_bytes<kOctets, 1, kWarps>(), stream, early, gemv)
             : launch(mxfp4_gemv_kernel<kOctets, 2, kWarps>, grid, kWarps * kWarp,
                      gemv_shared_bytes<kOctets, 2, kWarps>(), stream, early, gemv);
}

// --- many rows, one token: row by row
// ---------------------------------------------------------------

/// The work of a warp: 16 rows and all their columns, then others.
struct WideGemvWork {
  static constexpr Order kOrder = Order::kPlain;
  static constexpr int kOctets = 2;
  static constexpr int kRows = kOctets * kOctet;
  static constexpr int kBuffers = 2;  // for scales of the rows that are multiplied, and the next
  Gemv const& gemv;
  uint8_t* scales_at;
  uint8_t* token_at;
  int warp, lane;
  bytes::RowProducts products;

  __device__ int blocks() const { return gemv.columns / kBlockColumns; }
  __device__ Piece first() const { return {static_cast<int>(warp * gridDim.x + blockIdx.x), 0}; }
  __device__ bool has(Piece piece) const { return piece.group < divide_up(gemv.rows, kRows); }
  __device__ Piece next(Piece piece) const {
    return {static_cast<int>(piece.group + blockDim.x / kWarp * gridDim.x), piece.part ^ 1};
  }
  __device__ Matrix matrix(Piece) const {
    return Matrix{gemv.codes, gemv.scales, gemv.columns / 2, blocks()};
  }
  __device__ int row(Piece piece, int octet) const { return piece.group * kRows + octet * kOctet; }
  __device__ Run halves(Piece) const { return kBothHalves; }
  __device__ int rows_there(Piece piece, int octet) const {
    int const left = gemv.rows - row(piece, octet);
    return left < 0 ? 0 : left < kOctet ? left : kOctet;
  }

  __device__ uint8_t* scales(Piece piece) const {
    return scales_at + piece.part * kRows * blocks();
  }
  /// Of 16 rows each begins at a multiple of 16 bytes. Zeros for rows that are not there.
  __device__ void open(Piece piece) const {
    int64_t const first = static_cast<int64_t>(piece.group) * kRows * blocks();
    int64_t const there = static_cast<int64_t>(gemv.rows) * blocks() - first;
    for (int at = lane * 16; at < kRows * blocks(); at += kWarp * 16) {
      int64_t const left = there - at;
      int const count = left >= 16 ? 16 : left > 0 ? static_cast<int>(left) : 0;
      copy_16(scales(piece) + at, gemv.scales + first + (count > 0 ? at : 0), count);
    }
  }

  __device__ void prepare() {
    wait_for_predecessor();
    bytes::TokenCopies const token(gemv.input, 1, blocks(), warp, lane);
    token.begin(token_at);
    wait_copies<0>();
    token.complete(token_at);
    sync_block();
    products.open(bytes::StagedSpan{token_at, 0, blocks(), lane});
  }

  template <typename Rows>
  __device__ void piece(Rows& rows, Piece piece) {
#pragma unroll 1
    for (int octet = 0; octet < kOctets; ++octet) {
      uint8_t const* const octet_scales = scales(piece) + octet * kOctet * blocks();
      int const row = this->row(piece, octet) + bytes::lane_row(lane);
      bool const mine = lane % 4 == 0 && row < gemv.rows;
      // Loaded here, since at the end nothing else would be on its way.
      float const bias = mine && gemv.bias != nullptr ? from_bf16(gemv.bias[row]) : 0.0f;
      float sum = 0.0f;
#pragma unroll 1
      for (int first = 0; first < blocks(); first += kSpanBlocks) {
        if (blocks() > kSpanBlocks) {
          products.open(bytes::StagedSpan{token_at, first, blocks(), lane});
        }
        rows.use_scales(octet_scales + first, blocks() - first);
        sum += products.times(rows);
      }
      if (mine) gemv.output[row] = to_bf16(bytes::checked(sum) + bias);
    }
  }
};

constexpr int kWideGemvRing = RowRing<false>::kBytes;

inline __host__ __device__ int wide_gemv_scales(Gemv const& gemv) {
  return WideGemvWork::kBuffers * WideGemvWork::kRows * (gemv.columns / kBlockColumns);
}

inline int wide_gemv_shared_bytes(Gemv const& gemv, int warps) {
  int const stages = divide_up(gemv.columns, kStageBlocks * kBlockColumns);
  return warps * (kWideGemvRing + wide_gemv_scales(gemv)) + bytes::token_bytes(stages);
}

/// As many warps of a block as have room.
inline int wide_gemv_warps(Gemv const& gemv, Processor const& processor) {
  int warps = kWideGemvWarps;
  while (warps > 0 && wide_gemv_shared_bytes(gemv, warps) > processor.shared_bytes) --warps;
  return warps;
}

__global__ void __launch_bounds__(kWideGemvWarps* kWarp, 1)
    mxfp4_wide_gemv_kernel(Gemv gemv, uint32_t one) {
  uint8_t* const rings = dynamic_shared();
  int const warps = blockDim.x / kWarp;
  uint8_t* const scales = rings + warps * kWideGemvRing;
  uint8_t* const token = scales + warps * wide_gemv_scales(gemv);
  int const warp = uniform(threadIdx.x / kWarp);
  int const lane = keep_number(static_cast<int>(threadIdx.x) % kWarp);

  release_successor();
  WideGemvWork work{gemv, scales + warp * wide_gemv_scales(gemv), token, warp, lane, {one, lane}};
  RowStream<WideGemvWork>(work, rings + warp * kWideGemvRing, lane).run();
}

/// Whether each warp has several pieces, and there is room for enough warps; and scales can be
/// copied by 16 bytes.
inline bool is_wide(Gemv const& gemv, Processor const& processor) {
  constexpr int kPieces = 2;
  return gemv.tokens == 1 && wide_gemv_warps(gemv, processor) >= kFewestWideWarps &&
         gemv.rows >= kPieces * WideGemvWork::kRows * kWideGemvWarps * processor.count &&
         reinterpret_cast<uintptr_t>(gemv.scales) % 16 == 0;
}

/// For one token and many rows a block for each SM, where there is room. Else
/// blocks of 16 rows where those of 32 would leave SMs without one, and of few warps where
/// there are many.
inline cudaError_t gemv(Gemv const& gemv, cudaStream_t stream, bool early,
                        Processor const& processor) {
  if (gemv.tokens < 1 || gemv.tokens > kGemvMaxTokens || gemv.rows < 1 || gemv.columns < 1 ||
      gemv.columns % kBlockColumns != 0) {
    return cudaErrorInvalidValue;
  }
  if (is_wide(gemv, processor)) {
    int const warps = wide_gemv_warps(gemv, processor);
    return launch(mxfp4_wide_gemv_kernel, dim3(processor.count), warps * kWarp,
                  wide_gemv_shared_bytes(gemv, warps), stream, early, gemv, 1u);
  }
  constexpr int kMany = 8;
  int const blocks = divide_up(gemv.rows, 2 * kTileRows);
  return blocks < processor.count           ? gemv_rows<2, 8>(gemv, stream, early)
         : blocks < kMany * processor.count ? gemv_rows<4, 8>(gemv, stream, early)
                                            : gemv_rows<4, 4>(gemv, stream, early);
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_GEMV_CUH_
