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
#ifndef FLASHINFER_MXFP4_PRIMITIVES_CUH_
#define FLASHINFER_MXFP4_PRIMITIVES_CUH_

// All that the MXFP4 decode kernels ask of the device: each instruction once, from SM80 on. Kernels
// include nothing else of CUDA, so that they can be run on whatever offers these few functions.
//
// flashinfer/cp_async.cuh has the same copies without a memory clobber, so that the compiler may move
// reads of shared memory before the wait for them, and without a number of bytes, the rest of which
// becomes zeros. flashinfer/mma.cuh has no 16x8x16 with BF16 and no products of bytes, and the shuffle
// of flashinfer/math.cuh is volatile, which would keep the compiler from placing it.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

namespace flashinfer {
namespace mxfp4 {

constexpr int kWarp = 32;

/// The launch's dynamic shared memory.
__device__ __forceinline__ uint8_t* dynamic_shared() {
  extern __shared__ __align__(128) uint8_t flashinfer_mxfp4_shared[];
  return flashinfer_mxfp4_shared;
}

/// The 16 bytes at an address aligned to 16, which this kernel only reads, and once.
__device__ __forceinline__ uint4 load_once_16(void const* from) {
  uint4 words;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from));
  return words;
}

/// Asks for what is at an address, which need not be there, for L1.
__device__ __forceinline__ void prefetch(void const* from) {
  asm volatile("prefetch.global.L1 [%0];\n" ::"l"(from));
}

/// A byte that this kernel only reads.
__device__ __forceinline__ uint32_t load_byte(void const* from) {
  uint32_t byte;
  asm volatile("ld.global.nc.u8 %0, [%1];\n" : "=r"(byte) : "l"(from));
  return byte;
}

/// A word that a kernel before this one has written, past L1, which may be older if
/// this one began early.
__device__ __forceinline__ uint32_t load_word(void const* from) {
  uint32_t word;
  asm volatile("ld.global.cg.u32 %0, [%1];\n" : "=r"(word) : "l"(from));
  return word;
}

/// A byte, as `load_word`.
__device__ __forceinline__ uint32_t load_late_byte(void const* from) {
  uint32_t byte;
  asm volatile("ld.global.cg.u8 %0, [%1];\n" : "=r"(byte) : "l"(from));
  return byte;
}

/// A number of 16 bits, as `load_word`.
__device__ __forceinline__ int16_t load_half(void const* from) {
  int16_t half;
  asm volatile("ld.global.cg.s16 %0, [%1];\n" : "=h"(half) : "l"(from));
  return half;
}

/// A float, as `load_word`.
__device__ __forceinline__ float load_float(void const* from) {
  float number;
  asm volatile("ld.global.cg.f32 %0, [%1];\n" : "=f"(number) : "l"(from));
  return number;
}

/// The pointer, in registers from here on: the compiler would compute it again before each load.
template <typename Type>
__device__ __forceinline__ Type* keep(Type* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}

/// A number that all lanes of a warp have, where the compiler may know that they do.
__device__ __forceinline__ int uniform(int number) { return __shfl_sync(0xffffffffu, number, 0); }

/// sum += a b, 16 rows, 8 columns, 16 products each, BF16 with sums in float32. Lane l holds of a
/// the rows l / 4 (words 0, 2) and l / 4 + 8 (words 1, 3), of b the column l / 4; word 0, 1 of a
/// and word 0 of b are the products 2 (l % 4) and the next, the others these and 8. Of the sums it
/// holds columns 2 (l % 4) and the next, of row l / 4 (0, 1) and l / 4 + 8 (2, 3).
__device__ __forceinline__ void mma_m16n8k16(float (&sum)[4], uint32_t const (&a)[4],
                                             uint32_t const (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Two products of BF16 numbers, subnormal ones too. (SM80 has no multiplication, but this.)
__device__ __forceinline__ uint32_t multiply_bf16x2(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
  return product;
}

/// The bytes of (high, low) that the four nibbles of `selector` name, the lowest first.
__device__ __forceinline__ uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  return __byte_perm(low, high, selector);
}

/// The nearest BF16 number, ties to even.
__device__ __forceinline__ uint16_t to_bf16(float number) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(number));
}

__device__ __forceinline__ float from_bf16(uint16_t number) {
  return __uint_as_float(static_cast<uint32_t>(number) << 16);
}

/// The 16 bytes at an address aligned to 16, written by this kernel's predecessor. They are loaded
/// exactly here: loaded earlier, they would take registers that other warps need.
__device__ __forceinline__ uint4 load_16(void const* from) {
  uint4 words;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from));
  return words;
}

/// A float, as `load_16`.
__device__ __forceinline__ float load_4(void const* from) {
  float number;
  asm volatile("ld.global.f32 %0, [%1];\n" : "=f"(number) : "l"(from));
  return number;
}

__device__ __forceinline__ int count_bits(uint32_t bits) { return __popc(bits); }

/// Of bits that are not all 0.
__device__ __forceinline__ int highest_bit(uint32_t bits) { return kWarp - 1 - __clz(bits); }

__device__ __forceinline__ uint32_t ballot(bool one) { return __ballot_sync(0xffffffffu, one); }

/// The largest that a lane of the warp has.
__device__ __forceinline__ int largest(int number) {
  return __reduce_max_sync(0xffffffffu, number);
}

/// All threads of the block meet, wherever in the text they are.
__device__ __forceinline__ void sync_block() { asm volatile("bar.sync 0;\n" ::: "memory"); }

/// As `sync_block`, for one team of a block: `threads` threads in whole warps. A block may have 15
/// teams.
__device__ __forceinline__ void sync_team(int team, int threads) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(team + 1), "r"(threads) : "memory");
}

/// The number, in a register from here on: the compiler would compute it again where it is needed.
template <typename Number>
__device__ __forceinline__ Number keep_number(Number number) {
  asm volatile("" : "+r"(number));
  return number;
}

/// As `permute_bytes`, but that a nibble of 8 and more gives eight times the highest bit of the
/// byte that the rest of it names.
__device__ __forceinline__ uint32_t permute_signs(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;\n" : "=r"(bytes) : "r"(low), "r"(high), "r"(selector));
  return bytes;
}

/// sum += a b, 16 rows, 8 columns, 32 products each, of bytes without a sign and with one. Lanes
/// hold what they hold of `mma_m16n8k16`, but for a word having four products: 4 (l % 4) and the
/// next three, or these and 16.
__device__ __forceinline__ void mma_m16n8k32(int32_t (&sum)[4], uint32_t const (&a)[4],
                                             uint32_t const (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// sum + a b, byte by byte, of bytes without a sign and with one.
__device__ __forceinline__ int32_t dot_bytes(uint32_t a, uint32_t b, int32_t sum) {
  int32_t all;
  asm("dp4a.u32.s32 %0, %1, %2, %3;\n" : "=r"(all) : "r"(a), "r"(b), "r"(sum));
  return all;
}

/// The whole number nearest to a product, ties to even, where that is below 2^15: in the low half,
/// with more above it.
__device__ __forceinline__ uint32_t to_whole(float number, float by) {
  return __float_as_uint(__fmaf_rn(number, by, 12582912.0f));
}

__device__ __forceinline__ float to_float(int32_t number) { return __int2float_rn(number); }

__device__ __forceinline__ float float_of_bits(uint32_t bits) { return __uint_as_float(bits); }

__device__ __forceinline__ uint32_t bits_of_float(float number) { return __float_as_uint(number); }

/// Looks at the bits: with fast math, compilers assume that every number is finite.
__device__ __forceinline__ bool is_finite(float number) {
  return (__float_as_uint(number) & 0x7F800000u) != 0x7F800000u;
}

/// Returns the value of the lane whose index differs from this one's in `bits`.
template <typename Number>
__device__ __forceinline__ Number exchange(Number number, int bits) {
  return __shfl_xor_sync(0xffffffffu, number, bits);
}

/// Begins to copy up to 16 bytes that are only read to shared memory, aligned to 16, and zeros
/// after them.
__device__ __forceinline__ void copy_16(uint8_t* to, void const* from, int bytes) {
  auto const shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(shared), "l"(from),
               "r"(bytes)
               : "memory");
}

/// As `copy_16`, of what a kernel before this one has written: it comes past L1, too.
__device__ __forceinline__ void copy_late_16(uint8_t* to, void const* from, int bytes) {
  copy_16(to, from, bytes);
}

/// Begins to copy up to four bytes, aligned to four, and zeros after them; nothing where it is not
/// `wanted`.
__device__ __forceinline__ void copy_4(uint8_t* to, void const* from, int bytes, bool wanted) {
  auto const shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile(
      "{\n.reg .pred wanted;\nsetp.ne.s32 wanted, %3, 0;\n"
      "@wanted cp.async.ca.shared.global [%0], [%1], 4, %2;\n}\n" ::"r"(shared),
      "l"(from), "r"(bytes), "r"(static_cast<int>(wanted))
      : "memory");
}

/// Ends a group of this thread's copies.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/// Waits for all but the last groups of this thread's copies.
template <int kGroups>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kGroups) : "memory");
}

/// Makes what a warp's lanes wrote before it visible to all of them after it.
__device__ __forceinline__ void sync_warp() { __syncwarp(); }

/// Waits until the kernel before this one has ended and what it wrote can be read.
__device__ __forceinline__ void wait_for_predecessor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

/// Lets the next kernel begin as soon as every block has said so.
__device__ __forceinline__ void release_successor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

/// The limits of a GPU that launches are fitted to.
struct Processor {
  int count;         // SMs
  int shared_bytes;  // that a block may have
};

inline cudaError_t processor_of(int device, Processor& processor) {
  cudaError_t const failed =
      cudaDeviceGetAttribute(&processor.count, cudaDevAttrMultiProcessorCount, device);
  if (failed != cudaSuccess) return failed;
  return cudaDeviceGetAttribute(&processor.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                device);
}

/// Launches a kernel; `early` lets it begin before its predecessor has ended (SM90 and later).
template <typename... Parameters, typename... Arguments>
inline cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, int threads, int shared_bytes,
                          cudaStream_t stream, bool early, Arguments&&... arguments) {
  constexpr int kAlwaysThere = 48 * 1024;
  if (shared_bytes > kAlwaysThere) {
    cudaError_t const failed =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (failed != cudaSuccess) return failed;
  }
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = early;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_PRIMITIVES_CUH_
