// SPDX-License-Identifier: Apache-2.0
// What kernels see of the machine that runs them: see machine.cpp.
#ifndef EMULATED_MACHINE_H_
#define EMULATED_MACHINE_H_

#include <cstddef>
#include <cstdint>

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace emulated {

// Of the thread that asks.
dim3 thread_index();
dim3 block_index();
dim3 block_size();
dim3 grid_size();
uint8_t* shared_memory();

void multiply(float (&sum)[4], uint32_t const (&a)[4], uint32_t const (&b)[2]);
void multiply(int32_t (&sum)[4], uint32_t const (&a)[4], uint32_t const (&b)[2]);
/// The number of the lane whose own number differs by these bits.
uint32_t exchange(uint32_t number, int bits);
void sync_warp();
/// Begins to copy so many bytes that are only read, and zeros after them up to all.
void copy(uint8_t* to, void const* from, size_t bytes, size_t all);
/// The same of what the kernel before may have written.
void copy_past_first_cache(uint8_t* to, void const* from, size_t bytes, size_t all);
void commit_copies();
/// Waits for all but the last groups of this thread's copies.
void wait_copies(size_t groups);
uint32_t ballot(bool one);
/// The largest number of the warp's lanes.
int largest(int number);
/// The number, which all lanes of the warp have to have.
int uniform(int number);
void sync_block();
/// As sync_block, by so many threads of whole warps, which have to come to the same team each time.
void sync_team(int team, int threads);
void wait_for_predecessor();
void release_successor();

/// Ends the launch with this as its error.
[[noreturn]] void fail(char const* problem);
/// A read or write of this thread: ends the launch where it is not allowed.
void touch(void const* address, size_t bytes, bool writes);
/// Reads past the first cache, which finds what was there before the kernel before this one began.
void read_past_first_cache(void const* address, void* into, size_t bytes);
/// A read of what nobody writes while the launch runs.
void touch_only_read(void const* address, size_t bytes);

struct Launch {
  void const* kernel;      // its address, for its name
  void (*run)(void const*);  // runs one thread
  void const* arguments;
  size_t arguments_bytes;
  dim3 grid;
  int threads;
  int shared_bytes;
  bool early;
};

/// Runs all blocks; whether that went well.
bool launch(Launch const& launch);

}  // namespace emulated

#endif  // EMULATED_MACHINE_H_
