// SPDX-License-Identifier: Apache-2.0
// What programs share that call kernels of the first GPU without a host: one that has memory,
// failures and warnings, and no cache, so that what is measured is measured anew; the device;
// random bits; a clock.
#ifndef BERTH_TESTS_GPU_HOST_CUH
#define BERTH_TESTS_GPU_HOST_CUH

#include <gpu/launch.h>

#include <algorithm>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

extern "C" {
int32_t cuda_code_is_90(void);
int32_t cuda_code_has_groups(void);
}

namespace {

berth_host host;
berth_gpu gpu;
berth_device device;

void must(bool is_true, const char *what) {
    if (!is_true) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
        exit(1);
    }
}

// ---- a host -------------------------------------------------------------------------------------

void host_log(const berth_host *, uint64_t, const char *, const char *text, uint64_t length) {
    (void)fprintf(stderr, "%.*s\n", static_cast<int>(length), text);
}
uint64_t host_logs(const berth_host *, uint64_t level) {
    return level <= BERTH_LOG_WARN;
}
void host_fail(const berth_host *, berth_status, const char *text, uint64_t length) {
    (void)fprintf(stderr, "%.*s\n", static_cast<int>(length), text);
}
void *host_alloc(const berth_host *, uint64_t bytes, uint64_t) {
    return calloc(1, bytes);
}
void host_free(const berth_host *, void *memory) {
    free(memory);
}

// The host, and the device with a stream of its own.
void open_device() {
    int major = 0;
    host.size = sizeof host;
    host.log = host_log;
    host.log_enabled = host_logs;
    host.fail = host_fail;
    host.alloc = host_alloc;
    host.free = host_free;
    gpu.host = &host;
    must(cudaSetDevice(0) == cudaSuccess &&
             cudaStreamCreateWithFlags(&gpu.streams[0], cudaStreamNonBlocking) == cudaSuccess &&
             cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
             cudaDeviceGetAttribute(&gpu.multiprocessors[0], cudaDevAttrMultiProcessorCount, 0) ==
                 cudaSuccess,
         "a device");
    gpu.overlaps[0] = major >= 9 && cuda_code_is_90();
    gpu.groups[0] = major == 9 && cuda_code_has_groups();
    device.size = sizeof device;
    device.self = &gpu;
}

// ---- numbers ------------------------------------------------------------------------------------

__device__ inline uint32_t random_of(size_t number) {
    uint64_t x = (number + 1) * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
    return static_cast<uint32_t>(x >> 32);
}

// From 0 to below 1.
__device__ inline float unit_of(uint32_t bits) {
    return static_cast<float>(bits >> 8) / 16777216.0f;
}

// A code of 8 bits, of e4m3 none that is no number.
__device__ inline uint8_t code_of(uint32_t bits) {
    return static_cast<uint8_t>((bits & 0x7f) == 0x7f ? bits ^ 1 : bits);
}

// The largest distance of two rows of bf16, beside the second's largest element; NaN where one is.
inline double distance_of(const std::vector<uint16_t> &a, const std::vector<uint16_t> &b) {
    double largest = 0;
    double distance = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const uint32_t bits[2] = {uint32_t(a[i]) << 16, uint32_t(b[i]) << 16};
        float values[2];
        memcpy(values, bits, sizeof values);
        const double apart = fabs(double(values[0]) - double(values[1]));
        distance = apart > distance || apart != apart ? apart : distance;
        largest = std::max(largest, fabs(double(values[1])));
    }
    return distance / largest;
}

// Of two in the device's memory.
inline double distance_of(const void *a, const void *b, size_t count) {
    std::vector<uint16_t> host_a(count), host_b(count);
    must(cudaDeviceSynchronize() == cudaSuccess &&
             cudaMemcpy(host_a.data(), a, count * 2, cudaMemcpyDeviceToHost) == cudaSuccess &&
             cudaMemcpy(host_b.data(), b, count * 2, cudaMemcpyDeviceToHost) == cudaSuccess,
         "comparing");
    return distance_of(host_a, host_b);
}

// ---- timing -------------------------------------------------------------------------------------

// Seconds that the device takes for what `call` puts into its stream.
template <typename F> double seconds_between(F call) {
    cudaEvent_t begin;
    cudaEvent_t end;
    float milliseconds = 0;
    must(cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess, "events");
    (void)cudaEventRecord(begin, gpu.streams[0]);
    call();
    (void)cudaEventRecord(end, gpu.streams[0]);
    must(cudaEventSynchronize(end) == cudaSuccess, "timing");
    (void)cudaEventElapsedTime(&milliseconds, begin, end);
    (void)cudaEventDestroy(begin);
    (void)cudaEventDestroy(end);
    return milliseconds / 1e3;
}

// Of one of `runs` calls, queued one behind another: the middle one of `samples` samples, behind
// `warm` that do not count.
template <typename F> double middle_seconds(int runs, int samples, int warm, F call) {
    std::vector<double> all;
    for (int sample = 0; sample < warm + samples; ++sample) {
        const double seconds = seconds_between([&] {
            for (int run = 0; run < runs; ++run) {
                call(run);
            }
        });
        if (sample >= warm) {
            all.push_back(seconds);
        }
    }
    std::sort(all.begin(), all.end());
    return all[all.size() / 2] / runs;
}

} // namespace

#endif
