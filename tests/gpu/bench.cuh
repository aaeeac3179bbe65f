// SPDX-License-Identifier: Apache-2.0
// What kernels.cu and gated.cu measure with: memory that is filled, ceilings, figures beside these,
// sites of ops.
#ifndef BERTH_TESTS_GPU_BENCH_CUH
#define BERTH_TESTS_GPU_BENCH_CUH

#include <cuda/product/product.h>

#include "host.cuh"

namespace {

constexpr int SAMPLES = 15;
constexpr size_t GIB = size_t(1) << 30;
constexpr size_t BEYOND_CACHE = size_t(256) << 20;

double copy_rate;    // bytes a second, read and written
double product_rate; // floating-point operations a second

// ---- memory -------------------------------------------------------------------------------------

__global__ void fill_kernel(uint16_t *to, size_t count, float scale) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
         i += size_t(gridDim.x) * blockDim.x) {
        to[i] = gpu_to_bf16_bits((unit_of(random_of(i)) - 0.5f) * scale);
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

// ---- figures ------------------------------------------------------------------------------------

// Median seconds of one of `runs` calls, queued one behind another.
template <typename F> double seconds_of(int runs, F call, int wanted = SAMPLES) {
    return middle_seconds(runs, wanted, 2, call);
}

void measure_ceilings() {
    void *from = make(2 * GIB);
    void *to = make(2 * GIB);
    copy_rate =
        4.0 * GIB / seconds_of(4, [&](int) {
            (void)cudaMemcpyAsync(to, from, 2 * GIB, cudaMemcpyDeviceToDevice, gpu.streams[0]);
        });
    printf("%-44s %27.1f GB/s\n", "copy of 2 GiB, bytes read and written", copy_rate / 1e9);
    cuda_product p = {};
    const cuda_lt *lt = nullptr;
    gpu_op op = {&host, &gpu, 0, gpu.streams[0]};
    p.rows = p.outputs = p.depth = 8192;
    p.x_gap = p.y_gap = 8192;
    p.dtype = BERTH_DTYPE_BF16;
    must(cuda_lt_open(&op, p, 8192, &lt) == BERTH_OK, "cuBLASLt");
    p.x = from;
    p.weight = static_cast<char *>(from) + GIB / 2;
    p.y = to;
    product_rate = 2.0 * 8192 * 8192 * 8192 / seconds_of(10, [&](int) {
                       (void)cuda_lt_run(&op, lt, p, static_cast<char *>(to) + GIB);
                   });
    printf("%-44s %27.1f TFLOP/s\n", "product of 8192 by 8192 by 8192, bf16", product_rate / 1e12);
    (void)cudaFree(from);
    (void)cudaFree(to);
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
