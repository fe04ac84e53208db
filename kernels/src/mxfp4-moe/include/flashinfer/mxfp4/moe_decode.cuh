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
#ifndef FLASHINFER_MXFP4_MOE_DECODE_CUH_
#define FLASHINFER_MXFP4_MOE_DECODE_CUH_

// A mixture of experts in MXFP4 for up to 16 BF16 tokens, in two launches:
//
//   up:   a block for each multiprocessor, for as long as there is work; teams of its warps take
//         32 columns of the intermediate and their gates of a group of entries, then others.
//         Bias, SwiGLU, and the 32 columns become fixed point. If shared memory is too small for
//         all tokens, they are taken part by part.
//   down: a block for 24 columns of the output and all experts; its warps share the weights of
//         these evenly. Bias, router weights, the sum over a token's choices.
//
// Both multiply bytes: entries that share an expert by matrix multiplications, then those alone row
// by row, see moe_rows.cuh. Experts are chosen by whoever calls, or by each block for itself from
// the router's logits, which costs less than a launch.
//
// The order of additions depends on the shape, the GPU, and which entries share an expert only. So
// the same batch gives the same bits; a token in another batch may get others. Weights lie as
// CUTLASS' MXFP8 x MXFP4 kernels read them: the rows of up before those of gate, scales tiled.

#include "flashinfer/mxfp4/moe_rows.cuh"

namespace flashinfer {
namespace mxfp4 {

constexpr int kUpStages = 7;  // of a ring, as many as have room where rows have it
constexpr int kDownStages = 3;
constexpr int kDownGroup = 4;  // entries of a group of the second launch, whose stages have tokens

/// The kernel's shape for up to `kMost` tokens: at most `kTogether` of their entries are multiplied
/// together. `kByParts`: shared memory has room for a part of the tokens at a time only.
template <int kMost, int kTogether, bool kByParts = false>
struct Shape {
  static constexpr int kTokens = kMost;
  static constexpr int kGroup = kTogether;
  static constexpr int kDown = kTogether < kDownGroup ? kTogether : kDownGroup;
  static constexpr bool kShared = kTogether > 1;  // may entries share an expert?
  static constexpr bool kInParts = kByParts;
};
using One = Shape<1, 1>;
using Few = Shape<4, 4>;
using Many = Shape<kMaxTokens, kMaxGroup>;
using InParts = Shape<kMaxTokens, kMaxGroup, true>;

/// The work of a team of warps of the first launch for entries that share an expert. Of a warp's
/// two octets of rows one is of up, one of gate.
template <int kMost>
struct UpShared {
  static constexpr int kOctets = 2;
  static constexpr int kStages = kUpStages;
  static constexpr bool kCopiesTokens = false;  // all are in shared memory
  using Stage = RingStage<kOctets, kStages>;
  UpWarp& up;
  UpTokens& tokens;
  bytes::Products<kMost, kOctets> products;
  int16_t up_bias = 0, gate_bias = 0;  // of this lane's column
  uint32_t numbers = 0;                // of the piece's tokens, four bits each
  int members = 0;                     // of the piece

  __device__ int stages() const { return divide_up(up.blocks(), kStageBlocks); }
  __device__ int first_stage(Piece) const { return 0; }
  __device__ int stage_step() const { return 1; }
  __device__ TiledScales scales() const { return up.scales(); }
  /// Dealt out from the last team on, as those of entries alone are from the first one on, so that
  /// who has one less of these has one more of those.
  __device__ Piece first() const { return up.at(0, up.teams() - 1 - up.number()); }
  __device__ bool has(Piece piece) const { return piece.group < up.groups.shared; }
  __device__ Piece next(Piece piece) const { return up.next(piece); }
  __device__ Matrix matrix(Piece piece) const { return up.matrix(piece); }
  __device__ int row(Piece piece, int place) const {
    return up.row(piece) + place % kOctet + (place < kOctet ? 0 : up.gate());
  }

  __device__ void prepare() { tokens.prepare<kUpStages - 1>(up.tokens_at); }

  __device__ void begin(Piece piece) {
    products.clear();
    members = uniform(up.routing.members[piece.group]);
    numbers = 0;
    for (int member = 0; member < members; ++member) {
      int const entry = up.routing.member[piece.group][member];
      numbers |= static_cast<uint32_t>(entry / up.moe.choices) << 4 * member;
    }
    up.load_biases(piece, up.lane / 4, up_bias, gate_bias);
  }

  __device__ void multiply(Piece, int stage, uint8_t const* here) {
    auto const token = [this, bytes = token_bytes(up.moe),
                        at = up.tokens_at + stage * bytes::kTokenStage](int member) {
      return at + (numbers >> 4 * member & 15u) * bytes;
    };
    products.template add<Stage>(here, token, members);
  }

  /// The four lanes of a column complete every fourth member each.
  __device__ void done(Piece piece) {
    float activated[kMost / 4];
#pragma unroll
    for (int four = 0; four < kMost / 4; ++four) {
      activated[four] =
          swiglu(up.moe, products.sum(four, 0) + from_bf16(static_cast<uint16_t>(up_bias)),
                 products.sum(four, 1) + from_bf16(static_cast<uint16_t>(gate_bias)));
    }
    up.store(piece, activated, up.lane / 4);
  }
};
static_assert(kMaxGroup * 4 <= 32 && kMaxTokens <= 16, "see UpShared::numbers");

/// Of a warp: first for stages, then for rows of entries alone.
using DownStage = RingStage<kDownOctets, kDownStages, kDownGroup * bytes::kStoredStage>;
inline constexpr int larger_of(int a, int b) { return a > b ? a : b; }
constexpr int kUpRing = larger_of(MoeRows::kBytes, RingStage<2, kUpStages>::kRing);
constexpr int kDownRing = larger_of(MoeRows::kBytes, DownStage::kRing);

/// All of a warp's stages; other lanes may use the ring for something else after.
template <typename Work>
__device__ __forceinline__ void run_stages(Work& work, uint8_t* ring, int lane) {
  WeightRing<Work>(work, ring, lane).run();
  wait_copies<0>();
  sync_warp();
}

/// The first launch for tokens that have room.
template <bool kChooses, typename Shape>
__device__ __forceinline__ void up_of(MoeDecode const& moe, UpPlan const& plan, uint32_t one) {
  Routing& routing = *reinterpret_cast<Routing*>(dynamic_shared());
  uint8_t* const rings = dynamic_shared() + kRoutingBytes;
  uint8_t* const tokens_at = rings + blockDim.x / kWarp * kUpRing;
  int const warp = uniform(threadIdx.x / kWarp);
  int const lane = keep_number(static_cast<int>(threadIdx.x) % kWarp);
  Exchange* const exchanges =
      reinterpret_cast<Exchange*>(tokens_at + moe.tokens * token_bytes(moe));
  Exchange& exchanged = exchanges[warp / kTeamWarps];

  int const id = asked_id<kChooses>(moe);
  UpTokens tokens{{moe.hidden_states, moe.tokens, moe.hidden / kBlockColumns, warp, lane}};
  tokens.copies.begin(tokens_at);
  Groups const groups = route<kChooses, Shape::kTokens, Shape::kGroup>(moe, routing, id);
  UpWarp up{moe, plan, routing, groups, tokens_at, exchanged, warp, lane};
  uint8_t* const ring = rings + warp * kUpRing;
  if constexpr (Shape::kShared) {
    using Work = UpShared<Shape::kGroup>;
    Work work{up, tokens, {one, lane}};
    if (work.has(work.first())) run_stages(work, ring, lane);
  }
  UpRows work{up, tokens, {one, lane}};
  RowStream<UpRows>(work, ring, lane).run();
}

/// So many tokens from the first one on, for the first launch.
__device__ __forceinline__ MoeDecode part_of(MoeDecode const& moe, int first, int tokens) {
  MoeDecode part = moe;
  part.tokens = tokens;
  part.hidden_states += static_cast<int64_t>(first) * moe.hidden;
  part.activated += first * moe.choices * moe.activated_bytes();
  if (moe.logits != nullptr) {
    part.logits = moe.logits_of(first);
    if (moe.padding != nullptr) part.padding = moe.padding + first;
  } else {
    part.ids = moe.ids + static_cast<int64_t>(first) * moe.choices;
  }
  return part;
}

template <bool kChooses, typename Shape>
__global__ void __launch_bounds__(kMoeWarps* kWarp, 1)
    mxfp4_moe_up_kernel(MoeDecode moe, UpPlan plan, uint32_t one) {
  wait_for_predecessor();
  release_successor();
  if constexpr (Shape::kInParts) {
#pragma unroll 1
    for (int first = 0; first < moe.tokens; first += plan.tokens) {
      if (first > 0) sync_block();  // until nobody reads the tokens before any more
      int const tokens = least(plan.tokens, moe.tokens - first);
      up_of<kChooses, Shape>(part_of(moe, first, tokens), plan, one);
    }
  } else {
    up_of<kChooses, Shape>(moe, plan, one);
  }
}

/// The work of a warp of the second launch for entries that share an expert: a part of the
/// columns of all rows of a group, then others.
template <bool kChooses, int kMost>
struct DownShared {
  static constexpr int kOctets = kDownOctets;
  static constexpr int kStages = kDownStages;
  static constexpr bool kCopiesTokens = true;
  using Stage = DownStage;
  DownWarp& down;
  bytes::Products<kMost, kOctets> products;

  __device__ TiledScales scales() const { return down.scales(); }
  __device__ int stages() const { return divide_up(down.blocks(), kStageBlocks); }
  __device__ int first_stage(Piece piece) const { return piece.part; }
  __device__ int stage_step() const { return down.plan.slices; }
  __device__ Piece at(int slice) const {
    return {slice / down.plan.slices, slice % down.plan.slices};
  }
  __device__ Piece first() const { return at(down.slices.begin); }
  __device__ bool has(Piece piece) const {
    return piece.group * down.plan.slices + piece.part < down.slices.end;
  }
  __device__ Piece next(Piece piece) const { return piece.on(0, 1, down.plan.slices); }
  __device__ int tokens(Piece piece) const { return down.routing.members[piece.group]; }
  __device__ Matrix matrix(Piece piece) const { return down.matrix(piece); }
  __device__ int row(Piece, int place) const { return down.row(place); }

  __device__ void prepare() { down.template prepare<kChooses>(); }

  __device__ void copy_tokens(Piece piece, int stage, uint8_t* to) const {
    constexpr int kCopies = bytes::kStoredStage / 16;  // for a token
    static_assert(kCopies * 16 == bytes::kStoredStage, "copied by 16 bytes");
    for (int copy = down.lane; copy < tokens(piece) * kCopies; copy += kWarp) {
      uint8_t const* const token = down.token(down.routing.member[piece.group][copy / kCopies]);
      copy_late_16(to + copy * 16, token + stage * bytes::kStoredStage + copy % kCopies * 16, 16);
    }
  }

  __device__ void begin(Piece) { products.clear(); }

  __device__ void multiply(Piece piece, int, uint8_t const* here) {
    auto const token = [here](int member) {
      return here + Stage::kTokens + member * bytes::kStoredStage;
    };
    products.template add<Stage>(here, token, tokens(piece));
  }

  __device__ void done(Piece piece) const {
#pragma unroll
    for (int four = 0; four < kMost / 4; ++four) {
      int const member = 4 * four + down.lane % 4;
      if (member >= tokens(piece)) break;
      int const entry = down.routing.member[piece.group][member];
      float* const to =
          down.partial + (piece.part * down.moe.entries() + entry) * kDownRows + down.lane / 4;
#pragma unroll
      for (int octet = 0; octet < kOctets; ++octet) to[octet * kOctet] = products.sum(four, octet);
    }
  }
};

/// Beside the rings.
inline int down_shared_bytes(int entries, int slices) {
  int const sums = slices * static_cast<int>(sizeof(float));
  return kRoutingBytes + entries * kDownRows * (sums + static_cast<int>(sizeof(uint16_t)));
}

template <bool kChooses, typename Shape>
__global__ void __launch_bounds__(kMoeWarps* kWarp, 1)
    mxfp4_moe_down_kernel(MoeDecode moe, DownPlan plan, uint32_t one) {
  Routing& routing = *reinterpret_cast<Routing*>(dynamic_shared());
  uint8_t* const rings = dynamic_shared() + kRoutingBytes;
  int const warps = blockDim.x / kWarp;
  float* const partial = reinterpret_cast<float*>(rings + warps * kDownRing);
  uint16_t* const biases =
      reinterpret_cast<uint16_t*>(partial + plan.slices * moe.entries() * kDownRows);
  int const warp = uniform(threadIdx.x / kWarp);
  int const lane = keep_number(static_cast<int>(threadIdx.x) % kWarp);

  // The input that experts are chosen by was complete before the first launch began.
  release_successor();
  Groups const groups =
      route<kChooses, Shape::kTokens, Shape::kDown>(moe, routing, asked_id<kChooses>(moe));
  int const tile = blockIdx.x;
  DownWarp down{moe, plan, routing, groups, tile, warps, warp, lane, partial, biases};
  down.share();
  uint8_t* const ring = rings + warp * kDownRing;
  if constexpr (Shape::kShared) {
    using Work = DownShared<kChooses, Shape::kDown>;
    Work work{down, {one, lane}};
    if (work.has(work.first())) run_stages(work, ring, lane);
  }
  DownRows<kChooses> work{down, {one, lane}};
  RowStream<DownRows<kChooses>>(work, ring, lane).run();
  sync_block();

  auto const row_of = [&down](int place) { return down.output_row(place); };
  add_up(moe, routing, partial, plan.slices, biases, kDownRows, row_of);
}

/// Parts of the columns of entries that share an expert, which make every warp of the second launch
/// busy, most of the time; where entries are many, their sums would take the room of rings.
inline int down_slices(MoeDecode const& moe) {
  int const stages = divide_up(moe.intermediate, kStageBlocks * kBlockColumns);
  int const wanted = moe.tokens == 1 || moe.entries() > 64 ? 1 : 3;
  return wanted < stages ? wanted : stages;
}

/// How many tokens have room in a block of the first launch, beside the fewest rings; at least one.
inline int most_tokens(MoeDecode const& moe, Processor const& processor) {
  constexpr int kBeside = kTeamWarps * kUpRing + sizeof(Exchange);
  int const room = (processor.shared_bytes - kRoutingBytes - kBeside) / token_bytes(moe);
  return room < 1 ? 1 : room;
}

template <typename Shape>
inline cudaError_t moe_decode_up_of(MoeDecode const& moe, int at_a_time, cudaStream_t stream,
                                    bool early, Processor const& processor) {
  constexpr int kTeam = kTeamWarps * kUpRing + sizeof(Exchange);
  constexpr int kTeams = kMoeWarps / kTeamWarps;
  int const beside = kRoutingBytes + at_a_time * token_bytes(moe);
  int teams = (processor.shared_bytes - beside) / kTeam;
  if (teams < 1) return cudaErrorInvalidValue;
  if (teams > kTeams) teams = kTeams;
  int const parts = moe.intermediate / kBlockColumns;
  int const on = teams * processor.count;
  UpPlan const plan{matrices_of(moe.up_codes, moe.up_scales, 2 * moe.stored_intermediate,
                                moe.stored_hidden, moe.hidden),
                    parts, on / parts, on % parts, at_a_time};
  auto const kernel =
      moe.logits ? mxfp4_moe_up_kernel<true, Shape> : mxfp4_moe_up_kernel<false, Shape>;
  return launch(kernel, dim3(processor.count), teams * kTeamWarps * kWarp, beside + teams * kTeam,
                stream, early, moe, plan, 1u);
}

inline cudaError_t moe_decode_up(MoeDecode const& moe, cudaStream_t stream, bool early,
                                 Processor const& processor) {
  int const at_a_time = least(moe.tokens, most_tokens(moe, processor));
  auto const up = at_a_time < moe.tokens       ? moe_decode_up_of<InParts>
                  : moe.tokens <= One::kTokens ? moe_decode_up_of<One>
                  : moe.tokens <= Few::kTokens ? moe_decode_up_of<Few>
                                               : moe_decode_up_of<Many>;
  return up(moe, at_a_time, stream, early, processor);
}

template <typename Shape>
inline cudaError_t moe_decode_down_of(MoeDecode const& moe, cudaStream_t stream, bool early,
                                      Processor const& processor) {
  int const slices = down_slices(moe);
  int const beside = down_shared_bytes(moe.entries(), slices);
  int warps = (processor.shared_bytes - beside) / kDownRing;
  if (warps < kFewestWarps) return cudaErrorInvalidValue;
  if (warps > kMoeWarps) warps = kMoeWarps;
  DownPlan const plan{matrices_of(moe.down_codes, moe.down_scales, moe.stored_hidden,
                                  moe.stored_intermediate, moe.intermediate),
                      slices};
  auto const kernel =
      moe.logits ? mxfp4_moe_down_kernel<true, Shape> : mxfp4_moe_down_kernel<false, Shape>;
  return launch(kernel, dim3(tiles_of(moe.hidden, kDownRows)), warps * kWarp,
                beside + warps * kDownRing, stream, early, moe, plan, 1u);
}

inline cudaError_t moe_decode_down(MoeDecode const& moe, cudaStream_t stream, bool early,
                                   Processor const& processor) {
  auto const down = moe.tokens <= One::kTokens   ? moe_decode_down_of<One>
                    : moe.tokens <= Few::kTokens ? moe_decode_down_of<Few>
                                                 : moe_decode_down_of<Many>;
  return down(moe, stream, early, processor);
}

/// Both launches; `early` lets each begin before the kernel before it has ended.
inline cudaError_t moe_decode(MoeDecode const& moe, cudaStream_t stream, bool early,
                              Processor const& processor) {
  if (moe.tokens < 1 || moe.tokens > kMaxTokens || moe.choices < 1 || moe.choices > kMaxChoices ||
      moe.hidden < 1 || moe.intermediate < 1 || moe.hidden % kBlockColumns != 0 ||
      moe.intermediate % kBlockColumns != 0) {
    return cudaErrorInvalidValue;
  }
  if (moe.logits != nullptr && (moe.routed < moe.choices || moe.routed > kMaxRouted)) {
    return cudaErrorInvalidValue;
  }
  cudaError_t const failed = moe_decode_up(moe, stream, early, processor);
  if (failed != cudaSuccess) return failed;
  return moe_decode_down(moe, stream, early, processor);
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_MOE_DECODE_CUH_
