// SPDX-License-Identifier: Apache-2.0
// One fault for each tool of compute-sanitizer: ./faults memcheck | racecheck | initcheck. Without a tool it exits with 0.


#include <cstdio>
#include <cstring>

constexpr int kThreads = 64;

__global__ void writes_beyond(int* numbers) { numbers[1 << 20] = 1; }

__global__ void reads_what_another_warp_writes(int* numbers) {
  __shared__ int between[kThreads];
  between[threadIdx.x] = static_cast<int>(threadIdx.x);
  numbers[threadIdx.x] = between[(threadIdx.x + 32) % kThreads];
}

__global__ void reads_what_nobody_wrote(int const* unwritten, int* numbers) { numbers[threadIdx.x] = unwritten[threadIdx.x]; }

int main(int, char** arguments) {
  int *numbers = nullptr, *unwritten = nullptr;
  if (arguments[1] == nullptr || cudaMalloc(&numbers, kThreads * sizeof(int)) != cudaSuccess ||
      cudaMalloc(&unwritten, kThreads * sizeof(int)) != cudaSuccess) {
    std::fprintf(stderr, "faults: no tool is named, or there is no GPU\n");
    return 2;
  }
  if (std::strcmp(arguments[1], "memcheck") == 0) writes_beyond<<<1, 1>>>(numbers);
  if (std::strcmp(arguments[1], "racecheck") == 0) reads_what_another_warp_writes<<<1, kThreads>>>(numbers);
  if (std::strcmp(arguments[1], "initcheck") == 0) reads_what_nobody_wrote<<<1, kThreads>>>(unwritten, numbers);
  cudaDeviceSynchronize();
  return 0;
}
