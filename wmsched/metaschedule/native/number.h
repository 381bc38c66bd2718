// Integers of a trace: their type, checked multiplication, and the error for what only Python reads.
#ifndef WMSCHED_NUMBER_H_
#define WMSCHED_NUMBER_H_

#include <cstdint>

namespace wmsched {

using Number = int64_t;

// Thrown for a candidate that the Python reader must read.
struct Unsupported {};

// No program's extents exceed it, and a double counts every integer below it.
constexpr Number kMaxExtent = Number(1) << 52;

inline Number Times(Number a, Number b) {
  Number product;
  if (__builtin_mul_overflow(a, b, &product) || product >= kMaxExtent || product <= -kMaxExtent) throw Unsupported();
  return product;
}

}  // namespace wmsched

#endif  // WMSCHED_NUMBER_H_
