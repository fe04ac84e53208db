// SPDX-License-Identifier: Apache-2.0
// Replaces CUTLASS' header of this name: emulates the ldmatrix that spreads nibbles, by shuffles and loads of 16 bits.
#pragma once

#define SM100_SU4_DU8x16_x4_LDSM_N SM100_SU4_DU8x16_x4_LDSM_N_of_SM100
#include_next <cute/arch/copy_sm100.hpp>
#undef SM100_SU4_DU8x16_x4_LDSM_N

#include "sm120_on_sm90.h"

namespace cute {

struct SM100_SU4_DU8x16_x4_LDSM_N {
  static constexpr bool kEmulated = true;
  using SRegisters = uint128_t[1];
  using DRegisters = uint32_t[4];

  CUTE_DEVICE static void copy(uint128_t const& smem_src, uint32_t& dst0, uint32_t& dst1, uint32_t& dst2, uint32_t& dst3) {
    uint32_t const mine = cast_smem_ptr_to_uint(&smem_src);
    dst0 = loaded(mine, 0);
    dst1 = loaded(mine, 1);
    dst2 = loaded(mine, 2);
    dst3 = loaded(mine, 3);
  }

 private:
  CUTE_DEVICE static uint32_t loaded(uint32_t mine, int matrix) {
#if defined(__CUDA_ARCH__)
    int const lane = threadIdx.x % 32;
    uint32_t const row = __shfl_sync(~0u, mine, sm120_on_sm90::lane_of_address(lane, matrix));
    uint16_t nibbles;
    asm volatile("ld.shared.u16 %0, [%1];\n" : "=h"(nibbles) : "r"(row + sm120_on_sm90::byte_of_nibbles(lane)));
    return sm120_on_sm90::spread(nibbles);
#else
    return mine + matrix;  // never called: a single lane has no warp
#endif
  }
};

}  // namespace cute
