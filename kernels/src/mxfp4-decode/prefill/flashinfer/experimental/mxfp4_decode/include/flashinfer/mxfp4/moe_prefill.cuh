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
#ifndef FLASHINFER_MXFP4_MOE_PREFILL_CUH_
#define FLASHINFER_MXFP4_MOE_PREFILL_CUH_

// A mixture of experts in MXFP4 for many BF16 tokens on SM90a, from the layout of the decode
// kernels, in five launches: plan, gather, both products, combine. The number of launches and their
// grids depend on the shapes only, and the same input gives the same bits.

#include "flashinfer/mxfp4/prefill_products.cuh"

namespace flashinfer {
namespace mxfp4 {

/// Which launches are wanted, for measurements.
enum PrefillPart { kPlan = 1, kGather = 2, kUpProduct = 4, kDownProduct = 8, kCombine = 16 };
constexpr int kAllParts = 31;

inline ProductMatrix up_matrix(MoePrefill const& moe) {
  int const rows = 2 * moe.stored_intermediate;
  int const scale_rows_bytes = tiled_rows_bytes(moe.stored_hidden / kBlockColumns);
  return ProductMatrix{moe.up_codes,
                       moe.up_scales,
                       moe.up_bias,
                       static_cast<int64_t>(rows) * moe.stored_hidden / 2,
                       static_cast<int64_t>(divide_up(rows, 128)) * scale_rows_bytes,
                       rows,
                       moe.stored_hidden / 2,
                       scale_rows_bytes,
                       moe.hidden,
                       moe.intermediate,
                       moe.stored_intermediate,
                       divide_up(moe.intermediate, kBlocks * RowOrder<true>::kOutputs)};
}

inline ProductMatrix down_matrix(MoePrefill const& moe) {
  int const rows = moe.stored_hidden;
  int const scale_rows_bytes = tiled_rows_bytes(moe.stored_intermediate / kBlockColumns);
  return ProductMatrix{moe.down_codes,
                       moe.down_scales,
                       moe.down_bias,
                       static_cast<int64_t>(rows) * moe.stored_intermediate / 2,
                       static_cast<int64_t>(divide_up(rows, 128)) * scale_rows_bytes,
                       rows,
                       moe.stored_intermediate / 2,
                       scale_rows_bytes,
                       moe.intermediate,
                       moe.hidden,
                       0,
                       divide_up(moe.hidden, kBlocks * RowOrder<false>::kOutputs)};
}

template <bool kUp>
inline cudaError_t launch_product(MoePrefill const& moe, ProductMatrix const& matrix,
                                  uint16_t const* entries, cudaStream_t stream,
                                  Processor const& processor) {
  auto const kernel = moe.tile_rows == kNarrowRows
                          ? mxfp4_prefill_product_kernel<kUp, 16, 32, 64>
                          : mxfp4_prefill_product_kernel<kUp, 64, 80, 96, 128>;
  return launch(kernel, dim3(processor.count), kProductThreads + kCopyThreads, kProductShared,
                stream, false, moe, matrix, entries);
}

inline cudaError_t moe_prefill(MoePrefill const& moe, cudaStream_t stream,
                               Processor const& processor, int parts = kAllParts) {
  if (moe.tokens < 1 || moe.choices < 1 || moe.hidden % kBlockColumns != 0 ||
      moe.intermediate % kBlockColumns != 0 || moe.rows < most_rows(moe.entries(), moe.experts) ||
      processor.shared_bytes < kProductShared) {
    return cudaErrorInvalidValue;
  }
  cudaError_t failed = cudaSuccess;
  if (parts & kPlan) {
    failed = launch(mxfp4_prefill_plan_kernel, dim3(1), kPlanThreads,
                    3 * moe.experts * static_cast<int>(sizeof(int)), stream, false, moe);
    if (failed != cudaSuccess) return failed;
  }
  if (parts & kGather) {
    failed = launch(mxfp4_prefill_gather_kernel, dim3(moe.tokens), kGatherThreads,
                    planes_of(moe.hidden) * kPlaneRowBytes, stream, false, moe);
    if (failed != cudaSuccess) return failed;
  }
  if (parts & kUpProduct) {
    failed = launch_product<true>(moe, up_matrix(moe), moe.gathered, stream, processor);
    if (failed != cudaSuccess) return failed;
  }
  if (parts & kDownProduct) {
    failed = launch_product<false>(moe, down_matrix(moe), moe.activated, stream, processor);
    if (failed != cudaSuccess) return failed;
  }
  if (parts & kCombine) {
    failed = launch(mxfp4_prefill_combine_kernel, dim3(moe.tokens), kCombineThreads, 0, stream,
                    false, moe);
  }
  return failed;
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_MOE_PREFILL_CUH_
