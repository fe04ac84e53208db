// SPDX-License-Identifier: Apache-2.0
// FlashInfer's MXFP4 kernels for Python: calls the same launchers as its csrc/mxfp4_*.cu, but without tensors.
#if __has_include("flashinfer/mxfp4/moe_decode.cuh")
#include "flashinfer/mxfp4/moe_decode.cuh"

extern "C" int emulated_moe_decode(void const* hidden_states, void const* up_codes, void const* up_scales, void const* up_bias,
                                   void const* down_codes, void const* down_scales, void const* down_bias, void const* ids,
                                   void const* router_weights, void const* logits, void const* padding, void const* expert_map,
                                   void* activated, void* output, int routed, int mapped, int tokens, int choices, int experts, int hidden,
                                   int intermediate, int stored_hidden, int stored_intermediate, float alpha, float beta,
                                   float limit, int processors, int shared_bytes, int early) {
  flashinfer::mxfp4::MoeDecode moe{};
  moe.hidden_states = static_cast<uint16_t const*>(hidden_states);
  moe.up_codes = static_cast<uint8_t const*>(up_codes);
  moe.up_scales = static_cast<uint8_t const*>(up_scales);
  moe.up_bias = static_cast<uint16_t const*>(up_bias);
  moe.down_codes = static_cast<uint8_t const*>(down_codes);
  moe.down_scales = static_cast<uint8_t const*>(down_scales);
  moe.down_bias = static_cast<uint16_t const*>(down_bias);
  moe.ids = static_cast<int32_t const*>(ids);
  moe.router_weights = static_cast<float const*>(router_weights);
#if __has_include("flashinfer/mxfp4/choose.cuh")
  moe.logits = static_cast<int16_t const*>(logits);
  moe.padding = static_cast<uint8_t const*>(padding);
  moe.routed = routed;
#else
  if (logits != nullptr) return cudaErrorInvalidValue;
#endif
  moe.expert_map = static_cast<int32_t const*>(expert_map);
  moe.activated = static_cast<uint8_t*>(activated);
  moe.output = static_cast<uint16_t*>(output);
  moe.mapped = mapped;
  moe.tokens = tokens;
  moe.choices = choices;
  moe.experts = experts;
  moe.hidden = hidden;
  moe.intermediate = intermediate;
  moe.stored_hidden = stored_hidden;
  moe.stored_intermediate = stored_intermediate;
  moe.alpha = alpha;
  moe.beta = beta;
  moe.limit = limit;
  return flashinfer::mxfp4::moe_decode(moe, nullptr, early != 0, {processors, shared_bytes});
}
#endif

#if __has_include("flashinfer/mxfp4/gemv.cuh")
#include "flashinfer/mxfp4/gemv.cuh"

extern "C" int emulated_gemv(void const* input, void const* codes, void const* scales, void const* bias, void* output, int tokens,
                             int rows, int columns, int processors, int shared_bytes, int early) {
  flashinfer::mxfp4::Gemv gemv{};
  gemv.input = static_cast<uint16_t const*>(input);
  gemv.codes = static_cast<uint8_t const*>(codes);
  gemv.scales = static_cast<uint8_t const*>(scales);
  gemv.bias = static_cast<uint16_t const*>(bias);
  gemv.output = static_cast<uint16_t*>(output);
  gemv.tokens = tokens;
  gemv.rows = rows;
  gemv.columns = columns;
  return flashinfer::mxfp4::gemv(gemv, nullptr, early != 0, {processors, shared_bytes});
}
#endif

#if __has_include("flashinfer/mxfp4/quantize.cuh")
#include "flashinfer/mxfp4/quantize.cuh"

extern "C" int emulated_quantize(void const* numbers, void* codes, void* scales, int64_t blocks, int even) {
  return flashinfer::mxfp4::quantize(static_cast<uint16_t const*>(numbers), static_cast<uint8_t*>(codes),
                                     static_cast<uint8_t*>(scales), blocks, nullptr, even != 0);
}

extern "C" int emulated_dequantize(void const* codes, void const* scales, void* numbers, int64_t blocks) {
  return flashinfer::mxfp4::dequantize(static_cast<uint8_t const*>(codes), static_cast<uint8_t const*>(scales),
                                       static_cast<uint16_t*>(numbers), blocks, nullptr);
}
#endif
