// SPDX-License-Identifier: Apache-2.0
// The prefill kernels for Python, without tensors.
#include "flashinfer/mxfp4/moe_prefill.cuh"

using flashinfer::mxfp4::MoePrefill;

extern "C" int prefill_rows(int entries, int experts) { return flashinfer::mxfp4::most_rows(entries, experts); }
extern "C" int prefill_tiles(int entries, int experts) { return flashinfer::mxfp4::most_tiles(entries, experts); }

/// `pointers`: hidden_states, up_codes, up_scales, up_bias, down_codes, down_scales, down_bias, ids, router_weights, expert_map, tiles,
/// tile_count, row_of, gathered, activated, partial, output. `sizes`: mapped, tokens, choices, experts, rows, hidden, intermediate,
/// stored_hidden, stored_intermediate, and tile_rows or 0.
extern "C" int prefill(void* const* pointers, int const* sizes, float alpha, float beta, float limit, int parts, void* stream) {
  MoePrefill moe{};
  auto const words = [pointers](int i) { return static_cast<uint16_t*>(pointers[i]); };
  auto const bytes = [pointers](int i) { return static_cast<uint8_t const*>(pointers[i]); };
  auto const numbers = [pointers](int i) { return static_cast<int32_t*>(pointers[i]); };
  moe.hidden_states = words(0);
  moe.up_codes = bytes(1);
  moe.up_scales = bytes(2);
  moe.up_bias = words(3);
  moe.down_codes = bytes(4);
  moe.down_scales = bytes(5);
  moe.down_bias = words(6);
  moe.ids = numbers(7);
  moe.router_weights = static_cast<float const*>(pointers[8]);
  moe.expert_map = numbers(9);
  moe.tiles = static_cast<flashinfer::mxfp4::EntryTile*>(pointers[10]);
  moe.tile_count = numbers(11);
  moe.row_of = numbers(12);
  moe.gathered = words(13);
  moe.activated = words(14);
  moe.partial = words(15);
  moe.output = words(16);
  moe.mapped = sizes[0];
  moe.tokens = sizes[1];
  moe.choices = sizes[2];
  moe.experts = sizes[3];
  moe.rows = sizes[4];
  moe.hidden = sizes[5];
  moe.intermediate = sizes[6];
  moe.stored_hidden = sizes[7];
  moe.stored_intermediate = sizes[8];
  moe.tile_rows = sizes[9] ? sizes[9] : flashinfer::mxfp4::tile_rows_for(moe.entries(), moe.experts);
  moe.alpha = alpha;
  moe.beta = beta;
  moe.limit = limit;
  int device;
  cudaError_t failed = cudaGetDevice(&device);
  flashinfer::mxfp4::Processor processor{};
  if (failed == cudaSuccess) failed = flashinfer::mxfp4::processor_of(device, processor);
  if (failed == cudaSuccess) failed = flashinfer::mxfp4::moe_prefill(moe, static_cast<cudaStream_t>(stream), processor, parts);
  return failed;
}
