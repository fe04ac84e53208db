// SPDX-License-Identifier: Apache-2.0
// The functions of the header of the same name, for kernels that run on a CPU: in its place, they see this one.
#ifndef FLASHINFER_MXFP4_BYTE_PRIMITIVES_CUH_
#define FLASHINFER_MXFP4_BYTE_PRIMITIVES_CUH_

#include <cmath>

#include "flashinfer/mxfp4/primitives.cuh"

struct alignas(8) uint2 {
  unsigned x, y;
};

namespace flashinfer {
namespace mxfp4 {

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

inline uint32_t to_whole(float number, float by) { return bits_of(std::fmaf(number, by, 12582912.0f)); }

inline float to_float(int32_t number) { return static_cast<float>(number); }

inline float float_of_bits(uint32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

inline bool is_finite(float number) { return std::isfinite(number); }

inline uint32_t exchange(uint32_t number, int bits) { return emulated::exchange(number, bits); }
inline int32_t exchange(int32_t number, int bits) { return static_cast<int32_t>(emulated::exchange(static_cast<uint32_t>(number), bits)); }
inline float exchange(float number, int bits) { return float_of_bits(emulated::exchange(bits_of(number), bits)); }

inline void copy_16(uint8_t* to, void const* from, int bytes) { emulated::copy(to, from, static_cast<size_t>(bytes), 16); }

inline void copy_4(uint8_t* to, void const* from, int bytes, bool wanted) {
  if (wanted) emulated::copy(to, from, static_cast<size_t>(bytes), 4);
}

inline void commit_copies() { emulated::commit_copies(); }

template <int kGroups>
inline void wait_copies() {
  emulated::wait_copies(kGroups);
}

inline void sync_warp() { emulated::sync_warp(); }

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_BYTE_PRIMITIVES_CUH_
