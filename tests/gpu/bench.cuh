// SPDX-License-Identifier: Apache-2.0
// What kernels.cu measures with: a host, memory that is filled, a clock, sites of ops.
#ifndef BERTH_TESTS_GPU_BENCH_CUH
#define BERTH_TESTS_GPU_BENCH_CUH

#include <gpu/launch.h>

#include "host.cuh"

#include <algorithm>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

namespace {

constexpr int SAMPLES = 15;
constexpr size_t GIB = size_t(1) << 30;
constexpr size_t BEYOND_CACHE = size_t(256) << 20;

// ---- a host -------------------------------------------------------------------------------------

berth_host host;
berth_gpu gpu;
berth_device device;
double copy_rate;    // bytes a second, read and written
double product_rate; // floating-point operations a second

void must(bool is_true, const char *what) {
    if (!is_true) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
        exit(1);
    }
}

// ---- memory -------------------------------------------------------------------------------------

__global__ void fill_kernel(uint16_t *to, size_t count, float scale) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
         i += size_t(gridDim.x) * blockDim.x) {
        uint64_t x = (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
        x = (x ^ x >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
        const float unit = static_cast<float>(x >> 40) / 16777216.0f - 0.5f;
        to[i] = gpu_to_bf16_bits(unit * scale);
    }
}

void *make(size_t bytes, float scale = 0.1f) {
    void *memory = nullptr;
    must(cudaMalloc(&memory, bytes) == cudaSuccess, "memory");
    fill_kernel<<<1024, 256>>>(static_cast<uint16_t *>(memory), bytes / 2, scale);
    must(cudaDeviceSynchronize() == cudaSuccess, "filling");
    return memory;
}

template <typename T> T *upload(const std::vector<T> &from) {
    void *memory = nullptr;
    must(cudaMalloc(&memory, from.size() * sizeof(T)) == cudaSuccess, "memory");
    must(cudaMemcpy(memory, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice) ==
             cudaSuccess,
         "upload");
    return static_cast<T *>(memory);
}

// The largest distance of two tensors of bf16, beside the second's largest element; NaN where one
// is.
double distance_of(const void *a, const void *b, size_t count) {
    std::vector<uint16_t> host_a(count), host_b(count);
    double largest = 0;
    double distance = 0;
    must(cudaDeviceSynchronize() == cudaSuccess &&
             cudaMemcpy(host_a.data(), a, count * 2, cudaMemcpyDeviceToHost) == cudaSuccess &&
             cudaMemcpy(host_b.data(), b, count * 2, cudaMemcpyDeviceToHost) == cudaSuccess,
         "comparing");
    for (size_t i = 0; i < count; ++i) {
        const uint32_t bits[2] = {uint32_t(host_a[i]) << 16, uint32_t(host_b[i]) << 16};
        float values[2];
        memcpy(values, bits, sizeof values);
        const double apart = fabs(double(values[0]) - double(values[1]));
        distance = apart > distance || apart != apart ? apart : distance;
        largest = std::max(largest, fabs(double(values[1])));
    }
    return distance / largest;
}

// A tensor with its shape.
struct tensor {
    berth_tensor at;
    int64_t shape[4];
    int64_t strides[4];
};

void describe(tensor *out, void *data, berth_dtype dtype, std::vector<int64_t> shape) {
    int64_t stride = 1;
    for (size_t i = shape.size(); i-- > 0;) {
        out->shape[i] = shape[i];
        out->strides[i] = stride;
        stride *= shape[i];
    }
    out->at = berth_tensor{
        sizeof(berth_tensor), data, BERTH_MEMORY_CUDA, 0, (int32_t)shape.size(), dtype, out->shape,
        out->strides,         0};
}

// ---- timing -------------------------------------------------------------------------------------

// Median seconds of one of `runs` calls, queued one behind another.
template <typename F> double seconds_of(int runs, F call, int wanted = SAMPLES) {
    cudaEvent_t begin;
    cudaEvent_t end;
    std::vector<float> samples;
    must(cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess, "events");
    for (int sample = 0; sample < wanted + 2; ++sample) {
        float milliseconds = 0;
        (void)cudaEventRecord(begin, gpu.streams[0]);
        for (int run = 0; run < runs; ++run) {
            call(run);
        }
        (void)cudaEventRecord(end, gpu.streams[0]);
        must(cudaEventSynchronize(end) == cudaSuccess, "timing");
        (void)cudaEventElapsedTime(&milliseconds, begin, end);
        if (sample >= 2) {
            samples.push_back(milliseconds);
        }
    }
    (void)cudaEventDestroy(begin);
    (void)cudaEventDestroy(end);
    std::sort(samples.begin(), samples.end());
    return samples[samples.size() / 2] / 1e3 / runs;
}

void print_bytes(const char *name, double seconds, double bytes) {
    printf("%-44s %10.2f us  %8.1f GB/s     %5.1f %% of the copy\n", name, seconds * 1e6,
           bytes / seconds / 1e9, 100 * bytes / seconds / copy_rate);
}

void print_flops(const char *name, double seconds, double flops) {
    printf("%-44s %10.2f us  %8.1f TFLOP/s  %5.1f %% of the product\n", name, seconds * 1e6,
           flops / seconds / 1e12, 100 * flops / seconds / product_rate);
}

// ---- sites --------------------------------------------------------------------------------------

berth_value_type type_of(berth_dtype dtype, std::vector<int64_t> shape, uint64_t symbol) {
    berth_value_type type = {};
    type.size = sizeof type;
    type.dtype = dtype;
    type.ndim = (uint32_t)shape.size();
    for (size_t i = 0; i < shape.size(); ++i) {
        type.dims[i] = berth_dim{BERTH_SYMBOL_NONE, 0, shape[i], 1};
    }
    if (symbol) {
        type.dims[0] = berth_dim{symbol, 1, 0, 1};
    }
    return type;
}

struct site_of {
    berth_op op;
    berth_op_site site;
    std::vector<berth_value_type> types;
    std::vector<const berth_value_type *> inputs;
    std::vector<berth_attribute> attributes;
    std::vector<const berth_attribute *> pointers;

    void number(const char *name, uint64_t kind, int64_t i64, double f64, const char *text) {
        berth_attribute attribute = {};
        attribute.size = sizeof attribute;
        attribute.name = name;
        attribute.kind = kind;
        attribute.i64 = i64;
        attribute.f64 = f64;
        attribute.str = text;
        attributes.push_back(attribute);
    }
    const berth_op_site *finish(int64_t tokens, int64_t sequences) {
        op = berth_op{};
        op.name = "bench";
        for (const berth_value_type &type : types) {
            inputs.push_back(type.ndim ? &type : nullptr);
        }
        for (const berth_attribute &attribute : attributes) {
            pointers.push_back(&attribute);
        }
        site = berth_op_site{};
        site.size = sizeof site;
        site.host = &host;
        site.op = &op;
        site.layer = "bench";
        site.inputs = inputs.data();
        site.input_count = inputs.size();
        site.attributes = pointers.data();
        site.attribute_count = pointers.size();
        site.parameter_mask = 2;
        site.max_tokens = (uint64_t)tokens;
        site.max_sequences = (uint64_t)sequences;
        site.block_size = 16;
        return &site;
    }
};

} // namespace

#endif
