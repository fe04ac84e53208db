// SPDX-License-Identifier: Apache-2.0
// What the benchmark asks of each kind of kernels: C structures, so that every kind can have names of its own.
#ifndef DECODE_PROTOTYPE_VARIANT_H_
#define DECODE_PROTOTYPE_VARIANT_H_

#include <cuda_runtime.h>

#include <cstdint>

struct Experts {
  uint16_t const* hidden_states;
  uint8_t const *up_codes, *up_scales;
  uint16_t const* up_bias;
  uint8_t const *down_codes, *down_scales;
  uint16_t const* down_bias;
  int16_t const* logits;  // or null
  int32_t const* ids;
  float const* router_weights;
  void* activated;  // of the kind's own format, with room for two words a value
  uint16_t* output;
  int experts, tokens, choices, hidden, intermediate;
};

struct Dense {
  uint16_t const* input;
  uint8_t const *codes, *scales;
  uint16_t const* bias;
  uint16_t* output;
  int tokens, rows, columns;
};

struct Device {
  int processors, shared_bytes;
  bool early;  // may a launch begin before the one before it has ended?
};

enum Part { kUp = 1, kDown = 2, kBoth = 3 };

struct Variant {
  char const* name;
  cudaError_t (*experts)(Experts const&, Part, cudaStream_t, Device const&);
  cudaError_t (*dense)(Dense const&, cudaStream_t, Device const&);
};

#endif  // DECODE_PROTOTYPE_VARIANT_H_
