// SPDX-License-Identifier: Apache-2.0
#ifndef FLASHINFER_MXFP4_BYTE_PRODUCTS_CUH_
#define FLASHINFER_MXFP4_BYTE_PRODUCTS_CUH_

// A warp multiplies rows of MXFP4 matrices by a few tokens, with few instructions for each weight.
//
// Tokens are 15 bits of fixed point with a scale for each block of 32 columns: two digits, a byte each. Weights become bytes, twice
// their value and a bias, by looking up four at once; what the bias adds is known of each token and taken off before. Sums of a block
// are exact, and scaled once.
//
// A stage is 128 columns, and each of the four lanes of a row has a block of its own. A multiplication adds up all four, so each block
// of a token has two of its eight columns for itself, one for each digit, with zeros where other lanes' weights are: what a lane gets
// are sums of its own block, and it has that block's scale.
//
// Weights come by asynchronous copies into a ring of stages in shared memory that each warp has for itself.

#include "flashinfer/mxfp4/byte_primitives.cuh"

namespace flashinfer {
namespace mxfp4 {

// What may be chosen when the kernels are compiled.
#ifndef PROTOTYPE_GROUP
#define PROTOTYPE_GROUP 4
#endif
#ifndef PROTOTYPE_AHEAD
#define PROTOTYPE_AHEAD 3
#endif

constexpr int kBlockColumns = 32;  // that share a scale
constexpr int kStageBlocks = 4;    // blocks of a row in a stage
constexpr int kStageCodes = 64;    // bytes of a row in a stage
constexpr int kOctet = 8;          // rows of which a lane has one
constexpr int kGroup = PROTOTYPE_GROUP;      // tokens that are multiplied together, at most
constexpr int kStages = PROTOTYPE_AHEAD + 1;  // of a ring, one of which is being multiplied

static_assert(kGroup >= 1 && kGroup <= 8, "four bits of a word for each token");
static_assert(kStages >= 2, "one stage on its way, at least");

inline __host__ __device__ int divide_up(int number, int by) { return (number + by - 1) / by; }

// --- tokens ----------------------------------------------------------------------------------------------------------------------

constexpr int kDigitsBytes = 2 * kBlockColumns;                  // of a block: the high digits, then the low ones
constexpr int kRecords = kStageBlocks * kDigitsBytes;            // where a stage's records begin, one for each block
constexpr int kRecordBytes = 16;                                 // what biases add to both digits' sums, the other way, twice
constexpr int kScales = kRecords + kStageBlocks * kRecordBytes;  // a float for each block
constexpr int kTokenStage = kScales + kStageBlocks * 4;
constexpr uint32_t kBiases = 0x8C8C8C8Bu;  // of four weights, see Tables
constexpr uint32_t kNan = 0x7FC00000u;

/// Of a token in shared memory.
inline __host__ __device__ int token_bytes(int stages) { return stages * kTokenStage; }

__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

/// The largest magnitude among two BF16 numbers and another, as bits.
__device__ __forceinline__ uint32_t largest_bits(uint32_t other, uint32_t pair) {
  return larger(other, larger(pair & 0x7FFFu, pair >> 16 & 0x7FFFu));
}

/// Two digits of four BF16 numbers by a power of two, a byte each: 256 high + low, both with a sign.
__device__ __forceinline__ void to_digits(uint32_t first, uint32_t second, float by, uint32_t& high, uint32_t& low) {
  uint32_t const numbers[4] = {to_whole(float_of_bits(first << 16), by), to_whole(float_of_bits(first & 0xFFFF0000u), by),
                               to_whole(float_of_bits(second << 16), by), to_whole(float_of_bits(second & 0xFFFF0000u), by)};
  auto const bytes = [&numbers](uint32_t more, uint32_t which) {
    uint32_t const front = permute_bytes(numbers[0] + more, numbers[1] + more, which);
    return permute_bytes(front, permute_bytes(numbers[2] + more, numbers[3] + more, which), 0x5410u);
  };
  high = bytes(0x80u, 0x0051u);
  low = bytes(0u, 0x0040u);
}

/// Turns a block of a token into fixed point, by four neighbours among the lanes, each of which has eight of its numbers; all lanes of the
/// warp have to come. A number that is none, or infinite, makes the block's scale NaN.
__device__ __forceinline__ void stage_block(uint4 const& numbers, uint8_t* token, int block, int lane, bool wanted) {
  uint32_t most = largest_bits(largest_bits(largest_bits(largest_bits(0u, numbers.x), numbers.y), numbers.z), numbers.w);
  most = larger(most, exchange(most, 1));
  most = larger(most, exchange(most, 2));
  uint32_t const power = most >> 7;
  // Digits have 13 bits below the largest number's leading one, so that they go up to 16320: 64 and -128 .. 127.
  uint32_t const kept = larger(power, 15u);
  float const by = float_of_bits((127u + 127u + 13u - kept) << 23);
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
  uint32_t const scale = power == 255u ? kNan : (kept - 13u - 1u) << 23;  // and half of it, as weights are twice their values
  uint32_t const less[2] = {static_cast<uint32_t>(-of_high), static_cast<uint32_t>(-of_low)};
  *reinterpret_cast<uint4*>(stage + kRecords + block % kStageBlocks * kRecordBytes) = uint4{less[0], less[1], less[0], less[1]};
  *reinterpret_cast<uint32_t*>(stage + kScales + block % kStageBlocks * 4) = scale;
}

/// Turns tokens into fixed point in shared memory, by all threads of a block; `row(i)` is token i. Blocks after the last are zeros.
template <typename Row>
__device__ __forceinline__ void stage_tokens(Row const& row, int tokens, int blocks, int stages, uint8_t* to, int warp, int lane) {
  int const stored = stages * kStageBlocks;
  int const all = tokens * stored;
  for (int first = warp * kOctet; first < all; first += blockDim.x / 4) {
    int const mine = first + lane / 4;
    int const token = mine < all ? mine / stored : 0;
    int const block = mine < all ? mine % stored : 0;
    uint4 numbers{0, 0, 0, 0};
    if (mine < all && block < blocks) numbers = load_16(row(token) + block * kBlockColumns + lane % 4 * 8);
    stage_block(numbers, to + token * token_bytes(stages), block, lane, mine < all);
  }
}

// --- weights ---------------------------------------------------------------------------------------------------------------------

/// Bytes of four codes at once. `one` is 1, which the compiler must not know: products by it keep another unit busy than the one that
/// permutes.
struct Tables {
  uint32_t one, minus, positive, negative;

  __device__ __forceinline__ Tables(uint32_t given, int lane)
      : one(given + (static_cast<uint32_t>(lane) >> 8)), minus(0u - one), positive(0x8F8E8D8Cu * one), negative(0x88868480u * one) {}

  /// The bytes of the four lower nibbles: twice their values and kBiases. In both tables each byte has its highest bit, so that a nibble
  /// with a sign gives 0xFF in the first, and one without in the second, where all bits are turned. 0xFF and a byte of the other table
  /// add up to that byte, less one, and a carry to the next.
  __device__ __forceinline__ uint32_t look_up(uint32_t codes) const {
    uint32_t const positives = permute_signs(positive, 0x98949290u, codes);
    uint32_t const negatives = permute_signs(negative, 0x8C8B8A89u, codes * minus + minus);
    return positives * one + negatives;
  }
};

/// A stage of a warp's rows: the blocks of codes, lane by lane, and four scales a row where they come with them.
template <int kOctets, bool kScales>
struct Stage {
  static constexpr int kCodes = kOctets * kWarp * 16;
  static constexpr int kBytes = kCodes + (kScales ? kOctets * kOctet * kStageBlocks : 0);
};

template <int kOctets, bool kScales>
inline __host__ __device__ int ring_bytes() {
  return kStages * Stage<kOctets, kScales>::kBytes;
}

/// What a lane has of a token: its own block's digits, and zeros for ever where it is not the one that has them.
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

template <int kOctets>
struct Sums {
  float of[kGroup][kOctets];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int token = 0; token < kGroup; ++token)
#pragma unroll
      for (int octet = 0; octet < kOctets; ++octet) of[token][octet] = 0.0f;
  }

  /// Adds up the four lanes of a row, of the first tokens: all four have the sum. A scale that is none counts as infinite in a product, and
  /// its sum here as no number: what comes after may have a limit for it.
  __device__ __forceinline__ void add_lanes(int tokens) {
#pragma unroll
    for (int token = 0; token < kGroup; ++token) {
      if (token >= tokens) break;
#pragma unroll
      for (int octet = 0; octet < kOctets; ++octet) {
        of[token][octet] += exchange(of[token][octet], 1);
        of[token][octet] += exchange(of[token][octet], 2);
        if (!is_finite(of[token][octet])) of[token][octet] = float_of_bits(kNan);
      }
    }
  }
};

/// Adds the products of one or two octets of a stage and of the tokens. `scale(octet)` is that of this lane's block, and `token(i)` where
/// that token's stage is.
template <int kFirst, int kOctets, typename Scale, typename Token>
__device__ __forceinline__ void multiply(uint8_t const* stage, int lane, Scale const& scale, Token const& token, int tokens,
                                         Tables const& tables, Digits& digits, Sums<kOctets>& sums) {
  constexpr bool kTwo = kFirst + 1 < kOctets;
  constexpr int kSecond = kTwo ? kFirst + 1 : kFirst;
  uint32_t a[4][4];
  float scales[2];
#pragma unroll
  for (int half = 0; half < (kTwo ? 2 : 1); ++half) {
    uint4 const codes = *reinterpret_cast<uint4 const*>(stage + ((kFirst + half) * kWarp + lane) * 16);
    uint32_t const words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      a[word][half] = tables.look_up(words[word]);
      a[word][half + 2] = tables.look_up(words[word] >> 16);
      if (!kTwo) a[word][1] = a[word][3] = 0u;
    }
    scales[half] = float_of_bits(scale(kFirst + half) * (tables.one << 23));
  }
#pragma unroll
  for (int of = 0; of < kGroup; ++of) {
    if (of >= tokens) break;
    uint8_t const* const here = token(of);
    digits.load(here);
    uint4 const less = *reinterpret_cast<uint4 const*>(here + digits.record);
    int32_t products[4] = {static_cast<int32_t>(less.x), static_cast<int32_t>(less.y), static_cast<int32_t>(less.z),
                           static_cast<int32_t>(less.w)};
    float const of_token = float_of_bits(*reinterpret_cast<uint32_t const*>(here + digits.scale));
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      uint4 const& both = digits.words[word / 2];
      uint32_t const b[2] = {word % 2 ? both.z : both.x, word % 2 ? both.w : both.y};
      mma_m16n8k32(products, a[word], b);
    }
    sums.of[of][kFirst] += to_float(products[0] * 256 + products[1]) * (scales[0] * of_token);
    if (kTwo) sums.of[of][kSecond] += to_float(products[2] * 256 + products[3]) * (scales[1] * of_token);
  }
}

/// Rows of matrices that lie one after the other.
struct Codes {
  uint8_t const* codes;
  int64_t bytes;  // of a matrix
  int64_t row_bytes;
  int blocks;  // of a row, that are read
  int stages;

  /// `stored` columns, of which `columns` are read.
  __host__ static Codes of(uint8_t const* codes, int rows, int stored, int columns) {
    int const blocks = columns / kBlockColumns;
    return {codes, static_cast<int64_t>(rows) * (stored / 2), stored / 2, blocks, divide_up(blocks, kStageBlocks)};
  }

  __device__ __forceinline__ uint8_t const* at(int matrix, uint32_t row) const { return codes + matrix * bytes + row * row_bytes; }
};

/// Their scales in tiles of 128 rows and 4 blocks, as CUTLASS reads them: the four of a row are neighbours, and those of rows
/// r, r + 32, r + 64, r + 96.
struct TiledScales {
  static constexpr int kTileBytes = 512;
  uint8_t const* scales;
  int64_t bytes;   // of a matrix
  int tile_bytes;  // of all tiles of 128 rows

  __host__ static TiledScales of(uint8_t const* scales, int rows, int stored) {
    int const tile_bytes = divide_up(stored / kBlockColumns, kStageBlocks) * kTileBytes;
    return {scales, static_cast<int64_t>(divide_up(rows, 128)) * tile_bytes, tile_bytes};
  }

  __device__ __forceinline__ uint8_t const* at(int matrix, uint32_t row) const {
    return scales + matrix * bytes + static_cast<int64_t>(row / 128) * tile_bytes + row % 32 * 16 + row % 128 / 32 * 4;
  }
};

/// A warp's piece of work: a part of a group of tokens that share a matrix.
struct Piece {
  int group, part;

  /// The piece that is so many groups and parts further, of groups that have so many parts.
  __device__ __forceinline__ Piece on(int groups, int parts, int of) const {
    bool const over = part + parts >= of;
    return {group + groups + over, part + parts - (over ? of : 0)};
  }
};

/// Multiplies all of a warp's pieces, one after the other without a gap.
///
/// `Work` has: `codes()`; `first()`, `has(piece)`, `next(piece)`; `matrix(piece)`, `row(piece, place)`; `first_stage(piece)`,
/// `stage_step()`; `prepare()`, called once, when weights are on their way; `begin(piece)`, `tokens(piece)`, how many, and
/// `token(piece)`, a function that tells where one's first stage is; `done(piece, sums)`; `end()`. Where `kTiled`, `scales()` are tiled
/// and come with the stages; else `fetch_scales(piece)` begins to copy a piece's, and `scales(piece)` is where the first lane's are,
/// a row after the other.
template <int kOctets, typename Work>
class Stream {
 public:
  __device__ __forceinline__ Stream(Work& work, uint8_t* ring, int lane) : work_(work), ring_(ring), lane_(lane), piece_(work.first()) {
    if (work_.has(piece_)) open();
  }

  __device__ __forceinline__ void run(uint32_t one) {
#pragma unroll 1
    for (int stage = 0; stage + 1 < kStages; ++stage) fetch();
    work_.prepare();
    Tables const tables(one, lane_);
    Digits digits(lane_);
    int from = 0;
    int const stages = work_.codes().stages;
#pragma unroll 1
    for (Piece piece = work_.first(); work_.has(piece); piece = work_.next(piece)) {
      Sums<kOctets> sums;
      sums.clear();
      work_.begin(piece);
      int const tokens = work_.tokens(piece);
      auto const token = work_.token(piece);
#pragma unroll 1
      for (int stage = work_.first_stage(piece); stage < stages; stage += work_.stage_step()) {
        wait_copies<kStages - 2>();
        sync_warp();
        fetch();
        uint8_t const* const here = ring_ + from;
        from = after(from);
        auto const scale = [&](int octet) { return scale_of(piece, stage, here, octet); };
        auto const at = [&token, stage](int of) { return token(of) + stage * kTokenStage; };
        multiply<0>(here, lane_, scale, at, tokens, tables, digits, sums);
        if constexpr (kOctets > 2) multiply<2>(here, lane_, scale, at, tokens, tables, digits, sums);
      }
      sums.add_lanes(tokens);
      work_.done(piece, sums);
    }
    work_.end();
  }

 private:
  using At = Stage<kOctets, Work::kTiled>;

  __device__ __forceinline__ static int after(int stage) { return stage == (kStages - 1) * At::kBytes ? 0 : stage + At::kBytes; }

  __device__ __forceinline__ uint32_t scale_of(Piece piece, int stage, uint8_t const* here, int octet) const {
    if constexpr (Work::kTiled) {
      return here[At::kCodes + octet * kWarp + lane_];
    } else {
      // A block after the last has zeros for digits, and the last one's scale, since no number times zero is the scale that is none.
      int const block = stage * kStageBlocks + lane_ % 4;
      int const last = work_.codes().blocks - 1;
      return work_.scales(piece)[(octet * kOctet + lane_ / 4) * (last + 1) + (block < last ? block : last)];
    }
  }

  /// From now on fetches the piece that comes next.
  __device__ __forceinline__ void open() {
    Codes const& codes = work_.codes();
    int const stage = work_.first_stage(piece_);
    left_ = codes.blocks - stage * kStageBlocks;
    int const matrix = work_.matrix(piece_);
#pragma unroll
    for (int octet = 0; octet < kOctets; ++octet) {
      codes_[octet] = codes.at(matrix, work_.row(piece_, octet * kOctet + lane_ / 4)) + lane_ % 4 * 16 + stage * kStageCodes;
    }
    if constexpr (Work::kTiled) {
      int const row = work_.row(piece_, lane_ % (kOctets * kOctet));
      scales_ = work_.scales().at(matrix, row) + stage * TiledScales::kTileBytes;
    } else {
      work_.fetch_scales(piece_);
    }
  }

  /// Begins to copy the next stage, if there is one.
  __device__ __forceinline__ void fetch() {
    if (left_ > 0) {
      uint8_t* const to = ring_ + to_;
      int const step = work_.stage_step();
#pragma unroll
      for (int octet = 0; octet < kOctets; ++octet) {
        copy_16(to + (octet * kWarp + lane_) * 16, codes_[octet], lane_ % 4 < left_ ? 16 : 0);
      }
      if constexpr (Work::kTiled) {
        copy_4(to + At::kCodes + lane_ * 4, scales_, left_ < kStageBlocks ? left_ : kStageBlocks, lane_ < kOctets * kOctet);
        scales_ += step * TiledScales::kTileBytes;
      }
#pragma unroll
      for (int octet = 0; octet < kOctets; ++octet) codes_[octet] += step * kStageCodes;
      left_ -= step * kStageBlocks;
      if (left_ <= 0) {
        piece_ = work_.next(piece_);
        if (work_.has(piece_)) open();
      }
    }
    commit_copies();
    to_ = after(to_);
  }

  Work& work_;
  uint8_t* const ring_;
  int const lane_;
  Piece piece_;  // that is fetched
  int left_ = 0;  // blocks of it
  int to_ = 0;    // the stage of the ring
  uint8_t const* codes_[kOctets];
  uint8_t const* scales_;
};

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_BYTE_PRODUCTS_CUH_
