// SPDX-License-Identifier: Apache-2.0
// Copies of the device runtime that GPU platforms share (runtime.h): queued on the device's stream,
// large uploads through page-locked memory.
#ifndef BERTH_KERNELS_GPU_COPIES_H
#define BERTH_KERNELS_GPU_COPIES_H

#include "runtime.h"

static inline berth_status gpu_synchronize(void *self, uint64_t device) {
    const berth_gpu *gpu = self;
    const gpuError_t error = gpuStreamSynchronize(gpu->streams[device]);
    return error == gpuSuccess
               ? BERTH_OK
               : gpu_failed(gpu, BERTH_UNAVAILABLE, GPU_TEXT(gpuStreamSynchronize), error);
}

static inline berth_status gpu_queue(const berth_gpu *gpu, uint64_t device, const berth_copy *copy,
                                     enum gpuMemcpyKind kind) {
    const gpuError_t error = gpuMemcpyAsync((char *)copy->destination + copy->destination_offset,
                                            (const char *)copy->source + copy->source_offset,
                                            copy->bytes, kind, gpu->streams[device]);
    return error == gpuSuccess
               ? BERTH_OK
               : gpu_failed(gpu, BERTH_UNAVAILABLE, GPU_TEXT(gpuMemcpyAsync), error);
}

// A copy is complete when it returns: it is queued behind the kernels and then waited for.
static inline berth_status gpu_copy_now(const berth_gpu *gpu, uint64_t device,
                                        const berth_copy *copy, enum gpuMemcpyKind kind) {
    if (copy->bytes == 0) {
        return BERTH_OK;
    }
    const berth_status status = gpu_queue(gpu, device, copy, kind);
    return status == BERTH_OK ? gpu_synchronize((void *)gpu, device) : status;
}

static inline berth_status gpu_open_stages(gpu_platform *platform, uint64_t device) {
    for (size_t i = 0; i < GPU_STAGES; ++i) {
        gpu_stage *stage = &platform->stages[device][i];
        if (!stage->memory) {
            GPU_TRY(&platform->gpu, gpuEventCreateWithFlags(&stage->ready, gpuEventDisableTiming));
            GPU_TRY(&platform->gpu, gpuMallocHost(&stage->memory, GPU_STAGE_BYTES));
        }
    }
    return BERTH_OK;
}

// Piece by piece: this thread fills one stage while the device takes the other.
static inline berth_status gpu_copy_staged(gpu_platform *platform, uint64_t device,
                                           const berth_copy *copy) {
    const berth_gpu *gpu = &platform->gpu;
    const berth_status opened = gpu_open_stages(platform, device);
    if (opened != BERTH_OK) {
        return opened;
    }
    size_t turn = 0;
    for (uint64_t done = 0; done < copy->bytes; turn = (turn + 1) % GPU_STAGES) {
        gpu_stage *stage = &platform->stages[device][turn];
        const uint64_t left = copy->bytes - done;
        const berth_copy piece = {
            .size = sizeof piece,
            .destination = copy->destination,
            .destination_offset = copy->destination_offset + done,
            .source = stage->memory,
            .bytes = left < GPU_STAGE_BYTES ? left : GPU_STAGE_BYTES,
        };
        GPU_TRY(gpu, gpuEventSynchronize(stage->ready));
        memcpy(stage->memory, (const char *)copy->source + copy->source_offset + done, piece.bytes);
        const berth_status status = gpu_queue(gpu, device, &piece, gpuUpload);
        if (status != BERTH_OK) {
            return status;
        }
        GPU_TRY(gpu, gpuEventRecord(stage->ready, gpu->streams[device]));
        done += piece.bytes;
    }
    return BERTH_OK; // the source has been read; what follows on the stream finds the copy done
}

static inline berth_status gpu_copy_to_device(void *self, uint64_t device, const berth_copy *copy) {
    return copy->bytes >= GPU_STAGE_BYTES / 4 ? gpu_copy_staged(self, device, copy)
                                              : gpu_copy_now(self, device, copy, gpuUpload);
}

static inline berth_status gpu_queue_to_device(void *self, uint64_t device,
                                               const berth_copy *copy) {
    return copy->bytes == 0 ? BERTH_OK : gpu_queue(self, device, copy, gpuUpload);
}

static inline berth_status gpu_copy_to_host(void *self, uint64_t device, const berth_copy *copy) {
    return gpu_copy_now(self, device, copy, gpuMemcpyDeviceToHost);
}

static inline berth_status gpu_copy_on_device(void *self, uint64_t device, const berth_copy *copy) {
    return gpu_copy_now(self, device, copy, gpuMemcpyDeviceToDevice);
}

#endif
