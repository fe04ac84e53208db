// SPDX-License-Identifier: Apache-2.0
// The interface of the emulated machine for kernels: see machine.cpp.
#ifndef EMULATED_MACHINE_H_
#define EMULATED_MACHINE_H_

#include <cstddef>
#include <cstdint>

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace emulated {

// Properties of the calling thread.
dim3 thread_index();
dim3 block_index();
dim3 block_size();
dim3 grid_size();
uint8_t* shared_memory();

void multiply(float (&sum)[4], uint32_t const (&a)[4], uint32_t const (&b)[2]);
void multiply(int32_t (&sum)[4], uint32_t const (&a)[4], uint32_t const (&b)[2]);
/// Returns the number of the lane whose index differs from this lane's by `bits` (a butterfly shuffle).
uint32_t exchange(uint32_t number, int bits);
void sync_warp();
/// Begins to copy `bytes` bytes of read-only memory, followed by zeros up to `all` bytes.
void copy(uint8_t* to, void const* from, size_t bytes, size_t all);
/// Like `copy`, for memory that the previous kernel may have written.
void copy_past_first_cache(uint8_t* to, void const* from, size_t bytes, size_t all);
void commit_copies();
/// Waits for this thread's copies, except for the last `groups` groups.
void wait_copies(size_t groups);
uint32_t ballot(bool one);
/// Returns the largest number among the warp's lanes.
int largest(int number);
/// Returns the number, which must be the same in all lanes of the warp.
int uniform(int number);
void sync_block();
/// Like sync_block, for `threads` threads in whole warps, which must always use the same team.
void sync_team(int team, int threads);
void wait_for_predecessor();
void release_successor();

/// Ends the launch with this error.
[[noreturn]] void fail(char const* problem);
/// Checks a read or write of this thread: ends the launch if it is not allowed.
void touch(void const* address, size_t bytes, bool writes);
/// Reads past the first cache, which may hold data from before the previous kernel began.
void read_past_first_cache(void const* address, void* into, size_t bytes);
/// Checks a read of memory that is not written while the launch runs.
void touch_only_read(void const* address, size_t bytes);

struct Launch {
  void const* kernel;      // address of the kernel, from which its name is found
  void (*run)(void const*);  // runs one thread of it
  void const* arguments;
  size_t arguments_bytes;
  dim3 grid;
  int threads;
  int shared_bytes;
  bool early;
};

/// Runs all blocks; returns whether there was no error.
bool launch(Launch const& launch);

}  // namespace emulated

#endif  // EMULATED_MACHINE_H_
