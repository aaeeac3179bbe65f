// SPDX-License-Identifier: Apache-2.0
// Tensor core products of 16-bit types on CUDA: m16n8k16 with sums in f32, and how its operands lie
// in a warp. With g = lane / 4 and c = lane % 4:
//   a[0] row g, a[1] row g + 8: columns 2c, 2c + 1;  a[2], a[3] the same rows, columns + 8
//   b[0] rows 2c, 2c + 1, b[1] rows + 8: column g
//   d[0], d[1] row g, d[2], d[3] row g + 8: columns 2c, 2c + 1
// The order of the depth is free as long as a and b agree on it, so 16 bytes that a thread loads at
// once serve two products.
#ifndef BERTH_KERNELS_CUDA_MMA_H
#define BERTH_KERNELS_CUDA_MMA_H

#include <gpu/element.h>

static __device__ inline void cuda_mma(float *d, const uint32_t *a, const uint32_t *b, gpu_bf16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ inline void cuda_mma(float *d, const uint32_t *a, const uint32_t *b, gpu_f16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Two floats as a pair of 16 bits, the first in the lower half.
static __device__ inline uint32_t cuda_pair(float low, float high, gpu_bf16) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

static __device__ inline uint32_t cuda_pair(float low, float high, gpu_f16) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// Eight floats as pairs, in their order.
template <typename T> static __device__ inline uint4 cuda_pairs(const float *eight) {
    return uint4{cuda_pair(eight[0], eight[1], T{}), cuda_pair(eight[2], eight[3], T{}),
                 cuda_pair(eight[4], eight[5], T{}), cuda_pair(eight[6], eight[7], T{})};
}

// 16 bytes that are read once: they leave no trace in the first cache.
static __device__ inline uint4 cuda_stream(const void *from) {
    uint4 value;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(from));
    return value;
}

// 2 to the power, to two units in the last place; 0 for minus infinity.
static __device__ inline float cuda_exp2(float value) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value));
    return power;
}

// ---- from memory to shared memory ---------------------------------------------------------------

// 16 bytes, or as many zeros; they are there after a wait for the group of copies that they are in.
static __device__ inline void cuda_copy_16(uint32_t to, const void *from, bool is_there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(is_there ? 16 : 0)
                 : "memory");
}

// How the second cache keeps what is read once: it is the first to leave.
static __device__ inline uint64_t cuda_read_once() {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// The same of what is there, kept as `policy` says.
static __device__ inline void cuda_copy_16_by(uint32_t to, const void *from, uint64_t policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(from), "l"(policy)
                 : "memory");
}

static __device__ inline void cuda_end_group() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// All groups but the last LEFT.
template <int LEFT> static __device__ inline void cuda_wait_groups() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#endif
