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
#ifndef FLASHINFER_MXFP4_FIXED_POINT_CUH_
#define FLASHINFER_MXFP4_FIXED_POINT_CUH_

// Tokens and MXFP4 weights as bytes, which a warp multiplies with few instructions for each weight.
//
// Tokens are fixed point of 14 bits and a sign with a scale for each block of 32 columns: two
// digits, a byte each. Weights become bytes, twice their value and a bias, by looking up four at
// once; what the bias adds is known of each token and taken off before. Sums of a block are exact,
// scaled once.

#include "flashinfer/mxfp4/matrix.cuh"

namespace flashinfer {
namespace mxfp4 {
namespace bytes {

// --- tokens --------------------------------------------------------------------------------------

// A stage of a token, in global memory:
constexpr int kDigitsBytes = 2 * kBlockColumns;  // of a block: the high digits, then the low ones
constexpr int kScales = kStageBlocks * kDigitsBytes;  // where scales begin, a float for each block
constexpr int kStoredStage = kScales + kStageBlocks * 4;  // all of it; and more in shared memory:
constexpr int kRecords = kStoredStage;                    // where records begin, one for a block:
constexpr int kRecordBytes = 4;  // what biases add to a product, the other way
constexpr int kTokenStage = kRecords + kStageBlocks * kRecordBytes;
constexpr uint32_t kBiases = 0x8C8C8C8Bu;  // of four weights, see Tables
constexpr uint32_t kNan = 0x7FC00000u;

/// Of a token in shared memory.
inline __host__ __device__ int token_bytes(int stages) { return stages * kTokenStage; }

__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

/// The largest magnitude among two BF16 numbers and another, as bits.
__device__ __forceinline__ uint32_t largest_bits(uint32_t other, uint32_t pair) {
  return larger(other, larger(pair & 0x7FFFu, pair >> 16 & 0x7FFFu));
}

/// Two digits of four BF16 numbers by a power of two, a byte each: 256 high + low, with signs.
__device__ __forceinline__ void to_digits(uint32_t first, uint32_t second, float by, uint32_t& high,
                                          uint32_t& low) {
  uint32_t const numbers[4] = {
      to_whole(float_of_bits(first << 16), by), to_whole(float_of_bits(first & 0xFFFF0000u), by),
      to_whole(float_of_bits(second << 16), by), to_whole(float_of_bits(second & 0xFFFF0000u), by)};
  auto const bytes = [&numbers](uint32_t more, uint32_t which) {
    uint32_t const front = permute_bytes(numbers[0] + more, numbers[1] + more, which);
    return permute_bytes(front, permute_bytes(numbers[2] + more, numbers[3] + more, which),
                         0x5410u);
  };
  high = bytes(0x80u, 0x0051u);
  low = bytes(0u, 0x0040u);
}

/// The fixed point of a block whose largest number has this exponent, by its bits.
struct Fixed {
  float by;        // what makes whole numbers of its numbers
  uint32_t scale;  // the bits of what makes their products the block's, or of no number

  /// Digits have 13 bits below the largest number's leading one, so that they go up to 16320 for
  /// BF16 numbers and to 16384 for others: a high digit of up to 64, a low one of -128 .. 127.
  /// Scales are half of what `by` is the inverse of, as weights are twice their values.
  __device__ __forceinline__ explicit Fixed(uint32_t power) {
    uint32_t const kept = larger(power, 15u);
    by = float_of_bits((127u + 127u + 13u - kept) << 23);
    scale = power == 255u ? kNan : (kept - 13u - 1u) << 23;
  }
};

/// Turns a block of a token into fixed point. Four neighbouring lanes have eight of its numbers
/// each; all lanes of the warp have to call it. A NaN or an infinite number makes the block's scale
/// NaN.
__device__ __forceinline__ void stage_block(uint4 const& numbers, uint8_t* token, int block,
                                            int lane, bool wanted) {
  uint32_t most = largest_bits(largest_bits(0u, numbers.x), numbers.y);
  most = largest_bits(largest_bits(most, numbers.z), numbers.w);
  most = larger(most, exchange(most, 1));
  most = larger(most, exchange(most, 2));
  Fixed const fixed(most >> 7);
  float const by = fixed.by;
  uint32_t high[2], low[2];
  to_digits(numbers.x, numbers.y, by, high[0], low[0]);
  to_digits(numbers.z, numbers.w, by, high[1], low[1]);
  int32_t of_high = dot_bytes(kBiases, high[0], dot_bytes(kBiases, high[1], 0));
  int32_t of_low = dot_bytes(kBiases, low[0], dot_bytes(kBiases, low[1], 0));
  of_high += exchange(of_high, 1);
  of_low += exchange(of_low, 1);
  of_high += exchange(of_high, 2);
  of_low += exchange(of_low, 2);
  sync_warp();  // four lanes write where their numbers were
  if (!wanted) return;
  uint8_t* const stage = token + block / kStageBlocks * kTokenStage;
  uint8_t* const digits = stage + block % kStageBlocks * kDigitsBytes + lane % 4 * 8;
  *reinterpret_cast<uint2*>(digits) = uint2{high[0], high[1]};
  *reinterpret_cast<uint2*>(digits + kBlockColumns) = uint2{low[0], low[1]};
  if (lane % 4 != 0) return;
  *reinterpret_cast<int32_t*>(stage + kRecords + block % kStageBlocks * kRecordBytes) =
      -(of_high * 256 + of_low);
  *reinterpret_cast<uint32_t*>(stage + kScales + block % kStageBlocks * 4) = fixed.scale;
}

/// Turns tokens, which lie one after the other, into fixed point in shared memory, by all threads
/// of a block. They are copied to where their digits will be, a block of 32 numbers to 64 bytes,
/// all at once and before the loads of weights begin, so that they do not wait behind these.
class TokenCopies {
 public:
  __device__ __forceinline__ TokenCopies(uint16_t const* tokens, int count, int blocks, int warp,
                                         int lane)
      : from_(tokens + lane % 4 * 8),
        count_(count),
        blocks_(blocks),
        stages_(divide_up(blocks, kStageBlocks)),
        lane_(lane),
        first_(wrapped({0, warp * kOctet + lane / 4})),
        steps_(divide_up(count * stages_ * kStageBlocks - warp * kOctet, blocks_of_a_step())) {}

  /// One group of copies; zeros for blocks of the last stage that tokens do not have.
  __device__ __forceinline__ void begin(uint8_t* to) const {
    Place here = first_;
#pragma unroll 1
    for (int step = 0; step < steps_; ++step) {
      if (here.token < count_) {
        copy_late_16(digits(to, here) + lane_ % 4 * 16,
                     from_ + (here.token * blocks_ + here.block) * kBlockColumns,
                     here.block < blocks_ ? 16 : 0);
      }
      here = after(here);
    }
    commit_copies();
  }

  /// When this thread's copies are there.
  __device__ __forceinline__ void complete(uint8_t* to) const {
    Place here = first_;
#pragma unroll 1
    for (int step = 0; step < steps_; ++step) {
      bool const wanted = here.token < count_;
      uint4 numbers{0, 0, 0, 0};
      if (wanted) numbers = *reinterpret_cast<uint4 const*>(digits(to, here) + lane_ % 4 * 16);
      stage_block(numbers, to + here.token * token_bytes(stages_), here.block, lane_, wanted);
      here = after(here);
    }
  }

 private:
  struct Place {
    int token, block;  // of those in shared memory
  };

  __device__ __forceinline__ static int blocks_of_a_step() {
    return static_cast<int>(blockDim.x) / 4;
  }

  __device__ __forceinline__ uint8_t* digits(uint8_t* to, Place place) const {
    return to + place.token * token_bytes(stages_) + place.block / kStageBlocks * kTokenStage +
           place.block % kStageBlocks * kDigitsBytes;
  }

  __device__ __forceinline__ Place wrapped(Place place) const {
    int const stored = stages_ * kStageBlocks;
    while (place.block >= stored) {
      place.block -= stored;
      ++place.token;
    }
    return place;
  }

  /// The place that the same lane has next.
  __device__ __forceinline__ Place after(Place place) const {
    return wrapped({place.token, place.block + blocks_of_a_step()});
  }

  uint16_t const* const from_;
  int const count_, blocks_, stages_, lane_;
  Place const first_;  // of this lane
  int const steps_;    // as many as any lane of the warp has
};

// --- weights -------------------------------------------------------------------------------------

/// Bytes of four codes at once. `one` is 1, which the compiler must not know: products by it keep
/// another unit busy than the one that permutes.
struct Tables {
  uint32_t one, minus, positive, negative;

  __device__ __forceinline__ Tables(uint32_t given, int lane)
      : one(given + (static_cast<uint32_t>(lane) >> 8)),
        minus(0u - one),
        positive(0x8F8E8D8Cu * one),
        negative(0x88868480u * one) {}

  /// The bytes of the four lower nibbles: twice their values and kBiases. In both tables each byte
  /// has its highest bit, so that a nibble with a sign gives 0xFF in the first, and one without in
  /// the second, where all bits are turned. 0xFF and a byte of the other table add up to that byte,
  /// less one, and a carry to the next.
  __device__ __forceinline__ uint32_t look_up(uint32_t codes) const {
    uint32_t const positives = permute_signs(positive, 0x98949290u, codes);
    uint32_t const negatives = permute_signs(negative, 0x8C8B8A89u, codes * minus + minus);
    return positives * one + negatives;
  }
};

/// A NaN scale counts as infinite in a product, and its sum here becomes NaN: a limit that is
/// applied later would hide an infinity.
__device__ __forceinline__ float checked(float sum) {
  return is_finite(sum) ? sum : float_of_bits(kNan);
}

}  // namespace bytes
}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_FIXED_POINT_CUH_
