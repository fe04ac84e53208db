// SPDX-License-Identifier: Apache-2.0
// The grouped MXFP8 x MXFP4 kernel's own layouts, on the host: which scale factors the threads of a tile read, and what fits into
// shared memory. Prints, a tile a line: operands swapped or not, N, scale factors that are wrong, those that would be if every tile
// read the first's, stages of the mainloop, bytes of shared memory.
#include "narrow_tiles.hpp"

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

template <bool Swapped, int N>
void print() {
  using Tile = Narrow<Swapped, N>;
  std::printf("%s ", Swapped ? "swapped" : "straight");
  print_found<typename Tile::Mainloop, typename Tile::Kernel>([](auto& mainloop, auto const& whole, int told) {
    mainloop.narrow_n.at(told);
    return mainloop.narrow_n.columns(whole);
  });
}

int main() {
  print<true, 32>();
  print<true, 64>();
  print<false, 32>();
  print<false, 64>();
}
