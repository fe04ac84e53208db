// SPDX-License-Identifier: Apache-2.0
// The grouped MXFP8 x MXFP4 kernel's own layouts, on the host: which scale factors the threads of a tile read, and what fits into
// shared memory. Prints, a tile a line: operands swapped or not, N, scale factors that are wrong, those that would be if every tile
// read the first's, stages of the mainloop, bytes of shared memory.
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

constexpr int Block = 128;  // columns whose scale factors lie together, 4 each

template <bool Swapped, int N>
struct Narrow {
  using F4 = cutlass::mx_float4_t<cutlass::float_e2m1_t>;
  using F8 = cutlass::mx_float8_t<cutlass::float_e4m3_t>;
  using Bf16 = cutlass::bfloat16_t;
  using Shape_MNK = Shape<_128, Int<N>, _128>;
  using Cluster = Shape<_1, _1, _1>;
  using Output = std::conditional_t<Swapped, cutlass::layout::ColumnMajor, cutlass::layout::RowMajor>;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm120, cutlass::arch::OpClassBlockScaledTensorOp, Shape_MNK, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, Bf16, Output*, 8, Bf16, Output*, 8,
      cutlass::epilogue::TmaWarpSpecialized>::CollectiveOp;
  using Stages = cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(typename Epilogue::SharedStorage))>;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm120, cutlass::arch::OpClassBlockScaledTensorOp, std::conditional_t<Swapped, F4, F8>,
      cutlass::layout::RowMajor*, Swapped ? 128 : 16, std::conditional_t<Swapped, F8, F4>, cutlass::layout::ColumnMajor*,
      Swapped ? 16 : 128, float, Shape_MNK, Cluster, Stages, cutlass::gemm::collective::KernelScheduleAuto>::CollectiveOp;
  using Kernel =
      cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<Shape<int, int, int>>, Mainloop, Epilogue>;
};

// Scale factors of the tile at `tile` that are not in the registers of the thread that multiplies by them, where it is told that
// `told` is next. A factor is as good as its `value`, of a column in the block and a step of 32 in K.
template <class Mainloop, class Value>
int wrong(int tile, int told, Value value) {
  constexpr int N = size<1>(typename Mainloop::TileShape{});
  uint8_t block[cosize_v<typename Mainloop::SmemLayoutSFB>]{};
  for (int column = 0; column < Block; ++column)
    for (int step = 0; step < 4; ++step) block[column % 32 * 16 + column / 32 * 4 + step] = value(column, step);

  Mainloop mainloop;
  mainloop.narrow_n.at(told);
  auto shared = mainloop.narrow_n.columns(make_tensor(&block[0], typename Mainloop::SmemLayoutSFB{}));
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
    // Whose column a factor has to be: that of the thread's elements of B.
    auto elements = its_mma.partition_B(make_identity_tensor(Shape<Int<N>, _128>{}));
    for (int n = 0; n < size<1>(registers); ++n)
      for (int k = 0; k < size<2>(registers); ++k) {
        int const column = tile * N % Block + int(get<0>(elements(0, n, k)));
        int const step = int(get<1>(elements(0, n, k))) / 32;
        for (int v = 0; v < size<0>(registers); ++v) found += registers(v, n, k) != uint8_t(value(column, step));
      }
  }
  return found;
}

template <bool Swapped, int N>
void print() {
  using Mainloop = typename Narrow<Swapped, N>::Mainloop;
  auto column = [](int column, int) { return column; };
  auto step = [](int, int step) { return step; };
  int bad = 0, first = 0;
  for (int tile = 0; tile < 2 * Block / N; ++tile) {
    bad += wrong<Mainloop>(tile, tile, column) + wrong<Mainloop>(tile, tile, step);
    first += wrong<Mainloop>(tile, 0, column);
  }
  std::printf("%s %d %d %d %d %d\n", Swapped ? "swapped" : "straight", N, bad, first, Mainloop::DispatchPolicy::Stages,
              int(sizeof(typename Narrow<Swapped, N>::Kernel::SharedStorage)));
}

int main() {
  print<true, 32>();
  print<true, 64>();
  print<false, 32>();
  print<false, 64>();
}
