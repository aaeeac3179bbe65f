// SPDX-License-Identifier: Apache-2.0
// platform-hip: AMD GPUs. The device runtime is what GPU platforms share (kernels/gpu), the kernels
// are those of that folder, as hipcc compiles them.
//
// The HIP runtime, libamdhip64, is linked: it loads on a machine without a GPU, where the plugin
// declines. register() counts devices and opens none.
#include <gpu/platform.h>

extern const berth_op_impl *const berth_hip_kernels[]; // generated, ends with NULL

const char berth_hip_key[] = BERTH_DISPATCH_HIP;

static const berth_device_api device_api = {
    GPU_DEVICE_SLOTS,
    .open = gpu_open,
};

// ---- platform -----------------------------------------------------------------------------------

// The uuid is 16 characters already. Compute capabilities are another vendor's: an architecture
// stands in the name.
static berth_status device_info(void *self, uint64_t device, berth_device_info *out) {
    gpu_platform *hip = self;
    hipDeviceProp_t properties;
    hipUUID uuid = {{0}};
    const berth_status status = gpu_describe(hip, device, &properties, out);
    if (status != BERTH_OK) {
        return status;
    }
    (void)snprintf(hip->names[device], sizeof hip->names[device], "%.120s (%.120s)",
                   properties.name[0] ? properties.name : "AMD GPU", properties.gcnArchName);
    if (hipDeviceGetUuid(&uuid, (int)device) == hipSuccess) {
        (void)snprintf(hip->uuids[device], sizeof hip->uuids[device], "GPU-%.16s", uuid.bytes);
    }
    return BERTH_OK;
}

static const berth_capabilities capabilities = {
    GPU_CAPABILITIES,
    .memory_type = BERTH_MEMORY_ROCM,
};

static const berth_platform platform = {
    GPU_PLATFORM_SLOTS,
    .name = "hip",
    .vendor = "AMD",
    .kind = BERTH_PLATFORM_ROCM,
    .device_type = "rocm",
    .device_name = "AMD GPU",
    .capabilities = &capabilities,
    .device = &device_api,
    .device_info = device_info,
};

static berth_status register_platform(const berth_host *host, berth_registrar *registrar) {
    int count = 0;
    const hipError_t error = hipGetDeviceCount(&count);
    if (error != hipSuccess || count == 0) {
        return BERTH_PLUGIN_FAIL(host, BERTH_DECLINED,
                                 "no AMD GPU: hipGetDeviceCount finds %d (%s)", count,
                                 hipGetErrorString(error));
    }
    return gpu_add_platform(host, registrar, &platform, berth_hip_kernels);
}

static const berth_entry_point entry_point = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_PLATFORM,
    .name = "hip",
    .register_plugin = register_platform,
};

static const berth_entry_point *const entry_points[] = {&entry_point};

BERTH_PLUGIN_DEFINE(.id = "hip", .version = "0.1.0", .vendor = "berth",
                    .entry_points = entry_points, .entry_point_count = 1);
