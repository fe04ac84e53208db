// SPDX-License-Identifier: Apache-2.0
// One kernel that is right, and the same with one fault each: what the machine has to refuse.
#include "flashinfer/mxfp4/primitives.cuh"

using namespace flashinfer::mxfp4;

enum Fault {
  kNone,
  kNoSyncWarp,
  kNoSyncBlock,
  kOverwritesWhatIsRead,
  kTwoWriters,
  kNoCopyWait,
  kCopiesLeft,
  kReadsBeyondInput,
  kWritesBeyondOutput,
  kWritesInput,
  kMisalignedCopy,
  kMisalignedLoad,
  kReadsUnwrittenShared,
  kReadsUnwrittenOutput,
  kBlocksShareOutput,
  kLaneIsMissing,
  kLanesDiverge,
  kReadsBeforeWait,
  kWritesBeforeWait,
  kNeverWaits,
  kWrongByte,
  kMatrixInOutput,
  kOverwritesCopy,
};

/// Each warp copies 32 numbers to shared memory, turns them round, and adds those of the warp before.
__global__ void turn_kernel(Fault fault, float const* input, float* output, int* unwritten) {
  float* const shared = reinterpret_cast<float*>(dynamic_shared());
  int const thread = threadIdx.x;
  int const lane = thread % 32;
  int const warp = thread / 32;
  int const threads = blockDim.x;
  float const* const mine = input + blockIdx.x * threads;
  float* const turned = shared + threads;
  if (fault == kReadsBeforeWait && mine[thread] == 1e30f) return;
  if (fault == kWritesBeforeWait) output[blockIdx.x * threads + thread] = 0.0f;
  if (fault != kNeverWaits) wait_for_predecessor();
  release_successor();
  if (fault == kReadsUnwrittenShared && turned[thread] == 1e30f) return;
  if (fault == kReadsUnwrittenOutput && unwritten[0] == 7) return;
  if (lane % 4 == 0) {
    int const beyond = fault == kReadsBeyondInput && blockIdx.x == gridDim.x - 1 ? 4 : 0;
    copy_async_16(shared + thread, mine + thread + beyond + (fault == kMisalignedCopy), true);
  }
  if (fault != kCopiesLeft) copy_commit();
  if (fault == kOverwritesCopy && lane == 0) shared[thread + 1] = 0.0f;
  if (fault != kNoCopyWait) copy_wait<0>();
  if (fault == kLaneIsMissing && thread == 40) return;
  if (fault == kLanesDiverge && thread == 41) ballot(true);
  if (fault != kNoSyncWarp) sync_warp();
  float const number = shared[warp * 32 + 31 - lane];
  if (fault == kOverwritesWhatIsRead && lane == 0) shared[thread] = 1.0f;
  turned[fault == kTwoWriters ? warp * 32 : thread] = number;
  if (fault == kTwoWriters) turned[thread] = number;
  if (fault != kNoSyncBlock) sync_block();
  float const other = turned[(thread + threads - 32) % threads];
  int const block = fault == kBlocksShareOutput ? 0 : blockIdx.x;
  int const place = fault == kWritesBeyondOutput ? thread + 1 : thread;
  output[block * threads + place] = number + other;
  if (fault == kWritesInput) const_cast<float*>(mine)[thread] = 0.0f;
  if (fault == kMisalignedLoad) {
    uint32_t words[4];
    load_matrix_x4(words, reinterpret_cast<uint8_t*>(shared) + 8);
  }
  if (fault == kMatrixInOutput) {
    uint32_t words[4];
    load_matrix_x4(words, output + blockIdx.x * threads + thread / 4 * 4);
  }
  if (fault == kWrongByte) permute_bytes(1, 2, 0x3218u);
}

extern "C" int emulated_turn(int fault, void const* input, void* output, void* unwritten, int blocks, int threads,
                             int shared_bytes, int early) {
  return launch(turn_kernel, dim3(blocks), threads, shared_bytes, nullptr, early != 0, static_cast<Fault>(fault),
                static_cast<float const*>(input), static_cast<float*>(output), static_cast<int*>(unwritten));
}

/// Each lane's words through the matrix instructions, as the device has them.
__global__ void matrix_kernel(uint32_t const* a, uint32_t const* b, float* sums, uint32_t* loaded, uint32_t* votes) {
  uint32_t* const shared = reinterpret_cast<uint32_t*>(dynamic_shared());
  int const lane = threadIdx.x;
  for (int word = 0; word < 4; ++word) shared[lane * 4 + word] = a[lane * 4 + word];
  sync_warp();
  uint32_t words[4];
  load_matrix_x4(words, shared + lane * 4);
  uint32_t of_a[4], of_b[2];
  float sum[4];
  for (int word = 0; word < 4; ++word) {
    loaded[lane * 4 + word] = words[word];
    of_a[word] = a[lane * 4 + word];
    sum[word] = 0.5f;
  }
  for (int word = 0; word < 2; ++word) of_b[word] = b[lane * 2 + word];
  mma_m16n8k16(sum, of_a, of_b);
  for (int word = 0; word < 4; ++word) sums[lane * 4 + word] = sum[word];
  votes[lane] = ballot(a[lane] & 1u);
}

extern "C" int emulated_matrix(void const* a, void const* b, void* sums, void* loaded, void* votes) {
  return launch(matrix_kernel, dim3(1), 32, 512, nullptr, false, static_cast<uint32_t const*>(a),
                static_cast<uint32_t const*>(b), static_cast<float*>(sums), static_cast<uint32_t*>(loaded),
                static_cast<uint32_t*>(votes));
}

__global__ void number_kernel(uint32_t const* a, uint32_t const* b, float const* c, uint32_t* products, uint16_t* rounded, int count) {
  for (int index = threadIdx.x; index < count; index += blockDim.x) {
    products[index] = multiply_bf16x2(a[index], b[index]);
    rounded[index] = to_bf16(c[index]);
  }
}

extern "C" int emulated_number(void const* a, void const* b, void const* c, void* products, void* rounded, int count) {
  return launch(number_kernel, dim3(1), 32, 0, nullptr, false, static_cast<uint32_t const*>(a), static_cast<uint32_t const*>(b),
                static_cast<float const*>(c), static_cast<uint32_t*>(products), static_cast<uint16_t*>(rounded), count);
}
