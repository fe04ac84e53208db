// SPDX-License-Identifier: Apache-2.0
// One kind of kernels for the benchmark: NAME is its name, and mxfp4 is defined as a name of its own, too, so that several kinds fit into
// one program.
#include "variant.h"

#include "flashinfer/mxfp4/gemv.cuh"
#include "flashinfer/mxfp4/moe_decode.cuh"

namespace kernels = flashinfer::mxfp4;

#define QUOTED(name) #name
#define TEXT(name) QUOTED(name)
#define JOINED(front, name) front##name
#define VARIANT(name) JOINED(variant_, name)

static cudaError_t experts(Experts const& given, Part part, cudaStream_t stream, Device const& device) {
  kernels::MoeDecode moe{};
  moe.hidden_states = given.hidden_states;
  moe.up_codes = given.up_codes;
  moe.up_scales = given.up_scales;
  moe.up_bias = given.up_bias;
  moe.down_codes = given.down_codes;
  moe.down_scales = given.down_scales;
  moe.down_bias = given.down_bias;
  moe.logits = given.logits;
  moe.ids = given.ids;
  moe.router_weights = given.router_weights;
  moe.activated = static_cast<decltype(moe.activated)>(given.activated);
  moe.output = given.output;
  moe.routed = moe.experts = given.experts;
  moe.tokens = given.tokens;
  moe.choices = given.choices;
  moe.hidden = moe.stored_hidden = given.hidden;
  moe.intermediate = moe.stored_intermediate = given.intermediate;
  moe.alpha = 1.702f;
  moe.beta = 1.0f;
  moe.limit = 7.0f;
  kernels::Processor const processor{device.processors, device.shared_bytes};
  if (part == kBoth) return kernels::moe_decode(moe, stream, device.early, processor);
  auto const launch = part == kUp ? kernels::moe_decode_up : kernels::moe_decode_down;
  return launch(moe, stream, device.early, processor);
}

static cudaError_t dense(Dense const& given, cudaStream_t stream, Device const& device) {
  kernels::Gemv const gemv{given.input, given.codes, given.scales, given.bias, given.output, given.tokens, given.rows, given.columns};
  return kernels::gemv(gemv, stream, device.early, {device.processors, device.shared_bytes});
}

extern Variant const VARIANT(NAME);
Variant const VARIANT(NAME){TEXT(NAME), experts, dense};
