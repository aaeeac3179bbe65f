// SPDX-License-Identifier: Apache-2.0
// The device runtime that GPU platforms share: memory, copies, one stream per device on which all
// work is queued, recorded steps as graphs. C, for the one file of a platform that includes
// platform.h; the slots of its berth_device_api are listed there.
#ifndef BERTH_KERNELS_GPU_RUNTIME_H
#define BERTH_KERNELS_GPU_RUNTIME_H

#include <berth/plugin.h>

#include <gpu/gpu.h>

#include <string.h>

#define gpuEvent_t                      GPU_NAME(Event_t)
#define gpuEventCreateWithFlags         GPU_NAME(EventCreateWithFlags)
#define gpuEventDestroy                 GPU_NAME(EventDestroy)
#define gpuEventDisableTiming           GPU_NAME(EventDisableTiming)
#define gpuEventRecord                  GPU_NAME(EventRecord)
#define gpuEventSynchronize             GPU_NAME(EventSynchronize)
#define gpuDeviceGetAttribute           GPU_NAME(DeviceGetAttribute)
#define gpuGraph_t                      GPU_NAME(Graph_t)
#define gpuGraphDestroy                 GPU_NAME(GraphDestroy)
#define gpuGraphExec_t                  GPU_NAME(GraphExec_t)
#define gpuGraphExecDestroy             GPU_NAME(GraphExecDestroy)
#define gpuGraphLaunch                  GPU_NAME(GraphLaunch)
#define gpuMemGetInfo                   GPU_NAME(MemGetInfo)
#define gpuMemcpyAsync                  GPU_NAME(MemcpyAsync)
#define gpuMemcpyDeviceToDevice         GPU_NAME(MemcpyDeviceToDevice)
#define gpuMemcpyDeviceToHost           GPU_NAME(MemcpyDeviceToHost)
#define gpuMemcpyKind                   GPU_NAME(MemcpyKind)
#define gpuSetDevice                    GPU_NAME(SetDevice)
#define gpuStreamBeginCapture           GPU_NAME(StreamBeginCapture)
#define gpuStreamCaptureModeThreadLocal GPU_NAME(StreamCaptureModeThreadLocal)
#define gpuStreamCreateWithFlags        GPU_NAME(StreamCreateWithFlags)
#define gpuStreamDestroy                GPU_NAME(StreamDestroy)
#define gpuStreamEndCapture             GPU_NAME(StreamEndCapture)
#define gpuStreamNonBlocking            GPU_NAME(StreamNonBlocking)
#define gpuStreamSynchronize            GPU_NAME(StreamSynchronize)

#define GPU_STAGES      2
#define GPU_STAGE_BYTES ((uint64_t)16 << 20)

// Host memory through which large uploads go: one part is filled while the other is on its way.
typedef struct gpu_stage {
    void *memory;     // page-locked; NULL until the first large upload
    gpuEvent_t ready; // its last copy is done
} gpu_stage;

// What kernels may see comes first, so that a pointer to it is a pointer to a berth_gpu.
typedef struct gpu_platform {
    berth_gpu gpu;
    const berth_op_impl *const *kernels; // ends with NULL
    gpu_stage stages[BERTH_GPU_MAX_DEVICES][GPU_STAGES];
    char names[BERTH_GPU_MAX_DEVICES][256];
    char uuids[BERTH_GPU_MAX_DEVICES][48];
} gpu_platform;

static inline berth_status gpu_failed(const berth_gpu *gpu, berth_status status, const char *call,
                                      gpuError_t error) {
    return BERTH_PLUGIN_FAIL(gpu->host, status, "%s: %s (%s error %d)", call,
                             gpuGetErrorString(error), GPU_BRAND, (int)error);
}

// A call as the runtime knows it.
#define GPU_TEXT(call)   GPU_TEXT_OF(call)
#define GPU_TEXT_OF(...) #__VA_ARGS__

#define GPU_TRY(gpu, call)                                                                         \
    do {                                                                                           \
        const gpuError_t error_ = (call);                                                          \
        if (error_ != gpuSuccess) {                                                                \
            return gpu_failed((gpu), BERTH_UNAVAILABLE, GPU_TEXT(call), error_);                   \
        }                                                                                          \
    } while (0)

// ---- opening ------------------------------------------------------------------------------------

static inline berth_status gpu_open(void *self, uint64_t device) {
    berth_gpu *gpu = self;
    GPU_TRY(gpu, gpuSetDevice((int)device));
    GPU_TRY(gpu, gpuDeviceGetAttribute(&gpu->multiprocessors[device], gpuDevAttrMultiProcessorCount,
                                       (int)device));
    GPU_TRY(gpu, gpuStreamCreateWithFlags(&gpu->streams[device], gpuStreamNonBlocking));
    return BERTH_OK;
}

static inline void gpu_close(void *self, uint64_t device) {
    gpu_platform *platform = self;
    berth_gpu *gpu = &platform->gpu;
    if (gpu->products) {
        gpu->release_products(gpu);
    }
    for (size_t i = 0; i < GPU_STAGES; ++i) {
        gpu_stage *stage = &platform->stages[device][i];
        if (stage->memory) {
            (void)gpuFreeHost(stage->memory);
            (void)gpuEventDestroy(stage->ready);
        }
        *stage = (gpu_stage){0};
    }
    if (gpu->streams[device]) {
        (void)gpuStreamDestroy(gpu->streams[device]);
        gpu->streams[device] = NULL;
    }
}

// ---- memory -------------------------------------------------------------------------------------

static inline berth_status gpu_allocate(void *self, uint64_t device, uint64_t bytes,
                                        void **out_base) {
    const berth_gpu *gpu = self;
    GPU_TRY(gpu, gpuSetDevice((int)device));
    const gpuError_t error = gpuMalloc(out_base, bytes);
    if (error == gpuSuccess) {
        return BERTH_OK;
    }
    size_t available = 0;
    size_t total = 0;
    (void)gpuGetLastError(); // the next launch must not find it
    (void)gpuMemGetInfo(&available, &total);
    return BERTH_PLUGIN_FAIL(gpu->host, BERTH_OUT_OF_MEMORY,
                             "%s of %llu bytes: %s; %zu of %zu bytes are free", GPU_TEXT(gpuMalloc),
                             (unsigned long long)bytes, gpuGetErrorString(error), available, total);
}

static inline void gpu_release(void *self, uint64_t device, void *base) {
    (void)self;
    if (base && gpuSetDevice((int)device) == gpuSuccess) {
        (void)gpuFree(base);
    }
}

static inline berth_status gpu_allocate_host(void *self, uint64_t device, uint64_t bytes,
                                             void **out_memory) {
    const berth_gpu *gpu = self;
    GPU_TRY(gpu, gpuSetDevice((int)device));
    const gpuError_t error = gpuMallocHost(out_memory, bytes);
    if (error == gpuSuccess) {
        return BERTH_OK;
    }
    (void)gpuGetLastError();
    return BERTH_PLUGIN_FAIL(gpu->host, BERTH_OUT_OF_MEMORY, "%llu bytes of page-locked memory: %s",
                             (unsigned long long)bytes, gpuGetErrorString(error));
}

static inline void gpu_release_host(void *self, uint64_t device, void *memory) {
    (void)self;
    (void)device;
    (void)gpuFreeHost(memory);
}

static inline berth_status gpu_memory_info(void *self, uint64_t device, uint64_t *out_free,
                                           uint64_t *out_total) {
    const berth_gpu *gpu = self;
    size_t available = 0;
    size_t total = 0;
    GPU_TRY(gpu, gpuSetDevice((int)device));
    GPU_TRY(gpu, gpuMemGetInfo(&available, &total));
    *out_free = available;
    *out_total = total;
    return BERTH_OK;
}

// ---- recorded steps -----------------------------------------------------------------------------

static inline berth_status gpu_capture_begin(void *self, uint64_t device) {
    const berth_gpu *gpu = self;
    GPU_TRY(gpu, gpuStreamBeginCapture(gpu->streams[device], gpuStreamCaptureModeThreadLocal));
    return BERTH_OK;
}

static inline berth_status gpu_capture_end(void *self, uint64_t device, void **out_graph) {
    const berth_gpu *gpu = self;
    gpuGraph_t graph = NULL;
    gpuGraphExec_t ready = NULL;
    GPU_TRY(gpu, gpuStreamEndCapture(gpu->streams[device], &graph));
    const gpuError_t error = gpuGraphInstantiate(&ready, graph, 0);
    (void)gpuGraphDestroy(graph);
    if (error != gpuSuccess) {
        return gpu_failed(gpu, BERTH_UNAVAILABLE, GPU_TEXT(gpuGraphInstantiate), error);
    }
    *out_graph = ready;
    return BERTH_OK;
}

static inline berth_status gpu_replay(void *self, uint64_t device, void *graph) {
    const berth_gpu *gpu = self;
    GPU_TRY(gpu, gpuGraphLaunch(graph, gpu->streams[device]));
    return BERTH_OK;
}

static inline void gpu_release_graph(void *self, uint64_t device, void *graph) {
    (void)self;
    (void)device;
    (void)gpuGraphExecDestroy(graph);
}

#endif
