// SPDX-License-Identifier: Apache-2.0
// platform-cuda: NVIDIA GPUs. Memory, copies and one stream per device; the kernels are listed by
// their folder.
//
// The CUDA runtime is linked statically and nothing else is linked, so the library loads on a
// machine without a driver, where it declines. register() counts devices and creates no context.
#include <berth/plugin.h>

#include <gpu/gpu.h>

#include <stdio.h>

extern const berth_op_impl *const berth_cuda_kernels[]; // generated, ends with NULL

// What kernels may see comes first, so that a pointer to it is a pointer to a berth_gpu.
typedef struct cuda_platform {
    berth_gpu gpu;
    char names[BERTH_GPU_MAX_DEVICES][256];
    char uuids[BERTH_GPU_MAX_DEVICES][48];
} cuda_platform;

static berth_status failed(const berth_gpu *gpu, berth_status status, const char *call,
                           cudaError_t error) {
    return BERTH_PLUGIN_FAIL(gpu->host, status, "%s: %s (CUDA error %d)", call,
                             cudaGetErrorString(error), (int)error);
}

static berth_status select_device(const berth_gpu *gpu, uint64_t device) {
    const cudaError_t error = cudaSetDevice((int)device);
    return error == cudaSuccess ? BERTH_OK : failed(gpu, BERTH_UNAVAILABLE, "cudaSetDevice", error);
}

// ---- device runtime -----------------------------------------------------------------------------

static berth_status open_device(void *self, uint64_t device) {
    berth_gpu *gpu = self;
    const berth_status status = select_device(gpu, device);
    if (status != BERTH_OK) {
        return status;
    }
    const cudaError_t error =
        cudaStreamCreateWithFlags(&gpu->streams[device], cudaStreamNonBlocking);
    return error == cudaSuccess
               ? BERTH_OK
               : failed(gpu, BERTH_UNAVAILABLE, "cudaStreamCreateWithFlags", error);
}

static void close_device(void *self, uint64_t device) {
    berth_gpu *gpu = self;
    if (gpu->streams[device]) {
        (void)cudaStreamDestroy(gpu->streams[device]);
        gpu->streams[device] = NULL;
    }
}

static berth_status allocate(void *self, uint64_t device, uint64_t bytes, void **out_base) {
    const berth_gpu *gpu = self;
    const berth_status status = select_device(gpu, device);
    if (status != BERTH_OK) {
        return status;
    }
    const cudaError_t error = cudaMalloc(out_base, bytes);
    if (error == cudaSuccess) {
        return BERTH_OK;
    }
    size_t available = 0;
    size_t total = 0;
    (void)cudaMemGetInfo(&available, &total);
    return BERTH_PLUGIN_FAIL(
        gpu->host, BERTH_OUT_OF_MEMORY, "cudaMalloc of %llu bytes: %s; %zu of %zu bytes are free",
        (unsigned long long)bytes, cudaGetErrorString(error), available, total);
}

static void release(void *self, uint64_t device, void *base) {
    if (base && select_device(self, device) == BERTH_OK) {
        (void)cudaFree(base);
    }
}

static berth_status synchronize(void *self, uint64_t device) {
    const berth_gpu *gpu = self;
    const cudaError_t error = cudaStreamSynchronize(gpu->streams[device]);
    return error == cudaSuccess ? BERTH_OK
                                : failed(gpu, BERTH_UNAVAILABLE, "cudaStreamSynchronize", error);
}

// A copy is complete when it returns: it is queued behind the kernels and then waited for.
static berth_status copy_now(const berth_gpu *gpu, uint64_t device, const berth_copy *copy,
                             enum cudaMemcpyKind kind) {
    if (copy->bytes == 0) {
        return BERTH_OK;
    }
    const cudaError_t error = cudaMemcpyAsync((char *)copy->destination + copy->destination_offset,
                                              (const char *)copy->source + copy->source_offset,
                                              copy->bytes, kind, gpu->streams[device]);
    if (error != cudaSuccess) {
        return failed(gpu, BERTH_UNAVAILABLE, "cudaMemcpyAsync", error);
    }
    return synchronize((void *)gpu, device);
}

static berth_status copy_to_device(void *self, uint64_t device, const berth_copy *copy) {
    return copy_now(self, device, copy, cudaMemcpyHostToDevice);
}

static berth_status copy_to_host(void *self, uint64_t device, const berth_copy *copy) {
    return copy_now(self, device, copy, cudaMemcpyDeviceToHost);
}

static berth_status copy_on_device(void *self, uint64_t device, const berth_copy *copy) {
    return copy_now(self, device, copy, cudaMemcpyDeviceToDevice);
}

static berth_status memory_info(void *self, uint64_t device, uint64_t *out_free,
                                uint64_t *out_total) {
    const berth_gpu *gpu = self;
    size_t available = 0;
    size_t total = 0;
    const berth_status status = select_device(gpu, device);
    if (status != BERTH_OK) {
        return status;
    }
    const cudaError_t error = cudaMemGetInfo(&available, &total);
    if (error != cudaSuccess) {
        return failed(gpu, BERTH_UNAVAILABLE, "cudaMemGetInfo", error);
    }
    *out_free = available;
    *out_total = total;
    return BERTH_OK;
}

// ---- platform -----------------------------------------------------------------------------------

static berth_status device_count(void *self, uint64_t *out_count) {
    int count = 0; // Why: the call leaves it untouched when it fails
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
        return failed(self, BERTH_UNAVAILABLE, "cudaGetDeviceCount", error);
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
        return failed(self, BERTH_UNAVAILABLE, "cudaGetDeviceProperties", error);
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

static const berth_dtype dtypes[] = {BERTH_DTYPE_F32};

static const berth_capabilities capabilities = {
    .size = sizeof(berth_capabilities),
    .flags = BERTH_CAPABILITY_STREAMS,
    .dtypes = dtypes,
    .dtype_count = 1,
    .memory_type = BERTH_MEMORY_CUDA,
    .alignment_bytes = 256,
};

static const berth_device_api device_api = {
    .size = sizeof(berth_device_api),
    .allocate = allocate,
    .release = release,
    .copy_to_device = copy_to_device,
    .copy_to_host = copy_to_host,
    .synchronize = synchronize,
    .open = open_device,
    .close = close_device,
    .copy_on_device = copy_on_device,
    .memory_info = memory_info,
};

static const berth_platform platform = {
    .size = sizeof(berth_platform),
    .name = "cuda",
    .vendor = "NVIDIA",
    .kind = BERTH_PLATFORM_CUDA,
    .device_type = "cuda",
    .device_name = "NVIDIA GPU",
    .capabilities = &capabilities,
    .device = &device_api,
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
