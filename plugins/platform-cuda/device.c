// SPDX-License-Identifier: Apache-2.0
// The device runtime: memory, copies, one stream per device on which all work is queued, recorded
// steps as CUDA graphs.
#include "device.h"

#include <string.h>

#define STAGE_BYTES ((uint64_t)16 << 20)

berth_status cuda_failed(const berth_gpu *gpu, berth_status status, const char *call,
                         cudaError_t error) {
    return BERTH_PLUGIN_FAIL(gpu->host, status, "%s: %s (CUDA error %d)", call,
                             cudaGetErrorString(error), (int)error);
}

#define CUDA_TRY(gpu, call)                                                                        \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess) {                                                               \
            return cuda_failed((gpu), BERTH_UNAVAILABLE, #call, error_);                           \
        }                                                                                          \
    } while (0)

// ---- opening ------------------------------------------------------------------------------------

static berth_status open_device(void *self, uint64_t device) {
    berth_gpu *gpu = self;
    int major = 0;
    CUDA_TRY(gpu, cudaSetDevice((int)device));
    CUDA_TRY(gpu, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, (int)device));
    CUDA_TRY(gpu, cudaDeviceGetAttribute(&gpu->multiprocessors[device],
                                         cudaDevAttrMultiProcessorCount, (int)device));
    gpu->overlaps[device] = major >= 9 && cuda_code_is_90();
    gpu->groups[device] = major == 9 && cuda_code_has_groups();
    CUDA_TRY(gpu, cudaStreamCreateWithFlags(&gpu->streams[device], cudaStreamNonBlocking));
    return BERTH_OK;
}

static void close_device(void *self, uint64_t device) {
    cuda_platform *cuda = self;
    if (cuda->gpu.products) {
        cuda->gpu.release_products(&cuda->gpu);
    }
    for (size_t i = 0; i < CUDA_STAGES; ++i) {
        cuda_stage *stage = &cuda->stages[device][i];
        if (stage->memory) {
            (void)cudaFreeHost(stage->memory);
            (void)cudaEventDestroy(stage->ready);
        }
        *stage = (cuda_stage){0};
    }
    if (cuda->gpu.streams[device]) {
        (void)cudaStreamDestroy(cuda->gpu.streams[device]);
        cuda->gpu.streams[device] = NULL;
    }
}

// ---- memory -------------------------------------------------------------------------------------

static berth_status allocate(void *self, uint64_t device, uint64_t bytes, void **out_base) {
    const berth_gpu *gpu = self;
    CUDA_TRY(gpu, cudaSetDevice((int)device));
    const cudaError_t error = cudaMalloc(out_base, bytes);
    if (error == cudaSuccess) {
        return BERTH_OK;
    }
    size_t available = 0;
    size_t total = 0;
    (void)cudaGetLastError(); // the next launch must not find it
    (void)cudaMemGetInfo(&available, &total);
    return BERTH_PLUGIN_FAIL(
        gpu->host, BERTH_OUT_OF_MEMORY, "cudaMalloc of %llu bytes: %s; %zu of %zu bytes are free",
        (unsigned long long)bytes, cudaGetErrorString(error), available, total);
}

static void release(void *self, uint64_t device, void *base) {
    (void)self;
    if (base && cudaSetDevice((int)device) == cudaSuccess) {
        (void)cudaFree(base);
    }
}

static berth_status allocate_host(void *self, uint64_t device, uint64_t bytes, void **out_memory) {
    const berth_gpu *gpu = self;
    CUDA_TRY(gpu, cudaSetDevice((int)device));
    const cudaError_t error = cudaMallocHost(out_memory, bytes);
    if (error == cudaSuccess) {
        return BERTH_OK;
    }
    (void)cudaGetLastError();
    return BERTH_PLUGIN_FAIL(gpu->host, BERTH_OUT_OF_MEMORY, "cudaMallocHost of %llu bytes: %s",
                             (unsigned long long)bytes, cudaGetErrorString(error));
}

static void release_host(void *self, uint64_t device, void *memory) {
    (void)self;
    (void)device;
    (void)cudaFreeHost(memory);
}

static berth_status memory_info(void *self, uint64_t device, uint64_t *out_free,
                                uint64_t *out_total) {
    const berth_gpu *gpu = self;
    size_t available = 0;
    size_t total = 0;
    CUDA_TRY(gpu, cudaSetDevice((int)device));
    CUDA_TRY(gpu, cudaMemGetInfo(&available, &total));
    *out_free = available;
    *out_total = total;
    return BERTH_OK;
}

// ---- copies -------------------------------------------------------------------------------------

static berth_status synchronize(void *self, uint64_t device) {
    const berth_gpu *gpu = self;
    const cudaError_t error = cudaStreamSynchronize(gpu->streams[device]);
    return error == cudaSuccess
               ? BERTH_OK
               : cuda_failed(gpu, BERTH_UNAVAILABLE, "cudaStreamSynchronize", error);
}

static berth_status queue(const berth_gpu *gpu, uint64_t device, const berth_copy *copy,
                          enum cudaMemcpyKind kind) {
    const cudaError_t error = cudaMemcpyAsync((char *)copy->destination + copy->destination_offset,
                                              (const char *)copy->source + copy->source_offset,
                                              copy->bytes, kind, gpu->streams[device]);
    return error == cudaSuccess ? BERTH_OK
                                : cuda_failed(gpu, BERTH_UNAVAILABLE, "cudaMemcpyAsync", error);
}

// A copy is complete when it returns: it is queued behind the kernels and then waited for.
static berth_status copy_now(const berth_gpu *gpu, uint64_t device, const berth_copy *copy,
                             enum cudaMemcpyKind kind) {
    if (copy->bytes == 0) {
        return BERTH_OK;
    }
    const berth_status status = queue(gpu, device, copy, kind);
    return status == BERTH_OK ? synchronize((void *)gpu, device) : status;
}

static berth_status open_stages(cuda_platform *cuda, uint64_t device) {
    for (size_t i = 0; i < CUDA_STAGES; ++i) {
        cuda_stage *stage = &cuda->stages[device][i];
        if (!stage->memory) {
            CUDA_TRY(&cuda->gpu, cudaEventCreateWithFlags(&stage->ready, cudaEventDisableTiming));
            CUDA_TRY(&cuda->gpu, cudaMallocHost(&stage->memory, STAGE_BYTES));
        }
    }
    return BERTH_OK;
}

// Piece by piece: this thread fills one stage while the device takes the other.
static berth_status copy_staged(cuda_platform *cuda, uint64_t device, const berth_copy *copy) {
    const berth_gpu *gpu = &cuda->gpu;
    const berth_status opened = open_stages(cuda, device);
    if (opened != BERTH_OK) {
        return opened;
    }
    size_t turn = 0;
    for (uint64_t done = 0; done < copy->bytes; turn = (turn + 1) % CUDA_STAGES) {
        cuda_stage *stage = &cuda->stages[device][turn];
        const uint64_t left = copy->bytes - done;
        const berth_copy piece = {
            .size = sizeof piece,
            .destination = copy->destination,
            .destination_offset = copy->destination_offset + done,
            .source = stage->memory,
            .bytes = left < STAGE_BYTES ? left : STAGE_BYTES,
        };
        CUDA_TRY(gpu, cudaEventSynchronize(stage->ready));
        memcpy(stage->memory, (const char *)copy->source + copy->source_offset + done, piece.bytes);
        const berth_status status = queue(gpu, device, &piece, cudaMemcpyHostToDevice);
        if (status != BERTH_OK) {
            return status;
        }
        CUDA_TRY(gpu, cudaEventRecord(stage->ready, gpu->streams[device]));
        done += piece.bytes;
    }
    return BERTH_OK; // the source has been read; what follows on the stream finds the copy done
}

static berth_status copy_to_device(void *self, uint64_t device, const berth_copy *copy) {
    return copy->bytes >= STAGE_BYTES / 4 ? copy_staged(self, device, copy)
                                          : copy_now(self, device, copy, cudaMemcpyHostToDevice);
}

static berth_status queue_to_device(void *self, uint64_t device, const berth_copy *copy) {
    return copy->bytes == 0 ? BERTH_OK : queue(self, device, copy, cudaMemcpyHostToDevice);
}

static berth_status copy_to_host(void *self, uint64_t device, const berth_copy *copy) {
    return copy_now(self, device, copy, cudaMemcpyDeviceToHost);
}

static berth_status copy_on_device(void *self, uint64_t device, const berth_copy *copy) {
    return copy_now(self, device, copy, cudaMemcpyDeviceToDevice);
}

// ---- recorded steps -----------------------------------------------------------------------------

static berth_status capture_begin(void *self, uint64_t device) {
    const berth_gpu *gpu = self;
    CUDA_TRY(gpu, cudaStreamBeginCapture(gpu->streams[device], cudaStreamCaptureModeThreadLocal));
    return BERTH_OK;
}

static berth_status capture_end(void *self, uint64_t device, void **out_graph) {
    const berth_gpu *gpu = self;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;
    CUDA_TRY(gpu, cudaStreamEndCapture(gpu->streams[device], &graph));
    const cudaError_t error = cudaGraphInstantiate(&ready, graph, 0);
    (void)cudaGraphDestroy(graph);
    if (error != cudaSuccess) {
        return cuda_failed(gpu, BERTH_UNAVAILABLE, "cudaGraphInstantiate", error);
    }
    *out_graph = ready;
    return BERTH_OK;
}

static berth_status replay(void *self, uint64_t device, void *graph) {
    const berth_gpu *gpu = self;
    CUDA_TRY(gpu, cudaGraphLaunch(graph, gpu->streams[device]));
    return BERTH_OK;
}

static void release_graph(void *self, uint64_t device, void *graph) {
    (void)self;
    (void)device;
    (void)cudaGraphExecDestroy(graph);
}

const berth_device_api cuda_device_api = {
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
    .allocate_host = allocate_host,
    .release_host = release_host,
    .queue_to_device = queue_to_device,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .replay = replay,
    .release_graph = release_graph,
};
