// A parallel launch for TVM's programs, in the place of TVMBackendParallelLaunch (parallel_launch.py puts it there).
//
// TVM ties each worker to a core, gives each its part beforehand and has the caller wait for all of them. Where
// another program runs on one of the cores, a launch takes as long as that program's time slice. Here parts are
// claimed: the caller does what no worker has begun, and waits for parts that are being run alone. No thread is
// tied to a core. Waits are short and end in sleep; while threads are seen to be preempted there is next to none.
// A loop that one thread has done before another could help it is run by the caller (`Site`).
//
// Parts are numbers handed to the loop's body, which divides its iterations by their count as with TVM's launch:
// whoever runs a part, and however many there are, each iteration is computed once and in the same way.
//
// Linux alone: threads sleep by futex. Neither TVM has its headers here.
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "launch_sites.h"

namespace {

struct Group {  // TVMParallelGroupEnv
  void* sync_handle;
  int32_t num_task;
};
using Body = int (*)(int, Group*, void*);

constexpr int kWords = 16;  // of 64 parts
constexpr int kMaxParts = 64 * kWords;
constexpr int kMaxThreads = 256;
struct Pool {
  // What a worker that looks for work reads. A part may be run by whoever clears its bit, and until that part
  // is done the job stays: what is read after is of the job that the bit was of.
  alignas(64) std::atomic<uint64_t> first;
  Body body;
  void* data;
  Group group;
  std::atomic<int> parts;
  std::atomic<int> processor;  // the caller's, where others are at work; else -1
  alignas(64) std::atomic<uint64_t> more[kWords - 1];
  alignas(64) std::atomic<int> pending;  // parts not done; the caller sleeps on it
  std::atomic<int> caller_sleeps;
  std::atomic<int> code;  // of a part that failed
  void* error;
  alignas(64) std::atomic<int> bell;  // idle workers sleep on it
  std::atomic<int> sleepers;
  alignas(64) std::atomic<uint64_t> contended_until;
  alignas(64) std::atomic<int> taken;  // by the thread whose launch it is; others run theirs alone
  std::atomic<int> threads;            // the caller included
  int started;
  bool failed;  // no more threads to be had
  std::atomic<uint64_t> counts[7];

  std::atomic<uint64_t>& word(int i) { return i ? more[i - 1] : first; }
};
Pool pool;
bool steady = false;  // long loops are shared whoever is at work: programs are being compared
cpu_set_t allowed;  // processors that workers may run on
void (*take_error)(void**) = nullptr;
void (*raise_error)(void*) = nullptr;
__attribute__((tls_model("initial-exec"))) thread_local bool inside = false;

enum Count { kAlone, kShared, kByWorkers, kWakes, kWaits, kPreempted, kMoved };
inline void Add(Count count, uint64_t n = 1) {  // of one thread at a time or nearly: no locked instruction
  pool.counts[count].store(pool.counts[count].load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

void FutexWait(std::atomic<int>* address, int value) {
  syscall(SYS_futex, reinterpret_cast<int*>(address), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void FutexWake(std::atomic<int>* address, int count) {
  syscall(SYS_futex, reinterpret_cast<int*>(address), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

inline bool Contended(uint64_t now) { return now < pool.contended_until.load(std::memory_order_relaxed); }
// A thread did not run for so many ticks. A kernel's thread, which takes some microseconds, is soon forgotten.
void Preempted(uint64_t now, uint64_t ticks) {
  uint64_t until = now + std::min(static_cast<uint64_t>(kContended * ticks), Us(kMostContended));
  if (pool.contended_until.load(std::memory_order_relaxed) < until) {
    pool.contended_until.store(until, std::memory_order_relaxed);
  }
  Add(kPreempted);
}

inline int Words() { return (pool.parts.load(std::memory_order_relaxed) + 63) / 64; }

inline bool Available() {
  if (pool.first.load(std::memory_order_seq_cst)) return true;
  for (int i = 1, words = Words(); i < words; ++i) {
    if (pool.word(i).load(std::memory_order_seq_cst)) return true;
  }
  return false;
}

// Take a part that nobody has begun, of those from `start` on and round; -1 where there is none.
int Claim(int start) {
  int words = std::max(1, Words());
  for (int i = 0; i < words; ++i) {
    int at = (start / 64 + i) % words;
    std::atomic<uint64_t>& word = pool.word(at);
    uint64_t left = word.load(std::memory_order_relaxed);
    while (left) {
      uint64_t later = i ? left : left & ~uint64_t{0} << start % 64;
      uint64_t bit = later ? later & -later : left & -left;
      uint64_t before = word.fetch_and(~bit, std::memory_order_acq_rel);
      if (before & bit) return 64 * at + __builtin_ctzll(bit);
      left = before & ~bit;
    }
  }
  return -1;
}

void Failed(int code) {
  int none = 0;
  if (pool.code.compare_exchange_strong(none, code) && take_error) take_error(&pool.error);
}

// Run parts of the job that is there, if there is one, until none is left to begin; their number.
int RunParts(int thread) {
  int done = 0, threads = pool.threads.load(std::memory_order_relaxed);
  int start = static_cast<int>(int64_t{thread} * pool.parts.load(std::memory_order_relaxed) / threads);
  for (int part; (part = Claim(start)) >= 0; ++done, start = part) {
    if (int code = pool.body(part, &pool.group, pool.data)) Failed(code);
  }
  return done;
}

// Where no processor is idle Linux wakes a thread where its waker runs, which then waits for it: go elsewhere.
void LeaveCaller() {
  int processor = sched_getcpu();
  if (processor < 0 || processor != pool.processor.load(std::memory_order_relaxed)) return;
  cpu_set_t mine, others;
  if (sched_getaffinity(0, sizeof mine, &mine)) return;
  others = mine;
  CPU_CLR(processor, &others);
  if (CPU_COUNT(&others) && !sched_setaffinity(0, sizeof others, &others)) {
    sched_setaffinity(0, sizeof mine, &mine);  // it stays where it is now
    Add(kMoved);
  }
}

// Look for work for at most so many ticks; whether there is some.
bool SpinForWork(uint64_t limit) {
  uint64_t start = Ticks(), last = start;
  while (!Available()) {
    for (int i = 0; i < 2; ++i) Pause();
    uint64_t now = Ticks();
    if (now - last > Us(kGap)) {
      Preempted(now, now - last);
      return Available();
    }
    if (now - start > limit || Contended(now)) return false;
    last = now;
  }
  return true;
}

void* Work(void* given) {
  inside = true;  // a launch within a part is run alone
  int thread = static_cast<int>(reinterpret_cast<intptr_t>(given));
  uint64_t limit = Us(kLeastIdle);
  for (;;) {
    uint64_t idle = Ticks();
    if (!Available() && !(!Contended(idle) && SpinForWork(limit))) {
      int seen = pool.bell.load(std::memory_order_seq_cst);
      pool.sleepers.fetch_add(1, std::memory_order_seq_cst);
      if (!Available()) FutexWait(&pool.bell, seen);
      int others = pool.sleepers.fetch_sub(1, std::memory_order_seq_cst) - 1;
      if (others > 0 && Available()) FutexWake(&pool.bell, 2);  // the caller has woken the first ones alone
      if (Available()) LeaveCaller();
      limit = Ticks() - idle < Us(kMostIdle) ? Us(kMostIdle) : std::max(limit / 2, Us(kLeastIdle));
    }
    int done = RunParts(thread);
    if (!done) continue;
    Add(kByWorkers, static_cast<uint64_t>(done));
    if (pool.pending.fetch_sub(done, std::memory_order_seq_cst) == done &&
        pool.caller_sleeps.load(std::memory_order_seq_cst)) {
      FutexWake(&pool.pending, 1);
    }
  }
  return nullptr;
}

// Start the workers that are missing, with no signals, which are for the program's own threads.
void Start() {
  if (pool.failed) return;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (CPU_COUNT(&allowed)) pthread_attr_setaffinity_np(&attributes, sizeof allowed, &allowed);
  while (pool.started < pool.threads.load(std::memory_order_relaxed) - 1) {
    pthread_t thread;
    auto number = reinterpret_cast<void*>(static_cast<intptr_t>(pool.started + 1));
    if (pthread_create(&thread, &attributes, Work, number)) {
      pool.failed = true;
      break;
    }
    ++pool.started;
  }
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void AfterFork() {  // in the child, which has one thread
  for (int i = 0; i < kWords; ++i) pool.word(i) = 0;
  pool.parts = pool.pending = pool.caller_sleeps = pool.code = pool.bell = pool.sleepers = pool.taken = 0;
  pool.started = 0;
  pool.failed = inside = false;
}

int Alone(Body body, void* data, int tasks) {
  Group group{nullptr, std::max(1, tasks)};
  bool before = inside;
  inside = true;
  int code = 0;
  for (int part = 0; part < group.num_task && !code; ++part) code = body(part, &group, data);
  inside = before;
  return code;
}

// Wait for the parts that workers run, about as long as the caller's own took before sleeping.
void Wait(uint64_t own) {
  uint64_t start = Ticks();
  uint64_t limit = std::min(Contended(start) ? std::min(own / 2, Us(10)) : own + Us(50), Us(kMostIdle));
  uint64_t now = start;
  while (pool.pending.load(std::memory_order_acquire)) {
    Pause();
    now = Ticks();
    if (now - start > limit) {
      Add(kWaits);
      pool.caller_sleeps.store(1, std::memory_order_seq_cst);
      while (int left = pool.pending.load(std::memory_order_seq_cst)) FutexWait(&pool.pending, left);
      pool.caller_sleeps.store(0, std::memory_order_relaxed);
      now = Ticks();
    }
  }
  if (now - start > own + Us(kStraggler)) Preempted(now, now - start - own);
}

int Share(Body body, void* data, int tasks, Site& site, uint64_t start) {
  if (pool.taken.exchange(1, std::memory_order_acquire)) return Alone(body, data, tasks);
  int threads = pool.threads.load(std::memory_order_relaxed);
  if (pool.started < threads - 1) Start();
  bool contended = Contended(start);
  if (contended && !tasks && !steady && !ChooseWay(start)) {
    int code = Alone(body, data, 0);
    uint64_t now = Ticks(), work = site.alone.load(std::memory_order_relaxed);
    if (now - start > 2 * work + Us(kStraggler)) Preempted(now, now - start - work);  // others are at work still
    Note(false, work, now - start);
    pool.taken.store(0, std::memory_order_release);
    Add(kAlone);
    return code;
  }
  int parts = tasks ? tasks : std::min(kMaxParts, contended ? threads * kPartsContended : threads);
  pool.body = body;
  pool.data = data;
  pool.group = {nullptr, parts};
  pool.parts.store(parts, std::memory_order_relaxed);
  pool.processor.store(contended ? sched_getcpu() : -1, std::memory_order_relaxed);
  pool.code.store(0, std::memory_order_relaxed);
  pool.pending.store(parts, std::memory_order_relaxed);
  for (int i = (parts - 1) / 64; i >= 0; --i) {
    int count = std::min(64, parts - 64 * i);
    uint64_t bits = ~uint64_t{0} >> (64 - count);
    if (!i) bits &= ~uint64_t{1};  // the first is the caller's
    pool.word(i).store(bits, std::memory_order_seq_cst);
  }
  if (int sleepers = pool.sleepers.load(std::memory_order_seq_cst); sleepers && parts > 1) {
    pool.bell.fetch_add(1, std::memory_order_seq_cst);
    FutexWake(&pool.bell, std::min(2, parts - 1));
    Add(kWakes);
  }
  inside = true;
  uint64_t begun = Ticks();
  if (int code = body(0, &pool.group, data)) Failed(code);
  int done = 1 + RunParts(0);
  inside = false;
  uint64_t own = Ticks() - begun;
  if (pool.pending.fetch_sub(done, std::memory_order_seq_cst) != done) Wait(own);
  int code = pool.code.load(std::memory_order_relaxed);
  void* error = pool.error;
  pool.error = nullptr;
  Add(kShared);
  uint64_t now = Ticks();
  if (contended && !tasks) Note(true, site.alone.load(std::memory_order_relaxed), now - start);
  pool.taken.store(0, std::memory_order_release);
  if (!tasks && !contended) {
    Update(site.shared, now - start);
    if (site.alone.load(std::memory_order_relaxed) > Us(kLarge)) Update(site.alone, own * parts / done);
  }
  if (code && error && raise_error) raise_error(error);
  return code;
}

}  // namespace

extern "C" {
#define EXPORTED __attribute__((visibility("default")))

// As TVMBackendParallelLaunch; `tasks` 0 leaves the number of parts to this pool.
EXPORTED int wmsched_parallel_launch(Body body, void* data, int tasks) {
  if (inside || pool.threads.load(std::memory_order_relaxed) < 2 || tasks > kMaxParts) {
    return Alone(body, data, tasks);
  }
  Site& site = Find(reinterpret_cast<const void*>(body));
  uint64_t start = Ticks();
  if (tasks ? tasks > 1 : Shared(site, Contended(start))) return Share(body, data, tasks, site, start);
  int code = Alone(body, data, tasks);
  if (!tasks) Update(site.alone, Ticks() - start);
  Add(kAlone);
  return code;
}

// Run launches on so many threads, the caller's included; workers on these processors alone, if any are given.
// `compared` is whether programs are timed to be compared, so that none is to run now on all threads, now on one.
EXPORTED void wmsched_launch_configure(int threads, const int* processors, int count, int compared) {
  static bool once = [] {
    ticks_per_us = Rate();
    return pthread_atfork(nullptr, nullptr, AfterFork) == 0;
  }();
  bool nested = inside;  // from within a part: the launch under way may be this thread's own
  while (!nested && pool.taken.exchange(1, std::memory_order_acquire)) sched_yield();
  if (!pool.started) {
    CPU_ZERO(&allowed);
    for (int i = 0; i < count; ++i) {
      if (0 <= processors[i] && processors[i] < CPU_SETSIZE) CPU_SET(processors[i], &allowed);
    }
  }
  // Without the handler a copy of the process would wait for workers that it has not.
  pool.threads.store(once ? std::max(1, std::min(threads, kMaxThreads)) : 1, std::memory_order_relaxed);
  steady = compared;
  if (!nested) pool.taken.store(0, std::memory_order_release);
}

// Put this launch into a library's pointer, unless it is neither TVM's nor this one that is there; whether it is now.
EXPORTED int wmsched_launch_replace(void** pointer) {
  Dl_info found;
  auto ours = reinterpret_cast<void*>(wmsched_parallel_launch);
  if (*pointer != ours) {
    if (!*pointer || !dladdr(*pointer, &found) || !found.dli_sname) return 0;
    if (std::strcmp(found.dli_sname, "TVMBackendParallelLaunch")) return 0;
    *pointer = ours;
  }
  return 1;
}

// TVM keeps what went wrong with the thread that it went wrong in: functions that take it there, and put it here.
EXPORTED void wmsched_launch_errors(void (*take)(void**), void (*raise)(void*)) {
  take_error = take;
  raise_error = raise;
}

// Launches run alone, launches shared, parts run by workers, wake-ups, sleeps of callers, preemptions seen,
// workers that left the caller's processor.
EXPORTED void wmsched_launch_counts(uint64_t* found) {
  for (int i = 0; i < 7; ++i) found[i] = pool.counts[i].load(std::memory_order_relaxed);
}

}  // extern "C"
