// Whether a parallel loop is worth sharing among threads: what its launches took, alone and shared, and what
// other programs leave of the processors. For parallel_launch.cc.
#pragma once

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace {

constexpr int kSites = 4096, kProbes = 8;  // loops that are known at a time; places looked at for one

// Microseconds. Measured on two cores of a Sapphire Rapids Xeon (KVM).
constexpr double kSmall = 1.0;      // a loop this short is never shared: a worker that spins begins after 0.3
constexpr double kLarge = 40;       // a loop this long always is; between, whichever took less
constexpr double kWorthWaking = 20;  // of a contended machine: a wake-up takes 2 to 5, and a core from others
constexpr double kMostIdle = 2000;  // that a worker looks for work before it sleeps, and at least
constexpr double kLeastIdle = 50;
constexpr double kGap = 40;         // between two looks of a spinning thread: it was preempted
constexpr double kStraggler = 300;  // that a part outlasts the caller's own by: its worker was preempted
constexpr double kContended = 50;   // times a preemption's length, for which others are taken to be at work
constexpr double kMostContended = 500'000;
constexpr double kSpell = 100'000;  // of a contended machine: for so long launches go one way, then
constexpr unsigned kSpells = 10;    // the better of both, every tenth spell the other
constexpr double kBetter = 1.2;     // times as fast is sharing better: its latencies vary more
constexpr unsigned kPeriod = 256;   // launches of a site after which the other way is tried again
constexpr int kPartsContended = 4;  // parts for each thread then; 1 otherwise, as TVM has it

#if defined(__x86_64__)
inline uint64_t Ticks() { return __builtin_ia32_rdtsc(); }
inline void Pause() { __builtin_ia32_pause(); }
#else
inline uint64_t Ticks() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}
#if defined(__aarch64__)
inline void Pause() { asm volatile("yield"); }
#else
inline void Pause() {}
#endif
#endif

double Seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Ticks in a microsecond; clocks of both kinds run at a constant rate.
double Rate() {
  double start = Seconds(), end = start;
  uint64_t first = Ticks();
  while (end < start + 2e-4) end = Seconds();
  return static_cast<double>(Ticks() - first) / (1e6 * (end - start));
}
double ticks_per_us = 1;
inline uint64_t Us(double microseconds) { return static_cast<uint64_t>(microseconds * ticks_per_us); }

// A parallel loop, by its body's address: ticks that its launches take, 0 where not known. Threads may write
// at once: one of the values stays, and either is good.
struct Site {
  std::atomic<const void*> body;
  std::atomic<uint32_t> launches, alone, shared;
};
Site sites[kSites];

Site& Find(const void* body) {
  auto hash = (reinterpret_cast<uintptr_t>(body) >> 4) * 0x9E3779B97F4A7C15u >> 40;
  for (int i = 0; i < kProbes; ++i) {
    Site& site = sites[(hash + i) % kSites];
    const void* found = site.body.load(std::memory_order_relaxed);
    if (found == body) return site;
    if (!found && site.body.compare_exchange_strong(found, body, std::memory_order_relaxed)) return site;
    if (found == body) return site;
  }
  Site& site = sites[hash % kSites];  // another body loses its estimates
  site.alone.store(0, std::memory_order_relaxed);
  site.shared.store(0, std::memory_order_relaxed);
  site.body.store(body, std::memory_order_relaxed);
  return site;
}

// Follows a shorter time at once and a longer one slowly: a preemption is no property of the loop.
void Update(std::atomic<uint32_t>& estimate, uint64_t ticks) {
  auto sample = static_cast<uint32_t>(std::min<uint64_t>(std::max<uint64_t>(ticks, 1), UINT32_MAX));
  uint32_t known = estimate.load(std::memory_order_relaxed);
  if (known && sample > known) sample = known + (std::min(sample - known, known) >> 3);
  else if (known) sample = known - ((known - sample) >> 1);
  estimate.store(sample, std::memory_order_relaxed);
}

// Which way long loops go while other programs are at work, which is found by trying: beside one of them a worker
// brings half a core, beside many it is mostly the thread that the caller waits for.
struct Ways {
  uint64_t until;
  unsigned spell;
  bool shared;
  uint64_t work, taken;  // in this spell: ticks that its launches take alone, and took
  double speed[2];
};
Ways ways;

// Of a launch that is done; by whoever has the pool.
void Note(uint64_t now, uint64_t work, uint64_t taken) {
  ways.work += work;
  ways.taken += taken;
  if (now < ways.until) return;
  double& speed = ways.speed[ways.shared];
  if (ways.taken) {
    double found = static_cast<double>(ways.work) / static_cast<double>(ways.taken);
    speed = speed ? 0.7 * speed + 0.3 * found : found;
  }
  bool better = ways.speed[1] > kBetter * ways.speed[0];
  ways.shared = ways.speed[1] && ways.speed[0] && ++ways.spell % kSpells ? better : !ways.shared;
  ways.work = ways.taken = 0;
  ways.until = now + Us(kSpell);
}

// Whether the next launch of a loop is to be shared: `contended` is whether other programs are at work.
bool Shared(Site& site, bool contended) {
  unsigned launch = site.launches.load(std::memory_order_relaxed);
  site.launches.store(launch + 1, std::memory_order_relaxed);
  uint32_t alone = site.alone.load(std::memory_order_relaxed);
  if (!alone) return false;
  if (contended) return alone > Us(kWorthWaking);  // or tried alone: see Share
  if (alone < Us(kSmall)) return false;
  uint32_t shared = site.shared.load(std::memory_order_relaxed);
  if (alone > Us(kLarge) || !shared) return true;
  unsigned turn = launch % kPeriod;
  if (launch < 32 ? launch % 4 == 0 : turn == kPeriod / 2) return shared >= alone;  // the other way
  return shared < alone;
}

}  // namespace
