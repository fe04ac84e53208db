// SPDX-License-Identifier: Apache-2.0
// The layouts of the grouped MXFP8 x MXFP4 kernel with weights as rows and few tokens as columns, on the host. Prints, a tile a line:
// its columns, scale factors of tokens that are wrong, those that would be if every tile read the first's, stages of the mainloop,
// bytes of shared memory.
#include "narrow_tiles.hpp"

// As FlashInfer's launcher has it.
template <int N>
struct Swapped {
  using Weights = cute::tuple<cutlass::float_e2m1_t, cutlass::float_ue8m0_t>;
  using Tokens = cute::tuple<cutlass::float_e4m3_t, cutlass::float_ue8m0_t>;
  using Bf16 = cutlass::bfloat16_t;
  using Output = cutlass::layout::ColumnMajor;
  using Shape_MNK = Shape<_128, Int<N>, _128>;
  using Cluster = Shape<_1, _1, _1>;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm120, cutlass::arch::OpClassBlockScaledTensorOp, Shape_MNK, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Output*, 8, Bf16, Output*, 8,
      cutlass::epilogue::collective::EpilogueScheduleAuto>::CollectiveOp;
  using Stages = cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(typename Epilogue::SharedStorage))>;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm120, cutlass::arch::OpClassBlockScaledTensorOp, Weights, cutlass::layout::RowMajor*, 32, Tokens,
      cutlass::layout::ColumnMajor*, 16, float, Shape_MNK, Cluster, Stages,
      cutlass::gemm::collective::KernelScheduleAuto>::CollectiveOp;
  using Kernel =
      cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<Shape<int, int, int>>, Mainloop, Epilogue>;
};

template <int N>
void print() {
  print_found<typename Swapped<N>::Mainloop, typename Swapped<N>::Kernel>(
      [](auto const&, auto const& whole, int read) { return whole(make_coord(_, read % (Block / N)), _, _); });
}

int main() {
  print<8>();
  print<16>();
  print<32>();
}
