// The functions of wmsched/relax/attention/instructions.cuh on a processor: a warp's lanes lay down what they have,
// wait for each other, and take what they need.
#pragma once

struct Lanes {
  unsigned words[32][12];
  const void* rows[32];
};
inline std::map<int, Lanes> lanes_of;  // by the warp

inline int lane_now() { return fiber->number % 32; }
inline Lanes& lanes_now() { return lanes_of[fiber->number / 32]; }

inline unsigned bits_of(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline float float_of(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline float half_of(unsigned bits) {
  uint16_t low = uint16_t(bits);
  _Float16 value;
  std::memcpy(&value, &low, 2);
  return float(value);
}
inline float bfloat_of(unsigned bits) { return float_of(bits << 16); }
inline unsigned half_bits(float value) {
  _Float16 rounded = _Float16(value);
  uint16_t bits;
  std::memcpy(&bits, &rounded, 2);
  return bits;
}
#define __int_as_float(bits) float_of(unsigned(bits))

// c += a b, where `element` gives an operand's elements by its lane, its register and its half.
template <class Product>
void multiply_now(float* c, const unsigned* a, unsigned b0, unsigned b1, Product product) {
  Lanes& all = lanes_now();
  unsigned* own = all.words[lane_now()];
  std::memcpy(own, a, 16);
  own[4] = b0;
  own[5] = b1;
  warp_barrier();
  const int group = lane_now() / 4, place = lane_now() % 4;
  float sums[4];
  for (int e = 0; e < 4; ++e) sums[e] = c[e] + product(all, group + e / 2 * 8, 2 * place + e % 2);
  std::memcpy(c, sums, sizeof sums);
  warp_barrier();
}

template <class Wide>
float sixteen_terms(const Lanes& all, int row, int column, Wide wide) {
  float sum = 0;
  for (int k = 0; k < 16; ++k) {
    unsigned a = all.words[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], b = all.words[column * 4 + k % 8 / 2][4 + k / 8];
    sum += wide(a >> k % 2 * 16 & 0xffff) * wide(b >> k % 2 * 16 & 0xffff);
  }
  return sum;
}

inline void wm_mma_f16(float* c, const unsigned* a, unsigned b0, unsigned b1) {
  multiply_now(c, a, b0, b1, [](const Lanes& all, int i, int j) { return sixteen_terms(all, i, j, half_of); });
}
inline void wm_mma_bf16(float* c, const unsigned* a, unsigned b0, unsigned b1) {
  multiply_now(c, a, b0, b1, [](const Lanes& all, int i, int j) { return sixteen_terms(all, i, j, bfloat_of); });
}
inline void wm_mma_tf32(float* c, const unsigned* a, unsigned b0, unsigned b1) {
  multiply_now(c, a, b0, b1, [](const Lanes& all, int i, int j) {
    float sum = 0;
    for (int k = 0; k < 8; ++k)
      sum += float_of(all.words[i % 8 * 4 + k % 4][i / 8 + k / 4 * 2]) * float_of(all.words[j * 4 + k % 4][4 + k / 4]);
    return sum;
  });
}

inline void load_now(unsigned* to, const void* from, bool transposed) {
  Lanes& all = lanes_now();
  all.rows[lane_now()] = from;
  warp_barrier();
  const int group = lane_now() / 4, place = lane_now() % 4;
  for (int matrix = 0; matrix < 4; ++matrix) {
    unsigned found = 0;
    for (int e = 0; e < 2; ++e) {
      int row = transposed ? 2 * place + e : group, column = transposed ? group : 2 * place + e;
      found |= unsigned(((const uint16_t*)all.rows[8 * matrix + row])[column]) << 16 * e;
    }
    to[matrix] = found;
  }
  warp_barrier();
}
inline void wm_ldmatrix4(unsigned* to, const void* from) { load_now(to, from, false); }
inline void wm_ldmatrix4_transposed(unsigned* to, const void* from) { load_now(to, from, true); }

inline unsigned wm_pack_f16(float low, float high) { return half_bits(low) | half_bits(high) << 16; }
inline unsigned wm_pack_bf16(float low, float high) {
  return nv_bfloat16(low).bits | unsigned(nv_bfloat16(high).bits) << 16;
}
inline float wm_wide_f16(unsigned short bits) { return half_of(bits); }
inline unsigned wm_tf32(float value) { return bits_of(nvcuda::wmma::__float_to_tf32(value)); }
inline float wm_exp2(float value) { return std::exp2(value); }

inline float wm_of_lane(float value, int lane) {
  Lanes& all = lanes_now();
  all.words[lane_now()][0] = bits_of(value);
  warp_barrier();
  float found = float_of(all.words[lane][0]);
  warp_barrier();
  return found;
}
inline float wm_other(float value, int lanes) { return wm_of_lane(value, lane_now() ^ lanes); }

inline void wm_copy16(void* to, const void* from, bool there) { copy_async(to, from, 16, there); }
inline void wm_copied() {
  commit_async();
  wait_async(0);
}
