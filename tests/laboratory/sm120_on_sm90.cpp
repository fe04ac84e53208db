// SPDX-License-Identifier: Apache-2.0
// What stands in for SM120 on SM90, lane by lane on a CPU, against the layouts that the pinned CuTe gives SM120's own instructions.
//
//   g++ -std=c++17 -I…/sm120_on_sm90/include -isystem …/cutlass/include -isystem …/cuda/include sm120_on_sm90.cpp
//
// Prints `codes`: e4m3 of each e2m1, then `mma` and `ldmatrix`: how many values were compared, and how many differ.
#include <cstdio>
#include <random>
#include <vector>

#include "cute/atom/copy_traits_sm100.hpp"
#include "cute/atom/mma_traits_sm120.hpp"

using namespace cute;
namespace ours = sm120_on_sm90;

using Swapped = SM120::BLOCKSCALED::SM120_16x8x32_TN_VS<float_e2m1_t, float_e4m3_t, float, float_ue8m0_t, 32>;
using Plain = SM120::BLOCKSCALED::SM120_16x8x32_TN_VS<float_e4m3_t, float_e2m1_t, float, float_ue8m0_t, 32>;
static_assert(Swapped::kEmulated && Plain::kEmulated && SM100_SU4_DU8x16_x4_LDSM_N::kEmulated);

constexpr int kRows = 16, kColumns = 8, kDepth = 32, kLanes = 32;
std::mt19937 draw(0);

int drawn(int below) { return std::uniform_int_distribution<int>(0, below - 1)(draw); }

double e2m1(int code) {
  double const known[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (code & 8 ? -1 : 1) * known[code & 7];
}

double e4m3(int code) {
  int const field = code >> 3 & 15, fraction = code & 7;
  double const size = field ? ldexp(1 + fraction / 8.0, field - 7) : ldexp(fraction / 8.0, -6);
  return code & 0x80 ? -size : size;
}

void codes() {
  printf("codes");
  for (uint32_t code = 0; code < 16; ++code) printf(" %u", ours::e4m3_of_e2m1(code << 2) & 0xff);
  printf("\n");
}

/// The element of a register of four bytes.
int byte(uint32_t word, int place) { return word >> 8 * place & 0xff; }

/// One warp's MMA of e2m1 (already shifted left by two) and e4m3, by the layouts of `Op`, in doubles.
template <class Op, bool Fp4A>
void mma() {
  using Traits = MMA_Traits<Op>;
  typename Traits::ALayout a_place;
  typename Traits::BLayout b_place;
  typename Traits::CLayout c_place;
  typename Traits::SFALayout row_scale_place;
  typename Traits::SFBLayout column_scale_place;
  std::vector<int> a(kRows * kDepth), b(kColumns * kDepth), row_scales(kRows), column_scales(kColumns);
  for (int& code : a) code = Fp4A ? drawn(16) : drawn(0x7f) | drawn(2) << 7;
  for (int& code : b) code = Fp4A ? drawn(0x7f) | drawn(2) << 7 : drawn(16);
  for (int& scale : row_scales) scale = 110 + drawn(30);
  for (int& scale : column_scales) scale = 110 + drawn(30);

  // What the hardware's registers hold: each lane its fragments, and the scale that CuTe would load into it.
  uint32_t a_words[kLanes][4] = {}, b_words[kLanes][2] = {};
  int row_register[kLanes], column_register[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int value = 0; value < 16; ++value) {
      a_words[lane][value / 4] |= uint32_t(a[a_place(lane, value)] << (Fp4A ? 2 : 0)) << 8 * (value % 4);
    }
    for (int value = 0; value < 8; ++value) {
      b_words[lane][value / 4] |= uint32_t(b[b_place(lane, value)] << (Fp4A ? 0 : 2)) << 8 * (value % 4);
    }
    row_register[lane] = row_scales[row_scale_place(lane, 0) % kRows];
    column_register[lane] = column_scales[column_scale_place(lane, 0) % kColumns];
    for (uint32_t& word : a_words[lane]) word = Fp4A ? ours::e4m3_of_e2m1(word) : word;
    for (uint32_t& word : b_words[lane]) word = Fp4A ? word : ours::e4m3_of_e2m1(word);
  }
  // SM90's part: e4m3 by e4m3 by the same fragments, without scales.
  double product[kRows * kColumns] = {};
  double left[kRows * kDepth], right[kColumns * kDepth];
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int value = 0; value < 16; ++value) left[a_place(lane, value)] = e4m3(byte(a_words[lane][value / 4], value % 4));
    for (int value = 0; value < 8; ++value) right[b_place(lane, value)] = e4m3(byte(b_words[lane][value / 4], value % 4));
  }
  for (int row = 0; row < kRows; ++row)
    for (int column = 0; column < kColumns; ++column)
      for (int k = 0; k < kDepth; ++k) product[row + kRows * column] += left[row + kRows * k] * right[column + kColumns * k];

  int compared = 0, differ = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int element = 0; element < 4; ++element) {
      int const place = c_place(lane, element), row = place % kRows, column = place / kRows;
      double wanted = 0;
      for (int k = 0; k < kDepth; ++k) {
        int const x = a[row + kRows * k], y = b[column + kColumns * k];
        wanted += Fp4A ? e2m1(x) * e4m3(y) : e4m3(x) * e2m1(y);
      }
      wanted *= ldexp(1, row_scales[row] + column_scales[column] - 254);
      int const row_lane = ours::lane_of_row_scale(ours::row_of(lane, element));
      int const column_lane = ours::lane_of_column_scale(ours::column_of(lane, element));
      // Thread id 0: the hardware takes a row's scale from the first two lanes of four, and a column's from the first.
      bool const supplies = row_lane % 4 < 2 && column_lane % 4 == 0;
      float const found =
          ours::scaled(float(product[place]), row_register[row_lane], column_register[column_lane], ours::kE2m1Shift);
      ++compared;
      differ += !supplies || std::abs(found - wanted) > 1e-6 * std::abs(wanted);
    }
  }
  printf("mma %d %d\n", compared, differ);
}

/// ldmatrix: 32 rows of 16 nibbles and 8 bytes that are nothing, named by the lanes in another order.
void ldmatrix() {
  Copy_Traits<SM100_SU4_DU8x16_x4_LDSM_N>::DstLayout to;  // (lane, bit) -> bit of 32 rows of 16 bytes
  uint8_t shared[kLanes][16];
  int nibbles[kLanes][16], address[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) address[lane] = (lane * 5 + 3) % kLanes;
  for (auto& row : shared)
    for (uint8_t& one : row) one = uint8_t(drawn(256));
  for (int row = 0; row < kLanes; ++row)
    for (int k = 0; k < 16; ++k) nibbles[row][k] = shared[row][k / 2] >> 4 * (k % 2) & 15;
  int compared = 0, differ = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      uint8_t const* row = shared[address[ours::lane_of_address(lane, matrix)]] + ours::byte_of_nibbles(lane);
      uint32_t const found = ours::spread(row[0] | row[1] << 8);
      for (int place = 0; place < 4; ++place) {
        int const element = int(to(lane, 8 * place + 32 * matrix)) / 8;  // of what the 32 lanes named, in their order
        ++compared;
        differ += byte(found, place) != nibbles[address[element / 16]][element % 16];
      }
    }
  }
  printf("ldmatrix %d %d\n", compared, differ);
}

int main() {
  codes();
  mma<Swapped, true>();
  mma<Plain, false>();
  ldmatrix();
}
