// SPDX-License-Identifier: Apache-2.0
#ifndef FLASHINFER_MXFP4_BYTE_PRODUCTS_CUH_
#define FLASHINFER_MXFP4_BYTE_PRODUCTS_CUH_

// A warp multiplies rows of MXFP4 matrices by a few tokens, with few instructions for each weight.
//
// Tokens are 15 bits of fixed point with a scale for each block of 32 columns: two digits, a byte
// each. Weights become bytes, twice their value and a bias, by looking up four at once; what the
// bias adds is known of each token and taken off before. Sums of a block are exact, and scaled
// once.
//
// A stage is 128 columns, and each of the four lanes of a row has a block of its own. A
// multiplication adds up all four, so each block of a token has two of its eight columns for
// itself, one for each digit, with zeros where other lanes' weights are: what a lane gets are sums
// of its own block, and it has that block's scale.

#include "flashinfer/mxfp4/weight_ring.cuh"

namespace flashinfer {
namespace mxfp4 {
namespace bytes {

// --- tokens
// -------------------------------------------------------------------------------------------

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

/// Two digits of four BF16 numbers by a power of two, a byte each: 256 high + low, both with a
/// sign.
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

  /// Digits have 13 bits below the largest number's leading one, so that they go up to 16320: 64
  /// and -128 .. 127. Scales are half of what `by` is the inverse of, as weights are twice their
  /// values.
  __device__ __forceinline__ explicit Fixed(uint32_t power) {
    uint32_t const kept = larger(power, 15u);
    by = float_of_bits((127u + 127u + 13u - kept) << 23);
    scale = power == 255u ? kNan : (kept - 13u - 1u) << 23;
  }
};

/// Turns a block of a token into fixed point, by four neighbours among the lanes, each of which has
/// eight of its numbers; all lanes of the warp have to come. A number that is none, or infinite,
/// makes the block's scale NaN.
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
/// of a block. Blocks of the last stage that they do not have are zeros. A thread has `kDeep` loads
/// under way, the first of which begin before weights are asked for, so that they are not behind
/// these.
template <int kDeep>
class TokenLoads {
 public:
  __device__ __forceinline__ TokenLoads(uint16_t const* tokens, int count, int blocks, int warp,
                                        int lane)
      : from_(tokens + lane % 4 * 8),
        count_(count),
        blocks_(blocks),
        stages_(divide_up(blocks, kStageBlocks)),
        lane_(lane),
        next_(wrapped({0, warp * kOctet + lane / 4})),
        first_(wrapped({0, warp * kOctet})) {}

  __device__ __forceinline__ void begin() {
#pragma unroll
    for (int i = 0; i < kDeep; ++i) {
      loaded_[i] = uint4{0, 0, 0, 0};
      if (next_.token < count_ && next_.block < blocks_) {
        loaded_[i] = load_16(from_ + (next_.token * blocks_ + next_.block) * kBlockColumns);
      }
      next_ = after(next_);
    }
  }

  /// Everything, after `begin()`.
  __device__ __forceinline__ void complete(uint8_t* to) {
    // As long as any lane of the warp has one.
#pragma unroll 1
    while (true) {
#pragma unroll
      for (int i = 0; i < kDeep; ++i) {
        if (first_.token >= count_) return;
        Place const here = wrapped({first_.token, first_.block + lane_ / 4});
        stage_block(loaded_[i], to + here.token * token_bytes(stages_), here.block, lane_,
                    here.token < count_);
        first_ = after(first_);
      }
      begin();
    }
  }

 private:
  struct Place {
    int token, block;  // of those in shared memory
  };

  __device__ __forceinline__ Place wrapped(Place place) const {
    int const stored = stages_ * kStageBlocks;
    while (place.block >= stored) {
      place.block -= stored;
      ++place.token;
    }
    return place;
  }

  /// What the same lane has next.
  __device__ __forceinline__ Place after(Place place) const {
    return wrapped({place.token, place.block + static_cast<int>(blockDim.x) / 4});
  }

  uint16_t const* const from_;
  int const count_, blocks_, stages_, lane_;
  Place next_;   // that this lane loads
  Place first_;  // of the warp, that is completed next
  uint4 loaded_[kDeep];
};

// --- weights
// ------------------------------------------------------------------------------------------

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

/// What a lane has of a token: its own block's digits, and zeros for ever where it is not the one
/// that has them.
struct Digits {
  int at;
  int record, scale;
  bool mine;
  uint4 words[2] = {{0, 0, 0, 0}, {0, 0, 0, 0}};

  __device__ __forceinline__ explicit Digits(int lane)
      : at(keep_number(lane % 4 * kDigitsBytes + lane / 4 % 2 * kBlockColumns)),
        record(keep_number(kRecords + lane % 4 * kRecordBytes)),
        scale(keep_number(kScales + lane % 4 * 4)),
        mine(lane / 8 == lane % 4) {}

  __device__ __forceinline__ void load(uint8_t const* token) {
    if (!mine) return;
    words[0] = *reinterpret_cast<uint4 const*>(token + at);
    words[1] = *reinterpret_cast<uint4 const*>(token + at + 16);
  }
};

/// A scale that is none counts as infinite in a product, and its sum here as no number: what comes
/// after may have a limit.
__device__ __forceinline__ float checked(float sum) {
  return is_finite(sum) ? sum : float_of_bits(kNan);
}

/// A lane's sums of two rows and up to so many tokens, stage by stage.
template <int kTokens>
class Products {
 public:
  __device__ __forceinline__ Products(uint32_t one, int lane)
      : tables_(one, lane), digits_(lane), lane_(lane) {}

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int token = 0; token < kTokens; ++token) sums_[token][0] = sums_[token][1] = 0.0f;
  }

  /// Adds the products of two octets of codes and of the tokens. `scales` are those of this lane's
  /// blocks, and `token(i)` is where that token's stage is.
  template <typename Token>
  __device__ __forceinline__ void add(uint4 const (&codes)[2], uint32_t const (&scales)[2],
                                      Token const& token, int tokens) {
    uint32_t a[4][4];
    float factors[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        a[word][half] = tables_.look_up(word_of(codes[half], word));
        a[word][half + 2] = tables_.look_up(word_of(codes[half], word) >> 16);
      }
      factors[half] = float_of_bits(scales[half] * (tables_.one << 23));
    }
#pragma unroll
    for (int of = 0; of < kTokens; ++of) {
      if (of >= tokens) break;
      uint8_t const* const here = token(of);
      digits_.load(here);
      int32_t const less = *reinterpret_cast<int32_t const*>(here + digits_.record);
      int32_t products[4] = {0, less, 0, less};
      float const of_token =
          float_of_bits(*reinterpret_cast<uint32_t const*>(here + digits_.scale));
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        uint4 const& both = digits_.words[word / 2];
        uint32_t const b[2] = {word % 2 ? both.z : both.x, word % 2 ? both.w : both.y};
        mma_m16n8k32(products, a[word], b);
      }
      sums_[of][0] += to_float(products[0] * 256 + products[1]) * (factors[0] * of_token);
      sums_[of][1] += to_float(products[2] * 256 + products[3]) * (factors[1] * of_token);
    }
  }

  /// What the four lanes of a row have of four tokens, added up: each of the lanes gets the token
  /// that is as many after `first` as it is after the first lane.
  __device__ __forceinline__ float share(int first, int octet) const {
    bool const odd = lane_ & 1;
    bool const later = lane_ & 2;
    float pairs[2];
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      float const front = sums_[first + 2 * pair][octet];
      float const back = sums_[first + 2 * pair + 1][octet];
      pairs[pair] = (odd ? back : front) + exchange(odd ? front : back, 1);
    }
    return checked((later ? pairs[1] : pairs[0]) + exchange(later ? pairs[0] : pairs[1], 2));
  }

 private:
  Tables tables_;
  Digits digits_;
  int lane_;
  float sums_[kTokens][2];
};

/// What a lane has of a token in global memory.
struct StoredBlock {
  uint4 words[2] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
  float scale = 0.0f;

  /// Begins to load, where the token's stage is; `inside`: the token has this lane's block. Else
  /// its scale is zero, and its digits are any.
  __device__ __forceinline__ void load(uint8_t const* stage, Digits const& digits, bool inside) {
    if (digits.mine && inside) {
      words[0] = load_16(stage + digits.at);
      words[1] = load_16(stage + digits.at + 16);
    }
    scale = inside ? load_float(stage + digits.scale) : 0.0f;
  }
};

/// A lane's sums of three rows and up to so many tokens, stage by stage. The second tile has a half
/// without rows, which has the bytes of zeros: its sums are what biases add to all, so that tokens
/// need no records.
template <int kTokens>
class OddProducts {
 public:
  static constexpr int kOctets = 3;

  __device__ __forceinline__ OddProducts(uint32_t one, int lane) : tables_(one, lane) {}

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int token = 0; token < kTokens; ++token) {
#pragma unroll
      for (int octet = 0; octet < kOctets; ++octet) sums_[token][octet] = 0.0f;
    }
  }

  /// Adds the products of three octets of codes and of the tokens; `token(i)` is what this lane has
  /// of one.
  template <typename Token>
  __device__ __forceinline__ void add(uint4 const (&codes)[kOctets],
                                      uint32_t const (&scales)[kOctets], Token const& token,
                                      int tokens) {
    uint32_t a[4][4], last[4][4];
    float factors[kOctets];
#pragma unroll
    for (int word = 0; word < 4; ++word) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        a[word][half] = tables_.look_up(word_of(codes[half], word));
        a[word][half + 2] = tables_.look_up(word_of(codes[half], word) >> 16);
      }
      last[word][0] = tables_.look_up(word_of(codes[2], word));
      last[word][2] = tables_.look_up(word_of(codes[2], word) >> 16);
      last[word][1] = last[word][3] = kBiases;
    }
#pragma unroll
    for (int octet = 0; octet < kOctets; ++octet) {
      factors[octet] = float_of_bits(scales[octet] * (tables_.one << 23));
    }
#pragma unroll
    for (int of = 0; of < kTokens; ++of) {
      if (of >= tokens) break;
      StoredBlock const block = token(of);
      int32_t products[4] = {0, 0, 0, 0}, others[4] = {0, 0, 0, 0};
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        uint4 const& both = block.words[word / 2];
        uint32_t const b[2] = {word % 2 ? both.z : both.x, word % 2 ? both.w : both.y};
        mma_m16n8k32(products, a[word], b);
        mma_m16n8k32(others, last[word], b);
      }
      int32_t const less = others[2] * 256 + others[3];
      sums_[of][0] += to_float(products[0] * 256 + products[1] - less) * (factors[0] * block.scale);
      sums_[of][1] += to_float(products[2] * 256 + products[3] - less) * (factors[1] * block.scale);
      sums_[of][2] += to_float(others[0] * 256 + others[1] - less) * (factors[2] * block.scale);
    }
  }

  /// What the four lanes of a row have of a token, added up.
  __device__ __forceinline__ float whole(int token, int octet) const {
    float sum = sums_[token][octet];
    sum += exchange(sum, 1);
    return checked(sum + exchange(sum, 2));
  }

 private:
  Tables tables_;
  float sums_[kTokens][kOctets];
};

}  // namespace bytes
}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_BYTE_PRODUCTS_CUH_
