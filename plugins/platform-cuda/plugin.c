// SPDX-License-Identifier: Apache-2.0
// platform-cuda: NVIDIA GPUs. The device runtime is what GPU platforms share (kernels/gpu); the
// kernels are listed by their folders.
//
// The CUDA runtime is linked statically and nothing else is linked, so the library loads on a
// machine without a driver, where it declines. register() counts devices and creates no context.
#include <gpu/platform.h>

extern const berth_op_impl *const berth_cuda_kernels[]; // generated, ends with NULL

// Whether the kernels were compiled for compute capability 9 (kernels/cuda/product): what runs on a
// newer device may be its driver's translation of older code.
int32_t cuda_code_is_90(void);
int32_t cuda_code_has_groups(void); // for its own features (kernels/cuda/attention)

static berth_status open_device(void *self, uint64_t device) {
    berth_gpu *gpu = self;
    int major = 0;
    GPU_TRY(gpu, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, (int)device));
    gpu->overlaps[device] = major >= 9 && cuda_code_is_90();
    gpu->groups[device] = major == 9 && cuda_code_has_groups();
    return gpu_open(self, device);
}

static const berth_device_api device_api = {
    GPU_DEVICE_SLOTS,
    .open = open_device,
};

// ---- platform -----------------------------------------------------------------------------------

static void print_uuid(const cudaUUID_t *uuid, char *out, size_t size) {
    int written = snprintf(out, size, "GPU-");
    for (int i = 0; i < 16; ++i) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        written += snprintf(out + written, size - (size_t)written, "%s%02x", dash,
                            (unsigned)(unsigned char)uuid->bytes[i]);
    }
}

static berth_status device_info(void *self, uint64_t device, berth_device_info *out) {
    gpu_platform *cuda = self;
    struct cudaDeviceProp properties;
    const berth_status status = gpu_describe(cuda, device, &properties, out);
    if (status != BERTH_OK) {
        return status;
    }
    print_uuid(&properties.uuid, cuda->uuids[device], sizeof cuda->uuids[device]);
    out->capability_major = (uint64_t)properties.major;
    out->capability_minor = (uint64_t)properties.minor;
    return BERTH_OK;
}

static const berth_capabilities capabilities = {
    GPU_CAPABILITIES,
    .memory_type = BERTH_MEMORY_CUDA,
};

static const berth_platform platform = {
    GPU_PLATFORM_SLOTS,
    .name = "cuda",
    .vendor = "NVIDIA",
    .kind = BERTH_PLATFORM_CUDA,
    .device_type = "cuda",
    .device_name = "NVIDIA GPU",
    .capabilities = &capabilities,
    .device = &device_api,
    .device_info = device_info,
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
    return gpu_add_platform(host, registrar, &platform, berth_cuda_kernels);
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
