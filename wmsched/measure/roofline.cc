// What this machine can do at most: arithmetic out of registers, reading of so many bytes, and the handing over of a
// parallel loop. Each is the best of several tries, for a ceiling is asked and not a mean.
#if defined(__AVX512VNNI__)
#include <immintrin.h>
#endif

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
constexpr int kLanes = kBytes / 4;
constexpr int kSums = 12;  // two units of four cycles need eight; of sixteen registers two hold the factors
constexpr int kStreams = 4;  // places read in turn: memory delivers more to several than to one
constexpr int64_t kRepeats = 1 << 17;  // half a millisecond: threads do not start at once

typedef float Vector __attribute__((vector_size(kBytes)));

volatile float sink;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Runs `work(thread)` on all threads at once; the sum of one over each one's own seconds. A thread that another
// program keeps from its core begins later than the rest, and is not to count for that.
template <typename Work>
double Together(int threads, Work work) {
  std::atomic<int> waiting{threads};
  std::vector<double> rates(threads);
  auto body = [&](int k) {
    waiting.fetch_sub(1);
    while (waiting.load(std::memory_order_acquire) > 0) std::this_thread::yield();
    double start = Now();
    work(k);
    rates[k] = 1.0 / (Now() - start);
  };
  std::vector<std::thread> others;
  for (int k = 1; k < threads; ++k) others.emplace_back(body, k);
  body(0);
  for (auto& each : others) each.join();
  double sum = 0;
  for (double rate : rates) sum += rate;
  return sum;
}

void Multiply(float factor) {
  Vector sums[kSums], by, more;
  for (int lane = 0; lane < kLanes; ++lane) by[lane] = factor, more[lane] = 1.0f - factor;
  for (int k = 0; k < kSums; ++k) sums[k] = by * static_cast<float>(k);
  for (int64_t n = 0; n < kRepeats; ++n) {
    for (int k = 0; k < kSums; ++k) sums[k] = sums[k] * by + more;
  }
  Vector all = sums[0];
  for (int k = 1; k < kSums; ++k) all += sums[k];
  sink = all[0];
}

#if defined(__AVX512VNNI__)
void MultiplyBytes() {
  __m512i sums[kSums], a = _mm512_set1_epi8(1), b = _mm512_set1_epi8(static_cast<char>(sink > 0));
  for (int k = 0; k < kSums; ++k) sums[k] = _mm512_set1_epi32(k);
  for (int64_t n = 0; n < kRepeats; ++n) {
    for (int k = 0; k < kSums; ++k) sums[k] = _mm512_dpbusd_epi32(sums[k], a, b);
  }
  for (int k = 1; k < kSums; ++k) sums[0] = _mm512_add_epi32(sums[0], sums[k]);
  sink = static_cast<float>(_mm512_reduce_add_epi32(sums[0]));
}
#endif

void Read(const Vector* data, int64_t vectors) {
  Vector sums[2 * kStreams] = {};
  int64_t part = vectors / kStreams;
  for (int64_t n = 0; n + 1 < part; n += 2) {
    for (int k = 0; k < kStreams; ++k) {
      sums[2 * k] += data[k * part + n];
      sums[2 * k + 1] += data[k * part + n + 1];
    }
  }
  for (int k = 1; k < 2 * kStreams; ++k) sums[0] += sums[k];
  sink = sums[0][0];
}

// A loop of as many parts as threads, each of which takes `seconds`, as TVM's code hands one over.
int Spin(int, void*, void* seconds) {
  double end = Now() + *static_cast<double*>(seconds);
  while (Now() < end) {
  }
  return 0;
}

using Launch = int (*)(int (*)(int, void*, void*), void*, int);

}  // namespace

extern "C" {

#define SEEN __attribute__((visibility("default")))

// Float32 operations a second of all threads together.
SEEN double wmsched_peak(int threads, int tries) {
  double best = 0;
  for (int k = 0; k < tries; ++k) {
    double rate = 2.0 * kLanes * kSums * kRepeats * Together(threads, [](int) { Multiply(0.999f); });
    best = rate > best ? rate : best;
  }
  return best;
}

// The same of products of bytes that are added up in 32 bits; 0 where this processor has no instruction for them.
SEEN double wmsched_peak_bytes(int threads, int tries) {
  double best = 0;
#if defined(__AVX512VNNI__)
  for (int k = 0; k < tries; ++k) {
    double rate = 8.0 * kLanes * kSums * kRepeats * Together(threads, [](int) { MultiplyBytes(); });
    best = rate > best ? rate : best;
  }
#else
  (void)threads, (void)tries;
#endif
  return best;
}

// Bytes a second at which the threads read a set of so many bytes, each its own part, again and again, `least` bytes
// in a try; 0 without memory.
SEEN double wmsched_bandwidth(int64_t bytes, int threads, int tries, int64_t least) {
  int64_t part = bytes / threads / (2 * kStreams * kBytes) * (2 * kStreams * kBytes);
  if (part <= 0) return 0;
  std::vector<Vector*> data(threads, nullptr);
  bool fine = true;
  for (auto& each : data) {
    each = static_cast<Vector*>(std::aligned_alloc(4096, (part + 4095) / 4096 * 4096));
    fine = fine && each;
  }
  double best = 0;
  if (fine) {
    int64_t passes = 1 + least / (part * threads);
    Together(threads, [&](int k) {
      for (int64_t n = 0; n < part / kBytes; ++n) data[k][n] = Vector{};
    });
    for (int k = 0; k < tries; ++k) {
      double rate = static_cast<double>(part) * passes * Together(threads, [&](int thread) {
        for (int64_t n = 0; n < passes; ++n) Read(data[thread], part / kBytes);
      });
      best = rate > best ? rate : best;
    }
  }
  for (auto* each : data) std::free(each);
  return best;
}

// Seconds that a parallel loop of `parts` takes over what each part takes, by TVM's or by our launch: the least.
// As long as a part where one thread has run them all.
SEEN double wmsched_handover(void* launch, int parts, double work, int tries) {
  double least = 1;
  auto call = reinterpret_cast<Launch>(launch);
  for (int k = 0; k < tries; ++k) {
    double start = Now();
    call(Spin, &work, parts);
    double spent = Now() - start - work;
    least = spent < least ? spent : least;
  }
  return least > 0 ? least : 0;
}
}
