// SPDX-License-Identifier: Apache-2.0
// Replaces FlashInfer's header of this name, whose step between two groups' weights is their unpadded size: here they are padded.
#pragma once

#include "flashinfer/cutlass_utils.cuh"

#define sizeof_bits stored_bits
#include_next <flashinfer/gemm/group_gemm_mxfp4_groupwise_sm120.cuh>
#undef sizeof_bits
