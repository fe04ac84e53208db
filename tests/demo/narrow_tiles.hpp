// SPDX-License-Identifier: Apache-2.0
// What programs share that look, on the host, at the layouts of CUTLASS' grouped block-scaled kernels with narrow tiles.
#pragma once
#include <cstdio>

#include <cuda_runtime_api.h>

// CUTLASS's device code is parsed here, not run.
static uint3 const threadIdx{}, blockIdx{};
static dim3 const blockDim{}, gridDim{};
inline void __syncthreads() {}
inline void __syncwarp() {}
extern "C" __attribute__((weak)) cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return cudaErrorUnknown; }
extern "C" __attribute__((weak)) cudaError_t cudaGetLastError() { return cudaErrorUnknown; }

#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/group_array_problem_shape.hpp"
#include "cutlass/gemm/kernel/sm90_gemm_array_tma_warpspecialized_cooperative.hpp"

using namespace cute;

constexpr int Block = 128;  // tokens whose scale factors lie together, 4 each

// Scale factors of the tile at `tile` that are not in the registers of the thread that multiplies by them, where it reads those of
// `read`. A factor is as good as its `value`, of a token in the block and a step of 32 in K.
// `columns` takes a mainloop, the whole block and `read` to what the mainloop reads.
template <class Mainloop, class Columns, class Value>
int wrong(int tile, int read, Columns columns, Value value) {
  constexpr int N = size<1>(typename Mainloop::TileShape{});
  uint8_t block[cosize_v<typename Mainloop::SmemLayoutSFB>]{};
  for (int token = 0; token < Block; ++token)
    for (int step = 0; step < 4; ++step) block[token % 32 * 16 + token / 32 * 4 + step] = value(token, step);

  Mainloop mainloop;
  auto shared = columns(mainloop, make_tensor(&block[0], typename Mainloop::SmemLayoutSFB{}), read);
  typename Mainloop::TiledMma mma;
  auto copies = make_tiled_copy_impl(Copy_Atom<UniversalCopy<uint8_t>, uint8_t>{}, mainloop.get_layoutSFB_TV(mma),
                                     make_shape(size<1>(tile_shape(mma)), size<2>(tile_shape(mma))));
  int found = 0;
  for (int thread = 0; thread < size(mma); ++thread) {
    auto its_mma = mma.get_thread_slice(thread);
    auto its_copy = copies.get_thread_slice(thread);
    auto registers = make_fragment_like<uint8_t>(mainloop.partition_fragment_SFB(shared(_, _, _0{}), its_mma));
    auto source = its_copy.partition_S(shared);
    auto target = its_copy.retile_D(registers);
    copy(source(_, _, _, 0), target);
    // Whose token a factor has to be: that of the thread's elements of B.
    auto elements = its_mma.partition_B(make_identity_tensor(Shape<Int<N>, _128>{}));
    for (int n = 0; n < size<1>(registers); ++n)
      for (int k = 0; k < size<2>(registers); ++k) {
        int const token = tile * N % Block + int(get<0>(elements(0, n, k)));
        int const step = int(get<1>(elements(0, n, k))) / 32;
        for (int v = 0; v < size<0>(registers); ++v) found += registers(v, n, k) != uint8_t(value(token, step));
      }
  }
  return found;
}

// Prints how many of the scale factors of two blocks are wrong, by columns and by steps, how many would be if every tile read the
// first's, the stages of the mainloop and the bytes of shared memory.
template <class Mainloop, class Kernel, class Columns>
void print_found(Columns columns) {
  constexpr int N = size<1>(typename Mainloop::TileShape{});
  auto token = [](int token, int) { return token; };
  auto step = [](int, int step) { return step; };
  int bad = 0, first = 0;
  for (int tile = 0; tile < 2 * Block / N; ++tile) {
    bad += wrong<Mainloop>(tile, tile, columns, token) + wrong<Mainloop>(tile, tile, columns, step);
    first += wrong<Mainloop>(tile, 0, columns, token);
  }
  std::printf("%d %d %d %d %d\n", N, bad, first, Mainloop::DispatchPolicy::Stages, int(sizeof(typename Kernel::SharedStorage)));
}
