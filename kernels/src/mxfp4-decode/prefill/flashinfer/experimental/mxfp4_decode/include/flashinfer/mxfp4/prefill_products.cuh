/*
 * Copyright (c) 2026 by FlashInfer team.
 *
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at
 *
 *   http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */
#ifndef FLASHINFER_MXFP4_PREFILL_PRODUCTS_CUH_
#define FLASHINFER_MXFP4_PREFILL_PRODUCTS_CUH_

// Products of a mixture of experts in MXFP4 with many tokens, on SM90a. A tile has two blocks of 128
// rows of an expert's matrix and up to 128 of its entries. Weights are the first operand: they become
// BF16 in registers, exactly. Entries are the second, in shared memory, see prefill_plan.cuh.
//
// A warpgroup copies codes, scales and entries, 64 columns at a time, through a ring. Two others
// multiply: while the tensor cores have one block, the weights of the other one are converted. Which
// rows of the matrix a lane has is free, so that up and gate of a column meet in one lane, and the
// results of a lane are neighbours.


#include "flashinfer/mxfp4/prefill_copies.cuh"

namespace flashinfer {
namespace mxfp4 {

/// A tile with up to this many entries leaves registers for the weights of two planes.
constexpr int kFewColumns = 32;

/// Weights of a plane of both blocks.
struct PlaneWeights {
  Weights words[kBlocks][2];
};

/// One of the warps that multiply, and its place in the ring.
struct ProductWarp {
  ProductShared const& shared;
  RingPlace place;
  int warp, lane;

  __device__ __forceinline__ uint8_t* slot() const { return shared.slot(place.slot); }
  __device__ __forceinline__ void wait_full() const {
    wait_barrier(shared.full + place.slot, place.parity);
  }
  __device__ __forceinline__ void release(int slot) const {
    if (lane == 0) arrive(shared.empty + slot);
  }

  /// Begins the multiplications of a block by 32 columns of the plane in the ring.
  template <int kColumns, int kWord>
  __device__ __forceinline__ void begin(float (&sums)[kColumns / 2], Weights const& weights) const {
    uint64_t const rows = describe_rows(slot()) + 4 * kWord;
    begin_products();
    multiply<kColumns>(sums, weights.a[0], rows, 1);
    multiply<kColumns>(sums, weights.a[1], rows + 2, 1);
    commit_products();
  }

  __device__ __forceinline__ void convert_plane(PlaneWeights& weights, int plane) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      StoredWeights const stored = load_weights(slot(), block * kProductWarps + warp, lane, plane);
      convert<0>(weights.words[block][0], stored);
      convert<1>(weights.words[block][1], stored);
    }
  }

  /// Multiplies a plane while the weights of the next are converted; returns whether it was the last.
  template <int kColumns>
  __device__ __forceinline__ bool multiply_plane(float (&sums)[kBlocks][kColumns / 2],
                                                 PlaneWeights const& now, PlaneWeights& next,
                                                 int plane, int planes) {
    int const before = place.slot;
    uint64_t const rows = describe_rows(slot());
    begin_products();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        multiply<kColumns>(sums[block], now.words[block][step / 2].a[step % 2], rows + 2 * step, 1);
      }
    }
    commit_products();
    place.advance();
    bool const last = plane + 1 == planes;
    if (!last) {
      wait_full();
      convert_plane(next, plane + 1);
    }
    wait_products<0>();
    release(before);
    return last;
  }

  /// Multiplies both blocks, with a wait for each plane instead of four.
  template <int kColumns>
  __device__ __forceinline__ void multiply_few(float (&sums)[kBlocks][kColumns / 2],
                                                       int planes) {
    PlaneWeights even, odd;
    wait_full();
    convert_plane(even, 0);
#pragma unroll 1
    for (int plane = 0;; plane += 2) {
      if (multiply_plane<kColumns>(sums, even, odd, plane, planes)) break;
      if (multiply_plane<kColumns>(sums, odd, even, plane + 1, planes)) break;
    }
  }

  /// Multiplies both blocks, or the first one: while the tensor cores have 32 columns, the weights of
  /// the next are converted.
  template <int kColumns>
  __device__ __forceinline__ void multiply_tile(float (&sums)[kBlocks][kColumns / 2], int planes,
                                                bool both) {
    Weights even, odd;
    wait_full();
    StoredWeights stored = load_weights(slot(), warp, lane, 0);
    convert<0>(even, stored);
    int before = -1;
#pragma unroll 1
    for (int plane = 0; plane < planes; ++plane) {
      begin<kColumns, 0>(sums[0], even);
      wait_products<1>();
      if (before >= 0) release(before);
      convert<1>(odd, stored);
      begin<kColumns, 1>(sums[0], odd);
      wait_products<1>();
      if (both) {
        stored = load_weights(slot(), kProductWarps + warp, lane, plane);
        convert<0>(even, stored);
        begin<kColumns, 0>(sums[1], even);
        wait_products<1>();
        convert<1>(odd, stored);
        begin<kColumns, 1>(sums[1], odd);
        wait_products<1>();
      }
      before = place.slot;
      place.advance();
      if (plane + 1 < planes) {
        wait_full();
        stored = load_weights(slot(), warp, lane, plane + 1);
        convert<0>(even, stored);
      }
    }
    wait_products<0>();
    release(before);
  }
};

__device__ __forceinline__ float prefill_swiglu(MoePrefill const& moe, float up, float gate) {
  // By comparisons: fminf() would make the limit of a NaN.
  gate = gate > moe.limit ? moe.limit : gate;
  up = up > moe.limit ? moe.limit : up < -moe.limit ? -moe.limit : up;
  return (up + moe.beta) * __fdividef(gate, 1.0f + __expf(-moe.alpha * gate));
}

/// The biases of a lane's two rows.
struct Biases {
  float first = 0.0f, second = 0.0f;
};

template <bool kUp>
__device__ __forceinline__ Biases biases_of(ProductMatrix const& matrix, int expert, int row) {
  Biases biases;
  if (matrix.bias == nullptr || row >= matrix.outputs) return biases;
  uint16_t const* const its =
      matrix.bias + static_cast<int64_t>(expert) * matrix.expert_rows + row;
  biases.first = from_bf16(its[0]);
  biases.second = from_bf16(its[kUp ? matrix.gate : 1]);
  return biases;
}

/// Of the first product: bias, SwiGLU, and the block as a plane in shared memory.
template <int kColumns>
__device__ __forceinline__ void stage_block(MoePrefill const& moe, float const (&sums)[kColumns / 2],
                                            Biases biases, uint8_t* stage, int warp, int lane) {
  uint32_t const to = shared_address(stage) + lane % 16 * kPlaneRowBytes +
                      (warp ^ lane % kRowsTogether) * 16;
#pragma unroll
  for (int i = 0; i < kColumns / 16; ++i) {
    uint32_t pairs[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float const* const its = sums + 8 * i + 4 * j;
      pairs[j] = pack_bf16(prefill_swiglu(moe, its[0] + biases.first, its[2] + biases.second),
                           prefill_swiglu(moe, its[1] + biases.first, its[3] + biases.second));
    }
    store_transposed(to + i * 16 * kPlaneRowBytes, pairs[0], pairs[1]);
  }
}

/// Of the second product: bias, and the results of entries.
template <int kColumns>
__device__ __forceinline__ void store_block(ProductMatrix const& matrix,
                                            float const (&sums)[kColumns / 2], Biases biases,
                                            uint16_t* to, int count, int lane) {
#pragma unroll
  for (int i = 0; i < kColumns / 4; ++i) {
    int const entry = i / 2 * 8 + lane % 4 * 2 + i % 2;
    float const* const its = sums + i / 2 * 4 + i % 2;
    if (entry < count) {
      *reinterpret_cast<uint32_t*>(to + static_cast<int64_t>(entry) * matrix.outputs) =
          pack_bf16(its[0] + biases.first, its[2] + biases.second);
    }
  }
}

/// Multiplies both blocks of a tile, or the first one, with up to kColumns entries.
template <bool kUp, int kColumns>
__device__ __forceinline__ void product_tile(MoePrefill const& moe, ProductMatrix const& matrix,
                                             ProductWarp& product, EntryTile const& tile,
                                             int part, bool both) {
  using Order = RowOrder<kUp>;
  float sums[kBlocks][kColumns / 2];
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sums[block][i] = 0.0f;
  }
  if constexpr (kColumns <= kFewColumns) {
    product.multiply_few<kColumns>(sums, planes_of(matrix.columns));
  } else {
    product.multiply_tile<kColumns>(sums, planes_of(matrix.columns), both);
  }
  // From here on: what depends on these would take registers during the multiplications.
  int const warp = product.warp;
  int const lane = keep_number(product.lane);
  int const row = part * (kBlocks * Order::kOutputs) + Order::of_lane(lane / 4) +
                  Order::of_unit(warp);
  Biases biases[kBlocks];
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) asm volatile("" : "+f"(sums[block][i])::"memory");
    biases[block] = biases_of<kUp>(matrix, tile.expert, row + block * Order::kOutputs);
  }
  if constexpr (kUp) {
    uint8_t* const stage = product.shared.stage;
    if (threadIdx.x == 0) wait_stores_read();
    sync_team(0, kProductThreads);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      stage_block<kColumns>(moe, sums[block], biases[block], stage + block * kSlotEntries, warp,
                            lane);
    }
    publish_shared();
    sync_team(0, kProductThreads);
    if (threadIdx.x == 0) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        if (block > 0 && !both) break;
        store_bulk(
            reinterpret_cast<uint8_t*>(moe.activated) +
                (static_cast<int64_t>(part * kBlocks + block) * moe.rows + tile.first) *
                    kPlaneRowBytes,
            stage + block * kSlotEntries, padded_rows(tile.count) * kPlaneRowBytes);
      }
    }
  } else {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      int const its_row = row + block * Order::kOutputs;
      if (its_row >= matrix.outputs) continue;
      store_block<kColumns>(matrix, sums[block], biases[block],
                            moe.partial + static_cast<int64_t>(tile.first) * matrix.outputs +
                                its_row,
                            tile.count, lane);
    }
  }
}

/// Multiplies a tile if it has up to kColumns entries; returns whether it has.
template <bool kUp, int kColumns>
__device__ __forceinline__ bool take_tile(MoePrefill const& moe, ProductMatrix const& matrix,
                                          ProductWarp& product, EntryTile const& tile, int part) {
  if (tile.count > kColumns) return false;
  bool const both = (part * kBlocks + 1) * RowOrder<kUp>::kOutputs < matrix.outputs;
  product_tile<kUp, kColumns>(moe, matrix, product, tile, part, both);
  return true;
}

/// One of both products, for all tiles, which have up to kColumns entries, in ascending order.
/// `entries` are planes. With more than four numbers of columns ptxas has too few registers for
/// multiplications that run beside the conversions.
template <bool kUp, int... kColumns>
__global__ void __launch_bounds__(kProductThreads + kCopyThreads, 1)
    mxfp4_prefill_product_kernel(MoePrefill moe, ProductMatrix matrix, uint16_t const* entries) {
  ProductShared const shared(dynamic_shared());
  int const warp = uniform(threadIdx.x / kWarp);
  int const lane = threadIdx.x % kWarp;
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < kSlots; ++slot) {
      init_barrier(shared.full + slot, kCopyThreads + 1);
      init_barrier(shared.empty + slot, kProductWarps);
    }
    publish_barriers();
  }
  sync_block();
  if (warp >= kProductWarps) {
    keep_registers<kCopyRegisters>();
    copy_tiles<kUp>(moe, matrix, shared, entries, warp - kProductWarps, lane);
  } else {
    take_registers<kProductRegisters>();
    int const all = *moe.tile_count * matrix.tiles;
    ProductWarp product{shared, {}, warp, lane};
    for (int number = blockIdx.x; number < all; number += gridDim.x) {
      EntryTile const tile = moe.tiles[number / matrix.tiles];
      int const part = number % matrix.tiles;
      (take_tile<kUp, kColumns>(moe, matrix, product, tile, part) || ...);
    }
    if (kUp && threadIdx.x == 0) wait_stores();
  }
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_PREFILL_PRODUCTS_CUH_
