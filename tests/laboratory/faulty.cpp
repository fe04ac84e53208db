// SPDX-License-Identifier: Apache-2.0
// One kernel that is right, and the same with one fault each: what the machine has to refuse.
#include "flashinfer/mxfp4/primitives.cuh"

using namespace flashinfer::mxfp4;

enum Fault {
  kNone,
  kNoSyncBlock,
  kNoSecondSyncBlock,
  kBallotForSyncBlock,
  kOverwritesWhatIsRead,
  kTwoWriters,
  kReadsBeyondInput,
  kReadsBeyondWeights,
  kReadsBeyondScales,
  kWritesBeyondOutput,
  kWritesInput,
  kMisalignedLoad,
  kMisalignedLoadOnce,
  kReadsUnwrittenShared,
  kReadsUnwrittenOutput,
  kBlocksShareOutput,
  kLaneIsMissing,
  kLanesDiverge,
  kNotUniform,
  kLastLaneNotUniform,
  kReadsBeforeWait,
  kByteBeforeWait,
  kWritesBeforeWait,
  kNeverWaits,
  kInputOnce,
  kByteOfInputOnce,
  kSharedOnce,
  kOutputOnce,
  kWrongByte,
};

/// Each warp brings 32 numbers to shared memory, turns them round, and adds those of the warp before. The numbers are the input and a
/// weight, times the block's scale.
__global__ void turn_kernel(Fault fault, float const* input, float const* weights, uint8_t const* scales, float* output, int* unwritten) {
  float* const shared = reinterpret_cast<float*>(dynamic_shared());
  int const thread = threadIdx.x;
  int const lane = thread % 32;
  if (fault == kLaneIsMissing && thread == 40) return;
  if (fault == kLanesDiverge && thread == 41) ballot(true);
  int const warp = uniform(fault == kNotUniform ? thread / 16 : fault == kLastLaneNotUniform ? (thread + 1) / 32 : thread / 32);
  int const threads = blockDim.x;
  bool const last = blockIdx.x == gridDim.x - 1;
  float const* const mine = keep(input + blockIdx.x * threads);
  float* const turned = shared + threads;
  uint4 weight{};
  if (lane % 4 == 0) {
    int const beyond = fault == kReadsBeyondWeights && last ? 4 : 0;
    weight = load_once_16(weights + blockIdx.x * threads + thread + beyond + (fault == kMisalignedLoadOnce));
  }
  uint32_t const scale = load_byte(scales + blockIdx.x + (fault == kReadsBeyondScales));
  if (fault == kReadsBeforeWait && mine[thread] == 1e30f) return;
  if (fault == kByteBeforeWait && load_byte(mine) == 77) return;
  if (fault == kWritesBeforeWait) output[blockIdx.x * threads + thread] = 0.0f;
  if (fault != kNeverWaits) wait_for_predecessor();
  release_successor();
  if (fault == kInputOnce) load_once_16(mine + thread / 4 * 4);
  if (fault == kByteOfInputOnce) load_byte(mine);
  if (fault == kReadsUnwrittenShared && turned[thread] == 1e30f) return;
  if (fault == kReadsUnwrittenOutput && unwritten[0] == 7) return;
  if (lane % 4 == 0) {
    int const beyond = fault == kReadsBeyondInput && last ? 4 : 0;
    uint4 const given = load_16(mine + thread + beyond + (fault == kMisalignedLoad));
    float numbers[4], added[4];
    __builtin_memcpy(numbers, &given, sizeof given);
    __builtin_memcpy(added, &weight, sizeof weight);
    for (int each = 0; each < 4; ++each) shared[thread + each] = (numbers[each] + added[each]) * scale;
  }
  if (fault == kBallotForSyncBlock) ballot(true);
  if (fault != kNoSyncBlock && fault != kBallotForSyncBlock) sync_block();
  float const number = shared[warp * 32 + 31 - lane];
  if (fault == kOverwritesWhatIsRead && lane == 0) shared[thread] = 1.0f;
  turned[fault == kTwoWriters ? warp * 32 : thread] = number;
  if (fault == kTwoWriters) turned[thread] = number;
  if (fault != kNoSecondSyncBlock) sync_block();
  if (fault == kSharedOnce) load_once_16(shared + lane / 4 * 4);
  float const other = turned[(thread + threads - 32) % threads];
  int const block = fault == kBlocksShareOutput ? 0 : blockIdx.x;
  int const place = fault == kWritesBeyondOutput ? thread + 1 : thread;
  output[block * threads + place] = number + other;
  if (fault == kOutputOnce) load_byte(output + blockIdx.x * threads + thread);
  if (fault == kWritesInput) const_cast<float*>(mine)[thread] = 0.0f;
  if (fault == kWrongByte) permute_bytes(1, 2, 0x3218u);
}

extern "C" int emulated_turn(int fault, void const* input, void const* weights, void const* scales, void* output, void* unwritten,
                             int blocks, int threads, int shared_bytes, int early) {
  return launch(turn_kernel, dim3(blocks), threads, shared_bytes, nullptr, early != 0, static_cast<Fault>(fault),
                static_cast<float const*>(input), static_cast<float const*>(weights), static_cast<uint8_t const*>(scales),
                static_cast<float*>(output), static_cast<int*>(unwritten));
}

/// Reads what was there before the launch, after it has waited for whoever wrote it.
__global__ void once_kernel(uint32_t const* input, uint32_t* output) {
  wait_for_predecessor();
  release_successor();
  if (threadIdx.x < 8) output[threadIdx.x] = load_once_16(input + threadIdx.x * 4).x;
}

extern "C" int emulated_once(void const* input, void* output, int early) {
  return launch(once_kernel, dim3(1), 32, 0, nullptr, early != 0, static_cast<uint32_t const*>(input), static_cast<uint32_t*>(output));
}

/// Each lane's words through the matrix instructions, as the device has them.
__global__ void matrix_kernel(uint32_t const* a, uint32_t const* b, float* sums, uint32_t* votes) {
  int const lane = threadIdx.x;
  uint32_t of_a[4], of_b[2];
  float sum[4];
  for (int word = 0; word < 4; ++word) {
    of_a[word] = a[lane * 4 + word];
    sum[word] = 0.5f;
  }
  for (int word = 0; word < 2; ++word) of_b[word] = b[lane * 2 + word];
  mma_m16n8k16(sum, of_a, of_b);
  for (int word = 0; word < 4; ++word) sums[lane * 4 + word] = sum[word];
  votes[lane] = ballot(a[lane] & 1u);
}

extern "C" int emulated_matrix(void const* a, void const* b, void* sums, void* votes) {
  return launch(matrix_kernel, dim3(1), 32, 0, nullptr, false, static_cast<uint32_t const*>(a), static_cast<uint32_t const*>(b),
                static_cast<float*>(sums), static_cast<uint32_t*>(votes));
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

enum CopyFault {
  kNothing,
  kNotWaitedForCopies,
  kGroupTooFew,
  kNoSyncWarp,
  kCopiesOverWhatIsRead,
  kWritesWhatIsCopied,
  kCopiesBeyondWeights,
  kCopiesMisaligned,
  kCopiesToOutput,
  kCopiesInput,
  kOtherBits,
  kOtherWarp,
};

/// Each lane brings a row of four numbers and one number by two groups of copies, and adds what the lane beside it brought, then that
/// lane's sum. What a lane of an odd number has of the row are its first half and zeros.
__global__ void copy_kernel(CopyFault fault, uint32_t const* weights, uint32_t const* input, uint32_t* output) {
  uint8_t* const rows = dynamic_shared();
  uint8_t* const words = rows + blockDim.x * 16;
  int const thread = threadIdx.x;
  wait_for_predecessor();
  uint32_t const* const from = weights + thread * 4 + (fault == kCopiesMisaligned) + (fault == kCopiesBeyondWeights ? 4 : 0);
  void const* const source = fault == kCopiesInput ? input + thread * 4 : from;
  copy_16(fault == kCopiesToOutput ? reinterpret_cast<uint8_t*>(output + thread * 4) : rows + thread * 16, source, thread % 2 ? 8 : 16);
  commit_copies();
  copy_4(words + thread * 4, weights + thread, 3, thread % 4 != 3);
  if (thread % 4 == 3) *reinterpret_cast<uint32_t*>(words + thread * 4) = 0u;
  commit_copies();
  if (fault == kGroupTooFew) {
    wait_copies<1>();
  } else if (fault != kNotWaitedForCopies) {
    wait_copies<0>();
  }
  if (fault == kWritesWhatIsCopied) {
    copy_4(words + thread * 4, weights, 4, true);
    *reinterpret_cast<uint32_t*>(words + thread * 4) = 7u;
  }
  if (fault != kNoSyncWarp) sync_warp();
  int const beside = fault == kOtherWarp ? thread ^ 32 : thread ^ 1;
  uint32_t sum = *reinterpret_cast<uint32_t const*>(words + beside * 4);
  for (int word = 0; word < 4; ++word) sum += reinterpret_cast<uint32_t const*>(rows + beside * 16)[word];
  if (fault == kCopiesOverWhatIsRead) copy_16(rows + thread * 16, weights, 16);
  uint32_t* const first = reinterpret_cast<uint32_t*>(words) + thread / 32 * 32;
  if (*first == 1u) return;
  sync_warp();
  if (thread % 32 == 0 && *first != 1u) *first = 1u;  // who reads again what all have read may write it
  output[thread] = sum + exchange(sum, fault == kOtherBits ? 1 + thread % 2 : 1);
}

extern "C" int emulated_copy(int fault, void const* weights, void const* input, void* output, int threads) {
  return launch(copy_kernel, dim3(1), threads, threads * 20, nullptr, true, static_cast<CopyFault>(fault),
                static_cast<uint32_t const*>(weights), static_cast<uint32_t const*>(input), static_cast<uint32_t*>(output));
}

/// Each lane's words through the instructions for bytes.
__global__ void byte_kernel(uint32_t const* a, uint32_t const* b, int32_t* sums, uint32_t* permuted, int32_t* dots) {
  int const lane = threadIdx.x;
  uint32_t of_a[4], of_b[2];
  int32_t sum[4];
  for (int word = 0; word < 4; ++word) {
    of_a[word] = a[lane * 4 + word];
    sum[word] = word - 1;
  }
  for (int word = 0; word < 2; ++word) of_b[word] = b[lane * 2 + word];
  mma_m16n8k32(sum, of_a, of_b);
  for (int word = 0; word < 4; ++word) sums[lane * 4 + word] = sum[word];
  permuted[lane] = permute_signs(of_a[0], of_a[1], of_b[0]);
  dots[lane] = dot_bytes(of_a[0], of_b[0], lane);
}

extern "C" int emulated_bytes(void const* a, void const* b, void* sums, void* permuted, void* dots) {
  return launch(byte_kernel, dim3(1), 32, 0, nullptr, false, static_cast<uint32_t const*>(a), static_cast<uint32_t const*>(b),
                static_cast<int32_t*>(sums), static_cast<uint32_t*>(permuted), static_cast<int32_t*>(dots));
}
