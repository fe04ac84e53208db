// SPDX-License-Identifier: Apache-2.0
#ifndef FLASHINFER_MXFP4_BYTE_PRIMITIVES_CUH_
#define FLASHINFER_MXFP4_BYTE_PRIMITIVES_CUH_

// What products of bytes ask of the device beyond primitives.cuh: each instruction once, from SM80 on.

#include "flashinfer/mxfp4/primitives.cuh"

namespace flashinfer {
namespace mxfp4 {

/// The number, in a register from here on: the compiler would compute it again where it is needed.
template <typename Number>
__device__ __forceinline__ Number keep_number(Number number) {
  asm volatile("" : "+r"(number));
  return number;
}

/// As `permute_bytes`, but that a nibble of 8 and more gives eight times the highest bit of the byte that the rest of it names.
__device__ __forceinline__ uint32_t permute_signs(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;\n" : "=r"(bytes) : "r"(low), "r"(high), "r"(selector));
  return bytes;
}

/// sum += a b, 16 rows, 8 columns, 32 products each, of bytes without a sign and with one. Lanes hold what they hold of
/// `mma_m16n8k16`, but for a word having four products: 4 (l % 4) and the next three, or these and 16.
__device__ __forceinline__ void mma_m16n8k32(int32_t (&sum)[4], uint32_t const (&a)[4], uint32_t const (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// sum + a b, byte by byte, of bytes without a sign and with one.
__device__ __forceinline__ int32_t dot_bytes(uint32_t a, uint32_t b, int32_t sum) {
  int32_t all;
  asm("dp4a.u32.s32 %0, %1, %2, %3;\n" : "=r"(all) : "r"(a), "r"(b), "r"(sum));
  return all;
}

/// The whole number nearest to a product, ties to even, where that is below 2^15: in the low half, with more above it.
__device__ __forceinline__ uint32_t to_whole(float number, float by) { return __float_as_uint(__fmaf_rn(number, by, 12582912.0f)); }

__device__ __forceinline__ float to_float(int32_t number) { return __int2float_rn(number); }

__device__ __forceinline__ float float_of_bits(uint32_t bits) { return __uint_as_float(bits); }

/// By the bits: compilers that are told to be fast believe that all numbers are.
__device__ __forceinline__ bool is_finite(float number) { return (__float_as_uint(number) & 0x7F800000u) != 0x7F800000u; }

/// What the lane has whose number differs from this one's by these bits.
template <typename Number>
__device__ __forceinline__ Number exchange(Number number, int bits) {
  return __shfl_xor_sync(0xffffffffu, number, bits);
}

/// Begins to copy up to 16 bytes that are only read to shared memory, aligned to 16, and zeros after them.
__device__ __forceinline__ void copy_16(uint8_t* to, void const* from, int bytes) {
  auto const shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(shared), "l"(from), "r"(bytes) : "memory");
}

/// Begins to copy up to four bytes, aligned to four, and zeros after them; nothing where it is not `wanted`.
__device__ __forceinline__ void copy_4(uint8_t* to, void const* from, int bytes, bool wanted) {
  auto const shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile(
      "{\n.reg .pred wanted;\nsetp.ne.s32 wanted, %3, 0;\n@wanted cp.async.ca.shared.global [%0], [%1], 4, %2;\n}\n" ::"r"(shared),
      "l"(from), "r"(bytes), "r"(static_cast<int>(wanted))
      : "memory");
}

/// Ends a group of this thread's copies.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

/// Waits for all but the last groups of this thread's copies.
template <int kGroups>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kGroups) : "memory");
}

/// What lanes of a warp have written before can be read by all of them after.
__device__ __forceinline__ void sync_warp() { __syncwarp(); }

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_BYTE_PRIMITIVES_CUH_
