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
#ifndef FLASHINFER_MXFP4_WARPGROUP_CUH_
#define FLASHINFER_MXFP4_WARPGROUP_CUH_

// Instructions of SM90a that the MXFP4 prefill kernels use beside those of primitives.cuh: barriers
// in shared memory, bulk copies, and matrix multiplication by warpgroups.

#include "flashinfer/mxfp4/primitives.cuh"

namespace flashinfer {
namespace mxfp4 {

constexpr int kWarpgroup = 4 * kWarp;

__device__ __forceinline__ uint32_t shared_address(void const* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Initializes a barrier in shared memory, complete after `count` arrivals.
__device__ __forceinline__ void init_barrier(uint64_t* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(barrier)),
               "r"(count)
               : "memory");
}

/// Makes initialized barriers visible to bulk copies.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

__device__ __forceinline__ void arrive(uint64_t* barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}\n" ::"r"(
                   shared_address(barrier))
               : "memory");
}

/// Arrives, and lets the phase wait for `bytes` bytes of bulk copies, too.
__device__ __forceinline__ void arrive_expecting(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}\n" ::"r"(
          shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

/// Arrives once this thread's asynchronous copies have ended (`copy_16`, `copy_4`).
__device__ __forceinline__ void arrive_after_copies(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(
                   shared_address(barrier))
               : "memory");
}

/// Waits until the phase with this parity is complete.
__device__ __forceinline__ void wait_barrier(uint64_t* barrier, uint32_t parity) {
  uint32_t const address = shared_address(barrier);
  uint32_t complete;
  do {
    asm volatile(
        "{\n.reg .pred complete;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
        "selp.u32 %0, 1, 0, complete;\n}\n"
        : "=r"(complete)
        : "r"(address), "r"(parity)
        : "memory");
  } while (complete == 0);
}

/// Begins to copy to shared memory; the barrier counts the bytes. Both addresses and `bytes` are
/// multiples of 16.
__device__ __forceinline__ void copy_bulk(void* to, void const* from, uint32_t bytes,
                                          uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];\n" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

/// Begins to copy from shared to global memory, as one group of this thread's.
__device__ __forceinline__ void store_bulk(void* to, void const* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}

/// Waits until this thread's bulk stores have read their source.
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory");
}

/// Waits until this thread's bulk stores are complete.
__device__ __forceinline__ void wait_stores() {
  asm volatile("cp.async.bulk.wait_group 0;\n" ::: "memory");
}

/// Makes this thread's writes to shared memory visible to bulk stores that begin after a barrier.
__device__ __forceinline__ void publish_shared() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

/// Stores four 8x8 matrices of 16-bit numbers, transposed: lane l gives the address of row l % 8 of
/// matrix l / 8. Of the matrices it holds row l / 4, columns 2 (l % 4) and the next.
__device__ __forceinline__ void store_transposed(uint32_t to, uint32_t a, uint32_t b, uint32_t c,
                                                 uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(to),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

/// As `store_transposed`, two matrices: the addresses come from the first 16 lanes.
__device__ __forceinline__ void store_transposed(uint32_t to, uint32_t a, uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};\n" ::"r"(to), "r"(a),
               "r"(b)
               : "memory");
}

/// Two BF16 numbers, the first in the low half.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Describes rows of 64 16-bit numbers in shared memory, aligned to 1024 bytes, whose 16-byte parts
/// are permuted within eight rows: part c of row r lies at c ^ (r % 8).
__device__ __forceinline__ uint64_t describe_rows(void const* rows) {
  constexpr uint64_t kEightRows = 1024 / 16;
  constexpr uint64_t kPermuted128 = 1;
  return (shared_address(rows) & 0x3FFFFu) >> 4 | uint64_t{1} << 16 | kEightRows << 32 |
         kPermuted128 << 62;
}

/// Gives back registers of this warpgroup: each thread keeps kRegisters.
template <int kRegisters>
__device__ __forceinline__ void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

/// Takes registers that others gave back: each thread then has kRegisters.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

/// Orders this warpgroup's accesses to registers before its multiplications.
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

/// Waits for all but the last groups of multiplications.
template <int kGroups>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kGroups) : "memory");
}

/// sums = a b + (accumulate ? sums : 0) by a warpgroup: 64 rows, kColumns columns, 16 products,
/// BF16 with sums in float32. `b` are rows as `describe_rows` has them, one for each column. Warp w
/// of the warpgroup has rows 16 w to 16 w + 15; its lanes hold of them what they hold of
/// `mma_m16n8k16`, and so they do of the sums of each eight columns. The registers are in use until
/// `wait_products`.
template <int kColumns>
__device__ __forceinline__ void multiply(float (&sums)[kColumns / 2], uint32_t const (&a)[4],
                                         uint64_t b, int accumulate);

// clang-format off
#define FLASHINFER_R0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FLASHINFER_R1 FLASHINFER_R0 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define FLASHINFER_R2 FLASHINFER_R1 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define FLASHINFER_R3 FLASHINFER_R2 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define FLASHINFER_R4 FLASHINFER_R3 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define FLASHINFER_R5 FLASHINFER_R4 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define FLASHINFER_R6 FLASHINFER_R5 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define FLASHINFER_R7 FLASHINFER_R6 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define FLASHINFER_R8 FLASHINFER_R7 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define FLASHINFER_R9 FLASHINFER_R8 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define FLASHINFER_R10 FLASHINFER_R9 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define FLASHINFER_R11 FLASHINFER_R10 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define FLASHINFER_R12 FLASHINFER_R11 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define FLASHINFER_R13 FLASHINFER_R12 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define FLASHINFER_R14 FLASHINFER_R13 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define FLASHINFER_R15 FLASHINFER_R14 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define FLASHINFER_S(i) "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3]), \
                        "+f"(s[i + 4]), "+f"(s[i + 5]), "+f"(s[i + 6]), "+f"(s[i + 7])
#define FLASHINFER_S0 FLASHINFER_S(0)
#define FLASHINFER_S1 FLASHINFER_S0, FLASHINFER_S(8)
#define FLASHINFER_S2 FLASHINFER_S1, FLASHINFER_S(16)
#define FLASHINFER_S3 FLASHINFER_S2, FLASHINFER_S(24)
#define FLASHINFER_S4 FLASHINFER_S3, FLASHINFER_S(32)
#define FLASHINFER_S5 FLASHINFER_S4, FLASHINFER_S(40)
#define FLASHINFER_S6 FLASHINFER_S5, FLASHINFER_S(48)
#define FLASHINFER_S7 FLASHINFER_S6, FLASHINFER_S(56)
#define FLASHINFER_S8 FLASHINFER_S7, FLASHINFER_S(64)
#define FLASHINFER_S9 FLASHINFER_S8, FLASHINFER_S(72)
#define FLASHINFER_S10 FLASHINFER_S9, FLASHINFER_S(80)
#define FLASHINFER_S11 FLASHINFER_S10, FLASHINFER_S(88)
#define FLASHINFER_S12 FLASHINFER_S11, FLASHINFER_S(96)
#define FLASHINFER_S13 FLASHINFER_S12, FLASHINFER_S(104)
#define FLASHINFER_S14 FLASHINFER_S13, FLASHINFER_S(112)
#define FLASHINFER_S15 FLASHINFER_S14, FLASHINFER_S(120)
#define FLASHINFER_MULTIPLY(columns, eights, a0, a1, a2, a3, b, flag)                            \
  template <>                                                                                    \
  __device__ __forceinline__ void multiply<columns>(float (&s)[columns / 2],                     \
                                                    uint32_t const (&a)[4], uint64_t rows,       \
                                                    int accumulate) {                            \
    asm volatile("{\n.reg .pred more;\nsetp.ne.b32 more, %" #flag ", 0;\n"                       \
                 "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 {"              \
                 FLASHINFER_R##eights "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b        \
                 ", more, 1, 1, 0;\n}\n"                                                         \
                 : FLASHINFER_S##eights                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows), "r"(accumulate));      \
  }
FLASHINFER_MULTIPLY(16, 0, 8, 9, 10, 11, 12, 13)
FLASHINFER_MULTIPLY(32, 1, 16, 17, 18, 19, 20, 21)
FLASHINFER_MULTIPLY(48, 2, 24, 25, 26, 27, 28, 29)
FLASHINFER_MULTIPLY(64, 3, 32, 33, 34, 35, 36, 37)
FLASHINFER_MULTIPLY(80, 4, 40, 41, 42, 43, 44, 45)
FLASHINFER_MULTIPLY(96, 5, 48, 49, 50, 51, 52, 53)
FLASHINFER_MULTIPLY(112, 6, 56, 57, 58, 59, 60, 61)
FLASHINFER_MULTIPLY(128, 7, 64, 65, 66, 67, 68, 69)
FLASHINFER_MULTIPLY(144, 8, 72, 73, 74, 75, 76, 77)
FLASHINFER_MULTIPLY(160, 9, 80, 81, 82, 83, 84, 85)
FLASHINFER_MULTIPLY(176, 10, 88, 89, 90, 91, 92, 93)
FLASHINFER_MULTIPLY(192, 11, 96, 97, 98, 99, 100, 101)
FLASHINFER_MULTIPLY(208, 12, 104, 105, 106, 107, 108, 109)
FLASHINFER_MULTIPLY(224, 13, 112, 113, 114, 115, 116, 117)
FLASHINFER_MULTIPLY(240, 14, 120, 121, 122, 123, 124, 125)
FLASHINFER_MULTIPLY(256, 15, 128, 129, 130, 131, 132, 133)
// clang-format on

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_WARPGROUP_CUH_
