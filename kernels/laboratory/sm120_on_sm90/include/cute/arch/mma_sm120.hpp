// SPDX-License-Identifier: Apache-2.0
// Replaces CUTLASS' header of this name: emulates SM120's block-scaled MXFP8 x MXFP4 with SM90's e4m3 MMA.
#pragma once

#include_next <cute/arch/mma_sm120.hpp>

#include "sm120_on_sm90.h"

namespace sm120_on_sm90 {

template <bool Fp4A, bool Fp4B>
struct BlockScaledMma {
  static constexpr bool kEmulated = true;
  using DRegisters = float[4];
  using ARegisters = uint32_t[4];
  using BRegisters = uint32_t[2];
  using CRegisters = float[4];
  using SFARegisters = uint8_t[1];
  using SFBRegisters = uint8_t[1];

  CUTE_HOST_DEVICE static void fma(float& d0, float& d1, float& d2, float& d3, uint32_t const& a0, uint32_t const& a1,
                                   uint32_t const& a2, uint32_t const& a3, uint32_t const& b0, uint32_t const& b1,
                                   float const& c0, float const& c1, float const& c2, float const& c3, uint8_t const& sfa,
                                   uint8_t const& sfb) {
#if defined(__CUDA_ARCH__)
    uint32_t const a[4] = {as_e4m3<Fp4A>(a0), as_e4m3<Fp4A>(a1), as_e4m3<Fp4A>(a2), as_e4m3<Fp4A>(a3)};
    uint32_t const b[2] = {as_e4m3<Fp4B>(b0), as_e4m3<Fp4B>(b1)};
    float sum[4] = {0, 0, 0, 0};
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    int const lane = threadIdx.x % 32;
    int rows[2], columns[2];
    for (int half = 0; half < 2; ++half) {
      rows[half] = __shfl_sync(~0u, int(sfa), lane_of_row_scale(row_of(lane, 2 * half)));
      columns[half] = __shfl_sync(~0u, int(sfb), lane_of_column_scale(column_of(lane, half)));
    }
    constexpr int power = kE2m1Shift * (int(Fp4A) + int(Fp4B));
    d0 = c0 + scaled(sum[0], rows[0], columns[0], power);
    d1 = c1 + scaled(sum[1], rows[0], columns[1], power);
    d2 = c2 + scaled(sum[2], rows[1], columns[0], power);
    d3 = c3 + scaled(sum[3], rows[1], columns[1], power);
#endif
  }

 private:
  template <bool Fp4>
  CUTE_HOST_DEVICE static uint32_t as_e4m3(uint32_t codes) {
    return Fp4 ? e4m3_of_e2m1(codes) : codes;
  }
};

}  // namespace sm120_on_sm90

namespace cute::SM120::BLOCKSCALED {

template <>
struct SM120_16x8x32_TN_VS<float_e4m3_t, float_e2m1_t, float, float_ue8m0_t, 32> : sm120_on_sm90::BlockScaledMma<false, true> {};
template <>
struct SM120_16x8x32_TN_VS<float_e2m1_t, float_e4m3_t, float, float_ue8m0_t, 32> : sm120_on_sm90::BlockScaledMma<true, false> {};

}  // namespace cute::SM120::BLOCKSCALED
