// SPDX-License-Identifier: Apache-2.0
// The interface for Python: calls FlashInfer's launcher of one instantiation, selected by its tile.
#include <cuda_runtime.h>

#include <exception>
#include <string>

#include "cutlass/numeric_types.h"

namespace flashinfer::group_gemm {

template <int TileM, int TileN, int TileK, bool SwapAB, typename A, typename B, typename SFA, typename SFB, typename Out>
cudaError_t CutlassMXFP4GroupwiseScaledGroupGEMMSM120(void* ints, size_t int_bytes, void* floats, size_t float_bytes, A* a, B* b,
                                                      SFA* sfa, SFB* sfb, Out* out, int* m_indptr, int n, int k, int groups,
                                                      cudaStream_t stream, int device);

}  // namespace flashinfer::group_gemm

/// The same fields as in grouped.py. Not in the unnamed namespace: functions with such a parameter would be local, too.
struct Asked {
  void *ints, *floats, *a, *b, *sfa, *sfb, *out, *m_indptr;
  size_t int_bytes, float_bytes;
  int n, k, groups, device;
  void* stream;
};

namespace {

thread_local std::string problem;

template <int Columns, bool Swapped>
cudaError_t launched(Asked const& asked) {
  using Scale = cutlass::float_ue8m0_t;
  return flashinfer::group_gemm::CutlassMXFP4GroupwiseScaledGroupGEMMSM120<128, Columns, 128, Swapped>(
      asked.ints, asked.int_bytes, asked.floats, asked.float_bytes, static_cast<cutlass::float_e4m3_t*>(asked.a),
      static_cast<cutlass::float_e2m1_t*>(asked.b), static_cast<Scale*>(asked.sfa), static_cast<Scale*>(asked.sfb),
      static_cast<cutlass::bfloat16_t*>(asked.out), static_cast<int*>(asked.m_indptr), asked.n, asked.k, asked.groups,
      static_cast<cudaStream_t>(asked.stream), asked.device);
}

cudaError_t chosen(int columns, bool swapped, Asked const& asked) {
  if (columns == 32) return swapped ? launched<32, true>(asked) : launched<32, false>(asked);
  if (columns == 64) return swapped ? launched<64, true>(asked) : launched<64, false>(asked);
  if (columns == 128) return swapped ? launched<128, true>(asked) : launched<128, false>(asked);
  problem = "no such tile";
  return cudaErrorInvalidValue;
}

}  // namespace

extern "C" {

/// Starts one grouped GEMM; returns 0 or a CUDA error, for which `sm120_problem` may have details.
int sm120_group_gemm(int columns, int swapped, Asked const* asked) {
  problem.clear();
  try {
    return chosen(columns, swapped != 0, *asked);
  } catch (std::exception const& failed) {
    problem = failed.what();
    return cudaErrorUnknown;
  }
}

char const* sm120_problem() { return problem.c_str(); }

size_t sm120_asked_bytes() { return sizeof(Asked); }

}
