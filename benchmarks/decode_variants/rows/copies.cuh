// SPDX-License-Identifier: Apache-2.0
#ifndef FLASHINFER_MXFP4_COPIES_CUH_
#define FLASHINFER_MXFP4_COPIES_CUH_

namespace flashinfer {
namespace mxfp4 {

constexpr bool kWantsBulkCopies = false;  // of rows, where there are any

}  // namespace mxfp4
}  // namespace flashinfer

#endif  // FLASHINFER_MXFP4_COPIES_CUH_
