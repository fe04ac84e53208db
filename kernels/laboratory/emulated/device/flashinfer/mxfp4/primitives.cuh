// SPDX-License-Identifier: Apache-2.0
// Replaces FlashInfer's header of the same name when kernels run on a CPU, with the same functions.
#ifndef FLASHINFER_MXFP4_PRIMITIVES_CUH_
#define FLASHINFER_MXFP4_PRIMITIVES_CUH_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#include "machine.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)

#define threadIdx (::emulated::thread_index())
#define blockIdx (::emulated::block_index())
#define blockDim (::emulated::block_size())
#define gridDim (::emulated::grid_size())

struct alignas(8) uint2 {
  unsigned x, y;
};

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorLaunchFailure = 719 };
using cudaStream_t = void*;

namespace flashinfer {
namespace mxfp4 {

constexpr int kWarp = 32;

inline uint8_t* dynamic_shared() { return emulated::shared_memory(); }

inline uint4 load_once_16(void const* from) {
  emulated::touch_only_read(from, sizeof(uint4));
  return *static_cast<uint4 const*>(from);
}

inline uint32_t load_byte(void const* from) {
  emulated::touch_only_read(from, 1);
  return *static_cast<uint8_t const*>(from);
}

/// Does nothing: the emulated machine has no cache to fill.
inline void prefetch(void const*) {}

inline uint32_t load_late_byte(void const* from) {
  uint8_t byte;
  emulated::read_past_first_cache(from, &byte, sizeof byte);
  return byte;
}

inline uint32_t load_word(void const* from) {
  uint32_t word;
  emulated::read_past_first_cache(from, &word, sizeof word);
  return word;
}

inline int16_t load_half(void const* from) {
  int16_t half;
  emulated::read_past_first_cache(from, &half, sizeof half);
  return half;
}

inline float load_float(void const* from) {
  float number;
  emulated::read_past_first_cache(from, &number, sizeof number);
  return number;
}

template <typename Type>
inline Type* keep(Type* pointer) {
  return pointer;
}

inline int uniform(int number) { return emulated::uniform(number); }

inline void mma_m16n8k16(float (&sum)[4], uint32_t const (&a)[4], uint32_t const (&b)[2]) { emulated::multiply(sum, a, b); }

inline uint32_t bits_of_float(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}

inline float from_bf16(uint16_t number) {
  uint32_t const bits = static_cast<uint32_t>(number) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint16_t to_bf16(float number) {
  if (std::isnan(number)) return 0x7FFF;
  uint32_t const bits = bits_of_float(number);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

/// Returns the product of two BF16 numbers, rounded once: float32 holds its 16 bits exactly, except where BF16 underflows to zero, too.
inline uint16_t product_of(uint16_t a, uint16_t b) { return to_bf16(from_bf16(a) * from_bf16(b)); }

inline uint32_t multiply_bf16x2(uint32_t a, uint32_t b) {
  uint32_t const low = product_of(static_cast<uint16_t>(a), static_cast<uint16_t>(b));
  return low | static_cast<uint32_t>(product_of(static_cast<uint16_t>(a >> 16), static_cast<uint16_t>(b >> 16))) << 16;
}

inline uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  if (selector & 0xFFFF8888u) emulated::fail("permutes bytes that are not among the eight");
  uint64_t const bytes = static_cast<uint64_t>(high) << 32 | low;
  uint32_t chosen = 0;
  for (int place = 0; place < 4; ++place) {
    chosen |= static_cast<uint32_t>(bytes >> (selector >> 4 * place & 7) * 8 & 0xFF) << 8 * place;
  }
  return chosen;
}

inline uint4 load_16(void const* from) {
  emulated::touch(from, sizeof(uint4), false);
  return *static_cast<uint4 const*>(from);
}

inline float load_4(void const* from) {
  emulated::touch(from, sizeof(float), false);
  return *static_cast<float const*>(from);
}

inline int count_bits(uint32_t bits) { return __builtin_popcount(bits); }

inline int highest_bit(uint32_t bits) {
  if (bits == 0) emulated::fail("asks for the highest bit of none");
  return kWarp - 1 - __builtin_clz(bits);
}

inline uint32_t ballot(bool one) { return emulated::ballot(one); }
inline int largest(int number) { return emulated::largest(number); }
inline void sync_block() { emulated::sync_block(); }
inline void sync_team(int team, int threads) { emulated::sync_team(team, threads); }

template <typename Number>
inline Number keep_number(Number number) {
  return number;
}

inline uint32_t permute_signs(uint32_t low, uint32_t high, uint32_t selector) {
  uint64_t const bytes = static_cast<uint64_t>(high) << 32 | low;
  uint32_t chosen = 0;
  for (int place = 0; place < 4; ++place) {
    uint32_t const nibble = selector >> 4 * place;
    uint32_t const byte = bytes >> (nibble & 7) * 8 & 0xFF;
    chosen |= (nibble & 8 ? (byte & 0x80 ? 0xFFu : 0u) : byte) << 8 * place;
  }
  return chosen;
}

inline void mma_m16n8k32(int32_t (&sum)[4], uint32_t const (&a)[4], uint32_t const (&b)[2]) { emulated::multiply(sum, a, b); }

inline int32_t dot_bytes(uint32_t a, uint32_t b, int32_t sum) {
  for (int byte = 0; byte < 4; ++byte) sum += static_cast<uint8_t>(a >> 8 * byte) * static_cast<int8_t>(b >> 8 * byte);
  return sum;
}

inline uint32_t to_whole(float number, float by) { return bits_of_float(std::fmaf(number, by, 12582912.0f)); }

inline float to_float(int32_t number) { return static_cast<float>(number); }

inline float float_of_bits(uint32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

inline bool is_finite(float number) { return std::isfinite(number); }

inline uint32_t exchange(uint32_t number, int bits) { return emulated::exchange(number, bits); }
inline int32_t exchange(int32_t number, int bits) { return static_cast<int32_t>(emulated::exchange(static_cast<uint32_t>(number), bits)); }
inline float exchange(float number, int bits) { return float_of_bits(emulated::exchange(bits_of_float(number), bits)); }

inline void copy_16(uint8_t* to, void const* from, int bytes) { emulated::copy(to, from, static_cast<size_t>(bytes), 16); }

inline void copy_late_16(uint8_t* to, void const* from, int bytes) {
  emulated::copy_past_first_cache(to, from, static_cast<size_t>(bytes), 16);
}

inline void copy_4(uint8_t* to, void const* from, int bytes, bool wanted) {
  if (wanted) emulated::copy(to, from, static_cast<size_t>(bytes), 4);
}

inline void commit_copies() { emulated::commit_copies(); }

template <int kGroups>
inline void wait_copies() {
  emulated::wait_copies(kGroups);
}

inline void sync_warp() { emulated::sync_warp(); }

inline void wait_for_predecessor() { emulated::wait_for_predecessor(); }
inline void release_successor() { emulated::release_successor(); }

struct Processor {
  int count;
  int shared_bytes;
};

template <typename... Parameters>
struct Call {
  void (*kernel)(Parameters...);
  std::tuple<Parameters...> arguments;

  static void run(void const* given) {
    Call const& call = *static_cast<Call const*>(given);
    std::apply(call.kernel, call.arguments);
  }
};

template <typename... Parameters, typename... Arguments>
inline cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, int threads, int shared_bytes, cudaStream_t, bool early,
                          Arguments&&... arguments) {
  Call<Parameters...> const call{kernel, {std::forward<Arguments>(arguments)...}};
  emulated::Launch const launch{
      reinterpret_cast<void const*>(kernel), &Call<Parameters...>::run, &call, sizeof call, grid, threads, shared_bytes, early};
  return emulated::launch(launch) ? cudaSuccess : cudaErrorLaunchFailure;
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_PRIMITIVES_CUH_
