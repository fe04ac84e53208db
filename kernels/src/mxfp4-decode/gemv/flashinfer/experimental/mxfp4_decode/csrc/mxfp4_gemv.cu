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
#include "flashinfer/mxfp4/gemv.cuh"
#include "flashinfer/mxfp4/quantize.cuh"
#include "tvm_ffi_utils.h"

using tvm::ffi::Optional;

namespace {

void check_weight(TensorView const& codes, TensorView const& scales) {
  CHECK_INPUT_AND_TYPE(codes, dl_uint8);
  CHECK_INPUT_AND_TYPE(scales, dl_uint8);
  CHECK_DIM(2, codes);
  CHECK_DIM(2, scales);
  TVM_FFI_ICHECK(codes.size(0) == scales.size(0) && codes.size(1) == scales.size(1) * 16)
      << "codes must be [rows, columns / 2] and scales [rows, columns / 32]";
  TVM_FFI_ICHECK_LT(codes.size(0), int64_t{1} << 31) << "too many rows";
}

void check_aligned(TensorView const& tensor, int bytes, char const* name) {
  TVM_FFI_ICHECK_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % bytes, 0)
      << name << " must be aligned to " << bytes << " bytes";
}

/// Blocks of 32 numbers of a matrix, its codes and its scales.
int64_t blocks_of(TensorView const& numbers, TensorView const& codes, TensorView const& scales) {
  CHECK_INPUT_AND_TYPE(numbers, dl_bfloat16);
  CHECK_DIM(2, numbers);
  check_weight(codes, scales);
  TVM_FFI_ICHECK(numbers.size(0) == codes.size(0) && numbers.size(1) == codes.size(1) * 2)
      << "codes must be [rows, columns / 2] for numbers [rows, columns]";
  check_aligned(numbers, 16, "numbers");
  check_aligned(codes, 16, "codes");
  return scales.numel();
}

void check_status(cudaError_t status, char const* name) {
  TVM_FFI_ICHECK(status == cudaSuccess) << name << ": " << cudaGetErrorString(status);
}

}  // namespace

void mxfp4_gemv(TensorView input, TensorView codes, TensorView scales, Optional<TensorView> bias,
                TensorView output, bool enable_pdl) {
  CHECK_INPUT_AND_TYPE(input, dl_bfloat16);
  CHECK_INPUT_AND_TYPE(output, dl_bfloat16);
  CHECK_DIM(2, input);
  CHECK_DIM(2, output);
  check_weight(codes, scales);
  flashinfer::mxfp4::Gemv gemv{};
  gemv.tokens = input.size(0);
  gemv.rows = codes.size(0);
  gemv.columns = input.size(1);
  TVM_FFI_ICHECK_EQ(codes.size(1) * 2, gemv.columns) << "input and weight have not as many columns";
  TVM_FFI_ICHECK(output.size(0) == gemv.tokens && output.size(1) == gemv.rows)
      << "output must be [" << gemv.tokens << ", " << gemv.rows << "]";
  if (bias.has_value()) {
    CHECK_INPUT_AND_TYPE(bias.value(), dl_bfloat16);
    TVM_FFI_ICHECK_EQ(bias.value().numel(), gemv.rows) << "bias must have a number for each row";
    CHECK_DEVICE(input, bias.value());
    gemv.bias = static_cast<uint16_t const*>(bias.value().data_ptr());
  }
  check_aligned(input, 16, "input");
  check_aligned(codes, 16, "codes");
  for (TensorView const& tensor : {codes, scales, output}) {
    CHECK_DEVICE(input, tensor);
  }
  gemv.input = static_cast<uint16_t const*>(input.data_ptr());
  gemv.codes = static_cast<uint8_t const*>(codes.data_ptr());
  gemv.scales = static_cast<uint8_t const*>(scales.data_ptr());
  gemv.output = static_cast<uint16_t*>(output.data_ptr());
  ffi::CUDADeviceGuard device_guard(input.device().device_id);
  flashinfer::mxfp4::Processor processor{};
  check_status(flashinfer::mxfp4::processor_of(input.device().device_id, processor), "mxfp4_gemv");
  check_status(flashinfer::mxfp4::gemv(gemv, get_stream(input.device()), enable_pdl, processor),
               "mxfp4_gemv");
}

void mxfp4_weight_quantize(TensorView numbers, TensorView codes, TensorView scales, bool even) {
  int64_t const blocks = blocks_of(numbers, codes, scales);
  ffi::CUDADeviceGuard device_guard(numbers.device().device_id);
  check_status(flashinfer::mxfp4::quantize(static_cast<uint16_t const*>(numbers.data_ptr()),
                                           static_cast<uint8_t*>(codes.data_ptr()),
                                           static_cast<uint8_t*>(scales.data_ptr()), blocks,
                                           get_stream(numbers.device()), even),
               "mxfp4_weight_quantize");
}

void mxfp4_weight_dequantize(TensorView codes, TensorView scales, TensorView numbers) {
  int64_t const blocks = blocks_of(numbers, codes, scales);
  ffi::CUDADeviceGuard device_guard(numbers.device().device_id);
  check_status(flashinfer::mxfp4::dequantize(static_cast<uint8_t const*>(codes.data_ptr()),
                                             static_cast<uint8_t const*>(scales.data_ptr()),
                                             static_cast<uint16_t*>(numbers.data_ptr()), blocks,
                                             get_stream(numbers.device())),
               "mxfp4_weight_dequantize");
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(mxfp4_gemv, mxfp4_gemv);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(mxfp4_weight_quantize, mxfp4_weight_quantize);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(mxfp4_weight_dequantize, mxfp4_weight_dequantize);
