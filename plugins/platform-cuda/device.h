// SPDX-License-Identifier: Apache-2.0
// Private to platform-cuda: what it keeps for each device, and its device runtime.
#ifndef BERTH_PLATFORM_CUDA_DEVICE_H
#define BERTH_PLATFORM_CUDA_DEVICE_H

#include <berth/plugin.h>

#include <gpu/gpu.h>

#define CUDA_STAGES 2

// Host memory through which large uploads go: one part is filled while the other is on its way.
typedef struct cuda_stage {
    void *memory;      // page-locked; NULL until the first large upload
    cudaEvent_t ready; // its last copy is done
} cuda_stage;

// What kernels may see comes first, so that a pointer to it is a pointer to a berth_gpu.
typedef struct cuda_platform {
    berth_gpu gpu;
    cuda_stage stages[BERTH_GPU_MAX_DEVICES][CUDA_STAGES];
    char names[BERTH_GPU_MAX_DEVICES][256];
    char uuids[BERTH_GPU_MAX_DEVICES][48];
} cuda_platform;

extern const berth_device_api cuda_device_api;

// Whether the kernels were compiled for compute capability 9 (kernels/cuda/product): what runs on a
// newer device may be its driver's translation of older code.
int32_t cuda_code_is_90(void);
int32_t cuda_code_has_groups(void); // for its own features (kernels/cuda/attention)

berth_status cuda_failed(const berth_gpu *gpu, berth_status status, const char *call,
                         cudaError_t error);

#endif
