// SPDX-License-Identifier: Apache-2.0
// Formulas for the three things that SM120's MXFP8 x MXFP4 kernels need and SM90 lacks, in plain C++, so that a CPU can check each.
//
// 1. mma.kind::mxf8f6f4.block_scale of e2m1 and e4m3: the bits of e2m1 in e4m3 give the number times 1/64, and SM90 multiplies e4m3
//    by e4m3. The blocks' scales, powers of two, are applied to the sum of 32 products in float.
// 2. ldmatrix .b8x16.b4x16_p64: 16 nibbles and 8 bytes of padding become 16 bytes.
// 3. TMA's 16U4_ALIGN16B adds the padding while it copies. Here the weights have it already (8 + 8 bytes), and are copied as bytes.
// Sources: PTX ISA 9.0, "mma with block scaling" and "ldmatrix"; OCP Microscaling Formats (MX) 1.0 for e2m1, e4m3 and e8m0.
#pragma once

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define SM120_ON_SM90 __host__ __device__ inline
#else
#define SM120_ON_SM90 inline
#endif

namespace sm120_on_sm90 {

/// Exponent of the factor between e2m1 and the e4m3 with the same bits: the difference of the exponents' biases, 7 - 1.
constexpr int kE2m1Shift = 6;
constexpr int kE8m0Bias = 127;
constexpr int kE8m0Nan = 255;

/// Converts four e2m1 in bits 2..5 of each byte (where mma.kind::mxf8f6f4 expects them) to four e4m3, each 2^-6 times as large.
SM120_ON_SM90 uint32_t e4m3_of_e2m1(uint32_t codes) { return (codes & 0x20202020u) << 2 | (codes & 0x1c1c1c1cu); }

/// Position of a lane's accumulators in a warp's 16x8 tile: element 0..3 -> row 0..15 and column 0..7.
SM120_ON_SM90 int row_of(int lane, int element) { return lane / 4 + 8 * (element / 2); }
SM120_ON_SM90 int column_of(int lane, int element) { return lane % 4 * 2 + element % 2; }

/// Lanes whose scale registers hold the scale of a row of A, and of a column of B (scale_vec::1X, thread id 0, byte id 0).
SM120_ON_SM90 int lane_of_row_scale(int row) { return row % 8 * 4 + row / 8; }
SM120_ON_SM90 int lane_of_column_scale(int column) { return column * 4; }

/// Multiplies a sum of 32 products by both blocks' e8m0 scales and by 2^power.
SM120_ON_SM90 float scaled(float sum, int row_scale, int column_scale, int power) {
  if (row_scale == kE8m0Nan || column_scale == kE8m0Nan) return NAN;
  return ldexpf(sum, row_scale + column_scale - 2 * kE8m0Bias + power);
}

/// For matrix `matrix` of an ldmatrix .m8n16 .x4: the lane whose address is that of the row for `lane`, and the byte in that row with
/// the lane's first nibble.
SM120_ON_SM90 int lane_of_address(int lane, int matrix) { return 8 * matrix + lane / 4; }
SM120_ON_SM90 int byte_of_nibbles(int lane) { return lane % 4 * 2; }

/// Spreads four nibbles to four bytes, the low one first.
SM120_ON_SM90 uint32_t spread(uint32_t nibbles) {
  return (nibbles & 0xfu) | (nibbles & 0xf0u) << 4 | (nibbles & 0xf00u) << 8 | (nibbles & 0xf000u) << 12;
}

}  // namespace sm120_on_sm90
