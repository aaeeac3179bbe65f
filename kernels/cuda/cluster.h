// SPDX-License-Identifier: Apache-2.0
// Blocks that run together and reach each other's shared memory: compute capability 9. On others
// the device's functions do nothing, and no kernel that needs them is launched.
#ifndef BERTH_KERNELS_CUDA_CLUSTER_H
#define BERTH_KERNELS_CUDA_CLUSTER_H

#include <gpu/launch.h>

// A block that has ended has come, too. By whole warps.
template <bool IS_90 = CUDA_IS_90> static __device__ inline void cuda_cluster_arrive() {
    if constexpr (IS_90) {
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    }
}

template <bool IS_90 = CUDA_IS_90> static __device__ inline void cuda_cluster_wait() {
    if constexpr (IS_90) {
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    }
}

// The same place of shared memory in a block of the cluster.
template <bool IS_90 = CUDA_IS_90>
static __device__ inline uint32_t cuda_place_in(uint32_t address, unsigned block) {
    uint32_t there = address;
    if constexpr (IS_90) {
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                     : "=r"(there)
                     : "r"(address), "r"(block));
    }
    return there;
}

// To such a place of a block that has begun and not ended; the bytes count at a barrier of that
// block.
template <bool IS_90 = CUDA_IS_90>
static __device__ inline void cuda_send(uint32_t to, const float4 &value, uint32_t barrier) {
    if constexpr (IS_90) {
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], "
                     "{%1,%2,%3,%4}, [%5];" ::"r"(to),
                     "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(barrier)
                     : "memory");
    }
}

template <bool IS_90 = CUDA_IS_90>
static __device__ inline void cuda_send(uint32_t to, const float2 &value, uint32_t barrier) {
    if constexpr (IS_90) {
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], "
                     "{%1,%2}, [%3];" ::"r"(to),
                     "f"(value.x), "f"(value.y), "r"(barrier)
                     : "memory");
    }
}

// ---- the host's side ----------------------------------------------------------------------------

constexpr int CUDA_PORTABLE_CLUSTER = 8;

// Blocks along y, of a grid that is a multiple of `size` there, which device and code must be for.
template <typename... P> struct cuda_cluster_launch {
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config;

    cuda_cluster_launch(const gpu_op *op, const gpu_grid &grid, int size, void (*kernel)(P...)) {
        const void *code = reinterpret_cast<const void *>(kernel);
        (void)cudaFuncSetAttribute(code, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   cudaSharedmemCarveoutMaxShared);
        if (size > CUDA_PORTABLE_CLUSTER) {
            (void)cudaFuncSetAttribute(code, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        }
        attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[0].val.programmaticStreamSerializationAllowed = 1;
        attributes[1].id = cudaLaunchAttributeClusterDimension;
        attributes[1].val.clusterDim = {1, static_cast<unsigned>(size), 1};
        config = {};
        config.gridDim = grid.blocks;
        config.blockDim = grid.threads;
        config.dynamicSmemBytes = grid.shared;
        config.stream = op->stream;
        config.attrs = attributes;
        config.numAttrs = 2;
    }
};

// 0 where none fits.
template <typename... P>
static inline int cuda_clusters_at_once(const gpu_op *op, const gpu_grid &grid, int size,
                                        void (*kernel)(P...)) {
    const cuda_cluster_launch<P...> launch(op, grid, size, kernel);
    int count = 0;
    const bool is_known =
        cudaOccupancyMaxActiveClusters(&count, kernel, &launch.config) == cudaSuccess;
    (void)cudaGetLastError(); // a size that this device has not
    return is_known ? count : 0;
}

template <typename... P, typename... A>
static inline berth_status cuda_run_clusters(const gpu_op *op, const char *name,
                                             const gpu_grid &grid, int size, void (*kernel)(P...),
                                             A... arguments) {
    const cuda_cluster_launch<P...> launch(op, grid, size, kernel);
    (void)cudaLaunchKernelEx(&launch.config, kernel, static_cast<P>(arguments)...);
    return berth_gpu_launched(op->host, name);
}

#endif
