// SPDX-License-Identifier: Apache-2.0
// Stands before FlashInfer's header of this name, which steps from one group's weights to the next by their bits: here they are padded.
#pragma once

#include "flashinfer/cutlass_utils.cuh"

#define sizeof_bits stored_bits
#include_next <flashinfer/gemm/group_gemm_mxfp4_groupwise_sm120.cuh>
#undef sizeof_bits
