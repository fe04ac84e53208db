// SPDX-License-Identifier: Apache-2.0
// Times kinds of decode kernels side by side on the weights of many layers of gpt-oss-120b's shape, and compares what they compute with
// what the first kind does: some 3e-3 is what BF16 makes of the same numbers, added up in another order. Weights are random and of
// many layers, one after the other in a graph, so that nothing comes from the cache.
//
//   program [LAYERS [REPLAYS [NAME ...]]]
//
// A NAME says what is to be measured: a kind; experts, or dense; a number of tokens, or all (experts at once). `whole` leaves out the experts'
// two launches each by itself, and with `late` no launch begins before the one before it has ended. `spark` leaves 48 multiprocessors and
// 99 KB of shared memory, as a DGX Spark has: blocks that only wait occupy all others while times are taken.
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "variant.h"

#define VARIANT(name) extern Variant const variant_##name;
#include "variants.inc"
#undef VARIANT

namespace {

constexpr int kHidden = 2880;
constexpr int kIntermediate = 2880;
constexpr int kExperts = 128;
constexpr int kChoices = 4;
constexpr int kMostTokens = 16;
constexpr int kAll = kExperts / kMostTokens;  // choices of each of 16 tokens, so that every expert has one
constexpr int kTokens[] = {1, 2, 3, 4, 8, 16};
constexpr int kAllAtOnce = 0;
constexpr int kHeads = 4;  // copies of lm_head

void check(cudaError_t status, char const* what) {
  if (status == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

__global__ void fill(uint32_t* words, size_t count, uint32_t seed, uint32_t mask, uint32_t base) {
  size_t const step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t at = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; at < count; at += step) {
    uint32_t hash = static_cast<uint32_t>(at ^ at >> 32) * 2654435761u + seed;
    hash = (hash ^ hash >> 16) * 0x85EBCA6Bu;
    hash = (hash ^ hash >> 13) * 0xC2B2AE35u;
    words[at] = ((hash ^ hash >> 16) & mask) + base;
  }
}

/// Device memory with the same random words in every run.
template <typename Type>
Type* random_words(size_t bytes, uint32_t mask = ~0u, uint32_t base = 0u) {
  static uint32_t seed = 0;
  bytes = (bytes + 15) / 16 * 16;
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "memory");
  fill<<<2048, 256>>>(static_cast<uint32_t*>(memory), bytes / 4, ++seed, mask, base);
  check(cudaGetLastError(), "fill");
  return static_cast<Type*>(memory);
}

template <typename Type>
Type* on_device(std::vector<Type> const& given) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, given.size() * sizeof(Type)), "memory");
  check(cudaMemcpy(memory, given.data(), given.size() * sizeof(Type), cudaMemcpyHostToDevice), "copy");
  return static_cast<Type*>(memory);
}

std::vector<uint16_t> normal_bf16(size_t count, float by) {
  std::mt19937 draw(static_cast<unsigned>(count));
  std::normal_distribution<float> normal;
  std::vector<uint16_t> numbers(count);
  for (uint16_t& number : numbers) {
    __nv_bfloat16 const rounded = __float2bfloat16(normal(draw) * by);
    std::memcpy(&number, &rounded, sizeof number);
  }
  return numbers;
}

double number_of(uint16_t bits) {
  uint32_t const word = static_cast<uint32_t>(bits) << 16;
  float number;
  std::memcpy(&number, &word, sizeof number);
  return number;
}

/// Largest distance of a row from that of the first kind, relative to its length.
double distance(std::vector<uint16_t> const& first, std::vector<uint16_t> const& other, size_t width) {
  double worst = 0;
  for (size_t row = 0; row < first.size() / width; ++row) {
    double apart = 0, length = 0;
    for (size_t at = row * width; at < (row + 1) * width; ++at) {
      double const difference = number_of(first[at]) - number_of(other[at]);
      apart += difference * difference;
      length += number_of(first[at]) * number_of(first[at]);
    }
    double const found = std::sqrt(apart / length);
    if (std::isnan(found)) return found;
    worst = std::max(worst, found);
  }
  return worst;
}

/// Waits until the host lets it go. With all shared memory of a multiprocessor it keeps every other block from it.
__global__ void occupy(unsigned volatile* go, unsigned* there) {
  if (threadIdx.x == 0) atomicAdd_system(there, 1u);
  while (*go == 0) __nanosleep(2000);
}

constexpr int kSparkProcessors = 48;
constexpr int kSparkShared = 101376;

/// As long as it lives, so many multiprocessors take no other block. Memory must not be allocated or freed meanwhile: that waits for all
/// kernels.
class Occupied {
 public:
  Occupied(int processors, int shared_bytes) : processors_(processors) {
    if (processors_ < 1) return;
    check(cudaHostAlloc(&words_, 2 * sizeof(unsigned), cudaHostAllocMapped), "memory");
    words_[0] = words_[1] = 0;
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    check(cudaFuncSetAttribute(occupy, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "shared memory");
    occupy<<<processors_, 32, shared_bytes, stream_>>>(words_, words_ + 1);
    check(cudaGetLastError(), "occupy");
    while (*static_cast<unsigned volatile*>(words_ + 1) < static_cast<unsigned>(processors_)) {
    }
  }
  ~Occupied() {
    if (processors_ < 1) return;
    *static_cast<unsigned volatile*>(words_) = 1;
    check(cudaStreamSynchronize(stream_), "occupy");
    cudaStreamDestroy(stream_);
    cudaFreeHost(words_);
  }
  Occupied(Occupied const&) = delete;
  Occupied& operator=(Occupied const&) = delete;

 private:
  int const processors_;
  unsigned* words_ = nullptr;
  cudaStream_t stream_;
};

constexpr double kRefused = -1.0;

using Launch = std::function<cudaError_t(cudaStream_t)>;

/// A graph of what is launched, to be replayed; `refused` where it cannot be launched.
class Replayed {
 public:
  explicit Replayed(Launch const& launch) {
    cudaGraph_t graph;
    check(cudaStreamCreate(&stream_), "stream");
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "capture");
    refused_ = launch(stream_) != cudaSuccess;
    cudaError_t const captured = cudaStreamEndCapture(stream_, &graph);
    if (refused_) {
      if (captured == cudaSuccess) cudaGraphDestroy(graph);
      cudaGetLastError();
      return;
    }
    check(captured, "capture");
    check(cudaGraphInstantiate(&ready_, graph, 0), "graph");
    check(cudaGraphDestroy(graph), "graph");
    check(cudaEventCreate(&begin_), "event");
    check(cudaEventCreate(&end_), "event");
  }
  ~Replayed() {
    if (!refused_) {
      cudaEventDestroy(begin_);
      cudaEventDestroy(end_);
      cudaGraphExecDestroy(ready_);
    }
    cudaStreamDestroy(stream_);
  }
  Replayed(Replayed const&) = delete;
  Replayed& operator=(Replayed const&) = delete;

  bool refused() const { return refused_; }

  void replay(bool counts) {
    if (refused_) return;
    check(cudaEventRecord(begin_, stream_), "event");
    check(cudaGraphLaunch(ready_, stream_), "launch");
    check(cudaEventRecord(end_, stream_), "event");
    check(cudaEventSynchronize(end_), "kernels");
    float milliseconds;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_), "event");
    if (counts) times_.push_back(milliseconds * 1000.0);
  }

  /// Microseconds.
  double median() {
    if (refused_) return kRefused;
    std::sort(times_.begin(), times_.end());
    return times_[times_.size() / 2];
  }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t ready_;
  cudaEvent_t begin_, end_;
  bool refused_;
  std::vector<double> times_;
};

/// Microseconds of each, medians of replays in turn, so that what the clocks do happens to all of them; kRefused where one cannot be launched.
std::vector<double> timed(std::vector<Launch> const& launches, int replays, int occupied, int shared_bytes) {
  std::vector<std::unique_ptr<Replayed>> graphs;
  for (Launch const& launch : launches) graphs.push_back(std::make_unique<Replayed>(launch));
  check(cudaDeviceSynchronize(), "kernels");
  Occupied const rest(occupied, shared_bytes);
  for (int replay = -2; replay < replays; ++replay) {
    for (auto const& graph : graphs) graph->replay(replay >= 0);
  }
  std::vector<double> medians;
  for (auto const& graph : graphs) medians.push_back(graph->median());
  return medians;
}

struct Bench {
  int layers, replays;
  bool whole;               // leave out each launch by itself?
  std::set<int> tokens;     // so many, and kAllAtOnce
  std::vector<Variant> variants;
  Device device;
  int occupied, whole_shared;  // multiprocessors that are left out, and the shared memory that takes
  double copy_gb_s;

  void row(char const* what, int tokens, char const* name, double us, double bytes, double apart, std::string const& more) const {
    if (us < 0) {
      std::printf("%-8s %2d  %-16s takes no such layer\n", what, tokens, name);
    } else {
      std::printf("%-8s %2d  %-16s %8.2f us  %4.2f of a copy  apart %.1e%s\n", what, tokens, name, us, bytes / us / 1e3 / copy_gb_s, apart, more.c_str());
    }
    std::fflush(stdout);
  }

  void experts() const {
    size_t const up_codes = static_cast<size_t>(kExperts) * 2 * kIntermediate * kHidden / 2;
    size_t const up_scales = static_cast<size_t>(kExperts) * (2 * kIntermediate / 128) * 23 * 512;
    size_t const down_codes = up_codes / 2;
    size_t const down_scales = static_cast<size_t>(kExperts) * 23 * 23 * 512;
    auto* const up = random_words<uint8_t>(up_codes * layers);
    auto* const up_scale = random_words<uint8_t>(up_scales * layers, 0x03030303u, 0x75757575u);
    auto* const down = random_words<uint8_t>(down_codes * layers);
    auto* const down_scale = random_words<uint8_t>(down_scales * layers, 0x03030303u, 0x75757575u);
    auto* const bias = on_device(normal_bf16(static_cast<size_t>(kExperts) * 3 * kHidden, 0.1f));
    auto* const inputs = on_device(normal_bf16(kMostTokens * kHidden, 1.0f));
    auto* const activated = random_words<uint8_t>(size_t{kMostTokens} * kAll * kIntermediate * 4);  // more than any kind takes
    size_t const width = static_cast<size_t>(kMostTokens) * kHidden;
    auto* const output = random_words<uint16_t>(layers * width * 2);
    std::vector<int16_t> logits;
    std::vector<int32_t> ids;
    std::vector<float> shares;
    choose(logits, ids, shares);
    auto* const d_logits = on_device(logits);
    auto* const d_ids = on_device(ids);
    auto* const d_shares = on_device(shares);
    std::vector<int32_t> const each = every_expert();
    auto* const d_each = on_device(each);
    auto* const d_equal = on_device(std::vector<float>(each.size(), 1.0f / kAll));
    for (int turn = 0; turn <= static_cast<int>(std::size(kTokens)); ++turn) {
      bool const all = turn == std::size(kTokens);
      if (!this->tokens.count(all ? kAllAtOnce : kTokens[turn])) continue;
      int const tokens = all ? kMostTokens : kTokens[turn];
      int const choices = all ? kAll : kChoices;
      int32_t const* const d_chosen = all ? d_each : d_ids;
      float const* const d_weights = all ? d_equal : d_shares;
      double touched = all ? kExperts : 0;
      for (int layer = 0; layer < layers && !all; ++layer) {
        auto const* const from = ids.data() + static_cast<size_t>(layer) * kMostTokens * kChoices;
        touched += static_cast<double>(std::set<int>(from, from + tokens * kChoices).size()) / layers;
      }
      double const bytes = touched * 13.237e6;
      for (bool chooses : {false, true}) {
        if (all && chooses) continue;
        auto const launch = [&, tokens, choices, d_chosen, d_weights, chooses](Variant const& variant, Part part) -> Launch {
          return [&, tokens, choices, d_chosen, d_weights, chooses, part](cudaStream_t stream) {
            for (int layer = 0; layer < layers; ++layer) {
              size_t const routed = static_cast<size_t>(layer) * kMostTokens;
              Experts const given{inputs, up + up_codes * layer, up_scale + up_scales * layer, bias, down + down_codes * layer,
                                  down_scale + down_scales * layer, bias + static_cast<size_t>(kExperts) * 2 * kIntermediate,
                                  chooses ? d_logits + routed * kExperts : nullptr, d_chosen + routed * choices, d_weights + routed * choices,
                                  activated, output + width * layer, kExperts, tokens, choices, kHidden, kIntermediate};
              cudaError_t const refused = variant.experts(given, part, stream, device);
              if (refused != cudaSuccess) return refused;
            }
            return cudaSuccess;
          };
        };
        std::vector<std::vector<uint16_t>> results;
        std::vector<Launch> launches;
        for (Variant const& variant : variants) {
          check(cudaMemset(output, 0xFF, layers * width * 2), "output");
          Replayed both(launch(variant, kBoth));
          both.replay(false);
          std::vector<uint16_t> found(layers * width);
          check(cudaMemcpy(found.data(), output, found.size() * 2, cudaMemcpyDeviceToHost), "output");
          results.emplace_back();
          for (int layer = 0; layer < layers && !both.refused(); ++layer) {
            results.back().insert(results.back().end(), found.begin() + layer * width, found.begin() + layer * width + tokens * kHidden);
          }
          launches.push_back(launch(variant, kBoth));
        }
        bool const parts = !chooses && !whole;
        if (parts) {
          for (Part part : {kUp, kDown}) {
            for (Variant const& variant : variants) launches.push_back(launch(variant, part));
          }
        }
        std::vector<double> const us = timed(launches, replays, occupied, whole_shared);
        auto const first = std::find_if(results.begin(), results.end(), [](auto const& result) { return !result.empty(); });
        for (size_t at = 0; at < variants.size(); ++at) {
          char more[100] = "";
          bool const taken = us[at] != kRefused;
          if (taken && parts) {
            double const up = us[variants.size() + at], down = us[2 * variants.size() + at];
            std::snprintf(more, sizeof more, "  up %.2f down %.2f us", up / layers, down / layers);
          }
          row(all ? "all" : chooses ? "choosing" : "experts", tokens, variants[at].name, taken ? us[at] / layers : kRefused, bytes,
              taken ? distance(*first, results[at], kHidden) : 0.0, more);
        }
      }
    }
    for (void* memory : {static_cast<void*>(up), static_cast<void*>(up_scale), static_cast<void*>(down), static_cast<void*>(down_scale)}) cudaFree(memory);
  }

  /// Logits, and what is chosen by them.
  void choose(std::vector<int16_t>& logits, std::vector<int32_t>& ids, std::vector<float>& shares) const {
    std::vector<uint16_t> const drawn = normal_bf16(static_cast<size_t>(layers) * kMostTokens * kExperts, 1.0f);
    for (size_t token = 0; token < static_cast<size_t>(layers) * kMostTokens; ++token) {
      uint16_t const* const of = drawn.data() + token * kExperts;
      logits.insert(logits.end(), of, of + kExperts);
      std::vector<int> order(kExperts);
      for (int expert = 0; expert < kExperts; ++expert) order[expert] = expert;
      std::stable_sort(order.begin(), order.end(), [of](int a, int b) { return number_of(of[a]) > number_of(of[b]); });
      double sum = 0;
      for (int choice = 0; choice < kChoices; ++choice) sum += std::exp(number_of(of[order[choice]]));
      for (int choice = 0; choice < kChoices; ++choice) {
        ids.push_back(order[choice]);
        shares.push_back(static_cast<float>(std::exp(number_of(of[order[choice]])) / sum));
      }
    }
  }

  /// Choices of the tokens of each layer that together are all experts, each once.
  std::vector<int32_t> every_expert() const {
    std::vector<int32_t> ids(static_cast<size_t>(layers) * kExperts);
    for (int layer = 0; layer < layers; ++layer) {
      auto const from = ids.begin() + static_cast<size_t>(layer) * kExperts;
      for (int expert = 0; expert < kExperts; ++expert) from[expert] = expert;
      std::shuffle(from, from + kExperts, std::mt19937(static_cast<unsigned>(layer)));
    }
    return ids;
  }

  struct Shape {
    char const* name;
    int rows, columns, copies;
  };

  /// Layers of these shapes in turn, so many copies of each.
  void dense(char const* what, std::vector<Shape> const& shapes) const {
    std::vector<uint8_t*> codes, scales;
    double bytes = 0;
    size_t widest = 0;
    for (Shape const& shape : shapes) {
      size_t const numbers = static_cast<size_t>(shape.rows) * shape.columns;
      codes.push_back(random_words<uint8_t>(numbers / 2 * shape.copies));
      scales.push_back(random_words<uint8_t>(numbers / 32 * shape.copies, 0x03030303u, 0x75757575u));
      bytes += static_cast<double>(numbers) / 2 + static_cast<double>(numbers) / 32;
      widest = std::max<size_t>(widest, shape.rows);
    }
    auto* const input = on_device(normal_bf16(kMostTokens * 8192, 1.0f));
    auto* const bias = on_device(normal_bf16(widest, 0.1f));
    std::vector<uint16_t*> outputs;
    for (Shape const& shape : shapes) outputs.push_back(random_words<uint16_t>(static_cast<size_t>(kMostTokens) * shape.rows * 2));
    for (int tokens : kTokens) {
      if (!this->tokens.count(tokens)) continue;
      std::vector<std::vector<uint16_t>> results;
      std::vector<Launch> launches;
      for (Variant const& variant : variants) {
        launches.push_back([&, tokens](cudaStream_t stream) {
          for (int copy = 0; copy < shapes[0].copies; ++copy) {
            for (size_t at = 0; at < shapes.size(); ++at) {
              Shape const& shape = shapes[at];
              size_t const numbers = static_cast<size_t>(shape.rows) * shape.columns;
              Dense const given{input, codes[at] + numbers / 2 * copy, scales[at] + numbers / 32 * copy, bias, outputs[at], tokens, shape.rows, shape.columns};
              cudaError_t const refused = variant.dense(given, stream, device);
              if (refused != cudaSuccess) return refused;
            }
          }
          return cudaSuccess;
        });
        for (size_t at = 0; at < shapes.size(); ++at) check(cudaMemset(outputs[at], 0xFF, static_cast<size_t>(tokens) * shapes[at].rows * 2), "output");
        Replayed once(launches.back());
        once.replay(false);
        results.emplace_back();
        for (size_t at = 0; at < shapes.size() && !once.refused(); ++at) {
          std::vector<uint16_t> one(static_cast<size_t>(tokens) * shapes[at].rows);
          check(cudaMemcpy(one.data(), outputs[at], one.size() * 2, cudaMemcpyDeviceToHost), "output");
          results.back().insert(results.back().end(), one.begin(), one.end());
        }
      }
      std::vector<double> const us = timed(launches, replays, occupied, whole_shared);
      auto const first = std::find_if(results.begin(), results.end(), [](auto const& result) { return !result.empty(); });
      for (size_t at = 0; at < variants.size(); ++at) {
        bool const taken = us[at] != kRefused;
        row(what, tokens, variants[at].name, taken ? us[at] / shapes[0].copies : kRefused, bytes,
            taken ? distance(*first, results[at], results[at].size()) : 0.0, "");
      }
    }
    for (size_t at = 0; at < shapes.size(); ++at) {
      cudaFree(codes[at]);
      cudaFree(scales[at]);
      cudaFree(outputs[at]);
    }
  }

  double copied() const {
    constexpr size_t kBytes = size_t{1} << 30;
    auto* const from = random_words<uint8_t>(kBytes);
    auto* const to = random_words<uint8_t>(kBytes);
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    float best = 1e9f;
    for (int turn = 0; turn < 8; ++turn) {
      cudaEventRecord(begin);
      check(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice), "copy");
      cudaEventRecord(end);
      check(cudaEventSynchronize(end), "copy");
      float milliseconds;
      cudaEventElapsedTime(&milliseconds, begin, end);
      best = std::min(best, milliseconds);
    }
    cudaFree(from);
    cudaFree(to);
    return 2.0 * kBytes / best / 1e6;
  }
};

}  // namespace

int main(int count, char** words) {
  Bench bench{};
  bench.layers = count > 1 ? std::atoi(words[1]) : 12;
  bench.replays = count > 2 ? std::atoi(words[2]) : 20;
  auto const wanted = [&](char const* name) {
    for (int at = 3; at < count; ++at) {
      if (!std::strcmp(words[at], name)) return true;
    }
    return false;
  };
  std::set<std::string> const parts{"experts", "dense"}, ways{"whole", "late", "spark"};
  std::map<std::string, int> numbers{{"all", kAllAtOnce}};
  for (int tokens : kTokens) numbers[std::to_string(tokens)] = tokens;
  std::set<std::string> names;
  std::vector<Variant> all;
  bool known = true;
#define VARIANT(name) \
  names.insert(#name); \
  all.push_back(variant_##name);
#include "variants.inc"
#undef VARIANT
  bool named = false, some = false;  // kinds, parts
  for (int at = 3; at < count; ++at) {
    named = named || names.count(words[at]);
    some = some || parts.count(words[at]);
    auto const number = numbers.find(words[at]);
    if (number != numbers.end()) bench.tokens.insert(number->second);
    known = known && (names.count(words[at]) || parts.count(words[at]) || ways.count(words[at]) || number != numbers.end());
  }
  if (bench.tokens.empty()) {
    for (auto const& number : numbers) bench.tokens.insert(number.second);
  }
  bench.whole = wanted("whole");
  for (Variant const& variant : all) {
    if (!named || wanted(variant.name)) bench.variants.push_back(variant);
  }
  if (bench.layers < 1 || bench.replays < 1 || !known) {
    std::fprintf(stderr, "usage: %s [LAYERS [REPLAYS [NAME ...]]], names: experts dense whole late spark", words[0]);
    for (auto const& number : numbers) std::fprintf(stderr, " %s", number.first.c_str());
    for (std::string const& name : names) std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  cudaDeviceProp device;
  cudaError_t const missing = cudaGetDeviceProperties(&device, 0);
  if (missing != cudaSuccess) {
    std::fprintf(stderr, "%s: needs an NVIDIA GPU of the architecture that it was built for: %s\n", words[0], cudaGetErrorString(missing));
    return 2;
  }
  bench.device = {device.multiProcessorCount, static_cast<int>(device.sharedMemPerBlockOptin), device.major >= 9 && !wanted("late")};
  bench.whole_shared = bench.device.shared_bytes;
  if (wanted("spark")) {
    if (device.multiProcessorCount <= kSparkProcessors || device.sharedMemPerBlockOptin < 2 * kSparkShared) {
      std::fprintf(stderr, "%s: spark needs a GPU with more than %d multiprocessors of %d bytes\n", words[0], kSparkProcessors, 2 * kSparkShared);
      return 2;
    }
    bench.occupied = device.multiProcessorCount - kSparkProcessors;
    bench.device.processors = kSparkProcessors;
    bench.device.shared_bytes = kSparkShared;
  }
  bench.copy_gb_s = bench.copied();
  std::printf("%s, %d of %d multiprocessors, a copy at %.0f GB/s; %d layers, medians of %d replays\n", device.name, bench.device.processors,
              device.multiProcessorCount, bench.copy_gb_s, bench.layers, bench.replays);
  if (!some || wanted("experts")) bench.experts();
  if (some && !wanted("dense")) return 0;
  bench.dense("qkv, o", {{"qkv", 5120, 2880, 36}, {"o", 2880, 4096, 36}});
  bench.dense("qkv", {{"qkv", 5120, 2880, 36}});
  bench.dense("o", {{"o", 2880, 4096, 36}});
  bench.dense("lm_head", {{"lm_head", 201088, 2880, kHeads}});
  return 0;
}
