// SPDX-License-Identifier: Apache-2.0
// The shared memory that launches of a kernel may ask for: 48 KB where nothing is said.
#ifndef BERTH_KERNELS_CUDA_SHARED_H
#define BERTH_KERNELS_CUDA_SHARED_H

#include <gpu/launch.h>

// `bytes` of it, from now on.
template <typename K>
static inline berth_status cuda_allow_shared(const gpu_op *op, K *kernel, uint32_t bytes) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    return error == cudaSuccess
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(op->host, BERTH_UNAVAILABLE, "%u bytes of shared memory: %s",
                                   bytes, cudaGetErrorString(error));
}

#endif
