// SPDX-License-Identifier: Apache-2.0
#ifndef FLASHINFER_MXFP4_BYTE_GEMV_CUH_
#define FLASHINFER_MXFP4_BYTE_GEMV_CUH_

// A dense layer in MXFP4 for a few BF16 tokens by products of bytes. Codes and scales lie in rows, as in a checkpoint.
//
//   split: a block for 16 or 32 rows of the weight, whose warps share the columns;
//   wide:  a block for each multiprocessor, whose warps take 16 rows and all columns, then others. For many rows.

#include "flashinfer/mxfp4/byte_products.cuh"

namespace flashinfer {
namespace mxfp4 {

// What may be chosen when the kernels are compiled.
#ifndef PROTOTYPE_SPLIT_WARPS
#define PROTOTYPE_SPLIT_WARPS 8
#endif
#ifndef PROTOTYPE_SPLIT_BLOCKS
#define PROTOTYPE_SPLIT_BLOCKS 2  // at a time on a multiprocessor: so many registers may each have
#endif
#ifndef PROTOTYPE_SPLIT_OCTETS
#define PROTOTYPE_SPLIT_OCTETS 0  // 2 or 4, or by the number of rows
#endif
#ifndef PROTOTYPE_WIDE_WARPS
#define PROTOTYPE_WIDE_WARPS 16
#endif

constexpr int kGemvMaxTokens = kGroup;
constexpr int kSplitWarps = PROTOTYPE_SPLIT_WARPS;
constexpr int kWideWarps = PROTOTYPE_WIDE_WARPS;
constexpr int kWideOctets = 2;
constexpr int kWideRows = kWideOctets * kOctet;
static_assert(kSplitWarps >= 1 && kSplitWarps <= 32 && kWideWarps >= 1 && kWideWarps <= 32, "warps of a block");
constexpr int kWideBuffers = 2;  // for the scales of the rows that are multiplied, and of the next ones

/// `columns` is a multiple of 32.
struct Gemv {
  uint16_t const* input;  // [tokens, columns], BF16
  uint8_t const* codes;   // [rows, columns / 2]
  uint8_t const* scales;  // [rows, columns / 32]
  uint16_t const* bias;   // [rows], BF16, or null
  uint16_t* output;       // [tokens, rows], BF16
  int tokens, rows, columns;

  __device__ __forceinline__ void write(int token, int row, float sum) const {
    if (bias != nullptr) sum += from_bf16(bias[row]);
    output[static_cast<int64_t>(token) * rows + row] = to_bf16(sum);
  }
};

/// Begins to copy the scales of rows that are neighbours, by so many threads; zeros for rows that are not there. Of 16 rows each begins
/// at a multiple of 16 bytes.
__device__ __forceinline__ void fetch_scale_rows(Gemv const& gemv, int blocks, int first, int rows, uint8_t* to, int thread, int threads) {
  int64_t const from = static_cast<int64_t>(first) * blocks;
  int64_t const there = static_cast<int64_t>(gemv.rows) * blocks - from;
  for (int at = thread * 16; at < rows * blocks; at += threads * 16) {
    int64_t const left = there - at;
    copy_16(to + at, gemv.scales + from + (left > 0 ? at : 0), left >= 16 ? 16 : left > 0 ? static_cast<int>(left) : 0);
  }
}

/// What both kernels have in common.
struct GemvWork {
  static constexpr bool kTiled = false;
  Gemv const& gemv;
  Codes const& plan;
  uint8_t* scales_at;
  uint8_t* tokens_at;
  int warp, lane;

  __device__ __forceinline__ Codes const& codes() const { return plan; }
  __device__ __forceinline__ int matrix(Piece) const { return 0; }
  __device__ __forceinline__ int tokens(Piece) const { return gemv.tokens; }
  __device__ __forceinline__ auto token(Piece) const {
    return [at = tokens_at, bytes = token_bytes(plan.stages)](int token) { return at + token * bytes; };
  }
  __device__ __forceinline__ int row_or_another(int row) const { return row < gemv.rows ? row : 0; }
  __device__ __forceinline__ void begin(Piece) const {}
  __device__ __forceinline__ void end() const {}

  __device__ __forceinline__ void prepare() const {
    wait_for_predecessor();
    auto const row = [this](int token) { return gemv.input + static_cast<int64_t>(token) * gemv.columns; };
    stage_tokens(row, gemv.tokens, plan.blocks, plan.stages, tokens_at, warp, lane);
    sync_block();
  }
};

// --- split -----------------------------------------------------------------------------------------------------------------------

template <int kOctets>
struct SplitWork : GemvWork {
  int first_row;
  float* partial;  // [tokens, rows] of this warp

  __device__ __forceinline__ Piece first() const { return {warp < plan.stages ? 0 : 1, 0}; }
  __device__ __forceinline__ bool has(Piece piece) const { return piece.group == 0; }
  __device__ __forceinline__ Piece next(Piece) const { return {1, 0}; }
  __device__ __forceinline__ int row(Piece, int place) const { return row_or_another(first_row + place); }
  __device__ __forceinline__ int first_stage(Piece) const { return warp; }
  __device__ __forceinline__ int stage_step() const { return kSplitWarps; }
  __device__ __forceinline__ void fetch_scales(Piece) const {}
  __device__ __forceinline__ uint8_t const* scales(Piece) const { return scales_at; }

  /// Scales are copied by all warps for all, in each thread's first group, which is there before the first of its stages is.
  __device__ __forceinline__ void prepare() const {
    wait_copies<kStages - 2>();
    GemvWork::prepare();
  }

  __device__ __forceinline__ void done(Piece, Sums<kOctets> const& sums) const {
#pragma unroll
    for (int token = 0; token < kGroup; ++token) {
      if (token >= gemv.tokens) break;
#pragma unroll
      for (int octet = 0; octet < kOctets; ++octet) {
        if (lane % 4 == octet) partial[(token * kOctets + octet) * kOctet + lane / 4] = sums.of[token][octet];
      }
    }
  }
};

template <int kOctets>
__global__ void __launch_bounds__(kSplitWarps* kWarp, PROTOTYPE_SPLIT_BLOCKS) byte_split_kernel(Gemv gemv, Codes plan, uint32_t one) {
  constexpr int kRows = kOctets * kOctet;
  uint8_t* const rings = dynamic_shared();
  int const warp = uniform(threadIdx.x / kWarp);
  int const lane = keep_number(static_cast<int>(threadIdx.x) % kWarp);
  int const first_row = blockIdx.x * kRows;
  int const ring = ring_bytes<kOctets, false>();
  float* const partial = reinterpret_cast<float*>(rings + kSplitWarps * ring);
  uint8_t* const tokens = reinterpret_cast<uint8_t*>(partial + kSplitWarps * gemv.tokens * kRows);
  uint8_t* const scales = tokens + gemv.tokens * token_bytes(plan.stages);

  release_successor();
  fetch_scale_rows(gemv, plan.blocks, first_row, kRows, scales, threadIdx.x, kSplitWarps * kWarp);
  SplitWork<kOctets> work{{gemv, plan, scales, tokens, warp, lane}, first_row, partial + warp * gemv.tokens * kRows};
  Stream<kOctets, SplitWork<kOctets>>(work, rings + warp * ring, lane).run(one);
  sync_block();
  int const warps = plan.stages < kSplitWarps ? plan.stages : kSplitWarps;
  for (int index = threadIdx.x; index < gemv.tokens * kRows; index += kSplitWarps * kWarp) {
    int const row = first_row + index % kRows;
    if (row >= gemv.rows) continue;
    float sum = 0.0f;
    for (int other = 0; other < warps; ++other) sum += partial[other * gemv.tokens * kRows + index];
    gemv.write(index / kRows, row, sum);
  }
}

template <int kOctets>
inline int split_bytes(Gemv const& gemv, Codes const& plan) {
  constexpr int kRows = kOctets * kOctet;
  return kSplitWarps * (ring_bytes<kOctets, false>() + gemv.tokens * kRows * static_cast<int>(sizeof(float))) +
         gemv.tokens * token_bytes(plan.stages) + kRows * plan.blocks;
}

template <int kOctets>
inline cudaError_t gemv_split(Gemv const& gemv, Codes const& plan, cudaStream_t stream, bool early) {
  dim3 const grid(divide_up(gemv.rows, kOctets * kOctet));
  return launch(byte_split_kernel<kOctets>, grid, kSplitWarps * kWarp, split_bytes<kOctets>(gemv, plan), stream, early, gemv, plan, 1u);
}

// --- wide ------------------------------------------------------------------------------------------------------------------------

struct WideWork : GemvWork {
  int pieces;

  __device__ __forceinline__ Piece first() const { return {static_cast<int>(warp * gridDim.x + blockIdx.x), 0}; }
  __device__ __forceinline__ bool has(Piece piece) const { return piece.group < pieces; }
  __device__ __forceinline__ Piece next(Piece piece) const {
    return {static_cast<int>(piece.group + kWideWarps * gridDim.x), piece.part ^ 1};
  }
  __device__ __forceinline__ int row(Piece piece, int place) const { return row_or_another(piece.group * kWideRows + place); }
  __device__ __forceinline__ int first_stage(Piece) const { return 0; }
  __device__ __forceinline__ int stage_step() const { return 1; }
  __device__ __forceinline__ uint8_t* scales(Piece piece) const { return scales_at + piece.part * kWideRows * plan.blocks; }
  __device__ __forceinline__ void fetch_scales(Piece piece) const {
    fetch_scale_rows(gemv, plan.blocks, piece.group * kWideRows, kWideRows, scales(piece), lane, kWarp);
  }

  __device__ __forceinline__ void done(Piece piece, Sums<kWideOctets> const& sums) const {
#pragma unroll
    for (int token = 0; token < kGroup; ++token) {
      if (token >= gemv.tokens) break;
#pragma unroll
      for (int octet = 0; octet < kWideOctets; ++octet) {
        int const row = piece.group * kWideRows + octet * kOctet + lane / 4;
        if (lane % 4 == octet && row < gemv.rows) gemv.write(token, row, sums.of[token][octet]);
      }
    }
  }
};

__global__ void __launch_bounds__(kWideWarps* kWarp, 1) byte_wide_kernel(Gemv gemv, Codes plan, uint32_t one) {
  uint8_t* const rings = dynamic_shared();
  int const warp = uniform(threadIdx.x / kWarp);
  int const lane = keep_number(static_cast<int>(threadIdx.x) % kWarp);
  int const ring = ring_bytes<kWideOctets, false>();
  int const scale_bytes = kWideBuffers * kWideRows * plan.blocks;
  uint8_t* const scales = rings + kWideWarps * ring;
  uint8_t* const tokens = scales + kWideWarps * scale_bytes;

  release_successor();
  WideWork work{{gemv, plan, scales + warp * scale_bytes, tokens, warp, lane}, divide_up(gemv.rows, kWideRows)};
  Stream<kWideOctets, WideWork>(work, rings + warp * ring, lane).run(one);
}

inline int wide_bytes(Gemv const& gemv, Codes const& plan) {
  return kWideWarps * (ring_bytes<kWideOctets, false>() + kWideBuffers * kWideRows * plan.blocks) + gemv.tokens * token_bytes(plan.stages);
}

// --- launches --------------------------------------------------------------------------------------------------------------------

/// Wide where each warp has several rows and there is room, and a warp is never two pieces ahead; else split, into blocks of 16 rows where
/// those of 32 would leave processors of the GPU without one, or have no room.
inline cudaError_t gemv(Gemv const& gemv, cudaStream_t stream, bool early, int processors, int shared_bytes) {
  if (gemv.tokens < 1 || gemv.tokens > kGemvMaxTokens || gemv.rows < 1 || gemv.columns < 1 || gemv.columns % kBlockColumns != 0) {
    return cudaErrorInvalidValue;
  }
  constexpr int kMany = 2;  // pieces of a warp
  Codes const plan = Codes::of(gemv.codes, gemv.rows, gemv.columns, gemv.columns);
  bool const many = gemv.rows >= kMany * kWideRows * kWideWarps * processors;
  if (many && plan.stages >= kStages && wide_bytes(gemv, plan) <= shared_bytes) {
    return launch(byte_wide_kernel, dim3(processors), kWideWarps * kWarp, wide_bytes(gemv, plan), stream, early, gemv, plan, 1u);
  }
  bool const few = PROTOTYPE_SPLIT_OCTETS ? PROTOTYPE_SPLIT_OCTETS == 2 : divide_up(gemv.rows, 4 * kOctet) < processors;
  if (!few && split_bytes<4>(gemv, plan) <= shared_bytes) return gemv_split<4>(gemv, plan, stream, early);
  return split_bytes<2>(gemv, plan) <= shared_bytes ? gemv_split<2>(gemv, plan, stream, early) : cudaErrorInvalidValue;
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_BYTE_GEMV_CUH_
