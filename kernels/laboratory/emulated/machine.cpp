// SPDX-License-Identifier: Apache-2.0
// Emulates the threads of a GPU on one CPU, and is strict where a GPU is lenient or random.
//
// Each thread of a block is a fiber that runs until it has to wait for others; blocks run one after the other. Kernels are compiled
// with -fsanitize=thread: the compiler inserts a function call before each read and write of memory (the __tsan_... below; nothing
// of the sanitizer's own library is used). These functions refuse:
//
//   accesses outside of the named buffers, misaligned ones, and reads of bytes that were never written;
//   reads of bytes that another thread of the block wrote, and writes over bytes that it read, without sync_block in between, or
//     sync_team in a team of warps, or sync_warp in a warp;
//   reads of shared memory while it is still being copied: the copying thread may read it after it has waited;
//   reads of bytes that another block of the same launch wrote;
//   reads of bytes that the previous kernel wrote, in a launch that may begin early and has not waited for it; through the first
//     cache, reads of bytes that any kernel wrote;
//   read-only loads of bytes that a kernel writes, or that may still be written when the launch begins;
//   numbers that are declared equal in all lanes of a warp and are not.
//
// A thread that waits for one that will not come gets an error that says so. The order of threads is derived from a seed.
#include "machine.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace emulated {
namespace {

constexpr int kWarp = 32;
constexpr int kMostThreads = 1024;
constexpr size_t kStack = size_t{1} << 18;
constexpr uint8_t kPoison = 0xFF;
constexpr uint16_t kSeveral = 0xFFFF;
constexpr int kTeams = 15;
constexpr int kNoTeam = -1;

/// Time of an access: numbers of sync_block so far, and of sync_warp and sync_team of the accessing warp.
struct When {
  uint16_t steps = 0;
  uint16_t team_steps = 0;
  uint32_t warp_steps = 0;
};

/// State of a writable byte: its last writer, and its readers since then, in the block run `run`.
struct Byte {
  uint32_t run = 0;
  When wrote, was_read;
  uint16_t writer = 0, reader = 0, readers_warp = 0;
  int16_t readers_team = kNoTeam;  // the team of all readers
  bool written = false, here = false, read = false;  // here: written in `run`
  bool copied = false;                               // a copy to it is not complete
};

enum class Kind { kConstant, kInput, kOutput, kShared };

struct Buffer {
  std::string name;
  uint8_t* first;
  size_t bytes;
  Kind kind;
  std::vector<Byte> known;

  bool has(uint8_t const* at, size_t count) const { return at >= first && count <= bytes && static_cast<size_t>(at - first) <= bytes - count; }
};

enum class Waits { kNot, kMultiply, kMultiplyBytes, kBallot, kLargest, kExchange, kUniform, kSyncWarp, kSyncTeam, kSyncBlock, kEnded };

char const* name_of(Waits waits) {
  switch (waits) {
    case Waits::kMultiply: return "mma";
    case Waits::kMultiplyBytes: return "mma of bytes";
    case Waits::kBallot: return "ballot";
    case Waits::kLargest: return "largest";
    case Waits::kExchange: return "exchange";
    case Waits::kUniform: return "uniform";
    case Waits::kSyncWarp: return "sync_warp";
    case Waits::kSyncTeam: return "sync_team";
    case Waits::kSyncBlock: return "sync_block";
    case Waits::kEnded: return "its end";
    default: return "nothing";
  }
}

/// The input of a lane to an operation of its warp, and the place for its result.
struct Brought {
  void* result = nullptr;
  void const* first = nullptr;
  void const* second = nullptr;
  uint32_t number = 0;
  uint32_t bits = 0;
};

/// A pending copy to shared memory: `bytes` bytes, then zeros up to `all`.
struct Copy {
  uint8_t* to;
  uint8_t const* from;
  size_t bytes, all;
};

struct Thread {
  jmp_buf here;
  char* stack = nullptr;
  bool made = false;
  int number = 0;
  Waits waits = Waits::kNot;
  Brought brought;
  bool waited = false;
  std::deque<std::vector<Copy>> copies;  // groups, the last of which is still open
};

struct Warp {
  Waits what = Waits::kNot;  // operation that the lanes wait for
  int arrived = 0;
  int apart = 0;  // lanes that have ended, or wait for the block
  uint32_t steps = 0;  // number of sync_warp so far
  int team = kNoTeam;  // team of its last sync_team
  uint16_t team_steps = 0;  // number of sync_team so far
};

/// Warps that synchronize without the other warps of the block.
struct Team {
  int threads = 0, arrived = 0;
};

struct Machine {
  std::deque<Buffer> buffers;
  std::vector<Thread> threads = std::vector<Thread>(kMostThreads);
  std::vector<Warp> warps = std::vector<Warp>(kMostThreads / kWarp);
  std::vector<Team> teams = std::vector<Team>(kTeams);
  std::string problem;
  uint64_t seed = 0;
  size_t shared_limit = 0;
  size_t shared_most = 0;
  std::string kernels;  // names of all launches, one per line
  std::string shapes;  // their blocks, threads and bytes of shared memory, one launch per line
  bool dry = false;  // only record launches
  Launch const* launch = nullptr;
  dim3 block;
  uint32_t run = 0, first_run = 0;  // number of the block run, and of the first one of this launch
  int alive = 0, arrived = 0;
  uint16_t steps = 0;  // number of sync_block so far
  Buffer shared{"shared memory", nullptr, 0, Kind::kShared, {}};
  uint8_t* shared_storage = nullptr;
  bool inputs_there = false;   // an earlier launch waited for the kernel that wrote the inputs
  bool released_early = false; // this launch let its successor begin before that
  bool somebody_waited = false;
};

Machine machine;
Thread* current = nullptr;
jmp_buf scheduler;

// --- errors ----------------------------------------------------------------------------------------------------------------------

std::string formatted(char const* form, ...) {
  char text[1000];
  va_list values;
  va_start(values, form);
  vsnprintf(text, sizeof text, form, values);
  va_end(values);
  return text;
}

/// Name of a launch's kernel with its template arguments, as the compiler writes it.
std::string whole_name() {
  Dl_info found{};
  if (!dladdr(machine.launch->kernel, &found) || !found.dli_sname) return "a kernel";
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> plain(abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, &status), std::free);
  return status == 0 ? plain.get() : found.dli_sname;
}

std::string kernel_name() {
  std::string name = whole_name();
  name = name.substr(0, name.find_first_of("<("));
  if (name == "a kernel") return name;
  name = name.substr(name.rfind(' ') + 1);
  size_t const scope = name.rfind("::");
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

/// Position of a thread in the code: the library and the offset in it, for addr2line.
std::string place(void const* called_from) {
  Dl_info found{};
  if (!called_from || !dladdr(called_from, &found)) return "";
  return formatted(" [+0x%zx]", static_cast<size_t>(static_cast<char const*>(called_from) - static_cast<char*>(found.dli_fbase)) - 1);
}

[[noreturn]] void failed(std::string const& problem, void const* called_from) {
  machine.problem = formatted("%s, block (%u, %u, %u), thread %d: ", kernel_name().c_str(), machine.block.x, machine.block.y,
                              machine.block.z, current->number) +
                    problem + place(called_from);
  _longjmp(scheduler, 1);
}

// --- fibers ----------------------------------------------------------------------------------------------------------------------

void yield() {
  Thread& me = *current;
  if (_setjmp(me.here) == 0) _longjmp(scheduler, 1);
}

void ended();

void fiber() {
  for (;;) {
    machine.launch->run(machine.launch->arguments);
    ended();
    yield();
  }
}

/// Resumes a thread until it yields.
void resume(Thread& thread) {
  current = &thread;
  if (_setjmp(scheduler) == 0) {
    if (thread.made) _longjmp(thread.here, 1);
    thread.made = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = thread.stack;
    context.uc_stack.ss_size = kStack;
    context.uc_link = nullptr;
    makecontext(&context, fiber, 0);
    setcontext(&context);
  }
  current = nullptr;
}

/// Stacks of a launch's threads, freed at its end: a process may have about 65,000 mappings, and each loaded library has a machine of
/// its own.
class Stacks {
 public:
  explicit Stacks(int threads) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))), bytes_(static_cast<size_t>(threads) * (page_ + kStack)) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED) std::abort();
    for (int number = 0; number < threads; ++number) {
      char* const guard = static_cast<char*>(memory_) + static_cast<size_t>(number) * (page_ + kStack);
      if (mprotect(guard, page_, PROT_NONE)) std::abort();  // a stack overflow ends the process
      machine.threads[number].stack = guard + page_;
    }
  }

  ~Stacks() {
    munmap(memory_, bytes_);
    for (Thread& thread : machine.threads) {
      thread.stack = nullptr;
      thread.made = false;
    }
  }

  Stacks(Stacks const&) = delete;
  Stacks& operator=(Stacks const&) = delete;

 private:
  size_t const page_;
  size_t const bytes_;
  void* memory_;
};

// --- memory ----------------------------------------------------------------------------------------------------------------------

int warp_of(int thread) { return thread / kWarp; }

Warp& my_warp() { return machine.warps[warp_of(current->number)]; }

When now() { return {machine.steps, my_warp().team_steps, my_warp().steps}; }

/// Whether the access was by the same warp, or by a warp of the same team, with no synchronization of both threads since then.
bool at_once(uint16_t warp, int team, When when) {
  if (when.steps != machine.steps) return false;
  if (warp == warp_of(current->number)) return when.warp_steps == now().warp_steps;
  bool const met = team != kNoTeam && team == my_warp().team && when.team_steps < now().team_steps;
  return !met;
}

constexpr char const* kNoBarrier = "another thread wrote it, and there is no barrier between";

/// Prepares a byte for this block: shared memory starts empty, and other memory must not have been written by another block of this
/// launch.
char const* found_by_this_block(Byte& byte, Kind kind, bool writes) {
  if (byte.run == machine.run) return nullptr;
  bool const same_launch = byte.run >= machine.first_run;
  if (kind != Kind::kShared && same_launch && (writes || byte.here)) return "another block of this launch uses it, too";
  byte.run = machine.run;
  byte.here = byte.read = byte.copied = false;
  byte.written = byte.written && kind != Kind::kShared;
  return nullptr;
}

bool written_at_once(Byte const& byte) {
  uint16_t const warp = static_cast<uint16_t>(warp_of(byte.writer));
  return byte.here && byte.writer != current->number && at_once(warp, machine.warps[warp].team, byte.wrote);
}

bool read_at_once(Byte const& byte) {
  return byte.read && byte.reader != current->number && at_once(byte.readers_warp, byte.readers_team, byte.was_read);
}

char const* read_of(Byte& byte) {
  if (byte.copied) return "it is still being copied";
  if (!byte.written) return "nobody has written it";
  if (written_at_once(byte)) return kNoBarrier;
  uint16_t const number = static_cast<uint16_t>(current->number);
  uint16_t const warp = static_cast<uint16_t>(warp_of(number));
  bool const others = read_at_once(byte);
  bool const elsewhere = others && byte.readers_warp != warp;
  int16_t const team = static_cast<int16_t>(my_warp().team);
  byte.readers_team = elsewhere && byte.readers_team != team ? static_cast<int16_t>(kNoTeam) : team;
  byte.read = true;
  byte.was_read = now();
  byte.reader = others ? kSeveral : number;
  byte.readers_warp = elsewhere ? kSeveral : warp;
  return nullptr;
}

char const* write_of(Byte& byte) {
  if (byte.copied) return "it is still being copied";
  if (written_at_once(byte)) return kNoBarrier;
  if (read_at_once(byte)) return "another thread reads it, and there is no barrier between";
  byte.written = byte.here = true;
  byte.read = false;
  byte.wrote = now();
  byte.writer = static_cast<uint16_t>(current->number);
  return nullptr;
}

Buffer* buffer_at(uint8_t const* at, size_t bytes) {
  if (machine.shared.has(at, bytes)) return &machine.shared;
  for (Buffer& buffer : machine.buffers) {
    if (buffer.has(at, bytes)) return &buffer;
  }
  return nullptr;
}

std::string outside(uint8_t const* at) {
  Buffer const* nearest = &machine.shared;
  auto const beyond = [at](Buffer const& buffer) {
    return at - buffer.first - (at < buffer.first ? 0 : static_cast<ptrdiff_t>(buffer.bytes));
  };
  for (Buffer const& buffer : machine.buffers) {
    if (std::abs(beyond(buffer)) < std::abs(beyond(*nearest))) nearest = &buffer;
  }
  char const* const from = at < nearest->first ? "beginning" : "end";
  return formatted("outside of every buffer, %+td bytes from the %s of %s", beyond(*nearest), from, nearest->name.c_str());
}

/// Ways to access memory: through the first cache, which may hold data from before a launch that began early, or past it.
enum class Way { kReads, kReadsPastFirstCache, kWrites };

/// Returns why this thread may not access these bytes; empty if it may.
std::string refused(uint8_t const* at, size_t bytes, Way way) {
  bool const writes = way == Way::kWrites;
  Buffer* const buffer = buffer_at(at, bytes);
  if (!buffer) return outside(at);
  bool const given = buffer->kind == Kind::kConstant || buffer->kind == Kind::kInput;
  if (writes && given) return "it is not to be written";
  bool const before_wait = machine.launch->early && !current->waited;
  bool const changing = buffer->kind == Kind::kOutput || (buffer->kind == Kind::kInput && !machine.inputs_there);
  if (before_wait && changing) return "the kernel before may still use it: it was not waited for";
  bool const cached = way != Way::kReadsPastFirstCache;
  if (before_wait && cached && buffer->kind == Kind::kInput) return "the first cache may have an older one: it was not waited for";
  if (given) return "";
  Byte* const known = buffer->known.data() + (at - buffer->first);
  for (size_t byte = 0; byte < bytes; ++byte) {
    char const* problem = found_by_this_block(known[byte], buffer->kind, writes);
    if (!problem) problem = writes ? write_of(known[byte]) : read_of(known[byte]);
    if (problem == kNoBarrier) return formatted("thread %d wrote it, and there is no barrier between", known[byte].writer);
    if (problem) return problem;
  }
  return "";
}

std::string described(uint8_t const* at, size_t bytes, bool writes) {
  Buffer const* const buffer = buffer_at(at, 1);
  std::string const where = buffer ? formatted(" at %td of %s", at - buffer->first, buffer->name.c_str()) : "";
  return formatted("%s %zu bytes%s: ", writes ? "writes" : "reads", bytes, where.c_str());
}

void check(void const* address, size_t bytes, Way way, size_t aligned, void const* called_from) {
  uint8_t const* const at = static_cast<uint8_t const*>(address);
  bool const writes = way == Way::kWrites;
  if (reinterpret_cast<uintptr_t>(at) % aligned) failed(described(at, bytes, writes) + "misaligned", called_from);
  std::string const problem = refused(at, bytes, way);
  if (!problem.empty()) failed(described(at, bytes, writes) + problem, called_from);
}

/// Called for each read and write in the compiled code. A thread may access its own stack, and read the arguments.
inline void told(void* address, size_t bytes, bool writes, size_t aligned, void const* called_from) {
  if (!current) return;
  char const* const at = static_cast<char const*>(address);
  if (at >= current->stack && at < current->stack + kStack) return;
  char const* const arguments = static_cast<char const*>(machine.launch->arguments);
  if (!writes && at >= arguments && at + bytes <= arguments + machine.launch->arguments_bytes) return;
  check(address, bytes, writes ? Way::kWrites : Way::kReads, aligned, called_from);
}

/// Memory of read-only loads must not change while the launch runs, so also not before its wait.
void check_only_read(uint8_t const* at, size_t bytes, void const* called_from) {
  Buffer const* const buffer = buffer_at(at, bytes);
  if (!buffer || buffer->kind == Kind::kConstant) return;
  std::string const what = described(at, bytes, false);
  if (buffer->kind != Kind::kInput) failed(what + "kernels write it, and it is loaded as what is only read", called_from);
  if (machine.launch->early && !machine.inputs_there) {
    failed(what + "the kernel before may still write it when this one begins, and it is loaded as what is only read", called_from);
  }
}

// --- synchronization ---------------------------------------------------------------------------------------------------------------

Thread& lane(int warp, int number) { return machine.threads[warp * kWarp + number]; }

double bf16_of(uint32_t word, int half) {
  uint32_t const bits = half ? word & 0xFFFF0000u : word << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// Products are exact. Each is added to the sum in float32, in the order of k.
void multiply_all(int warp) {
  double a[16][16], b[16][8];
  for (int each = 0; each < kWarp; ++each) {
    uint32_t const* const of_a = static_cast<uint32_t const*>(lane(warp, each).brought.first);
    uint32_t const* const of_b = static_cast<uint32_t const*>(lane(warp, each).brought.second);
    for (int word = 0; word < 4; ++word) {
      for (int half = 0; half < 2; ++half) {
        a[word / 2 * 8 + each % 4 * 2 + half][word % 2 * 8 + each / 4] = bf16_of(of_a[word], half);
        if (word < 2) b[word * 8 + each % 4 * 2 + half][each / 4] = bf16_of(of_b[word], half);
      }
    }
  }
  float sums[16][8];
  auto const at = [&sums](int each, int place) -> float& { return sums[each / 4 + place / 2 * 8][each % 4 * 2 + place % 2]; };
  for (int each = 0; each < kWarp; ++each) {
    float const* const given = static_cast<float const*>(lane(warp, each).brought.result);
    for (int place = 0; place < 4; ++place) at(each, place) = given[place];
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) sums[row][column] = static_cast<float>(sums[row][column] + a[k][row] * b[k][column]);
    }
  }
  for (int each = 0; each < kWarp; ++each) {
    float* const result = static_cast<float*>(lane(warp, each).brought.result);
    for (int place = 0; place < 4; ++place) result[place] = at(each, place);
  }
}

/// Sums of products of bytes, unsigned in `a` and signed in `b`: exact.
void multiply_all_bytes(int warp) {
  int a[32][16], b[32][8];
  for (int each = 0; each < kWarp; ++each) {
    uint32_t const* const of_a = static_cast<uint32_t const*>(lane(warp, each).brought.first);
    uint32_t const* const of_b = static_cast<uint32_t const*>(lane(warp, each).brought.second);
    for (int word = 0; word < 4; ++word) {
      for (int byte = 0; byte < 4; ++byte) {
        a[word / 2 * 16 + each % 4 * 4 + byte][word % 2 * 8 + each / 4] = static_cast<uint8_t>(of_a[word] >> 8 * byte);
        if (word < 2) b[word * 16 + each % 4 * 4 + byte][each / 4] = static_cast<int8_t>(of_b[word] >> 8 * byte);
      }
    }
  }
  for (int each = 0; each < kWarp; ++each) {
    int32_t* const result = static_cast<int32_t*>(lane(warp, each).brought.result);
    for (int place = 0; place < 4; ++place) {
      for (int k = 0; k < 32; ++k) result[place] += a[k][each / 4 + place / 2 * 8] * b[k][each % 4 * 2 + place % 2];
    }
  }
}

/// Gives each lane the number of the lane whose index differs by `bits`.
void exchange_all(int warp, void const* called_from) {
  uint32_t const bits = lane(warp, 0).brought.bits;
  for (int each = 0; each < kWarp; ++each) {
    if (lane(warp, each).brought.bits != bits || bits >= kWarp) failed("comes to exchange with other bits than its warp", called_from);
    *static_cast<uint32_t*>(lane(warp, each).brought.result) = lane(warp, each ^ static_cast<int>(bits)).brought.number;
  }
}

void vote_all(int warp) {
  uint32_t votes = 0;
  for (int each = 0; each < kWarp; ++each) votes |= lane(warp, each).brought.number << each;
  for (int each = 0; each < kWarp; ++each) *static_cast<uint32_t*>(lane(warp, each).brought.result) = votes;
}

void find_largest(int warp) {
  int best = static_cast<int>(lane(warp, 0).brought.number);
  for (int each = 1; each < kWarp; ++each) best = std::max(best, static_cast<int>(lane(warp, each).brought.number));
  for (int each = 0; each < kWarp; ++each) *static_cast<int*>(lane(warp, each).brought.result) = best;
}

void compare_all(int warp, void const* called_from) {
  int const first = static_cast<int>(lane(warp, 0).brought.number);
  for (int each = 1; each < kWarp; ++each) {
    int const other = static_cast<int>(lane(warp, each).brought.number);
    if (other != first) failed(formatted("comes to uniform with %d in lane 0 and %d in lane %d", first, other, each), called_from);
  }
}

void perform(int warp, Waits what, void const* called_from) {
  switch (what) {
    case Waits::kMultiply: return multiply_all(warp);
    case Waits::kMultiplyBytes: return multiply_all_bytes(warp);
    case Waits::kExchange: return exchange_all(warp, called_from);
    case Waits::kSyncWarp: ++machine.warps[warp].steps; return;
    case Waits::kBallot: return vote_all(warp);
    case Waits::kLargest: return find_largest(warp);
    default: return compare_all(warp, called_from);
  }
}

/// Reports lanes of a warp that wait for different operations.
[[noreturn]] void diverged(Waits what, int warp, void const* called_from) {
  auto const agrees = [what](Waits waits) {
    return waits == Waits::kNot || waits == what || (waits == Waits::kEnded && what == Waits::kSyncBlock);
  };
  int other = 0;
  while (agrees(lane(warp, other).waits)) ++other;
  failed(formatted("comes to %s, lane %d of its warp to %s", name_of(what), other, name_of(lane(warp, other).waits)), called_from);
}

/// All lanes of the warp must call this with the same operation; the last one performs it for all.
void meet(Waits what, Brought const& brought, void const* called_from) {
  Thread& me = *current;
  int const mine = warp_of(me.number);
  Warp& warp = machine.warps[mine];
  if (warp.apart || (warp.arrived && warp.what != what)) diverged(what, mine, called_from);
  warp.what = what;
  me.brought = brought;
  if (++warp.arrived < kWarp) {
    me.waits = what;
    return yield();
  }
  warp.arrived = 0;
  perform(mine, what, called_from);
  for (int each = 0; each < kWarp; ++each) lane(mine, each).waits = Waits::kNot;
}

/// Resumes all threads that wait for the team, once all have arrived.
void release_team(int team) {
  machine.teams[team].arrived = 0;
  for (int number = 0; number < machine.launch->threads; ++number) {
    Thread& thread = machine.threads[number];
    if (thread.waits != Waits::kSyncTeam || thread.brought.number != static_cast<uint32_t>(team)) continue;
    thread.waits = Waits::kNot;
    Warp& warp = machine.warps[warp_of(number)];
    if (--warp.apart) continue;
    ++warp.steps;
    ++warp.team_steps;
  }
}

/// Resumes all threads that wait for the block, once all that have not ended have arrived.
void release_block(void const* called_from) {
  if (machine.arrived == 0 || machine.arrived < machine.alive) return;
  machine.arrived = 0;
  if (++machine.steps == kSeveral) failed("more barriers than are counted", called_from);
  for (int number = 0; number < machine.launch->threads; ++number) {
    Thread& thread = machine.threads[number];
    if (thread.waits != Waits::kSyncBlock) continue;
    thread.waits = Waits::kNot;
    --machine.warps[warp_of(number)].apart;
  }
}

void ended() {
  Thread& me = *current;
  if (machine.launch->early && !me.waited) machine.released_early = true;
  me.waits = Waits::kEnded;
  ++machine.warps[warp_of(me.number)].apart;
  --machine.alive;
  release_block(nullptr);
}

// --- blocks ----------------------------------------------------------------------------------------------------------------------

void make_ready(Thread& thread, int number) {
  thread.number = number;
  thread.waits = Waits::kNot;
  thread.waited = false;
  thread.copies.assign(1, {});
}

/// Reports a thread that waits for one that will not come.
void stuck(std::vector<int> const& order) {
  auto const waiting = std::find_if(order.begin(), order.end(), [](int number) {
    Waits const waits = machine.threads[number].waits;
    return waits != Waits::kNot && waits != Waits::kEnded;
  });
  current = &machine.threads[*waiting];
  std::string missing;
  int const from = current->waits == Waits::kSyncBlock ? 0 : warp_of(*waiting) * kWarp;
  int const to = current->waits == Waits::kSyncBlock ? machine.launch->threads : from + kWarp;
  for (int number = from; number < to && missing.empty(); ++number) {
    Waits const waits = machine.threads[number].waits;
    bool const excused = waits == current->waits || (waits == Waits::kEnded && current->waits == Waits::kSyncBlock);
    if (!excused) missing = formatted(": thread %d is at %s", number, name_of(waits));
  }
  machine.problem = formatted("%s, block (%u, %u, %u), thread %d: waits at %s without end", kernel_name().c_str(), machine.block.x,
                              machine.block.y, machine.block.z, current->number, name_of(current->waits)) +
                    missing;
  current = nullptr;
}

bool run_block(dim3 block, std::mt19937_64& draw) {
  Launch const& launch = *machine.launch;
  machine.block = block;
  ++machine.run;
  machine.steps = 0;
  machine.arrived = 0;
  machine.alive = launch.threads;
  std::fill(machine.warps.begin(), machine.warps.end(), Warp{});
  std::fill(machine.teams.begin(), machine.teams.end(), Team{});
  std::memset(machine.shared.first, kPoison, machine.shared.bytes);
  std::vector<int> order;
  for (int number = 0; number < launch.threads; ++number) {
    make_ready(machine.threads[number], number);
    order.push_back(number);
  }
  if (machine.seed) std::shuffle(order.begin(), order.end(), draw);
  while (machine.alive) {
    bool moved = false;
    for (int const number : order) {
      Thread& thread = machine.threads[number];
      if (thread.waits != Waits::kNot) continue;
      moved = true;
      resume(thread);
      if (!machine.problem.empty()) return false;
    }
    if (!moved) {
      stuck(order);
      return false;
    }
  }
  return true;
}

std::string impossible(Launch const& launch) {
  if (launch.threads < 1 || launch.threads > kMostThreads || launch.threads % kWarp) {
    return formatted("%d threads a block are not 1 to 32 whole warps", launch.threads);
  }
  if (!launch.grid.x || !launch.grid.y || !launch.grid.z || launch.grid.y > 65535 || launch.grid.z > 65535) {
    return formatted("a grid of %u x %u x %u blocks", launch.grid.x, launch.grid.y, launch.grid.z);
  }
  if (launch.shared_bytes < 0 || static_cast<size_t>(launch.shared_bytes) > machine.shared_limit) {
    return formatted("%d bytes of shared memory, there are %zu", launch.shared_bytes, machine.shared_limit);
  }
  return "";
}

/// Shared memory has exactly the size that the launch requests, and is aligned to 128 bytes as in the kernels' own declaration.
void make_shared(size_t bytes) {
  if (!machine.shared_storage) machine.shared_storage = static_cast<uint8_t*>(std::aligned_alloc(128, size_t{1} << 20));
  machine.shared.first = machine.shared_storage;
  machine.shared.bytes = bytes;
  machine.shared.known.assign(bytes, Byte{});
  machine.shared_most = std::max(machine.shared_most, bytes);
}

bool run_all(Launch const& launch) {
  std::mt19937_64 draw(machine.seed);
  for (unsigned z = 0; z < launch.grid.z; ++z) {
    for (unsigned y = 0; y < launch.grid.y; ++y) {
      for (unsigned x = 0; x < launch.grid.x; ++x) {
        if (!run_block(dim3(x, y, z), draw)) return false;
      }
    }
  }
  return true;
}

}  // namespace

// --- interface for kernels ---------------------------------------------------------------------------------------------------------

dim3 thread_index() { return dim3(static_cast<unsigned>(current->number), 0, 0); }
dim3 block_index() { return machine.block; }
dim3 block_size() { return dim3(static_cast<unsigned>(machine.launch->threads)); }
dim3 grid_size() { return machine.launch->grid; }
uint8_t* shared_memory() { return machine.shared.first; }

void fail(char const* problem) { failed(problem, __builtin_return_address(0)); }

void touch(void const* address, size_t bytes, bool writes) {
  check(address, bytes, writes ? Way::kWrites : Way::kReads, bytes, __builtin_return_address(0));
}

void read_past_first_cache(void const* address, void* into, size_t bytes) {
  check(address, bytes, Way::kReadsPastFirstCache, bytes, __builtin_return_address(0));
  std::memcpy(into, address, bytes);
}

void touch_only_read(void const* address, size_t bytes) {
  void const* const caller = __builtin_return_address(0);
  check(address, bytes, Way::kReads, bytes, caller);
  check_only_read(static_cast<uint8_t const*>(address), bytes, caller);
}

void multiply(float (&sum)[4], uint32_t const (&a)[4], uint32_t const (&b)[2]) {
  meet(Waits::kMultiply, {sum, a, b, 0, 0}, __builtin_return_address(0));
}

void multiply(int32_t (&sum)[4], uint32_t const (&a)[4], uint32_t const (&b)[2]) {
  meet(Waits::kMultiplyBytes, {sum, a, b, 0, 0}, __builtin_return_address(0));
}

uint32_t exchange(uint32_t number, int bits) {
  uint32_t other = 0;
  meet(Waits::kExchange, {&other, nullptr, nullptr, number, static_cast<uint32_t>(bits)}, __builtin_return_address(0));
  return other;
}

void sync_warp() { meet(Waits::kSyncWarp, {}, __builtin_return_address(0)); }

namespace {
/// The state of a byte of shared memory.
Byte& known_of(uint8_t const* at) { return machine.shared.known[static_cast<size_t>(at - machine.shared.first)]; }
}  // namespace

/// These functions copy only memory that is not written; a GPU would copy other memory, too.
namespace {
void begin_copy(uint8_t* to, uint8_t const* at, size_t bytes, size_t all, void const* caller) {
  if (reinterpret_cast<uintptr_t>(at) % all) failed(described(at, bytes, false) + "misaligned", caller);
  if (!machine.shared.has(to, all)) failed("copies to what is not shared memory", caller);
  check(to, all, Way::kWrites, all, caller);
  for (size_t byte = 0; byte < all; ++byte) known_of(to + byte).copied = true;
  std::memset(to, kPoison, all);
  current->copies.back().push_back({to, at, bytes, all});
}
}  // namespace

void copy(uint8_t* to, void const* from, size_t bytes, size_t all) {
  void const* const caller = __builtin_return_address(0);
  uint8_t const* const at = static_cast<uint8_t const*>(from);
  if (bytes) {
    check(at, bytes, Way::kReads, 1, caller);
    check_only_read(at, bytes, caller);
  }
  begin_copy(to, at, bytes, all, caller);
}

void copy_past_first_cache(uint8_t* to, void const* from, size_t bytes, size_t all) {
  void const* const caller = __builtin_return_address(0);
  uint8_t const* const at = static_cast<uint8_t const*>(from);
  if (bytes) check(at, bytes, Way::kReadsPastFirstCache, 1, caller);
  begin_copy(to, at, bytes, all, caller);
}

void commit_copies() { current->copies.emplace_back(); }

void wait_copies(size_t groups) {
  void const* const caller = __builtin_return_address(0);
  for (; current->copies.size() > groups + 1; current->copies.pop_front()) {
    for (Copy const& done : current->copies.front()) {
      for (size_t byte = 0; byte < done.all; ++byte) known_of(done.to + byte).copied = false;
      check(done.to, done.all, Way::kWrites, 1, caller);
      std::memcpy(done.to, done.from, done.bytes);
      std::memset(done.to + done.bytes, 0, done.all - done.bytes);
    }
  }
}

uint32_t ballot(bool one) {
  uint32_t votes = 0;
  meet(Waits::kBallot, {&votes, nullptr, nullptr, one, 0}, __builtin_return_address(0));
  return votes;
}

int largest(int number) {
  int best = 0;
  meet(Waits::kLargest, {&best, nullptr, nullptr, static_cast<uint32_t>(number), 0}, __builtin_return_address(0));
  return best;
}

int uniform(int number) {
  meet(Waits::kUniform, {nullptr, nullptr, nullptr, static_cast<uint32_t>(number), 0}, __builtin_return_address(0));
  return number;
}

void sync_block() {
  Thread& me = *current;
  Warp& warp = machine.warps[warp_of(me.number)];
  if (warp.arrived) diverged(Waits::kSyncBlock, warp_of(me.number), __builtin_return_address(0));
  ++warp.apart;
  me.waits = Waits::kSyncBlock;
  ++machine.arrived;
  release_block(__builtin_return_address(0));
  if (me.waits == Waits::kSyncBlock) yield();
}

void sync_team(int team, int threads) {
  Thread& me = *current;
  void const* const called_from = __builtin_return_address(0);
  Warp& warp = my_warp();
  if (warp.arrived) diverged(Waits::kSyncTeam, warp_of(me.number), called_from);
  if (team < 0 || team >= kTeams || threads < kWarp || threads % kWarp) failed(formatted("comes to team %d of %d threads", team, threads), called_from);
  if (warp.team != kNoTeam && warp.team != team) failed(formatted("comes to team %d, its warp was of team %d", team, warp.team), called_from);
  Team& met = machine.teams[team];
  if (met.threads && met.threads != threads) failed(formatted("comes to a team of %d threads, others to one of %d", threads, met.threads), called_from);
  met.threads = threads;
  warp.team = team;
  ++warp.apart;
  me.waits = Waits::kSyncTeam;
  me.brought.number = static_cast<uint32_t>(team);
  if (++met.arrived < threads) return yield();
  release_team(team);
}

void wait_for_predecessor() { current->waited = machine.somebody_waited = true; }

void release_successor() {
  if (machine.launch->early && !current->waited) machine.released_early = true;
}

bool launch(Launch const& launch) {
  if (!machine.problem.empty()) return false;
  machine.launch = &launch;
  machine.kernels += whole_name() + "\n";
  machine.shapes += formatted("%u %d %d\n", launch.grid.x * launch.grid.y * launch.grid.z, launch.threads, launch.shared_bytes);
  machine.problem = impossible(launch);
  if (!machine.problem.empty()) {
    machine.problem = kernel_name() + ": " + machine.problem;
    return false;
  }
  if (machine.dry) return true;
  make_shared(static_cast<size_t>(launch.shared_bytes));
  Stacks const stacks(launch.threads);
  machine.first_run = machine.run + 1;
  machine.released_early = machine.somebody_waited = false;
  if (!run_all(launch)) return false;
  if (launch.early && !machine.somebody_waited) {
    machine.problem = kernel_name() + ": begins early and never waits for the kernel before it";
    return false;
  }
  machine.inputs_there = machine.inputs_there || !machine.released_early;
  return true;
}

}  // namespace emulated

// --- interface for Python ----------------------------------------------------------------------------------------------------------

using emulated::machine;

extern "C" {

/// Forgets everything. `seed` determines the order of threads; with 0 they run in their own order.
void emulated_begin(uint64_t seed, size_t shared_limit) {
  machine.buffers.clear();
  machine.problem.clear();
  machine.seed = seed;
  machine.shared_limit = std::min(shared_limit, size_t{1} << 20);
  machine.shared_most = 0;
  machine.kernels.clear();
  machine.shapes.clear();
  machine.dry = false;
  machine.inputs_there = false;
}

/// Registers a buffer: 0 constant, 1 written by the kernel before the first one, 2 an output, which is not written yet.
void emulated_buffer(char const* name, void* first, size_t bytes, int kind) {
  machine.buffers.push_back({name, static_cast<uint8_t*>(first), bytes, static_cast<emulated::Kind>(kind), {}});
  if (kind == 2) {
    machine.buffers.back().known.resize(bytes);
    std::memset(first, emulated::kPoison, bytes);
  }
}

/// Returns the first error since `emulated_begin`, or an empty text.
char const* emulated_problem() { return machine.problem.c_str(); }

/// Returns the kernels that were launched since then, one per line.
char const* emulated_kernels() { return machine.kernels.c_str(); }

/// From now on, until `emulated_begin`, launches are recorded and not run.
void emulated_dry() { machine.dry = true; }

/// Returns blocks, threads and shared bytes of these launches, one per line.
char const* emulated_shapes() { return machine.shapes.c_str(); }

/// Returns the most shared memory that a launch requested, in bytes.
size_t emulated_shared() { return machine.shared_most; }

/// Counts the bytes of a buffer that no thread has written.
size_t emulated_unwritten(char const* name) {
  for (auto const& buffer : machine.buffers) {
    if (buffer.name != name) continue;
    return static_cast<size_t>(std::count_if(buffer.known.begin(), buffer.known.end(), [](auto const& byte) { return !byte.written; }));
  }
  return 0;
}

// Functions that code compiled with -fsanitize=thread calls: names and meaning are the compiler's.
#define TOLD(size)                                                                                                          \
  void __tsan_read##size(void* at) { emulated::told(at, size, false, size, __builtin_return_address(0)); }                  \
  void __tsan_write##size(void* at) { emulated::told(at, size, true, size, __builtin_return_address(0)); }                  \
  void __tsan_unaligned_read##size(void* at) { emulated::told(at, size, false, 1, __builtin_return_address(0)); }           \
  void __tsan_unaligned_write##size(void* at) { emulated::told(at, size, true, 1, __builtin_return_address(0)); }
TOLD(1)
TOLD(2)
TOLD(4)
TOLD(8)
TOLD(16)
void __tsan_read_range(void* at, size_t bytes) { emulated::told(at, bytes, false, 1, __builtin_return_address(0)); }
void __tsan_write_range(void* at, size_t bytes) { emulated::told(at, bytes, true, 1, __builtin_return_address(0)); }
void* __tsan_memcpy(void* to, void const* from, size_t bytes) {
  __tsan_read_range(const_cast<void*>(from), bytes);
  __tsan_write_range(to, bytes);
  return std::memcpy(to, from, bytes);
}
void* __tsan_memset(void* to, int value, size_t bytes) {
  __tsan_write_range(to, bytes);
  return std::memset(to, value, bytes);
}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
