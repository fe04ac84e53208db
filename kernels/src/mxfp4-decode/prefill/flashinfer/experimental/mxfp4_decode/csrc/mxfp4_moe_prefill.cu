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
#include "flashinfer/mxfp4/moe_prefill.cuh"
#include "tvm_ffi_utils.h"

using tvm::ffi::Optional;

namespace {

using flashinfer::mxfp4::MoePrefill;

constexpr int kTileWords = sizeof(flashinfer::mxfp4::EntryTile) / sizeof(int32_t);

int64_t tiled_scales(int64_t experts, int64_t rows, int64_t columns) {
  return experts * ((rows + 127) / 128 * 128) * ((columns / 32 + 3) / 4 * 4);
}

template <typename T>
T const* data_of(Optional<TensorView> const& tensor) {
  return tensor.has_value() ? static_cast<T const*>(tensor.value().data_ptr()) : nullptr;
}

void check_bias(Optional<TensorView> const& bias, TensorView const& beside, int64_t experts,
                int64_t rows, char const* name) {
  if (!bias.has_value()) return;
  CHECK_DEVICE(beside, bias.value());
  CHECK_INPUT_AND_TYPE(bias.value(), dl_bfloat16);
  TVM_FFI_ICHECK(bias.value().ndim() == 2 && bias.value().size(0) == experts &&
                 bias.value().size(1) == rows)
      << name << " must be [" << experts << ", " << rows << "]";
}

void check_aligned(TensorView const& tensor, char const* name) {
  TVM_FFI_ICHECK_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 16, 0)
      << name << " must be aligned to 16 bytes";
}

}  // namespace

void mxfp4_moe_prefill(TensorView hidden_states, TensorView w13, TensorView w13_scale,
                       TensorView w2, TensorView w2_scale, TensorView topk_ids,
                       TensorView topk_weights, int64_t intermediate_size,
                       Optional<TensorView> w13_bias, Optional<TensorView> w2_bias,
                       Optional<TensorView> expert_map, TensorView plan, TensorView gathered,
                       TensorView activated, TensorView output, double alpha, double beta,
                       double limit) {
  CHECK_INPUT_AND_TYPE(hidden_states, dl_bfloat16);
  CHECK_INPUT_AND_TYPE(w13, dl_uint8);
  CHECK_INPUT_AND_TYPE(w13_scale, dl_uint8);
  CHECK_INPUT_AND_TYPE(w2, dl_uint8);
  CHECK_INPUT_AND_TYPE(w2_scale, dl_uint8);
  CHECK_INPUT_AND_TYPE(topk_ids, dl_int32);
  CHECK_INPUT_AND_TYPE(topk_weights, dl_float32);
  CHECK_INPUT_AND_TYPE(plan, dl_int32);
  CHECK_INPUT_AND_TYPE(gathered, dl_bfloat16);
  CHECK_INPUT_AND_TYPE(activated, dl_bfloat16);
  CHECK_INPUT_AND_TYPE(output, dl_bfloat16);
  CHECK_DIM(2, hidden_states);
  CHECK_DIM(3, w13);
  CHECK_DIM(3, w2);
  CHECK_DIM(2, topk_ids);
  CHECK_SHAPE(hidden_states, output);
  CHECK_SHAPE(topk_ids, topk_weights);

  MoePrefill moe{};
  moe.tokens = hidden_states.size(0);
  moe.choices = topk_ids.size(1);
  moe.experts = w13.size(0);
  moe.hidden = hidden_states.size(1);
  moe.intermediate = static_cast<int>(intermediate_size);
  moe.stored_hidden = w13.size(2) * 2;
  moe.stored_intermediate = w2.size(2) * 2;
  moe.rows = flashinfer::mxfp4::most_rows(moe.entries(), moe.experts);
  moe.tile_rows = flashinfer::mxfp4::tile_rows_for(moe.entries(), moe.experts);
  moe.alpha = static_cast<float>(alpha);
  moe.beta = static_cast<float>(beta);
  moe.limit = static_cast<float>(limit);
  TVM_FFI_ICHECK_EQ(topk_ids.size(0), moe.tokens) << "topk_ids must have a row for each token";
  TVM_FFI_ICHECK(moe.hidden % 32 == 0 && moe.intermediate % 32 == 0 &&
                 moe.stored_hidden % 32 == 0 && moe.stored_intermediate % 32 == 0)
      << "hidden and intermediate sizes must be multiples of 32";
  TVM_FFI_ICHECK(moe.hidden <= moe.stored_hidden && moe.intermediate <= moe.stored_intermediate)
      << "the weights are narrower than the hidden states or the intermediate size";
  TVM_FFI_ICHECK(w13.size(1) == 2 * moe.stored_intermediate && w2.size(0) == moe.experts &&
                 w2.size(1) == moe.stored_hidden)
      << "w13 must be [experts, 2 intermediate, hidden / 2] and w2 [experts, hidden, intermediate "
         "/ 2]";
  TVM_FFI_ICHECK_EQ(w13_scale.numel(),
                    tiled_scales(moe.experts, 2 * moe.stored_intermediate, moe.stored_hidden))
      << "w13_scale must have all scales, tiled by 128 rows and 4 blocks";
  TVM_FFI_ICHECK_EQ(w2_scale.numel(),
                    tiled_scales(moe.experts, moe.stored_hidden, moe.stored_intermediate))
      << "w2_scale must have all scales, tiled by 128 rows and 4 blocks";
  int64_t const tile_words =
      static_cast<int64_t>(flashinfer::mxfp4::most_tiles(moe.entries(), moe.experts)) * kTileWords;
  TVM_FFI_ICHECK_EQ(plan.numel(), tile_words + kTileWords + moe.entries())
      << "plan must have room for all tiles, their number, and a row for each choice";
  for (auto const& [planes, columns] :
       {std::pair{gathered, moe.hidden}, std::pair{activated, moe.intermediate}}) {
    TVM_FFI_ICHECK_EQ(planes.numel(), static_cast<int64_t>(moe.rows) * 64 *
                                          flashinfer::mxfp4::planes_of(columns))
        << "gathered and activated must have " << moe.rows << " rows of whole planes";
  }
  check_bias(w13_bias, hidden_states, moe.experts, 2 * moe.stored_intermediate, "w13_bias");
  check_bias(w2_bias, hidden_states, moe.experts, moe.stored_hidden, "w2_bias");
  if (expert_map.has_value()) {
    CHECK_INPUT_AND_TYPE(expert_map.value(), dl_int32);
    CHECK_DEVICE(hidden_states, expert_map.value());
    moe.mapped = expert_map.value().numel();
  }
  check_aligned(hidden_states, "hidden_states");
  check_aligned(w13, "w13");
  check_aligned(w13_scale, "w13_scale");
  check_aligned(w2, "w2");
  check_aligned(w2_scale, "w2_scale");
  check_aligned(plan, "plan");
  check_aligned(gathered, "gathered");
  check_aligned(activated, "activated");
  check_aligned(output, "output");
  for (TensorView const& tensor : {w13, w13_scale, w2, w2_scale, topk_ids, topk_weights, plan,
                                   gathered, activated, output}) {
    CHECK_DEVICE(hidden_states, tensor);
  }

  moe.hidden_states = static_cast<uint16_t const*>(hidden_states.data_ptr());
  moe.up_codes = static_cast<uint8_t const*>(w13.data_ptr());
  moe.up_scales = static_cast<uint8_t const*>(w13_scale.data_ptr());
  moe.up_bias = data_of<uint16_t>(w13_bias);
  moe.down_codes = static_cast<uint8_t const*>(w2.data_ptr());
  moe.down_scales = static_cast<uint8_t const*>(w2_scale.data_ptr());
  moe.down_bias = data_of<uint16_t>(w2_bias);
  moe.ids = static_cast<int32_t const*>(topk_ids.data_ptr());
  moe.router_weights = static_cast<float const*>(topk_weights.data_ptr());
  moe.expert_map = data_of<int32_t>(expert_map);
  int32_t* const words = static_cast<int32_t*>(plan.data_ptr());
  moe.tiles = reinterpret_cast<flashinfer::mxfp4::EntryTile*>(words);
  moe.tile_count = words + tile_words;
  moe.row_of = words + tile_words + kTileWords;
  moe.gathered = static_cast<uint16_t*>(gathered.data_ptr());
  moe.activated = static_cast<uint16_t*>(activated.data_ptr());
  moe.partial = moe.gathered;  // the first product is the last to read what was gathered
  moe.output = static_cast<uint16_t*>(output.data_ptr());

  ffi::CUDADeviceGuard device_guard(hidden_states.device().device_id);
  flashinfer::mxfp4::Processor processor{};
  cudaError_t status = flashinfer::mxfp4::processor_of(hidden_states.device().device_id, processor);
  if (status == cudaSuccess) {
    status = flashinfer::mxfp4::moe_prefill(moe, get_stream(hidden_states.device()), processor);
  }
  TVM_FFI_ICHECK(status == cudaSuccess) << "mxfp4_moe_prefill: " << cudaGetErrorString(status);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(mxfp4_moe_prefill, mxfp4_moe_prefill);
