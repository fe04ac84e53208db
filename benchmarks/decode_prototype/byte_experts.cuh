// SPDX-License-Identifier: Apache-2.0
#ifndef FLASHINFER_MXFP4_BYTE_EXPERTS_CUH_
#define FLASHINFER_MXFP4_BYTE_EXPERTS_CUH_

// A mixture of experts in MXFP4 for up to 16 BF16 tokens by products of bytes, in two launches:
//
//   up:   a block for each multiprocessor, for as long as there is work; its warps take 8 columns of the intermediate and their gates of
//         a group of entries, then others. Both products, bias, SwiGLU, BF16.
//   down: a block for 24 columns of the output and all experts; its warps take groups, or parts of their columns, in turn. Bias,
//         router weights, the sum over a token's choices.
//
// Who adds what to what is fixed by the shape alone, so that the same input gives the same bits.

#include "flashinfer/mxfp4/byte_products.cuh"
#include "flashinfer/mxfp4/choose.cuh"

namespace flashinfer {
namespace mxfp4 {

// What may be chosen when the kernels are compiled.
#ifndef PROTOTYPE_WARPS
#define PROTOTYPE_WARPS 16
#endif
#ifndef PROTOTYPE_BLOCKS
#define PROTOTYPE_BLOCKS 1  // of two launches that are on a multiprocessor together: so many registers may each have
#endif
#ifndef PROTOTYPE_DOWN_OCTETS
#define PROTOTYPE_DOWN_OCTETS 3
#endif
#ifndef PROTOTYPE_UP_SHARED
#define PROTOTYPE_UP_SHARED 0  // bytes that a block of up asks for, at least
#endif

constexpr int kMaxTokens = 16;
constexpr int kMaxChoices = 8;
constexpr int kMaxEntries = kMaxTokens * kMaxChoices;  // an entry is one choice of one token
constexpr int kNobody = -1;
constexpr int kMostWarps = PROTOTYPE_WARPS;
constexpr int kFewestWarps = 4;
constexpr int kUpOctets = 2;  // of up and of gate
constexpr int kDownOctets = PROTOTYPE_DOWN_OCTETS;
constexpr int kDownRows = kDownOctets * kOctet;
static_assert(kFewestWarps * kWarp >= kMaxEntries, "see route()");
static_assert(kMostWarps >= kFewestWarps && kMostWarps <= 32, "warps of a block");

/// `hidden` and `intermediate` are multiples of 32; the matrices may be wider ("stored"): the rest of
/// them is not read. An infinite limit is none.
struct MoeDecode {
  uint16_t const* hidden_states;  // [tokens, hidden], BF16
  uint8_t const* up_codes;        // [experts, 2 stored_intermediate, stored_hidden / 2]
  uint8_t const* up_scales;       // tiled, each expert's rows to a multiple of 128, blocks of 4
  uint16_t const* up_bias;        // [experts, 2 stored_intermediate], BF16, or null
  uint8_t const* down_codes;      // [experts, stored_hidden, stored_intermediate / 2]
  uint8_t const* down_scales;
  uint16_t const* down_bias;    // [experts, stored_hidden], BF16, or null
  int16_t const* logits;        // [tokens, routed], BF16, or null: then there are
  int32_t const* ids;           // [tokens, choices]
  float const* router_weights;  // [tokens, choices]
  int32_t const* expert_map;    // [mapped], an id's expert here, negative where it is elsewhere; or null
  uint16_t* activated;          // [tokens choices, intermediate], BF16, from one launch to the other
  uint16_t* output;             // [tokens, hidden], BF16
  int routed, mapped, tokens, choices, experts;
  int hidden, intermediate, stored_hidden, stored_intermediate;
  float alpha, beta, limit;

  __host__ __device__ int entries() const { return tokens * choices; }
};

/// Row `place` of a tile of so many rows: of each chunk four whose scales are neighbours.
__device__ __forceinline__ int tile_row(int tile, int rows, int place) {
  int const chunk = tile * (rows / 4) + place / 4;
  return chunk / 32 * 128 + place % 4 * 32 + chunk % 32;
}

inline int tiles_of(int all, int rows) { return divide_up(divide_up(all, 128) * 32, rows / 4); }

inline __host__ __device__ int aligned(int bytes) { return divide_up(bytes, 16) * 16; }

/// The expert here that an id means.
__device__ __forceinline__ int expert_of(MoeDecode const& moe, int id) {
  int expert = id;
  if (moe.expert_map != nullptr) {
    expert = id >= 0 && id < moe.mapped ? static_cast<int>(load_word(moe.expert_map + id)) : kNobody;
  }
  return expert >= 0 && expert < moe.experts ? expert : kNobody;
}

/// Entries by their experts: in order, those of an expert one after the other. As many of these as are multiplied together are a group.
struct Routing {
  int32_t expert[kMaxEntries];      // of an entry, or kNobody
  float logit[kMaxEntries];         // of an entry that is chosen here
  float weight[kMaxEntries];        // and its softmax
  uint8_t position[kMaxEntries];    // of an entry in the order
  uint8_t entry[kMaxEntries];       // in order
  uint8_t first[kMaxEntries + 1];   // of a group, in order; and the end
  uint8_t leads[kMaxEntries];       // in order: is it the first of its group?
  int32_t groups;

  __device__ __forceinline__ int members(int group) const { return first[group + 1] - first[group]; }
  __device__ __forceinline__ int expert_of(int group) const { return expert[entry[first[group]]]; }
};

/// An entry's expert by the ids, or by the logits, by all threads of a block.
template <bool kChooses>
__device__ __forceinline__ void find_experts(MoeDecode const& moe, Routing& routing, int warp, int lane) {
  int const entry = threadIdx.x;
  if constexpr (!kChooses) {
    if (entry < moe.entries()) routing.expert[entry] = expert_of(moe, static_cast<int>(load_word(moe.ids + entry)));
  } else {
    for (int token = warp; token < moe.tokens; token += blockDim.x / kWarp) {
      int const rank = choose(moe.logits + static_cast<int64_t>(token) * moe.routed, moe.routed, moe.choices, lane, false);
      if (lane >= moe.choices) continue;
      routing.expert[token * moe.choices + lane] = expert_of(moe, ranked_expert(rank));
      routing.logit[token * moe.choices + lane] = ranked_logit(rank);
    }
  }
}

/// Orders entries, by all threads of a block.
template <bool kChooses>
__device__ __forceinline__ void route(MoeDecode const& moe, Routing& routing, int warp, int lane) {
  find_experts<kChooses>(moe, routing, warp, lane);
  sync_block();
  int const entry = threadIdx.x;
  int const expert = entry < moe.entries() ? routing.expert[entry] : kNobody;
  int position = 0;
  int rank = 0;  // among those of its expert
  int all = 0;
  for (int other = 0; other < moe.entries(); ++other) {
    int const theirs = routing.expert[other];
    rank += theirs == expert && other < entry;
    position += theirs != kNobody && theirs < expert;
    all += theirs != kNobody;
  }
  position += rank;
  bool const leads = rank % kGroup == 0;
  if (expert != kNobody) {
    routing.position[entry] = static_cast<uint8_t>(position);
    routing.entry[position] = static_cast<uint8_t>(entry);
    routing.leads[position] = leads;
  }
  sync_block();
  if (expert != kNobody && leads) {
    int group = 0;
    for (int before = 0; before < position; ++before) group += routing.leads[before];
    routing.first[group] = static_cast<uint8_t>(position);
  }
  if (threadIdx.x == 0) {
    int groups = 0;
    for (int before = 0; before < all; ++before) groups += routing.leads[before];
    routing.first[groups] = static_cast<uint8_t>(all);
    routing.groups = groups;
  }
  sync_block();
}

// --- up --------------------------------------------------------------------------------------------------------------------------

/// What the host finds out for a launch.
struct UpPlan {
  Codes codes;
  TiledScales scales;
  int tiles;             // of 8 columns of the intermediate
  int groups_on, tiles_on;  // from a warp's piece to its next one
};

/// What a warp of the first launch has to do. Of its two octets of rows one is of up, one of gate.
struct UpWork {
  static constexpr bool kTiled = true;
  MoeDecode const& moe;
  UpPlan const& plan;
  Routing const& routing;
  uint8_t* tokens_at;
  int warp, lane;
  uint32_t biases = 0;  // of this lane's column, up's and gate's

  __device__ __forceinline__ Codes const& codes() const { return plan.codes; }
  __device__ __forceinline__ TiledScales const& scales() const { return plan.scales; }
  __device__ __forceinline__ Piece first() const {
    int const number = warp * gridDim.x + blockIdx.x;
    return {number / plan.tiles, number % plan.tiles};
  }
  __device__ __forceinline__ bool has(Piece piece) const { return piece.group < routing.groups; }
  __device__ __forceinline__ Piece next(Piece piece) const { return piece.on(plan.groups_on, plan.tiles_on, plan.tiles); }
  __device__ __forceinline__ int matrix(Piece piece) const { return routing.expert_of(piece.group); }
  __device__ __forceinline__ int row(Piece piece, int place) const {
    int const column = tile_row(piece.part, kOctet, place % kOctet);
    if (column >= moe.intermediate) return 0;  // another is read in its place
    return place < kOctet ? column : column + moe.stored_intermediate;
  }
  __device__ __forceinline__ int first_stage(Piece) const { return 0; }
  __device__ __forceinline__ int stage_step() const { return 1; }

  __device__ __forceinline__ void prepare() const {
    auto const row = [this](int token) { return moe.hidden_states + static_cast<int64_t>(token) * moe.hidden; };
    stage_tokens(row, moe.tokens, plan.codes.blocks, plan.codes.stages, tokens_at, warp, lane);
    sync_block();
  }

  __device__ __forceinline__ void begin(Piece piece) {
    biases = 0;
    int const column = row(piece, lane / 4);
    if (moe.up_bias == nullptr) return;
    uint16_t const* const bias = moe.up_bias + static_cast<int64_t>(matrix(piece)) * 2 * moe.stored_intermediate + column;
    biases = bias[0] | static_cast<uint32_t>(bias[moe.stored_intermediate]) << 16;
  }
  __device__ __forceinline__ int tokens(Piece piece) const { return uniform(routing.members(piece.group)); }
  __device__ __forceinline__ auto token(Piece piece) const {
    uint32_t numbers = 0;  // four bits each
    for (int member = 0; member < routing.members(piece.group); ++member) {
      numbers |= static_cast<uint32_t>(routing.entry[routing.first[piece.group] + member] / moe.choices) << 4 * member;
    }
    return [at = tokens_at, numbers, bytes = token_bytes(plan.codes.stages)](int member) {
      return at + (numbers >> 4 * member & 15u) * bytes;
    };
  }

  __device__ __forceinline__ void done(Piece piece, Sums<kUpOctets> const& sums) const {
    int const column = tile_row(piece.part, kOctet, lane / 4);
    if (column >= moe.intermediate) return;
#pragma unroll
    for (int member = 0; member < kGroup; ++member) {
      if (member >= routing.members(piece.group)) break;
      if (lane % 4 != member % 4) continue;
      float const up = sums.of[member][0] + from_bf16(static_cast<uint16_t>(biases));
      float const gate = sums.of[member][1] + from_bf16(static_cast<uint16_t>(biases >> 16));
      int64_t const position = routing.first[piece.group] + member;
      moe.activated[position * moe.intermediate + column] = to_bf16(swiglu(up, gate));
    }
  }
  __device__ __forceinline__ void end() const {}

  __device__ __forceinline__ float swiglu(float up, float gate) const {
    // By comparisons: fminf() would make the limit of a NaN.
    gate = gate > moe.limit ? moe.limit : gate;
    up = up > moe.limit ? moe.limit : up < -moe.limit ? -moe.limit : up;
    return (up + moe.beta) * (gate / (1.0f + expf(-moe.alpha * gate)));
  }
};

// Where rings begin after it. A copy of 16 bytes for each lane takes each sector of 32 from the second cache once if it lies in shared
// memory as it lies in global memory, and twice if a sector is torn there.
constexpr int kRoutingBytes = (static_cast<int>(sizeof(Routing)) + 127) / 128 * 128;

template <bool kChooses>
__global__ void __launch_bounds__(kMostWarps* kWarp, PROTOTYPE_BLOCKS) byte_up_kernel(MoeDecode moe, UpPlan plan, uint32_t one) {
  uint8_t* const shared = dynamic_shared();
  Routing& routing = *reinterpret_cast<Routing*>(shared);
  int const warp = uniform(threadIdx.x / kWarp);
  int const lane = keep_number(static_cast<int>(threadIdx.x) % kWarp);

  wait_for_predecessor();
  release_successor();
  route<kChooses>(moe, routing, warp, lane);
  int const ring = ring_bytes<kUpOctets, true>();
  uint8_t* const rings = shared + kRoutingBytes;
  UpWork work{moe, plan, routing, rings + blockDim.x / kWarp * ring, warp, lane};
  Stream<kUpOctets, UpWork>(work, rings + warp * ring, lane).run(one);
}

// --- down ------------------------------------------------------------------------------------------------------------------------

struct DownPlan {
  Codes codes;
  TiledScales scales;
  int slices;               // parts of the columns, which different warps take
  int room;                 // for entries in shared memory
  int groups_on, slices_on;  // from a warp's piece to its next one
};

/// What a warp of the second launch has to do. Entries that have room for their tokens come in rounds.
template <bool kChooses>
struct DownWork {
  static constexpr bool kTiled = true;
  MoeDecode const& moe;
  DownPlan const& plan;
  Routing& routing;
  float* partial;  // [slices, entries in order, kDownRows]
  uint8_t* tokens_at;
  int tile, warp, lane;
  int round_first = 0;  // entry, in order
  int round_end = 0;    // group

  __device__ __forceinline__ Codes const& codes() const { return plan.codes; }
  __device__ __forceinline__ TiledScales const& scales() const { return plan.scales; }
  __device__ __forceinline__ Piece first() const { return {warp / plan.slices, warp % plan.slices}; }
  __device__ __forceinline__ bool has(Piece piece) const { return piece.group < routing.groups; }
  __device__ __forceinline__ Piece next(Piece piece) const { return piece.on(plan.groups_on, plan.slices_on, plan.slices); }
  __device__ __forceinline__ int matrix(Piece piece) const { return routing.expert_of(piece.group); }
  __device__ __forceinline__ int output_row(int place) const {
    int const row = tile_row(tile, kDownRows, place);
    return row < moe.hidden ? row : kNobody;
  }
  __device__ __forceinline__ int row(Piece, int place) const {
    int const row = output_row(place);
    return row == kNobody ? 0 : row;  // another is read in its place
  }
  __device__ __forceinline__ int first_stage(Piece piece) const { return piece.part; }
  __device__ __forceinline__ int stage_step() const { return plan.slices; }

  __device__ __forceinline__ void prepare() {
    if (kChooses && threadIdx.x < moe.entries()) weigh(threadIdx.x);
    wait_for_predecessor();
    if (routing.groups > 0) next_round();
  }

  /// Brings in the tokens of the next groups, as many as have room, by all threads of a block.
  __device__ __forceinline__ void next_round() {
    if (round_end != 0) sync_block();
    round_first = routing.first[round_end];
    while (round_end < routing.groups && routing.first[round_end + 1] - round_first <= plan.room) ++round_end;
    auto const row = [this](int token) { return moe.activated + static_cast<int64_t>(round_first + token) * moe.intermediate; };
    stage_tokens(row, routing.first[round_end] - round_first, plan.codes.blocks, plan.codes.stages, tokens_at, warp, lane);
    sync_block();
  }
  __device__ __forceinline__ void begin(Piece piece) {
    while (piece.group >= round_end) next_round();
  }
  __device__ __forceinline__ void end() {
    while (round_end < routing.groups) next_round();
  }
  __device__ __forceinline__ int tokens(Piece piece) const { return uniform(routing.members(piece.group)); }
  __device__ __forceinline__ auto token(Piece piece) const {
    int const bytes = token_bytes(plan.codes.stages);
    return [at = tokens_at + (routing.first[piece.group] - round_first) * bytes, bytes](int member) { return at + member * bytes; };
  }

  __device__ __forceinline__ void done(Piece piece, Sums<kDownOctets> const& sums) const {
#pragma unroll
    for (int member = 0; member < kGroup; ++member) {
      if (member >= routing.members(piece.group)) break;
      float* const to = partial + (piece.part * moe.entries() + routing.first[piece.group] + member) * kDownRows;
#pragma unroll
      for (int octet = 0; octet < kDownOctets; ++octet) {
        if (lane % 4 == octet) to[octet * kOctet + lane / 4] = sums.of[member][octet];
      }
    }
  }

  /// The share of an entry that is chosen here: while others wait for weights, since it takes a while.
  __device__ __forceinline__ void weigh(int entry) const {
    float const* const logits = routing.logit + entry / moe.choices * moe.choices;
    float sum = 0.0f;
#pragma unroll 1
    for (int choice = 0; choice < moe.choices; ++choice) sum += expf(logits[choice] - logits[0]);
    routing.weight[entry] = expf(routing.logit[entry] - logits[0]) / sum;
  }

  /// The output of a token in a row: its choices in their order.
  __device__ __forceinline__ float output(int token, int place, int row) const {
    float sum = 0.0f;
    for (int choice = 0; choice < moe.choices; ++choice) {
      int const entry = token * moe.choices + choice;
      int64_t const expert = routing.expert[entry];
      if (expert == kNobody) continue;
      float product = 0.0f;
      for (int slice = 0; slice < plan.slices; ++slice) {
        product += partial[(slice * moe.entries() + routing.position[entry]) * kDownRows + place];
      }
      if (moe.down_bias != nullptr) product += from_bf16(moe.down_bias[expert * moe.stored_hidden + row]);
      sum += (kChooses ? routing.weight[entry] : moe.router_weights[entry]) * product;
    }
    return sum;
  }
};
static_assert(kDownOctets <= 4, "see DownWork::done()");

inline __host__ __device__ int partial_bytes(int entries, int slices) {
  return aligned(slices * entries * kDownRows * static_cast<int>(sizeof(float)));
}

template <bool kChooses>
__global__ void __launch_bounds__(kMostWarps* kWarp, PROTOTYPE_BLOCKS) byte_down_kernel(MoeDecode moe, DownPlan plan, uint32_t one) {
  uint8_t* const shared = dynamic_shared();
  Routing& routing = *reinterpret_cast<Routing*>(shared);
  int const warp = uniform(threadIdx.x / kWarp);
  int const lane = keep_number(static_cast<int>(threadIdx.x) % kWarp);

  // What experts are chosen by is older than the first launch, which began only when it was there.
  release_successor();
  route<kChooses>(moe, routing, warp, lane);
  int const ring = ring_bytes<kDownOctets, true>();
  uint8_t* const rings = shared + kRoutingBytes;
  uint8_t* const partial = rings + blockDim.x / kWarp * ring;
  uint8_t* const tokens = partial + partial_bytes(moe.entries(), plan.slices);
  DownWork<kChooses> work{moe, plan, routing, reinterpret_cast<float*>(partial), tokens, static_cast<int>(blockIdx.x), warp, lane};
  Stream<kDownOctets, DownWork<kChooses>>(work, rings + warp * ring, lane).run(one);
  sync_block();
  for (int index = threadIdx.x; index < moe.tokens * kDownRows; index += blockDim.x) {
    int const token = index / kDownRows;
    int const row = work.output_row(index % kDownRows);
    if (row == kNobody) continue;
    moe.output[static_cast<int64_t>(token) * moe.hidden + row] = to_bf16(work.output(token, index % kDownRows, row));
  }
}

// --- launches --------------------------------------------------------------------------------------------------------------------

/// What launches are fitted to.
struct Processor {
  int count;         // multiprocessors
  int shared_bytes;  // that a block may have
};

/// As many warps as leave room for so much beside their rings, or none where even the fewest do not.
inline int warps_beside(int bytes, int ring, Processor const& processor) {
  int warps = kMostWarps;
  while (warps >= kFewestWarps && kRoutingBytes + warps * ring + bytes > processor.shared_bytes) --warps;
  return warps < kFewestWarps ? 0 : warps;
}

inline cudaError_t moe_decode_up(MoeDecode const& moe, cudaStream_t stream, bool early, Processor const& processor) {
  UpPlan plan;
  plan.codes = Codes::of(moe.up_codes, 2 * moe.stored_intermediate, moe.stored_hidden, moe.hidden);
  plan.scales = TiledScales::of(moe.up_scales, 2 * moe.stored_intermediate, moe.stored_hidden);
  plan.tiles = tiles_of(moe.intermediate, kOctet);
  int const ring = ring_bytes<kUpOctets, true>();
  int const tokens = moe.tokens * token_bytes(plan.codes.stages);
  int const warps = warps_beside(tokens, ring, processor);
  if (warps == 0) return cudaErrorInvalidValue;
  int const on = warps * processor.count;
  plan.groups_on = on / plan.tiles;
  plan.tiles_on = on % plan.tiles;
  int const wanted = kRoutingBytes + warps * ring + tokens;
  auto const kernel = moe.logits ? byte_up_kernel<true> : byte_up_kernel<false>;
  return launch(kernel, dim3(processor.count), warps * kWarp, wanted < PROTOTYPE_UP_SHARED ? PROTOTYPE_UP_SHARED : wanted, stream,
                early, moe, plan, 1u);
}

/// Parts of the columns that make every warp of the second launch busy, where there are few entries.
inline int down_slices(MoeDecode const& moe, int stages) {
  int const wanted = divide_up(kMostWarps, moe.entries());
  return wanted < stages ? wanted : stages;
}

inline cudaError_t moe_decode_down(MoeDecode const& moe, cudaStream_t stream, bool early, Processor const& processor) {
  DownPlan plan;
  plan.codes = Codes::of(moe.down_codes, moe.stored_hidden, moe.stored_intermediate, moe.intermediate);
  plan.scales = TiledScales::of(moe.down_scales, moe.stored_hidden, moe.stored_intermediate);
  plan.slices = down_slices(moe, plan.codes.stages);
  int const ring = ring_bytes<kDownOctets, true>();
  int const token = token_bytes(plan.codes.stages);
  int const partial = partial_bytes(moe.entries(), plan.slices);
  int const fewest = moe.entries() < kGroup ? moe.entries() : kGroup;
  int const warps = warps_beside(partial + fewest * token, ring, processor);
  if (warps == 0) return cudaErrorInvalidValue;
  int const fixed = kRoutingBytes + warps * ring + partial;
  int const room = (processor.shared_bytes - fixed) / token;
  plan.room = room < moe.entries() ? room : moe.entries();
  plan.groups_on = warps / plan.slices;
  plan.slices_on = warps % plan.slices;
  auto const kernel = moe.logits ? byte_down_kernel<true> : byte_down_kernel<false>;
  return launch(kernel, dim3(tiles_of(moe.hidden, kDownRows)), warps * kWarp, fixed + plan.room * token, stream, early, moe, plan, 1u);
}

/// A part of the tokens.
inline MoeDecode part_of(MoeDecode const& moe, int first, int tokens) {
  MoeDecode part = moe;
  part.tokens = tokens;
  part.hidden_states += static_cast<int64_t>(first) * moe.hidden;
  part.output += static_cast<int64_t>(first) * moe.hidden;
  part.activated += static_cast<int64_t>(first) * moe.choices * moe.intermediate;
  if (moe.logits != nullptr) {
    part.logits += static_cast<int64_t>(first) * moe.routed;
  } else {
    part.ids += static_cast<int64_t>(first) * moe.choices;
    part.router_weights += static_cast<int64_t>(first) * moe.choices;
  }
  return part;
}

/// How many tokens have room in a block's shared memory, beside as many rings as a block should have.
inline int most_tokens(MoeDecode const& moe, Processor const& processor) {
  constexpr int kWarps = kMostWarps < 8 ? kMostWarps : 8;
  int const stages = divide_up(moe.hidden / kBlockColumns, kStageBlocks);
  int const room = (processor.shared_bytes - kRoutingBytes - kWarps * ring_bytes<kUpOctets, true>()) / token_bytes(stages);
  return room < 1 ? 1 : room;
}

/// Both launches, for as many tokens at a time as have room; `early` lets each begin before the kernel before it has ended.
inline cudaError_t moe_decode(MoeDecode const& moe, cudaStream_t stream, bool early, Processor const& processor) {
  if (moe.tokens < 1 || moe.tokens > kMaxTokens || moe.choices < 1 || moe.choices > kMaxChoices ||
      moe.hidden < 1 || moe.intermediate < 1 || moe.hidden % kBlockColumns != 0 || moe.intermediate % kBlockColumns != 0) {
    return cudaErrorInvalidValue;
  }
  if (moe.logits != nullptr && (moe.routed < moe.choices || moe.routed > kMaxRouted)) {
    return cudaErrorInvalidValue;
  }
  int const most = most_tokens(moe, processor);
  for (int first = 0; first < moe.tokens; first += most) {
    int const tokens = moe.tokens - first < most ? moe.tokens - first : most;
    MoeDecode const part = part_of(moe, first, tokens);
    cudaError_t failed = moe_decode_up(part, stream, early, processor);
    if (failed == cudaSuccess) failed = moe_decode_down(part, stream, early, processor);
    if (failed != cudaSuccess) return failed;
  }
  return cudaSuccess;
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_BYTE_EXPERTS_CUH_
