// SPDX-License-Identifier: Apache-2.0
// The prototype's launchers for Python, under the names and with the arguments that those of the carried kernels have.
#include "flashinfer/mxfp4/byte_experts.cuh"
#include "flashinfer/mxfp4/byte_gemv.cuh"

namespace {

constexpr int kShared = 101376;  // as SM121 has it
constexpr int kProcessors = 3;

template <typename Type>
Type const* as(void const* given) {
  return static_cast<Type const*>(given);
}

}  // namespace

extern "C" int emulated_moe_decode(void const* hidden_states, void const* up_codes, void const* up_scales, void const* up_bias,
                                   void const* down_codes, void const* down_scales, void const* down_bias, void const* ids,
                                   void const* router_weights, void const* logits, void const* expert_map, void* activated,
                                   void* output, int routed, int mapped, int tokens, int choices, int experts, int hidden,
                                   int intermediate, int stored_hidden, int stored_intermediate, float alpha, float beta,
                                   float limit, int early) {
  flashinfer::mxfp4::MoeDecode const moe{as<uint16_t>(hidden_states),
                                         as<uint8_t>(up_codes),
                                         as<uint8_t>(up_scales),
                                         as<uint16_t>(up_bias),
                                         as<uint8_t>(down_codes),
                                         as<uint8_t>(down_scales),
                                         as<uint16_t>(down_bias),
                                         as<int16_t>(logits),
                                         as<int32_t>(ids),
                                         as<float>(router_weights),
                                         as<int32_t>(expert_map),
                                         static_cast<uint16_t*>(activated),
                                         static_cast<uint16_t*>(output),
                                         routed,
                                         mapped,
                                         tokens,
                                         choices,
                                         experts,
                                         hidden,
                                         intermediate,
                                         stored_hidden,
                                         stored_intermediate,
                                         alpha,
                                         beta,
                                         limit};
  return flashinfer::mxfp4::moe_decode(moe, nullptr, early != 0, {kProcessors, kShared});
}

extern "C" int emulated_gemv(void const* input, void const* codes, void const* scales, void const* bias, void* output, int tokens,
                             int rows, int columns, int processors, int early) {
  flashinfer::mxfp4::Gemv const gemv{as<uint16_t>(input), as<uint8_t>(codes), as<uint8_t>(scales), as<uint16_t>(bias),
                                     static_cast<uint16_t*>(output), tokens, rows, columns};
  return flashinfer::mxfp4::gemv(gemv, nullptr, early != 0, processors, kShared);
}
