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
#ifndef FLASHINFER_MXFP4_QUANTIZE_CUH_
#define FLASHINFER_MXFP4_QUANTIZE_CUH_

// BF16 to MXFP4 and back, a thread for a block of 32. All of it is done on the bits: no flag of the
// compiler and no subnormal number changes a code.
//
// The scale is the OCP MX specification's, 2^(floor(log2(largest)) - 2); or, "even", that of the
// largest number rounded to an element's two bits, so that it does not saturate. Elements are
// rounded to the nearest, ties to the even code, and saturate. A block with a NaN has the scale
// NaN, one with an infinity the largest scale, one of zeros the smallest; the sign of zero stays.

#include "flashinfer/mxfp4/weight_stream.cuh"

namespace flashinfer {
namespace mxfp4 {

constexpr int kQuantizeThreads = 128;
constexpr uint32_t kBf16Infinity = 0x7F80u;
constexpr uint32_t kScaleNan = 255u;

/// The scale of a block whose largest magnitude has these bits.
__device__ __forceinline__ uint32_t block_scale(uint32_t largest, bool even) {
  if (largest > kBf16Infinity) return kScaleNan;
  if (largest == kBf16Infinity) return 254u;
  constexpr uint32_t kHalf = 0x20u;  // of the second of two bits
  uint32_t const exponent = (largest + (even ? kHalf : 0u)) >> 7;
  return exponent > 2u ? exponent - 2u : 0u;
}

/// The code of a BF16 number in a block with this scale, which is not NaN.
__device__ __forceinline__ uint32_t encode(uint32_t number, uint32_t scale) {
  uint32_t const magnitude = number & 0x7FFFu;
  uint32_t const sign = number >> 12 & 8u;
  if (magnitude == kBf16Infinity) return sign | 7u;
  uint32_t const field = magnitude >> 7;
  uint32_t const significand = (magnitude & 0x7Fu) | (field ? 0x80u : 0u);
  // The value is significand / 2^shift, below 8. Beyond 11 it is below a quarter, and zero.
  int const shift = static_cast<int>(scale) + 7 - static_cast<int>(field ? field : 1u);
  if (shift > 11) return sign;
  uint32_t const eighths = significand << (11 - shift);  // of 256: 1 is 2048
  uint32_t code = eighths > 512u;                        // above 1/4
  code += eighths >= 1536u;                              // 3/4, to the even code 2
  code += eighths > 2560u;                               // above 5/4
  code += eighths >= 3584u;                              // 7/4, to 4
  code += eighths > 5120u;                               // above 5/2
  code += eighths >= 7168u;                              // 7/2, to 6
  code += eighths > 10240u;                              // above 5
  return sign | code;
}

/// The BF16 number of a code, exactly.
__device__ __forceinline__ uint32_t decode(uint32_t code, uint32_t scale) {
  if (scale == kScaleNan) return 0x7FC0u;
  uint32_t const sign = (code & 8u) << 12;
  uint32_t const magnitude = code & 7u;
  if (magnitude == 0u) return sign;
  int const exponent = static_cast<int>(scale) + static_cast<int>(magnitude >> 1) - 1;
  uint32_t const fraction = magnitude > 1u && magnitude & 1u ? 64u : 0u;
  if (exponent > 254) return sign | kBf16Infinity;
  if (exponent > 0) return sign | static_cast<uint32_t>(exponent) << 7 | fraction;
  return sign | (128u + fraction) >> (1 - exponent);
}

/// `blocks` of 32 numbers each, one after the other.
__global__ void __launch_bounds__(kQuantizeThreads)
    mxfp4_quantize_kernel(uint16_t const* numbers, uint8_t* codes, uint8_t* scales, int64_t blocks,
                          bool even) {
  int64_t const block = static_cast<int64_t>(blockIdx.x) * kQuantizeThreads + threadIdx.x;
  if (block >= blocks) return;
  uint4 given[4];
  uint32_t largest = 0;
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    given[part] = load_16(numbers + block * kBlockColumns + part * 8);
    uint32_t const words[4] = {given[part].x, given[part].y, given[part].z, given[part].w};
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      uint32_t const low = words[word] & 0x7FFFu;
      uint32_t const high = words[word] >> 16 & 0x7FFFu;
      largest = low > largest ? low : largest;
      largest = high > largest ? high : largest;
    }
  }
  uint32_t const scale = block_scale(largest, even);
  uint32_t packed[4];
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    uint32_t const words[4] = {given[part].x, given[part].y, given[part].z, given[part].w};
    packed[part] = 0;
#pragma unroll
    for (int word = 0; word < 4 && scale != kScaleNan; ++word) {
      packed[part] |= encode(words[word] & 0xFFFFu, scale) << (8 * word);
      packed[part] |= encode(words[word] >> 16, scale) << (8 * word + 4);
    }
  }
  *reinterpret_cast<uint4*>(codes + block * 16) = uint4{packed[0], packed[1], packed[2], packed[3]};
  scales[block] = static_cast<uint8_t>(scale);
}

__global__ void __launch_bounds__(kQuantizeThreads)
    mxfp4_dequantize_kernel(uint8_t const* codes, uint8_t const* scales, uint16_t* numbers,
                            int64_t blocks) {
  int64_t const block = static_cast<int64_t>(blockIdx.x) * kQuantizeThreads + threadIdx.x;
  if (block >= blocks) return;
  uint4 const given = load_16(codes + block * 16);
  uint32_t const words[4] = {given.x, given.y, given.z, given.w};
  uint32_t const scale = scales[block];
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    uint32_t pairs[4];
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      uint32_t const two = words[part] >> (8 * pair);
      pairs[pair] = decode(two & 0xFu, scale) | decode(two >> 4 & 0xFu, scale) << 16;
    }
    *reinterpret_cast<uint4*>(numbers + block * kBlockColumns + part * 8) =
        uint4{pairs[0], pairs[1], pairs[2], pairs[3]};
  }
}

inline dim3 quantize_grid(int64_t blocks) {
  return dim3(static_cast<uint32_t>((blocks + kQuantizeThreads - 1) / kQuantizeThreads));
}

/// All pointers aligned to 16, that of scales to nothing.
inline cudaError_t quantize(uint16_t const* numbers, uint8_t* codes, uint8_t* scales,
                            int64_t blocks, cudaStream_t stream, bool even) {
  if (blocks < 1) return cudaSuccess;
  return launch(mxfp4_quantize_kernel, quantize_grid(blocks), kQuantizeThreads, 0, stream, false,
                numbers, codes, scales, blocks, even);
}

inline cudaError_t dequantize(uint8_t const* codes, uint8_t const* scales, uint16_t* numbers,
                              int64_t blocks, cudaStream_t stream) {
  if (blocks < 1) return cudaSuccess;
  return launch(mxfp4_dequantize_kernel, quantize_grid(blocks), kQuantizeThreads, 0, stream, false,
                codes, scales, numbers, blocks);
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_QUANTIZE_CUH_
