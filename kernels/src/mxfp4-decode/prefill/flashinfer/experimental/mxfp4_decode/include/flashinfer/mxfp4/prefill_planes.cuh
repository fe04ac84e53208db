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
#ifndef FLASHINFER_MXFP4_PREFILL_PLANES_CUH_
#define FLASHINFER_MXFP4_PREFILL_PLANES_CUH_

// How the products of a mixture of experts with many tokens have their second operand in memory.
//
// An entry is one choice of one token. Its row is its place among all entries, sorted by expert;
// each expert begins at a multiple of eight rows. Rows lie in planes of 64 columns: first 64 columns
// of all rows, then the next 64. Within a plane the columns are in the order in which the products
// take them (see `column_at`), and the 16-byte parts of a row are permuted as
// `describe_rows` has them.

#include "flashinfer/mxfp4/matrix.cuh"

namespace flashinfer {
namespace mxfp4 {

constexpr int kPlaneColumns = 64;
constexpr int kPlaneRowBytes = kPlaneColumns * 2;
constexpr int kPlaneParts = kPlaneRowBytes / 16;
constexpr int kRowsTogether = 8;  // rows of an expert are padded to these

inline __host__ __device__ int planes_of(int columns) { return divide_up(columns, kPlaneColumns); }

/// A number of rows up to the next multiple of kRowsTogether.
inline __host__ __device__ int padded_rows(int count) {
  return divide_up(count, kRowsTogether) * kRowsTogether;
}

/// The column of 64 at place `place` of part `part` of a plane's row. A lane of the products loads
/// 16 neighbouring codes, columns 16 t to 16 t + 15 for lane t of four. A word of them has eight
/// codes; code i and code i + 4 of a word become neighbours in a register.
inline __host__ __device__ int column_at(int part, int place) {
  int const step = part / 2;  // of 16 columns
  return place / 2 * 16 + step / 2 * 8 + step % 2 * 2 + part % 2 + place % 2 * 4;
}

/// Where part `part` of a row lies, in bytes.
inline __host__ __device__ int64_t part_offset(int64_t rows, int plane, int row, int part) {
  return (plane * rows + row) * kPlaneRowBytes + (part ^ row % kRowsTogether) * 16;
}

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_PREFILL_PLANES_CUH_
