// SPDX-License-Identifier: Apache-2.0
// Pieces of 8 and 16 bytes from and to shared memory; bulk.h has the load of 16. All addresses are
// of shared memory.
#ifndef BERTH_KERNELS_CUDA_PIECES_H
#define BERTH_KERNELS_CUDA_PIECES_H

#include <cuda/bulk.h>

static __device__ inline uint2 cuda_load_shared_8(uint32_t from) {
    uint2 value;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(from));
    return value;
}

static __device__ inline void cuda_store_shared(uint32_t to, const uint4 &value) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(value.x), "r"(value.y),
                 "r"(value.z), "r"(value.w)
                 : "memory");
}

// Four matrices of 8 by 8 pieces of 16 bits; each lane has the address of a row of one.
static __device__ inline void cuda_load_matrices(uint32_t from, uint32_t *to) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from));
}

// The same, each matrix turned: a lane has what is in two rows of a column.
static __device__ inline void cuda_load_turned(uint32_t from, uint32_t *to) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from));
}

// The other way: two matrices of `left`, two of `right`. Compute capability 9.
template <bool IS_90 = CUDA_IS_90>
static __device__ inline void cuda_store_matrices(uint32_t to, const uint32_t *left,
                                                  const uint32_t *right) {
    if constexpr (IS_90) {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                     "r"(left[0]), "r"(left[1]), "r"(right[0]), "r"(right[1])
                     : "memory");
    }
}

// A matrix of 8 by 8 that is spread over a warp's registers as one of those, turned.
static __device__ inline uint32_t cuda_turn_matrix(uint32_t pair) {
    uint32_t turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
    return turned;
}

#endif
