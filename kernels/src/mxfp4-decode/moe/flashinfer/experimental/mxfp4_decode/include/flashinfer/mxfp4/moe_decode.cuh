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

// A mixture of experts in MXFP4 for one BF16 token, in two launches:
//
//   up:   a block for each SM, for as long as there is work; teams of its warps take 32 columns of
//         the intermediate and their gates of an expert, then others. Bias, SwiGLU, and the 32
//         columns become fixed point.
//   down: a block for 24 columns of the output and all experts; its warps share the weights of
//         these evenly. Bias, router weights, the sum over the token's choices.
//
// The order of additions depends on the shape and the GPU only, so that the same input gives the
// same bits. Weights lie as CUTLASS' MXFP8 x MXFP4 kernels read them: the rows of up before those
// of gate, scales tiled.

#include "flashinfer/mxfp4/moe_rows.cuh"

namespace flashinfer {
namespace mxfp4 {

__global__ void __launch_bounds__(kMoeWarps* kWarp, 1)
    mxfp4_moe_up_kernel(MoeDecode moe, UpPlan plan, uint32_t one) {
  wait_for_predecessor();
  release_successor();
  Routing& routing = *reinterpret_cast<Routing*>(dynamic_shared());
  uint8_t* const rings = dynamic_shared() + kRoutingBytes;
  uint8_t* const tokens_at = rings + blockDim.x / kWarp * MoeRows::kBytes;
  int const warp = uniform(threadIdx.x / kWarp);
  int const lane = keep_number(static_cast<int>(threadIdx.x) % kWarp);
  Exchange* const exchanges =
      reinterpret_cast<Exchange*>(tokens_at + moe.tokens * token_bytes(moe));
  Exchange& exchanged = exchanges[warp / kTeamWarps];

  int const id = asked_id(moe);
  bytes::TokenCopies const copies(moe.hidden_states, moe.tokens, moe.hidden / kBlockColumns, warp,
                                  lane);
  copies.begin(tokens_at);
  int const all = route(moe, routing, id);
  UpWarp up{moe, plan, routing, all, tokens_at, exchanged, warp, lane};
  UpRows work{up, copies, {one, lane}};
  RowStream<UpRows>(work, rings + warp * MoeRows::kBytes, lane).run();
}

/// Beside the rings.
inline int down_shared_bytes(int entries) {
  return kRoutingBytes + entries * kDownRows * static_cast<int>(sizeof(float) + sizeof(uint16_t));
}

__global__ void __launch_bounds__(kMoeWarps* kWarp, 1)
    mxfp4_moe_down_kernel(MoeDecode moe, Matrices matrices, uint32_t one) {
  Routing& routing = *reinterpret_cast<Routing*>(dynamic_shared());
  uint8_t* const rings = dynamic_shared() + kRoutingBytes;
  int const warps = blockDim.x / kWarp;
  float* const partial = reinterpret_cast<float*>(rings + warps * MoeRows::kBytes);
  uint16_t* const biases = reinterpret_cast<uint16_t*>(partial + moe.entries() * kDownRows);
  int const warp = uniform(threadIdx.x / kWarp);
  int const lane = keep_number(static_cast<int>(threadIdx.x) % kWarp);

  // The ids were complete before the first launch began.
  release_successor();
  int const all = route(moe, routing, asked_id(moe));
  int const tile = blockIdx.x;
  DownWarp down{moe, matrices, routing, all, tile, warps, warp, lane, partial, biases};
  down.share();
  DownRows work{down, {one, lane}};
  RowStream<DownRows>(work, rings + warp * MoeRows::kBytes, lane).run();
  sync_block();

  auto const row_of = [&down](int place) { return down.output_row(place); };
  add_up(moe, routing, partial, biases, kDownRows, row_of);
}

inline cudaError_t moe_decode_up(MoeDecode const& moe, cudaStream_t stream, bool early,
                                 Processor const& processor) {
  constexpr int kTeam = kTeamWarps * MoeRows::kBytes + sizeof(Exchange);
  constexpr int kTeams = kMoeWarps / kTeamWarps;
  int const beside = kRoutingBytes + moe.tokens * token_bytes(moe);
  int teams = (processor.shared_bytes - beside) / kTeam;
  if (teams < 1) return cudaErrorInvalidValue;
  if (teams > kTeams) teams = kTeams;
  int const parts = moe.intermediate / kBlockColumns;
  int const on = teams * processor.count;
  UpPlan const plan{matrices_of(moe.up_codes, moe.up_scales, 2 * moe.stored_intermediate,
                                moe.stored_hidden, moe.hidden),
                    parts, on / parts, on % parts};
  return launch(mxfp4_moe_up_kernel, dim3(processor.count), teams * kTeamWarps * kWarp,
                beside + teams * kTeam, stream, early, moe, plan, 1u);
}

inline cudaError_t moe_decode_down(MoeDecode const& moe, cudaStream_t stream, bool early,
                                   Processor const& processor) {
  int const beside = down_shared_bytes(moe.entries());
  int warps = (processor.shared_bytes - beside) / MoeRows::kBytes;
  if (warps < kFewestWarps) return cudaErrorInvalidValue;
  if (warps > kMoeWarps) warps = kMoeWarps;
  Matrices const matrices = matrices_of(moe.down_codes, moe.down_scales, moe.stored_hidden,
                                        moe.stored_intermediate, moe.intermediate);
  return launch(mxfp4_moe_down_kernel, dim3(tiles_of(moe.hidden, kDownRows)), warps * kWarp,
                beside + warps * MoeRows::kBytes, stream, early, moe, matrices, 1u);
}

/// Both launches; `early` lets each begin before the kernel before it has ended.
inline cudaError_t moe_decode(MoeDecode const& moe, cudaStream_t stream, bool early,
                              Processor const& processor) {
  if (moe.tokens < 1 || moe.tokens > kMaxTokens || moe.choices < 1 || moe.choices > kMaxChoices ||
      moe.hidden < 1 || moe.intermediate < 1 || moe.hidden % kBlockColumns != 0 ||
      moe.intermediate % kBlockColumns != 0) {
    return cudaErrorInvalidValue;
  }
  cudaError_t const failed = moe_decode_up(moe, stream, early, processor);
  if (failed != cudaSuccess) return failed;
  return moe_decode_down(moe, stream, early, processor);
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_MOE_DECODE_CUH_
