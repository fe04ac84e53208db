// SPDX-License-Identifier: Apache-2.0
// Replaces CUTLASS' header of this name: a kernel is launched on SM90 only if it fits SM120 and uses all of the replacements.

#pragma once

#define GemmUniversalAdapter GemmUniversalAdapterOfUpstream
#include_next <cutlass/gemm/device/gemm_universal_adapter.h>
#undef GemmUniversalAdapter

#include "cutlass/arch/arch.h"

#ifndef SM120_SHARED_BYTES
#define SM120_SHARED_BYTES cutlass::arch::sm120_smem_capacity_bytes
#endif

namespace cutlass::gemm::device {

template <class Kernel>
class GemmUniversalAdapter : public GemmUniversalAdapterOfUpstream<Kernel> {
  using Mainloop = typename Kernel::CollectiveMainloop;
  static_assert(Kernel::SharedStorageSize <= SM120_SHARED_BYTES, "this kernel takes more shared memory than SM120 has");
  static_assert(Mainloop::TiledMma::MMA_Op::kEmulated, "this MMA is SM120's own");

  template <class Atom>
  struct loaded_by {};
  template <class Operation, class Element>
  struct loaded_by<cute::Copy_Atom<Operation, Element>> : Operation {};
  template <class Element, class Atom>
  static constexpr bool is_ours() {
    if constexpr (cute::is_same_v<Element, float_e2m1_t>) return loaded_by<Atom>::kEmulated;
    return true;
  }
  static_assert(is_ours<typename Mainloop::ElementA, typename Mainloop::SmemCopyAtomA>() &&
                    is_ours<typename Mainloop::ElementB, typename Mainloop::SmemCopyAtomB>(),
                "FP4 is loaded by SM120's own ldmatrix");
  static_assert(cute::is_same_v<typename Mainloop::TmaInternalElementA, uint8_t> &&
                    cute::is_same_v<typename Mainloop::TmaInternalElementB, uint8_t>,
                "TMA is told another type than bytes");
  static_assert(Mainloop::TmaTransactionBytes ==
                    cute::size(cute::take<0, 2>(typename Mainloop::SmemLayoutA{})) +
                        cute::size(cute::take<0, 2>(typename Mainloop::SmemLayoutB{})) +
                        cute::cosize(cute::take<0, 2>(typename Mainloop::SmemLayoutSFA{})) +
                        cute::cosize(cute::take<0, 2>(typename Mainloop::SmemLayoutSFB{})),
                "a stage waits for another number of bytes than TMA brings");
};

}  // namespace cutlass::gemm::device
