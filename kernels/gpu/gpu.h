// SPDX-License-Identifier: Apache-2.0
// One vocabulary for CUDA and HIP, and the device state that a GPU platform shares with its
// kernels.
//
// Kernels in kernels/gpu are compiled by either compiler; the names below are all they need of a
// runtime. The platform's `self` is a berth_gpu, so that a kernel's create finds its stream.
#ifndef BERTH_KERNELS_GPU_GPU_H
#define BERTH_KERNELS_GPU_GPU_H

#include <berth/op.h>

#if defined(__HIP_PLATFORM_AMD__)
#include <hip/hip_runtime.h>
#define gpuStream_t       hipStream_t
#define gpuError_t        hipError_t
#define gpuSuccess        hipSuccess
#define gpuGetLastError   hipGetLastError
#define gpuGetErrorString hipGetErrorString
#else
#include <cuda_runtime_api.h>
#define gpuStream_t       cudaStream_t
#define gpuError_t        cudaError_t
#define gpuSuccess        cudaSuccess
#define gpuGetLastError   cudaGetLastError
#define gpuGetErrorString cudaGetErrorString
#endif

#define BERTH_GPU_MAX_DEVICES 16

// The `self` of a GPU platform. A stream is NULL until its device is open.
typedef struct berth_gpu {
    const berth_host *host;
    gpuStream_t streams[BERTH_GPU_MAX_DEVICES]; // all work of a device is queued here
} berth_gpu;

// The address of a tensor's first element: on a GPU a base is an address.
static inline void *berth_gpu_data(const berth_tensor *tensor) {
    return (char *)tensor->data + tensor->byte_offset;
}

// What a forward returns after a launch: the launch's own error; that of the work comes with the
// next wait.
static inline berth_status berth_gpu_launched(const berth_host *host, const char *kernel) {
    const gpuError_t error = gpuGetLastError();
    return error == gpuSuccess ? BERTH_OK
                               : BERTH_PLUGIN_FAIL(host, BERTH_UNAVAILABLE, "launch of %s: %s",
                                                   kernel, gpuGetErrorString(error));
}

#endif
