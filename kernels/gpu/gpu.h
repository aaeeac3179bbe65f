// SPDX-License-Identifier: Apache-2.0
// One vocabulary for CUDA and HIP, and the device state that a GPU platform shares with its
// kernels.
//
// Kernels in kernels/gpu are compiled by either compiler; the names below are all they need of a
// runtime. The platform's `self` is a berth_gpu, so that a kernel's create finds its stream. What
// only device code needs is in element.h and launch.h.
#ifndef BERTH_KERNELS_GPU_GPU_H
#define BERTH_KERNELS_GPU_GPU_H

#include <berth/op.h>

// The runtimes differ in a prefix, and in the few names that stand here twice.
#if defined(__HIP_PLATFORM_AMD__)
#include <hip/hip_runtime_api.h>
#define GPU_NAME(name)                  hip##name
#define GPU_BRAND                       "HIP"
#define gpuDeviceProp                   hipDeviceProp_t
#define gpuDevAttrMultiProcessorCount   hipDeviceAttributeMultiprocessorCount
#define gpuMallocHost(out_memory, size) hipHostMalloc((out_memory), (size), hipHostMallocDefault)
#define gpuFreeHost                     hipHostFree
#define gpuGraphInstantiate             hipGraphInstantiateWithFlags
#else
#include <cuda_runtime_api.h>
#define GPU_NAME(name)                cuda##name
#define GPU_BRAND                     "CUDA"
#define gpuDeviceProp                 struct cudaDeviceProp
#define gpuDevAttrMultiProcessorCount cudaDevAttrMultiProcessorCount
#define gpuMallocHost                 cudaMallocHost
#define gpuFreeHost                   cudaFreeHost
#define gpuGraphInstantiate           cudaGraphInstantiate
#endif

#define gpuStream_t       GPU_NAME(Stream_t)
#define gpuError_t        GPU_NAME(Error_t)
#define gpuSuccess        GPU_NAME(Success)
#define gpuGetLastError   GPU_NAME(GetLastError)
#define gpuGetErrorString GPU_NAME(GetErrorString)
#define gpuMalloc         GPU_NAME(Malloc)
#define gpuFree           GPU_NAME(Free)
#define gpuMemcpy         GPU_NAME(Memcpy)
#define gpuMemset         GPU_NAME(Memset)
#define gpuUpload         GPU_NAME(MemcpyHostToDevice)

#define BERTH_GPU_MAX_DEVICES 16

// The `self` of a GPU platform. A stream is NULL until its device is open.
typedef struct berth_gpu {
    const berth_host *host;
    gpuStream_t streams[BERTH_GPU_MAX_DEVICES]; // all work of a device is queued here
    int32_t multiprocessors[BERTH_GPU_MAX_DEVICES];
    // Whether a kernel may begin while the one before it ends: device and code are of compute
    // capability 9.
    int32_t overlaps[BERTH_GPU_MAX_DEVICES];
    // Whether groups of warps multiply together: both are of 9.0 and its own features.
    int32_t groups[BERTH_GPU_MAX_DEVICES];
    // What kernels keep for the platform's life: made by the first that needs it, given back by its
    // own function before the platform goes.
    void *products;
    void (*release_products)(struct berth_gpu *gpu);
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

// ---- device code --------------------------------------------------------------------------------

// A warp is 32 lanes in a row here, whatever the hardware's is: half a wavefront of gfx90a. So
// lanes speak to each other by shuffles in groups of 32, or through shared memory and a barrier
// that the whole block comes to; nothing rests on 32 lanes being alone in what is executed
// together.

#if defined(__HIP_PLATFORM_AMD__) && defined(__HIP__)

#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>

#define gpu_shuffle_xor(value, mask) __shfl_xor((value), (mask), 32)

// One operation in f32, rounded to nearest once. Why not HIP's names for them: they are a * b and
// a + b, which the compiler puts together to one fused operation; and its root is not exact.
static __device__ inline float gpu_mul_rn(float a, float b) {
#pragma clang fp contract(off)
    return a * b;
}
static __device__ inline float gpu_add_rn(float a, float b) {
#pragma clang fp contract(off)
    return a + b;
}
static __device__ inline float gpu_div_rn(float a, float b) {
    return a / b;
}
static __device__ inline float gpu_sqrt_rn(float a) {
    return sqrtf(a);
}

// Nothing overlaps: a kernel begins when all before it have ended.
static __device__ inline void gpu_wait_for_inputs() {
}
static __device__ inline void gpu_let_next_begin() {
}
static __device__ inline void gpu_fetch(const void *) {
}

// No instruction for codes of e4m3.
static __device__ inline bool gpu_make_f8_pair(float, float, uint16_t *) {
    return false;
}

static __device__ inline uint16_t gpu_to_bf16_bits(float value) {
    const uint32_t bits = __float_as_uint(value);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : rounded);
}
static __device__ inline uint16_t gpu_to_f16_bits(float value) {
    return __half_as_ushort(__float2half_rn(value));
}
static __device__ inline float gpu_from_f16_bits(uint16_t bits) {
    return __half2float(__ushort_as_half(bits));
}

// Of platform-hip. Why a name of the host's: a table of nothing but constants would be made for the
// device, too, which has no functions to put into it.
extern const char berth_hip_key[];
#define BERTH_GPU_KEY berth_hip_key

template <typename K, typename... A>
static inline void gpu_start(const berth_gpu *, uint64_t, dim3 blocks, dim3 threads,
                             uint32_t shared, gpuStream_t stream, K *kernel, A... arguments) {
    kernel<<<blocks, threads, shared, stream>>>(arguments...);
}

#elif defined(__CUDACC__)

#define gpu_shuffle_xor(value, mask) __shfl_xor_sync(0xffffffffu, (value), (mask), 32)

// One operation in f32, rounded to nearest once, and never put together with another.
#define gpu_mul_rn                   __fmul_rn
#define gpu_add_rn                   __fadd_rn
#define gpu_div_rn                   __fdiv_rn
#define gpu_sqrt_rn                  __fsqrt_rn

// A kernel may begin while the one before it still runs. What it reads of others' results, and what
// it writes, comes after this; before it come only weights.
static __device__ inline void gpu_wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

// From here on the next kernel may begin, up to its own wait.
static __device__ inline void gpu_let_next_begin() {
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// On its way into the second cache: a hint.
static __device__ inline void gpu_fetch(const void *from) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

// Whether device code may use what capability 9 brought; of a kernel that may, that so many of its
// blocks along x run together.
#if __CUDA_ARCH__ >= 900
#define CUDA_IS_90               true
#define CUDA_IN_CLUSTERS(blocks) __cluster_dims__((blocks), 1, 1)
#else
#define CUDA_IS_90 false
#define CUDA_IN_CLUSTERS(blocks)
#endif

// Whether it may use what only capability 9.0 has: code for sm_90a.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CUDA_HAS_WGMMA true
#else
#define CUDA_HAS_WGMMA false
#endif

// Why by the instructions' names: the headers of the types behind them take a third of the time
// that a small kernel compiles.
static __device__ inline uint16_t gpu_to_bf16_bits(float value) {
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
static __device__ inline uint16_t gpu_to_f16_bits(float value) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
static __device__ inline float gpu_from_f16_bits(uint16_t bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// Two codes of e4m3 by the machine's own instruction, the first in the lower byte: to nearest, ties
// to even, saturated, a NaN without its sign. False where there is none.
template <bool IS_90 = CUDA_IS_90>
static __device__ inline bool gpu_make_f8_pair(float low, float high, uint16_t *pair) {
    if constexpr (IS_90) {
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(*pair) : "f"(high), "f"(low));
    }
    return IS_90;
}

#define BERTH_GPU_KEY BERTH_DISPATCH_CUDA

template <typename... P, typename... A>
static inline void gpu_start(const berth_gpu *gpu, uint64_t device, dim3 blocks, dim3 threads,
                             uint32_t shared, gpuStream_t stream, void (*kernel)(P...),
                             A... arguments) {
    // Why all alike: a multiprocessor that changes the share of its shared memory first runs empty.
    // Why not where that is nothing beside the work: loads that are under way have their place in
    // what is not shared, and with less of it a norm of 65,536 rows takes 10 % longer.
    constexpr uint64_t MANY_BLOCKS = 4096;
    const bool is_long =
        shared == 0 && static_cast<uint64_t>(blocks.x) * blocks.y * blocks.z > MANY_BLOCKS;
    (void)cudaFuncSetAttribute(
        reinterpret_cast<const void *>(kernel), cudaFuncAttributePreferredSharedMemoryCarveout,
        is_long ? cudaSharedmemCarveoutDefault : cudaSharedmemCarveoutMaxShared);
    cudaLaunchAttribute overlap;
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &overlap;
    config.numAttrs = gpu->overlaps[device] ? 1 : 0;
    (void)cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...);
}

#endif
#endif
