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
constexpr double kEnough = 200'000;  // of a contended machine: launches of a way, by which its speed is known
constexpr unsigned kSeldom = 32;    // one of so many launches goes the other way,
constexpr unsigned kOften = 4;      // or of so many while the speed of that is not known
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
// brings half a core, beside many it is mostly the thread that the caller waits for. Single launches go the other
// way: a whole call of a model that did would be among its slowest.
struct Ways {
  struct {
    double work, taken;  // ticks that its launches take alone, and took
    double speed() const { return work / taken; }
  } of[2];
  uint64_t last;  // contended launch
  unsigned launches;
  bool shared;  // is the better one
};
Ways ways{{}, 0, 0, true};

// Whether the next launch is to be shared; by whoever has the pool.
bool ChooseWay(uint64_t now) {
  if (now > ways.last + Us(kMostContended)) {  // others were away, and may be more now, or fewer
    for (auto& way : ways.of) {
      double part = std::min(1.0, kEnough / 8 * ticks_per_us / std::max(way.taken, 1.0));
      way.work *= part;
      way.taken *= part;
    }
  }
  ways.last = now;
  const auto& other = ways.of[!ways.shared];
  unsigned drawn = ++ways.launches * 0x9E3779B1u >> 16;  // no period that a model's loops may have
  return ways.shared != (drawn % (other.taken < Us(kEnough) ? kOften : kSeldom) == 0);
}

// Of a launch that is done.
void Note(bool shared, uint64_t work, uint64_t taken) {
  auto& way = ways.of[shared];
  way.work += static_cast<double>(work);
  way.taken += static_cast<double>(taken);
  if (way.taken > Us(2 * kEnough)) {  // of late: older ones count less
    way.work /= 2;
    way.taken /= 2;
  }
  // What a loop takes alone is known only after some launches: the first few say nothing.
  bool known = std::min(ways.of[0].taken, ways.of[1].taken) > Us(kEnough / 4);
  if (known) ways.shared = ways.of[1].speed() > ways.of[0].speed();
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
