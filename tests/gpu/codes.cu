// SPDX-License-Identifier: Apache-2.0
// Products of quantized weights on platform-cuda at the sizes of Llama-3-8B: each kernel's results
// beside those of the readable one, then its time beside a copy within device memory, whose rate is
// the first argument in GB/s. Operands of a case rotate through more memory than four times the
// second cache. Prints one line a case; status 1 where results differ.
//
// `codes 0` only compares.
#include <cuda/codes/codes.h>
#include <cuda/product/product.h>
#include <gpu/codes.h>

#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

extern "C" {
extern const berth_op_impl berth_kernel_scaled_linear;
extern const berth_op_impl berth_kernel_scaled_linear_fast;
extern const berth_op_impl berth_kernel_packed_linear;
extern const berth_op_impl berth_kernel_packed_linear_fast;
int32_t cuda_code_is_90(void);
int32_t cuda_code_has_groups(void);
}

namespace {

constexpr size_t BEYOND_CACHE = size_t(256) << 20;
constexpr int MAX_ROWS = 8192;

berth_host host;
berth_gpu gpu;
berth_device device;
double copy_rate; // bytes a second
bool is_bad;

void must(bool is_true, const char *what) {
    if (!is_true) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
        exit(1);
    }
}

// ---- operands -----------------------------------------------------------------------------------

enum filling { CODES, ZEROS, SCALES, NUMBERS };

__device__ uint32_t random_of(size_t number) {
    uint64_t x = (number + 1) * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
    return static_cast<uint32_t>(x >> 32);
}

__global__ void fill_kernel(void *to, size_t count, berth_dtype dtype, filling what) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
         i += size_t(gridDim.x) * blockDim.x) {
        const uint32_t bits = random_of(i);
        const float unit = static_cast<float>(bits >> 8) / 16777216.0f;
        if (what == ZEROS) {
            static_cast<uint8_t *>(to)[i] = bits & 15;
        } else if (what == CODES) { // none of e4m3 that is no number
            static_cast<uint8_t *>(to)[i] =
                static_cast<uint8_t>((bits & 0x7f) == 0x7f ? bits ^ 1 : bits);
        } else {
            gpu_store_any(to, dtype, i, what == SCALES ? 0.001f + 0.01f * unit : unit - 0.5f);
        }
    }
}

struct operand {
    berth_tensor at;
    int64_t shape[2];
    int64_t strides[2];
    size_t bytes;
    size_t copies;

    operand(berth_dtype dtype, int64_t rows, int64_t width, filling what, size_t all_copies = 1)
        : shape{rows, width}, strides{width, 1}, copies(all_copies) {
        void *memory = nullptr;
        const size_t count = static_cast<size_t>(rows * width);
        bytes = count * BERTH_DTYPE_BITS(dtype) / 8;
        must(cudaMalloc(&memory, copies * bytes) == cudaSuccess, "memory");
        fill_kernel<<<1024, 256>>>(memory, copies * count, dtype, what);
        must(cudaDeviceSynchronize() == cudaSuccess, "filling");
        at = berth_tensor{
            sizeof(berth_tensor), memory, BERTH_MEMORY_CUDA, 0, 2, dtype, shape, strides, 0};
    }
    operand(const operand &) = delete;
    ~operand() {
        (void)cudaFree(at.data);
    }
    void turn(size_t run) {
        at.byte_offset = run % copies * bytes;
    }
};

// The largest distance beside the second's largest element; NaN where one is.
double distance_of(const operand &a, const operand &b) {
    const size_t count = a.bytes / 2;
    std::vector<uint16_t> left(count), right(count);
    double largest = 0;
    double distance = 0;
    must(cudaDeviceSynchronize() == cudaSuccess &&
             cudaMemcpy(left.data(), a.at.data, a.bytes, cudaMemcpyDeviceToHost) == cudaSuccess &&
             cudaMemcpy(right.data(), b.at.data, a.bytes, cudaMemcpyDeviceToHost) == cudaSuccess,
         "comparing");
    for (size_t i = 0; i < count; ++i) {
        const uint32_t bits[2] = {uint32_t(left[i]) << 16, uint32_t(right[i]) << 16};
        float values[2];
        memcpy(values, bits, sizeof values);
        const double apart = fabs(double(values[0]) - double(values[1]));
        distance = apart > distance || apart != apart ? apart : distance;
        largest = std::max(largest, fabs(double(values[1])));
    }
    return distance / largest;
}

// ---- cases --------------------------------------------------------------------------------------

struct shape_case {
    const char *name;
    int64_t outputs;
    int64_t depth;
};
constexpr shape_case SHAPES[] = {
    {"qkv",     6144,  4096 },
    {"o",       4096,  4096 },
    {"gate_up", 28672, 4096 },
    {"down",    4096,  14336},
};

enum kind { E4M3, I8, U4, U4_ZEROS };
constexpr const char *KINDS[] = {"e4m3", "i8", "u4 g128", "u4 g128, zeros"};

berth_value_type type_of(berth_dtype dtype, int64_t rows, int64_t width, bool is_batch) {
    berth_value_type type = {};
    type.size = sizeof type;
    type.dtype = dtype;
    type.ndim = 2;
    type.dims[0] = is_batch ? berth_dim{BERTH_SYMBOL_TOKENS, 1, 0, 1}
                            : berth_dim{BERTH_SYMBOL_NONE, 0, rows, 1};
    type.dims[1] = berth_dim{BERTH_SYMBOL_NONE, 0, width, 1};
    return type;
}

// One weight of one kind, with both implementations.
struct product {
    const shape_case &shape;
    kind of;
    bool is_scaled;
    const berth_op_impl *fast;
    const berth_op_impl *plain;
    void *with_fast = nullptr;
    void *with_plain = nullptr;
    operand weight, scale, zeros;
    operand workspace;

    product(const shape_case &given, kind k)
        : shape(given), of(k), is_scaled(k == E4M3 || k == I8),
          fast(is_scaled ? &berth_kernel_scaled_linear_fast : &berth_kernel_packed_linear_fast),
          plain(is_scaled ? &berth_kernel_scaled_linear : &berth_kernel_packed_linear),
          weight(weight_type(), given.outputs, width(), CODES, copies()),
          scale(is_scaled ? BERTH_DTYPE_F32 : BERTH_DTYPE_BF16, given.outputs, groups(), SCALES),
          zeros(BERTH_DTYPE_U8, given.outputs, groups(), ZEROS),
          workspace(BERTH_DTYPE_U8, 1, INT64_C(512) << 20, CODES) {
        create();
    }
    ~product() {
        fast->destroy(with_fast);
        plain->destroy(with_plain);
    }
    berth_dtype code_type() const {
        return of == E4M3 ? BERTH_DTYPE_F8_E4M3FN : of == I8 ? BERTH_DTYPE_I8 : BERTH_DTYPE_BF16;
    }
    berth_dtype weight_type() const {
        return is_scaled ? code_type() : BERTH_DTYPE_U8;
    }
    int64_t width() const {
        return is_scaled ? shape.depth : shape.depth / 2;
    }
    int64_t groups() const {
        return is_scaled ? 1 : shape.depth / 128;
    }
    size_t copies() const {
        return 1 + BEYOND_CACHE / static_cast<size_t>(shape.outputs * width());
    }
    void create() {
        const berth_value_type types[] = {
            type_of(code_type(), 0, shape.depth, true),
            type_of(BERTH_DTYPE_F32, 0, 1, true),
            type_of(weight_type(), shape.outputs, width(), false),
            type_of(scale.at.dtype, shape.outputs, groups(), false),
            type_of(BERTH_DTYPE_U8, shape.outputs, groups(), false),
        };
        const berth_value_type *scaled[] = {&types[0], &types[1], &types[2],
                                            &types[3], nullptr,   nullptr};
        const berth_value_type *packed[] = {&types[0], &types[2],
                                            &types[3], of == U4_ZEROS ? &types[4] : nullptr,
                                            nullptr,   nullptr};
        const int64_t group_shape[] = {1, is_scaled ? -1 : 128};
        berth_attribute attributes[3] = {};
        const berth_attribute *pointers[] = {&attributes[0], &attributes[1], &attributes[2]};
        const char *names[] = {"group_shape", "dtype", "code"};
        const char *texts[] = {"", "bf16", "u4"};
        for (int i = 0; i < 3; ++i) {
            attributes[i].size = sizeof attributes[i];
            attributes[i].name = names[i];
            attributes[i].kind = i == 0 ? BERTH_ATTRIBUTE_I64S : BERTH_ATTRIBUTE_STR;
            attributes[i].str = texts[i];
            attributes[i].i64s = group_shape;
            attributes[i].count = 2;
        }
        berth_op op = {};
        op.name = "bench";
        berth_op_site site = {};
        site.size = sizeof site;
        site.host = &host;
        site.op = &op;
        site.layer = "bench";
        site.inputs = is_scaled ? scaled : packed;
        site.input_count = 6;
        site.attributes = pointers;
        site.attribute_count = 3;
        site.parameter_mask = 0x3e;
        site.max_tokens = MAX_ROWS;
        site.max_sequences = 256;
        site.block_size = 16;
        must(fast->supports(&site, &device) == BERTH_OK &&
                 fast->create(&site, &device, &with_fast) == BERTH_OK &&
                 plain->create(&site, &device, &with_plain) == BERTH_OK,
             "creating");
        must(fast->workspace(with_fast, MAX_ROWS) <= workspace.bytes, "workspace");
    }
    void run(bool is_fast, operand *x, operand *x_scale, operand *y) {
        const berth_tensor *scaled[] = {&x->at,    &x_scale->at, &weight.at,
                                        &scale.at, nullptr,      nullptr};
        const berth_tensor *packed[] = {
            &x->at, &weight.at, &scale.at, of == U4_ZEROS ? &zeros.at : nullptr, nullptr, nullptr};
        berth_tensor *outputs[] = {&y->at};
        berth_op_args args = {};
        args.inputs = is_scaled ? scaled : packed;
        args.outputs = outputs;
        args.workspace = &workspace.at;
        must((is_fast ? fast->forward(with_fast, &args) : plain->forward(with_plain, &args)) ==
                 BERTH_OK,
             "forward");
    }
};

template <typename F> double seconds_of(F call) {
    constexpr int RUNS = 20;
    constexpr int SAMPLES = 7;
    cudaEvent_t begin;
    cudaEvent_t end;
    std::vector<float> samples;
    must(cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess, "events");
    for (int sample = 0; sample <= SAMPLES; ++sample) {
        float milliseconds = 0;
        (void)cudaEventRecord(begin, gpu.streams[0]);
        for (int run = 0; run < RUNS; ++run) {
            call(static_cast<size_t>(run));
        }
        (void)cudaEventRecord(end, gpu.streams[0]);
        must(cudaEventSynchronize(end) == cudaSuccess, "timing");
        (void)cudaEventElapsedTime(&milliseconds, begin, end);
        if (sample > 0) {
            samples.push_back(milliseconds);
        }
    }
    (void)cudaEventDestroy(begin);
    (void)cudaEventDestroy(end);
    std::sort(samples.begin(), samples.end());
    return samples[samples.size() / 2] / 1e3 / RUNS;
}

void measure(product *p, int64_t rows) {
    operand x(p->code_type(), rows, p->shape.depth, p->is_scaled ? CODES : NUMBERS);
    operand x_scale(BERTH_DTYPE_F32, rows, 1, SCALES);
    operand y(BERTH_DTYPE_BF16, rows, p->shape.outputs, NUMBERS);
    operand expected(BERTH_DTYPE_BF16, rows, p->shape.outputs, NUMBERS);
    double distance = -1;
    p->weight.turn(0);
    if (rows <= 512) {
        must(cudaMemset(y.at.data, 0xff, y.bytes) == cudaSuccess, "poison");
        p->run(true, &x, &x_scale, &y);
        p->run(false, &x, &x_scale, &expected);
        distance = distance_of(y, expected);
        is_bad = is_bad || !(distance < 1.0 / 128);
    }
    printf("%-16s %-8s %5lld rows  ", KINDS[p->of], p->shape.name, (long long)rows);
    if (copy_rate > 0) {
        const double seconds = seconds_of([&](size_t run) {
            p->weight.turn(run);
            p->run(true, &x, &x_scale, &y);
        });
        const double bytes =
            static_cast<double>(p->weight.bytes + p->scale.bytes + x.bytes + y.bytes);
        const double flops = 2.0 * (double)rows * (double)(p->shape.outputs * p->shape.depth);
        printf("%9.2f us  %7.1f GB/s  %5.1f %% of the copy  %7.1f TFLOP/s", seconds * 1e6,
               bytes / seconds / 1e9, 100 * bytes / seconds / copy_rate, flops / seconds / 1e12);
    }
    if (distance != -1) {
        printf("  apart %.5f%s", distance, distance < 1.0 / 128 ? "" : "  WRONG");
    }
    printf("\n");
    fflush(stdout);
}

void host_fail(const berth_host *, berth_status, const char *text, uint64_t length) {
    fprintf(stderr, "%.*s\n", (int)length, text);
}
void *host_alloc(const berth_host *, uint64_t bytes, uint64_t) {
    return calloc(1, bytes);
}
void host_free(const berth_host *, void *memory) {
    free(memory);
}

} // namespace

int main(int count, char **arguments) {
    int major = 0;
    copy_rate = (count > 1 ? atof(arguments[1]) : 0) * 1e9;
    host.size = sizeof host;
    host.fail = host_fail;
    host.alloc = host_alloc;
    host.free = host_free;
    gpu.host = &host;
    must(cudaStreamCreate(&gpu.streams[0]) == cudaSuccess &&
             cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
             cudaDeviceGetAttribute(&gpu.multiprocessors[0], cudaDevAttrMultiProcessorCount, 0) ==
                 cudaSuccess,
         "a device");
    gpu.overlaps[0] = major >= 9 && cuda_code_is_90();
    gpu.groups[0] = major == 9 && cuda_code_has_groups();
    device.size = sizeof device;
    device.self = &gpu;
    for (const shape_case &shape : SHAPES) {
        for (const kind of : {E4M3, I8, U4, U4_ZEROS}) {
            product p(shape, of);
            for (const int64_t rows : {1, 3, 8, 16, 64, 100, 512, MAX_ROWS}) {
                if (copy_rate > 0 || rows <= 512) {
                    measure(&p, rows);
                }
            }
        }
    }
    return is_bad;
}
