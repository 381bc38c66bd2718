// Attention as one kernel: softmax(q k^T * scale + mask) v with an online softmax, as in FlashAttention-2 (Dao, 2023).
//
// A block of threads has 16 rows of queries for each of its warps. Tiles of keys and values stream through shared
// memory. Scores, the running maximum, the running sum and the output stay in registers, in float32, laid out as a
// tensor core has its results: a lane has columns 2 (lane % 4) and the next of every eight, of rows lane / 4 and
// lane / 4 + 8. In this layout a row's scores are the left operand of the product with the values, so they never
// leave their lane. float32 without tensor cores has the same layout of scores, and takes them from lane to lane.
#ifndef WMSCHED_ATTENTION
#define WMSCHED_ATTENTION

enum wm_Kind { WM_F32, WM_TF32, WM_F16, WM_BF16 };
enum wm_Mask { WM_NO_MASK, WM_F32_MASK, WM_F16_MASK, WM_BF16_MASK };

template <int kind> struct wm_Element { typedef unsigned short type; };
template <> struct wm_Element<WM_F32> { typedef float type; };
template <> struct wm_Element<WM_TF32> { typedef float type; };

struct alignas(16) wm_Four { float x, y, z, w; };
struct alignas(8) wm_Two { float x, y; };

#define WM_INFINITY __int_as_float(0x7f800000)
#define WM_LOG2_E 1.4426950408889634f
#define WM_LOWEST -3.0e38f  // a mask's lowest finite numbers stay finite in base two

template <class Element, class S>
__device__ __forceinline__ void wm_load_tile(Element* to, int stride, const Element* from, int row_stride, int first,
                                             int limit, int rows) {
  constexpr int each = 16 / sizeof(Element), chunks = S::padded / each;
  for (int k = threadIdx.x; k < rows * chunks; k += S::threads) {
    int row = k / chunks, column = k % chunks * each;
    bool there = first + row < limit && column < S::width;
    wm_copy16(to + row * stride + column, there ? from + (first + row) * row_stride + column : from, there);
  }
}

template <class S>
__device__ __forceinline__ float wm_mask_of(const void* mask, int place) {
  float value = 0;
  if (S::mask == WM_F32_MASK) value = ((const float*)mask)[place];
  if (S::mask == WM_F16_MASK) value = wm_wide_f16(((const unsigned short*)mask)[place]);
  if (S::mask == WM_BF16_MASK) value = __int_as_float(((const unsigned short*)mask)[place] << 16);
  float scaled = value * WM_LOG2_E;
  return scaled == -WM_INFINITY && value > -WM_INFINITY ? WM_LOWEST : scaled;
}

template <int kind>
__device__ __forceinline__ unsigned wm_pack(float low, float high) {
  return kind == WM_F16 ? wm_pack_f16(low, high) : wm_pack_bf16(low, high);
}

template <int kind>
__device__ __forceinline__ void wm_multiply(float* c, const unsigned* a, unsigned b0, unsigned b1) {
  if (kind == WM_F16) wm_mma_f16(c, a, b0, b1);
  if (kind == WM_BF16) wm_mma_bf16(c, a, b0, b1);
  if (kind == WM_TF32) wm_mma_tf32(c, a, b0, b1);
}

// S has the extents, the strides in elements and the tiles, as compile-time numbers.
template <class S>
__device__ __forceinline__ void wm_attention(const void* q_, const void* k_, const void* v_, const void* mask_,
                                             void* out_) {
  typedef typename wm_Element<S::kind>::type Element;
  constexpr bool is_half = S::kind >= WM_F16, is_plain = S::kind == WM_F32;
  constexpr int padded = S::padded, tiles = S::tile / 8, outputs = padded / 8, rows_of_block = S::threads / 2;
  // strides at which the lanes' reads lie in different banks
  constexpr int key_stride = is_plain ? padded + 4 : padded + 8, value_stride = is_half ? padded + 8 : padded + 4;
  constexpr int queries = is_plain ? rows_of_block * (padded + 4) : 0;
  alignas(16) __shared__ Element shared[S::tile * (key_stride + value_stride) + queries];
  Element *keys = shared, *values = keys + S::tile * key_stride, *own = values + S::tile * value_stride;

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, place = lane % 4;
  constexpr int blocks = (S::rows + rows_of_block - 1) / rows_of_block;
  const int part = blockIdx.x % blocks, head = blockIdx.x / blocks % S::heads, batch = blockIdx.x / blocks / S::heads;
  const int begin = (S::causal ? blocks - 1 - part : part) * rows_of_block;  // those with most keys first
  const int row = begin + 16 * warp + group;  // and row + 8
  const Element* q = (const Element*)q_ + S::q_start + batch * S::q_batch + head * S::q_head;
  const Element* k = (const Element*)k_ + S::k_start + batch * S::k_batch + head * S::k_head;
  const Element* v = (const Element*)v_ + S::v_start + batch * S::v_batch + head * S::v_head;
  const int last = S::causal && begin + rows_of_block + S::offset < S::keys ? begin + rows_of_block + S::offset : S::keys;
  const int steps = (last + S::tile - 1) / S::tile;

  wm_load_tile<Element, S>(keys, key_stride, k, S::k_row, 0, S::keys, S::tile);
  if (is_plain) wm_load_tile<Element, S>(own, padded + 4, q, S::q_row, begin, S::rows, rows_of_block);
  unsigned a[is_half ? padded / 16 : padded / 8][4];
  if (is_half) {
#pragma unroll
    for (int c = 0; c < padded / 16; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        int r = row + e % 2 * 8, column = 16 * c + e / 2 * 8 + 2 * place;
        a[c][e] = r < S::rows && column < S::width ? *(const unsigned*)(q + r * S::q_row + column) : 0u;
      }
  } else if (!is_plain) {  // terms 2 place and the next take the places `place` and `place` + 4 of TF32's eight
#pragma unroll
    for (int c = 0; c < padded / 8; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        int r = row + e % 2 * 8, column = 8 * c + 2 * place + e / 2;
        a[c][e] = wm_tf32(r < S::rows && column < S::width ? (float)q[r * S::q_row + column] : 0.0f);
      }
  }

  float o[outputs][4], highest[2] = {-WM_INFINITY, -WM_INFINITY}, sum[2] = {0, 0};
#pragma unroll
  for (int n = 0; n < outputs; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) o[n][e] = 0;

  for (int step = 0; step < steps; ++step) {
    const int first = step * S::tile;
    wm_copied();
    __syncthreads();  // the keys are there, and nobody reads the values of the step before
    wm_load_tile<Element, S>(values, value_stride, v, S::v_row, first, S::keys, S::tile);

    float s[tiles][4];
#pragma unroll
    for (int j = 0; j < tiles; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[j][e] = 0;
    if (is_half) {
#pragma unroll
      for (int c = 0; c < padded / 16; ++c)
#pragma unroll
        for (int j = 0; j < tiles; j += 2) {
          unsigned b[4];
          wm_ldmatrix4(b, keys + (8 * j + lane / 16 * 8 + lane % 8) * key_stride + 16 * c + lane / 8 % 2 * 8);
          wm_multiply<S::kind>(s[j], a[c], b[0], b[1]);
          wm_multiply<S::kind>(s[j + 1], a[c], b[2], b[3]);
        }
    } else if (!is_plain) {
#pragma unroll
      for (int c = 0; c < padded / 8; ++c)
#pragma unroll
        for (int j = 0; j < tiles; ++j) {
          wm_Two b = *(const wm_Two*)(keys + (8 * j + group) * key_stride + 8 * c + 2 * place);
          wm_multiply<S::kind>(s[j], a[c], wm_tf32(b.x), wm_tf32(b.y));
        }
    } else {
      for (int c = 0; c < padded; c += 4) {
        wm_Four one = *(const wm_Four*)(own + (16 * warp + group) * (padded + 4) + c);
        wm_Four other = *(const wm_Four*)(own + (16 * warp + group + 8) * (padded + 4) + c);
#pragma unroll
        for (int j = 0; j < tiles; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            wm_Four b = *(const wm_Four*)(keys + (8 * j + 2 * place + e) * key_stride + c);
            s[j][e] += one.x * b.x + one.y * b.y + one.z * b.z + one.w * b.w;
            s[j][2 + e] += other.x * b.x + other.y * b.y + other.z * b.z + other.w * b.w;
          }
      }
    }

    wm_copied();
    __syncthreads();  // the values are there, and nobody reads the keys any more
    if (step + 1 < steps)
      wm_load_tile<Element, S>(keys, key_stride, k, S::k_row, first + S::tile, S::keys, S::tile);

    float most[2] = {highest[0], highest[1]};
#pragma unroll
    for (int j = 0; j < tiles; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = row + e / 2 * 8, column = first + 8 * j + 2 * place + e % 2;
        float score = s[j][e] * (S::scale() * WM_LOG2_E);
        if (S::mask != WM_NO_MASK && r < S::rows && column < S::keys)
          score += wm_mask_of<S>(mask_, S::mask_start + batch * S::mask_batch + head * S::mask_head + r * S::mask_row + column * S::mask_key);
        if (column >= S::keys || (S::causal && column > r + S::offset)) score = -WM_INFINITY;
        s[j][e] = score;
        most[e / 2] = fmaxf(most[e / 2], score);
      }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      most[half] = fmaxf(most[half], wm_other(most[half], 1));
      most[half] = fmaxf(most[half], wm_other(most[half], 2));
      const float base = most[half] == -WM_INFINITY ? 0.0f : most[half];  // of a row without a key so far
      const float kept = wm_exp2(highest[half] - base);
      highest[half] = most[half];
      sum[half] *= kept;
#pragma unroll
      for (int n = 0; n < outputs; ++n) {
        o[n][2 * half] *= kept;
        o[n][2 * half + 1] *= kept;
      }
#pragma unroll
      for (int j = 0; j < tiles; ++j)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          s[j][e] = wm_exp2(s[j][e] - base);
          sum[half] += s[j][e];
        }
    }

    if (is_half) {
#pragma unroll
      for (int j = 0; j < tiles; j += 2) {
        unsigned p[4] = {wm_pack<S::kind>(s[j][0], s[j][1]), wm_pack<S::kind>(s[j][2], s[j][3]),
                         wm_pack<S::kind>(s[j + 1][0], s[j + 1][1]), wm_pack<S::kind>(s[j + 1][2], s[j + 1][3])};
#pragma unroll
        for (int n = 0; n < outputs; n += 2) {
          unsigned b[4];
          wm_ldmatrix4_transposed(b, values + (8 * j + lane / 8 % 2 * 8 + lane % 8) * value_stride + 8 * n + lane / 16 * 8);
          wm_multiply<S::kind>(o[n], p, b[0], b[1]);
          wm_multiply<S::kind>(o[n + 1], p, b[2], b[3]);
        }
      }
    } else if (!is_plain) {
#pragma unroll
      for (int j = 0; j < tiles; ++j) {
        unsigned p[4] = {wm_tf32(s[j][0]), wm_tf32(s[j][2]), wm_tf32(s[j][1]), wm_tf32(s[j][3])};
        const Element* at = values + (8 * j + 2 * place) * value_stride + group;
#pragma unroll
        for (int n = 0; n < outputs; ++n)
          wm_multiply<S::kind>(o[n], p, wm_tf32(at[8 * n]), wm_tf32(at[value_stride + 8 * n]));
      }
    } else {
#pragma unroll
      for (int j = 0; j < tiles; ++j)
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float one = wm_of_lane(s[j][i % 2], lane / 4 * 4 + i / 2);
          const float other = wm_of_lane(s[j][2 + i % 2], lane / 4 * 4 + i / 2);
#pragma unroll
          for (int n = 0; n < outputs; n += 2) {
            wm_Four b = *(const wm_Four*)(values + (8 * j + i) * value_stride + 8 * n + 4 * place);
            o[n][0] += one * b.x;
            o[n][1] += one * b.y;
            o[n + 1][0] += one * b.z;
            o[n + 1][1] += one * b.w;
            o[n][2] += other * b.x;
            o[n][3] += other * b.y;
            o[n + 1][2] += other * b.z;
            o[n + 1][3] += other * b.w;
          }
        }
    }
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += wm_other(sum[half], 1);
    sum[half] += wm_other(sum[half], 2);
    const float share = S::safe && sum[half] == 0 ? 0.0f : 1.0f / sum[half];
    const int r = row + 8 * half, at = S::out_start + batch * S::out_batch + head * S::out_head + r * S::out_row;
#pragma unroll
    for (int n = 0; n < outputs; ++n) {
      const int column = is_plain ? n / 2 * 16 + 4 * place + n % 2 * 2 : 8 * n + 2 * place;
      const float low = o[n][2 * half] * share, high = o[n][2 * half + 1] * share;
      if (r < S::rows && column < S::width) {
        if (S::out == WM_F32 || S::out == WM_TF32) *(wm_Two*)((float*)out_ + at + column) = wm_Two{low, high};
        else *(unsigned*)((unsigned short*)out_ + at + column) = wm_pack<S::out>(low, high);
      }
    }
  }
}
#endif  // WMSCHED_ATTENTION
