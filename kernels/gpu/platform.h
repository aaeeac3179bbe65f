// SPDX-License-Identifier: Apache-2.0
// What the plugins of GPU platforms share: the slots of their tables, and their registration. A
// platform adds who its devices are and why there may be none.
#ifndef BERTH_KERNELS_GPU_PLATFORM_H
#define BERTH_KERNELS_GPU_PLATFORM_H

#include "copies.h"

#include <stdio.h>

#define gpuGetDeviceCount      GPU_NAME(GetDeviceCount)
#define gpuGetDeviceProperties GPU_NAME(GetDeviceProperties)

static inline berth_status gpu_device_count(void *self, uint64_t *out_count) {
    int count = 0; // Why: the call leaves it untouched when it fails
    const gpuError_t error = gpuGetDeviceCount(&count);
    if (error != gpuSuccess) {
        return gpu_failed(self, BERTH_UNAVAILABLE, GPU_TEXT(gpuGetDeviceCount), error);
    }
    *out_count = count > BERTH_GPU_MAX_DEVICES ? BERTH_GPU_MAX_DEVICES : (uint64_t)count;
    return BERTH_OK;
}

// All of a device but its uuid, which is left to the caller to print into platform->uuids.
static inline berth_status gpu_describe(gpu_platform *platform, uint64_t device,
                                        gpuDeviceProp *properties, berth_device_info *out) {
    const gpuError_t error = gpuGetDeviceProperties(properties, (int)device);
    if (error != gpuSuccess) {
        return gpu_failed(&platform->gpu, BERTH_UNAVAILABLE, GPU_TEXT(gpuGetDeviceProperties),
                          error);
    }
    char *name = platform->names[device];
    (void)snprintf(name, sizeof platform->names[device], "%s", properties->name);
    out->name = name;
    out->uuid = platform->uuids[device];
    out->memory_bytes = properties->totalGlobalMem;
    out->compute_units = (uint64_t)properties->multiProcessorCount;
    return BERTH_OK;
}

static inline berth_status gpu_register_ops(void *self, const berth_config *config,
                                            berth_registrar *registrar) {
    (void)config;
    const gpu_platform *platform = self;
    for (const berth_op_impl *const *kernel = platform->kernels; *kernel; ++kernel) {
        const berth_status status = registrar->add_op_impl(registrar, *kernel, 0);
        if (status != BERTH_OK) {
            return status;
        }
    }
    return BERTH_OK;
}

static inline void gpu_destroy_platform(void *self) {
    const berth_gpu *gpu = self;
    gpu->host->free(gpu->host, self);
}

// The last step of a plugin's registration, when there is a device. `kernels` ends with NULL.
static inline berth_status gpu_add_platform(const berth_host *host, berth_registrar *registrar,
                                            const berth_platform *table,
                                            const berth_op_impl *const *kernels) {
    gpu_platform *platform = host->alloc(host, sizeof *platform, 0);
    if (!platform) {
        return BERTH_PLUGIN_FAIL(host, BERTH_OUT_OF_MEMORY, "no memory for the platform");
    }
    platform->gpu.host = host;
    platform->kernels = kernels;
    const berth_status status = registrar->add_platform(registrar, table, platform);
    if (status != BERTH_OK) {
        host->free(host, platform);
    }
    return status;
}

static const berth_dtype gpu_dtypes[] = {BERTH_DTYPE_BF16, BERTH_DTYPE_F16, BERTH_DTYPE_F32};

// What the tables of a platform begin with.
#define GPU_CAPABILITIES                                                                           \
    .size = sizeof(berth_capabilities),                                                            \
    .flags = BERTH_CAPABILITY_STREAMS | BERTH_CAPABILITY_PINNED_MEMORY |                           \
             BERTH_CAPABILITY_GRAPH_CAPTURE,                                                       \
    .dtypes = gpu_dtypes, .dtype_count = sizeof gpu_dtypes / sizeof gpu_dtypes[0],                 \
    .alignment_bytes = 256

// All but `open`, which may be gpu_open.
#define GPU_DEVICE_SLOTS                                                                           \
    .size = sizeof(berth_device_api), .allocate = gpu_allocate, .release = gpu_release,            \
    .copy_to_device = gpu_copy_to_device, .copy_to_host = gpu_copy_to_host,                        \
    .synchronize = gpu_synchronize, .close = gpu_close, .copy_on_device = gpu_copy_on_device,      \
    .memory_info = gpu_memory_info, .allocate_host = gpu_allocate_host,                            \
    .release_host = gpu_release_host, .queue_to_device = gpu_queue_to_device,                      \
    .capture_begin = gpu_capture_begin, .capture_end = gpu_capture_end, .replay = gpu_replay,      \
    .release_graph = gpu_release_graph

#define GPU_PLATFORM_SLOTS                                                                         \
    .size = sizeof(berth_platform), .device_count = gpu_device_count,                              \
    .register_ops = gpu_register_ops, .destroy = gpu_destroy_platform

#endif
