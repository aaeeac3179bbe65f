// SPDX-License-Identifier: Apache-2.0
// platform-cuda: NVIDIA GPUs. The device runtime is device.c; the kernels are listed by their
// folders.
//
// The CUDA runtime is linked statically and nothing else is linked, so the library loads on a
// machine without a driver, where it declines. register() counts devices and creates no context.
#include "device.h"

#include <stdio.h>

extern const berth_op_impl *const berth_cuda_kernels[]; // generated, ends with NULL

// ---- platform -----------------------------------------------------------------------------------

static berth_status device_count(void *self, uint64_t *out_count) {
    int count = 0; // Why: the call leaves it untouched when it fails
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
        return cuda_failed(self, BERTH_UNAVAILABLE, "cudaGetDeviceCount", error);
    }
    *out_count = count > BERTH_GPU_MAX_DEVICES ? BERTH_GPU_MAX_DEVICES : (uint64_t)count;
    return BERTH_OK;
}

static void print_uuid(const cudaUUID_t *uuid, char *out, size_t size) {
    int written = snprintf(out, size, "GPU-");
    for (int i = 0; i < 16; ++i) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        written += snprintf(out + written, size - (size_t)written, "%s%02x", dash,
                            (unsigned)(unsigned char)uuid->bytes[i]);
    }
}

static berth_status device_info(void *self, uint64_t device, berth_device_info *out) {
    cuda_platform *cuda = self;
    struct cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceProperties(&properties, (int)device);
    if (error != cudaSuccess) {
        return cuda_failed(self, BERTH_UNAVAILABLE, "cudaGetDeviceProperties", error);
    }
    (void)snprintf(cuda->names[device], sizeof cuda->names[device], "%s", properties.name);
    print_uuid(&properties.uuid, cuda->uuids[device], sizeof cuda->uuids[device]);
    out->name = cuda->names[device];
    out->uuid = cuda->uuids[device];
    out->memory_bytes = properties.totalGlobalMem;
    out->capability_major = (uint64_t)properties.major;
    out->capability_minor = (uint64_t)properties.minor;
    out->compute_units = (uint64_t)properties.multiProcessorCount;
    return BERTH_OK;
}

static berth_status register_ops(void *self, const berth_config *config,
                                 berth_registrar *registrar) {
    (void)self;
    (void)config;
    for (const berth_op_impl *const *kernel = berth_cuda_kernels; *kernel; ++kernel) {
        const berth_status status = registrar->add_op_impl(registrar, *kernel, 0);
        if (status != BERTH_OK) {
            return status;
        }
    }
    return BERTH_OK;
}

static void destroy(void *self) {
    const berth_gpu *gpu = self;
    gpu->host->free(gpu->host, self);
}

static const berth_dtype dtypes[] = {BERTH_DTYPE_BF16, BERTH_DTYPE_F16, BERTH_DTYPE_F32};

static const berth_capabilities capabilities = {
    .size = sizeof(berth_capabilities),
    .flags =
        BERTH_CAPABILITY_STREAMS | BERTH_CAPABILITY_PINNED_MEMORY | BERTH_CAPABILITY_GRAPH_CAPTURE,
    .dtypes = dtypes,
    .dtype_count = sizeof dtypes / sizeof dtypes[0],
    .memory_type = BERTH_MEMORY_CUDA,
    .alignment_bytes = 256,
};

static const berth_platform platform = {
    .size = sizeof(berth_platform),
    .name = "cuda",
    .vendor = "NVIDIA",
    .kind = BERTH_PLATFORM_CUDA,
    .device_type = "cuda",
    .device_name = "NVIDIA GPU",
    .capabilities = &capabilities,
    .device = &cuda_device_api,
    .device_count = device_count,
    .device_info = device_info,
    .register_ops = register_ops,
    .destroy = destroy,
};

static berth_status register_platform(const berth_host *host, berth_registrar *registrar) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorInsufficientDriver) {
        return BERTH_PLUGIN_FAIL(host, BERTH_DECLINED,
                                 "no NVIDIA driver, or one older than CUDA %d.%d",
                                 CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    }
    if (error != cudaSuccess || count == 0) {
        return BERTH_PLUGIN_FAIL(host, BERTH_DECLINED, "no NVIDIA GPU: %s",
                                 error == cudaSuccess ? "the driver lists none"
                                                      : cudaGetErrorString(error));
    }
    cuda_platform *cuda = host->alloc(host, sizeof *cuda, 0);
    if (!cuda) {
        return BERTH_PLUGIN_FAIL(host, BERTH_OUT_OF_MEMORY, "no memory for the platform");
    }
    cuda->gpu.host = host;
    const berth_status status = registrar->add_platform(registrar, &platform, cuda);
    if (status != BERTH_OK) {
        host->free(host, cuda);
    }
    return status;
}

static const berth_entry_point entry_point = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_PLATFORM,
    .name = "cuda",
    .register_plugin = register_platform,
};

static const berth_entry_point *const entry_points[] = {&entry_point};

BERTH_PLUGIN_DEFINE(.id = "cuda", .version = "0.1.0", .vendor = "berth",
                    .entry_points = entry_points, .entry_point_count = 1);
