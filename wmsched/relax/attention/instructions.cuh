// Instructions of NVIDIA's GPUs that `attention.cuh` needs, each a function of its own. benchmarks/gpu/cuda_on_cpu
// has the same functions for a processor, which take the place of this file there.
#ifndef WMSCHED_INSTRUCTIONS
#define WMSCHED_INSTRUCTIONS

// -- tensor cores: c[16, 8] += a[16, 16] b[16, 8] of half floats, and a[16, 8] b[8, 8] of TF32

__device__ __forceinline__ void wm_mma_f16(float* c, const unsigned* a, unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b0));
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

__device__ __forceinline__ void wm_mma_bf16(float* c, const unsigned* a, unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

__device__ __forceinline__ void wm_mma_tf32(float* c, const unsigned* a, unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// Four 8x8 matrices of half floats from shared memory, a row's address from each lane.
__device__ __forceinline__ void wm_ldmatrix4(unsigned* to, const void* from) {
  unsigned at = (unsigned)__cvta_generic_to_shared(from);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}

__device__ __forceinline__ void wm_ldmatrix4_transposed(unsigned* to, const void* from) {
  unsigned at = (unsigned)__cvta_generic_to_shared(from);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}

// -- numbers

__device__ __forceinline__ unsigned wm_pack_f16(float low, float high) {
  unsigned found;
  asm("{ .reg .f16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h}; }"
      : "=r"(found) : "f"(low), "f"(high));
  return found;
}

__device__ __forceinline__ float wm_wide_f16(unsigned short bits) {
  float found;
  asm("cvt.f32.f16 %0, %1;" : "=f"(found) : "h"(bits));
  return found;
}

__device__ __forceinline__ unsigned wm_pack_bf16(float low, float high) {
#if __CUDA_ARCH__ >= 800
  unsigned found;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(found) : "f"(high), "f"(low));
  return found;
#else
  return 0;
#endif
}

__device__ __forceinline__ unsigned wm_tf32(float value) {
#if __CUDA_ARCH__ >= 800
  unsigned found;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(found) : "f"(value));
  return found;
#else
  return 0;
#endif
}

__device__ __forceinline__ float wm_exp2(float value) {
  float found;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(value));
  return found;
}

// -- lanes of a warp

__device__ __forceinline__ float wm_other(float value, int lanes) {
  return __shfl_xor_sync(0xffffffffu, value, lanes);
}

__device__ __forceinline__ float wm_of_lane(float value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}

// -- copies of 16 bytes into shared memory, asynchronous where the architecture has them; zeros unless `there`

__device__ __forceinline__ void wm_copy16(void* to, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
  unsigned at = (unsigned)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(at), "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0) : "memory");
#else
  *(int4*)to = there ? *(const int4*)from : int4{0, 0, 0, 0};
#endif
}

__device__ __forceinline__ void wm_copied() {  // those of this thread
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
#endif  // WMSCHED_INSTRUCTIONS
