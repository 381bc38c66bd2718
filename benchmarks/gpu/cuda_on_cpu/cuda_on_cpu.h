// Enough of CUDA for kernels that TVM generates, on a processor: a block's threads are fibers that change at
// barriers, each thread has its warp's whole fragments, and asynchronous copies happen as late as they may.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <type_traits>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __align__(n) __attribute__((aligned(n)))
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0

struct Index { int x, y, z; };
inline Index threadIdx, blockIdx;

// -- numbers

struct __half {
  _Float16 value;
  __half() = default;
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> __half(T v) : value(_Float16(float(v))) {}
  operator float() const { return float(value); }
};
using half = __half;
struct __half2 { half x, y; };
using half2 = __half2;
inline half __float2half_rn(float v) { return half(v); }
inline half __float2half(float v) { return half(v); }
inline float __half2float(half v) { return float(v); }
inline bool __hgt(half a, half b) { return float(a) > float(b); }
inline bool __hlt(half a, half b) { return float(a) < float(b); }
inline half2 make_half2(half x, half y) { return {x, y}; }

struct nv_bfloat16 {
  uint16_t bits;
  nv_bfloat16() = default;
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> nv_bfloat16(T v) {
    float f = float(v);
    uint32_t all;
    std::memcpy(&all, &f, 4);
    bits = uint16_t((all + 0x7fff + ((all >> 16) & 1)) >> 16);  // to the nearest, ties to even
  }
  operator float() const {
    uint32_t all = uint32_t(bits) << 16;
    float f;
    std::memcpy(&f, &all, 4);
    return f;
  }
};
struct nv_bfloat162 {
  nv_bfloat16 x, y;
  nv_bfloat162() = default;
  nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) : x(x), y(y) {}
};
inline nv_bfloat16 __float2bfloat16(float v) { return nv_bfloat16(v); }
inline nv_bfloat16 __float2bfloat16_rn(float v) { return nv_bfloat16(v); }
inline float __bfloat162float(nv_bfloat16 v) { return float(v); }
inline bool __hgt(nv_bfloat16 a, nv_bfloat16 b) { return float(a) > float(b); }
inline bool __hlt(nv_bfloat16 a, nv_bfloat16 b) { return float(a) < float(b); }

inline float max(float a, float b) { return a > b ? a : b; }
inline float min(float a, float b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }

#define VECTORS(T, N)                                                                           \
  struct N##2 { T x, y; };                                                                      \
  struct N##3 { T x, y, z; };                                                                   \
  struct __align__(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) N##4 { T x, y, z, w; };             \
  inline N##2 make_##N##2(T x, T y) { return {x, y}; }                                          \
  inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTORS(float, float)
VECTORS(int, int)
VECTORS(unsigned, uint)
VECTORS(short, short)
VECTORS(unsigned short, ushort)
VECTORS(long long, longlong)
#undef VECTORS

// -- threads

struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  Index index;
  int number = 0;  // in the block
  bool done = false;
  std::vector<std::vector<std::function<void()>>> groups;  // committed asynchronous copies
  std::vector<std::function<void()>> copies;               // not committed
};
inline std::vector<Fiber>* fibers;
inline Fiber* fiber;
inline ucontext_t scheduler;
inline std::function<void()>* body;

inline void run_body() {
  (*body)();
  fiber->done = true;
}
inline void pass_on() { swapcontext(&fiber->context, &scheduler); }

// All of some threads wait for each other.
struct Barrier {
  int arrived = 0, turn = 0;
  void wait(int wanted) {
    const int now = turn;
    if (++arrived == wanted) {
      arrived = 0;
      ++turn;
      pass_on();
    }
    while (turn == now) pass_on();
  }
};
inline std::map<int, Barrier> warp_barriers;
inline Barrier block_barrier;
inline void __syncthreads() { block_barrier.wait(int(fibers->size())); }
inline void warp_barrier() { warp_barriers[fiber->number / 32].wait(32); }

// Run all threads of a block up to each barrier in turn; in the reverse order where asked.
inline void run_block(std::function<void()> kernel, int x, int y, int z, bool reverse) {
  std::vector<Fiber> all(size_t(x) * y * z);
  fibers = &all;
  body = &kernel;
  for (size_t k = 0; k < all.size(); ++k) {
    Fiber& one = all[k];
    one.index = {int(k) % x, int(k) / x % y, int(k) / (x * y)};
    one.number = int(k);
    one.stack.resize(1 << 18);
    getcontext(&one.context);
    one.context.uc_stack.ss_sp = one.stack.data();
    one.context.uc_stack.ss_size = one.stack.size();
    one.context.uc_link = &scheduler;
    makecontext(&one.context, run_body, 0);
  }
  for (size_t left = all.size(); left > 0;) {
    left = 0;
    for (size_t k = 0; k < all.size(); ++k) {
      fiber = &all[reverse ? all.size() - 1 - k : k];
      if (fiber->done) continue;
      threadIdx = fiber->index;
      swapcontext(&scheduler, &fiber->context);
      left += !fiber->done;
    }
  }
}

// -- asynchronous copies: done at the wait that needs them, not before

inline void copy_async(void* to, const void* from, int bytes, bool filled) {
  fiber->copies.push_back([=] { filled ? (void)std::memcpy(to, from, bytes) : (void)std::memset(to, 0, bytes); });
}
inline void commit_async() {
  fiber->groups.push_back(std::move(fiber->copies));
  fiber->copies.clear();
}
inline void wait_async(int left) {
  auto& groups = fiber->groups;
  while (int(groups.size()) > left) {
    for (auto& copy : groups.front()) copy();
    groups.erase(groups.begin());
  }
}

// -- matrix operations of a warp

namespace nvcuda {
namespace wmma {
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment {
  static_assert(m == 16 && n == 16 && k == 16, "other shapes are not known here");
  T at[16][16];
};
namespace precision {
struct tf32 {};
}  // namespace precision
// TF32: rows and columns of the matrix in memory, one after the other.
template <class Layout>
struct fragment<matrix_a, 16, 16, 8, precision::tf32, Layout> {
  static constexpr int num_elements = 128, rows = 16, columns = 8;
  float x[128];
  float at(int i, int j) const { return x[i * columns + j]; }
};
template <class Layout>
struct fragment<matrix_b, 16, 16, 8, precision::tf32, Layout> {
  static constexpr int num_elements = 128, rows = 8, columns = 16;
  float x[128];
  float at(int i, int j) const { return x[i * columns + j]; }
};
template <>
struct fragment<accumulator, 16, 16, 8, float> {
  float at[16][16];
};
template <class Use, class Layout>
void load_matrix_sync(fragment<Use, 16, 16, 8, precision::tf32, Layout>& to, const float* from, unsigned stride) {
  for (int i = 0; i < to.rows; ++i)
    for (int j = 0; j < to.columns; ++j)
      to.x[i * to.columns + j] = std::is_same_v<Layout, col_major> ? from[j * stride + i] : from[i * stride + j];
}
inline float __float_to_tf32(float value) {  // to the nearest, ties away from zero
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits = (bits + 0x1000u) & 0xffffe000u;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}
inline void store_matrix_sync(float* to, const fragment<accumulator, 16, 16, 8, float>& from, unsigned stride,
                              layout_t) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) to[i * stride + j] = from.at[i][j];
}
inline void fill_fragment(fragment<accumulator, 16, 16, 8, float>& to, float value) {
  for (auto& row : to.at)
    for (float& one : row) one = value;
}
template <class La, class Lb>
void mma_sync(fragment<accumulator, 16, 16, 8, float>& to,
              const fragment<matrix_a, 16, 16, 8, precision::tf32, La>& a,
              const fragment<matrix_b, 16, 16, 8, precision::tf32, Lb>& b,
              const fragment<accumulator, 16, 16, 8, float>& c) {
  float sums[16][16];
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      sums[i][j] = c.at[i][j];
      for (int k = 0; k < 8; ++k) sums[i][j] += a.at(i, k) * b.at(k, j);
    }
  std::memcpy(to.at, sums, sizeof sums);
}
template <class Use, class T, class Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& to, const T* from, unsigned stride) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j)
      to.at[i][j] = std::is_same_v<Layout, col_major> ? from[j * stride + i] : from[i * stride + j];
}
template <class T>
void store_matrix_sync(T* to, const fragment<accumulator, 16, 16, 16, T>& from, unsigned stride, layout_t) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) to[i * stride + j] = from.at[i][j];
}
template <class T>
void fill_fragment(fragment<accumulator, 16, 16, 16, T>& to, T value) {
  for (auto& row : to.at)
    for (T& one : row) one = value;
}
template <class T, class A, class La, class Lb>
void mma_sync(fragment<accumulator, 16, 16, 16, T>& to, const fragment<matrix_a, 16, 16, 16, A, La>& a,
              const fragment<matrix_b, 16, 16, 16, A, Lb>& b, const fragment<accumulator, 16, 16, 16, T>& c) {
  T sums[16][16];
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      sums[i][j] = c.at[i][j];
      for (int k = 0; k < 16; ++k) sums[i][j] += T(a.at[i][k]) * T(b.at[k][j]);
    }
  std::memcpy(to.at, sums, sizeof sums);
}
}  // namespace wmma
}  // namespace nvcuda

#include "instructions.h"
