// SPDX-License-Identifier: Apache-2.0
// Replaces CUTLASS' header of this name: TMA copies FP4 weights as bytes, which contain their padding already.
//
// Two names in the pinned header determine this: the type that TMA gets, and the bits per element by which the header counts the
// bytes that a stage waits for (16U4_ALIGN16B does not count the padding). gemm_universal_adapter.h asserts that both are replaced.
#pragma once

#include "cutlass/numeric_types.h"

namespace cutlass {

namespace detail {
using padded_e2m1_t = uint8_t;
}

/// Bits of an element in memory and during the copy.
template <class T>
struct stored_bits : sizeof_bits<T> {};
template <>
struct stored_bits<float_e2m1_t> {
  static constexpr int value = 8;
};

}  // namespace cutlass

namespace cute {
using cutlass::stored_bits;
}

#define float_e2m1_unpacksmem_t padded_e2m1_t
#define sizeof_bits stored_bits
#include_next <cutlass/gemm/collective/sm120_blockscaled_mma_array_tma.hpp>
#undef sizeof_bits
#undef float_e2m1_unpacksmem_t
