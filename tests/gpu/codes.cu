// SPDX-License-Identifier: Apache-2.0
// Products of quantized weights on platform-cuda at the sizes of Llama-3-8B: each kernel's results
// beside those of the readable one, then its time beside a copy within device memory, whose rate is
// the first argument in GB/s. Operands of a case rotate through more memory than four times the
// second cache. Prints one line a case; status 1 where results differ.
//
// `codes 0` only compares. A second argument: only kinds of codes whose names begin so.
#include <cuda/codes/codes.h>
#include <cuda/product/product.h>
#include <gpu/codes.h>

#include "host.cuh"

#include <cublasLt.h>

#include <algorithm>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

extern "C" {
extern const berth_op_impl berth_kernel_scaled_linear;
extern const berth_op_impl berth_kernel_scaled_linear_fast;
extern const berth_op_impl berth_kernel_packed_linear;
extern const berth_op_impl berth_kernel_packed_linear_fast;
}

namespace {

constexpr size_t BEYOND_CACHE = size_t(256) << 20;
constexpr int MAX_ROWS = 8192;
constexpr int COMPARED_ROWS = 512;

double copy_rate; // bytes a second
bool is_bad;

// ---- operands -----------------------------------------------------------------------------------

enum filling { CODES, ZEROS, SCALES, NUMBERS };

__global__ void fill_kernel(void *to, size_t count, berth_dtype dtype, filling what) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
         i += size_t(gridDim.x) * blockDim.x) {
        const uint32_t bits = random_of(i);
        const float unit = unit_of(bits);
        if (what == ZEROS) {
            static_cast<uint8_t *>(to)[i] = bits & 15;
        } else if (what == CODES) {
            static_cast<uint8_t *>(to)[i] = code_of(bits);
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
    // Only its rows from `first` on; 0: all of them again.
    void keep_from(int64_t first) {
        const uint64_t row = static_cast<uint64_t>(strides[0]) * BERTH_DTYPE_BITS(at.dtype) / 8;
        shape[0] = static_cast<int64_t>(bytes / row) - first;
        at.byte_offset = static_cast<uint64_t>(first) * row;
    }
};

// Of rows of 16-bit elements, from `first` on.
double distance_of(const operand &a, const operand &b, int64_t first) {
    const size_t before = static_cast<size_t>(first * a.strides[0]);
    return distance_of(static_cast<const uint16_t *>(a.at.data) + before,
                       static_cast<const uint16_t *>(b.at.data) + before, a.bytes / 2 - before);
}

bool is_same(const operand &a, const operand &b, int64_t first) {
    const size_t before = static_cast<size_t>(first * a.strides[0]) * 2;
    std::vector<char> left(a.bytes - before), right(a.bytes - before);
    must(cudaDeviceSynchronize() == cudaSuccess &&
             cudaMemcpy(left.data(), static_cast<const char *>(a.at.data) + before, left.size(),
                        cudaMemcpyDeviceToHost) == cudaSuccess &&
             cudaMemcpy(right.data(), static_cast<const char *>(b.at.data) + before, right.size(),
                        cudaMemcpyDeviceToHost) == cudaSuccess,
         "comparing");
    return left == right;
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
    operand own_weight, own_scale, own_zeros; // as `fast` keeps them
    operand workspace;

    product(const shape_case &given, kind k)
        : shape(given), of(k), is_scaled(k == E4M3 || k == I8),
          fast(is_scaled ? &berth_kernel_scaled_linear_fast : &berth_kernel_packed_linear_fast),
          plain(is_scaled ? &berth_kernel_scaled_linear : &berth_kernel_packed_linear),
          weight(weight_type(), given.outputs, width(), CODES, copies()),
          scale(is_scaled ? BERTH_DTYPE_F32 : BERTH_DTYPE_BF16, given.outputs, groups(), SCALES),
          zeros(BERTH_DTYPE_U8, given.outputs, groups(), ZEROS),
          own_weight(weight_type(), given.outputs, width(), ZEROS, copies()),
          own_scale(scale.at.dtype, given.outputs, groups(), SCALES),
          own_zeros(BERTH_DTYPE_U8, given.outputs, groups(), CODES),
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
        const berth_value_type *packed[] = {
            &types[0], &types[2], &types[3], of == U4_ZEROS ? &types[4] : nullptr,
            nullptr,   nullptr,   nullptr};
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
        site.input_count = is_scaled ? 6 : 7;
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
        const uint64_t first = is_scaled ? 2 : 1; // of the site's inputs
        keep(site, first, weight, &own_weight);
        keep(site, first + 1, scale, &own_scale);
        if (of == U4_ZEROS) {
            keep(site, first + 2, zeros, &own_zeros);
        }
    }
    // Every copy of an operand as `fast` wants it.
    void keep(const berth_op_site &site, uint64_t input, const operand &from, operand *to) {
        const bool is_packed = fast->packed_bytes && fast->packed_bytes(&site, input) > 0;
        std::vector<char> stored(from.bytes);
        std::vector<char> packed(to->bytes);
        berth_tensor source = from.at;
        berth_tensor destination = to->at;
        source.data = stored.data();
        destination.data = packed.data();
        for (size_t i = 0; i < from.copies; ++i) {
            const char *one = static_cast<const char *>(from.at.data) + i * from.bytes;
            must(cudaMemcpy(stored.data(), one, from.bytes, cudaMemcpyDeviceToHost) == cudaSuccess,
                 "reading a weight");
            must(!is_packed || (fast->packed_bytes(&site, input) == to->bytes &&
                                fast->pack(&site, input, &source, &destination) == BERTH_OK),
                 "packing");
            must(cudaMemcpy(static_cast<char *>(to->at.data) + i * to->bytes,
                            is_packed ? packed.data() : stored.data(), to->bytes,
                            cudaMemcpyHostToDevice) == cudaSuccess,
                 "writing a weight");
        }
    }
    void run(bool is_fast, operand *x, operand *x_scale, operand *y) {
        const berth_tensor *w = is_fast ? &own_weight.at : &weight.at;
        const berth_tensor *s = is_fast ? &own_scale.at : &scale.at;
        const berth_tensor *z = is_fast ? &own_zeros.at : &zeros.at;
        const berth_tensor *scaled[] = {&x->at, &x_scale->at, w, s, nullptr, nullptr};
        const berth_tensor *packed[] = {&x->at,  w,       s,      of == U4_ZEROS ? z : nullptr,
                                        nullptr, nullptr, nullptr};
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

// The middle one of several samples of so many runs.
template <typename F> double seconds_of(F call, int runs = 20) {
    return middle_seconds(runs, 7, 1, call);
}

// ---- cuBLASLt -----------------------------------------------------------------------------------

// What it makes of a product of codes of e4m3 with a scale for every row and output: the best of
// the algorithms that it proposes, each timed.
constexpr int PROPOSALS = 32;
constexpr size_t RIVAL_WORKSPACE = size_t(64) << 20;

struct rival_operands {
    const void *x;
    const void *weight;
    const float *x_scales;
    const float *scales;
    void *y;         // bf16
    void *workspace; // RIVAL_WORKSPACE bytes
    int64_t rows, outputs, depth;
};

// The library and what is made of it once; `is_there` 0: none.
struct rival {
    void *library = nullptr;
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    bool is_there = false;

    template <typename F> F *find(F *, const char *name) const {
        return reinterpret_cast<F *>(dlsym(library, name));
    }
#define RIVAL(name) find(::name, #name)

    rival() {
        char name[64];
        (void)snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        const size_t most = RIVAL_WORKSPACE;
        is_there = library && RIVAL(cublasLtCreate)(&handle) == CUBLAS_STATUS_SUCCESS &&
                   RIVAL(cublasLtMatmulPreferenceCreate)(&preference) == CUBLAS_STATUS_SUCCESS &&
                   RIVAL(cublasLtMatmulPreferenceSetAttribute)(
                       preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most) ==
                       CUBLAS_STATUS_SUCCESS;
    }

    // Seconds of the best; negative where none runs. `time` calls what it is given several times,
    // with the number of the run, and says how long one took; `weight_of` that run's weight. FAST:
    // sums as coarse as the tensor core likes them.
    template <typename T, typename W>
    double best(const rival_operands &of, int8_t is_fast, cudaStream_t stream, T time,
                W weight_of) const {
        cublasLtMatmulDesc_t description = nullptr;
        cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
        const auto set = RIVAL(cublasLtMatmulDescSetAttribute);
        const cublasOperation_t turned = CUBLAS_OP_T;
        const int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
        const uint64_t rows = static_cast<uint64_t>(of.rows);
        const uint64_t outputs = static_cast<uint64_t>(of.outputs);
        const uint64_t depth = static_cast<uint64_t>(of.depth);
        double least = -1;
        (void)RIVAL(cublasLtMatmulDescCreate)(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
        (void)set(description, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned);
        (void)set(description, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &is_fast, sizeof is_fast);
        (void)set(description, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &mode, sizeof mode);
        (void)set(description, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &mode, sizeof mode);
        (void)set(description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &of.scales, sizeof of.scales);
        (void)set(description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &of.x_scales,
                  sizeof of.x_scales);
        const auto lay_out = RIVAL(cublasLtMatrixLayoutCreate);
        (void)lay_out(&a, CUDA_R_8F_E4M3, depth, outputs, of.depth);
        (void)lay_out(&b, CUDA_R_8F_E4M3, depth, rows, of.depth);
        (void)lay_out(&d, CUDA_R_16BF, outputs, rows, of.outputs);
        cublasLtMatmulHeuristicResult_t found[PROPOSALS];
        int count = 0;
        (void)RIVAL(cublasLtMatmulAlgoGetHeuristic)(handle, description, a, b, d, d, preference,
                                                    PROPOSALS, found, &count);
        for (int i = 0; i < count; ++i) {
            const float one = 1;
            const float none = 0;
            cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
            const double seconds = time([&](size_t run) {
                const cublasStatus_t its = RIVAL(cublasLtMatmul)(
                    handle, description, &one, weight_of(run), a, of.x, b, &none, of.y, d, of.y, d,
                    &found[i].algo, of.workspace, RIVAL_WORKSPACE, stream);
                status = status == CUBLAS_STATUS_SUCCESS ? its : status;
            });
            least =
                status == CUBLAS_STATUS_SUCCESS && (least < 0 || seconds < least) ? seconds : least;
        }
        (void)RIVAL(cublasLtMatrixLayoutDestroy)(a);
        (void)RIVAL(cublasLtMatrixLayoutDestroy)(b);
        (void)RIVAL(cublasLtMatrixLayoutDestroy)(d);
        (void)RIVAL(cublasLtMatmulDescDestroy)(description);
        return least;
    }
};

// Beside the best of cuBLASLt's algorithms at the same shape, whose sums are as exact as ours or as
// coarse as they come; from 17 rows on, where it is a rival.
void compare(const rival &with, product *p, int64_t rows, double seconds) {
    operand x(p->code_type(), rows, p->shape.depth, CODES);
    operand x_scale(BERTH_DTYPE_F32, rows, 1, SCALES);
    operand y(BERTH_DTYPE_BF16, rows, p->shape.outputs, NUMBERS);
    const rival_operands of = {x.at.data,
                               p->own_weight.at.data,
                               static_cast<const float *>(x_scale.at.data),
                               static_cast<const float *>(p->own_scale.at.data),
                               y.at.data,
                               p->workspace.at.data,
                               rows,
                               p->shape.outputs,
                               p->shape.depth};
    const auto weight_of = [&](size_t run) {
        return static_cast<const char *>(p->own_weight.at.data) +
               run % p->own_weight.copies * p->own_weight.bytes;
    };
    for (const int8_t is_fast : {int8_t{0}, int8_t{1}}) {
        const double best = with.best(
            of, is_fast, gpu.streams[0],
            [&](auto call) { return seconds_of(call, rows > 512 ? 3 : 20); }, weight_of);
        if (best > 0) {
            printf("%-16s %-8s %5lld rows  %9.2f us of cuBLASLt's best%s: %5.1f %% of it\n",
                   KINDS[p->of], p->shape.name, (long long)rows, best * 1e6,
                   is_fast ? ", sums coarse" : "", 100 * best / seconds);
        }
    }
    fflush(stdout);
}

// How far the results of the last COMPARED_ROWS are from the readable kernel's; 1 where a second
// run has others.
double check(product *p, operand *x, operand *x_scale, operand *y) {
    const int64_t rows = x->shape[0];
    const int64_t first = std::max<int64_t>(rows - COMPARED_ROWS, 0);
    operand expected(BERTH_DTYPE_BF16, rows, p->shape.outputs, NUMBERS);
    p->weight.turn(1); // of several, so that their distance counts, too
    p->own_weight.turn(1);
    must(cudaMemset(y->at.data, 0xff, y->bytes) == cudaSuccess, "poison");
    p->run(true, x, x_scale, y);
    for (operand *one : {x, x_scale, &expected}) {
        one->keep_from(first);
    }
    p->run(false, x, x_scale, &expected);
    for (operand *one : {x, x_scale, &expected}) {
        one->keep_from(0);
    }
    const double distance = distance_of(*y, expected, first);
    must(cudaMemcpy(expected.at.data, y->at.data, y->bytes, cudaMemcpyDeviceToDevice) ==
             cudaSuccess,
         "keeping");
    p->run(true, x, x_scale, y);
    return is_same(*y, expected, first) ? distance : 1;
}

// Seconds; 0 where it is not timed.
double measure(product *p, int64_t rows) {
    double seconds = 0;
    operand x(p->code_type(), rows, p->shape.depth, p->is_scaled ? CODES : NUMBERS);
    operand x_scale(BERTH_DTYPE_F32, rows, 1, SCALES);
    operand y(BERTH_DTYPE_BF16, rows, p->shape.outputs, NUMBERS);
    const double distance = check(p, &x, &x_scale, &y);
    is_bad = is_bad || !(distance < 1.0 / 128);
    printf("%-16s %-8s %5lld rows  ", KINDS[p->of], p->shape.name, (long long)rows);
    if (copy_rate > 0) {
        seconds = seconds_of([&](size_t run) {
            p->own_weight.turn(run);
            p->run(true, &x, &x_scale, &y);
        });
        const double bytes =
            static_cast<double>(p->weight.bytes + p->scale.bytes + x.bytes + y.bytes);
        const double flops = 2.0 * (double)rows * (double)(p->shape.outputs * p->shape.depth);
        printf("%9.2f us  %7.1f GB/s  %5.1f %% of the copy  %7.1f TFLOP/s", seconds * 1e6,
               bytes / seconds / 1e9, 100 * bytes / seconds / copy_rate, flops / seconds / 1e12);
    }
    printf("  apart %.5f%s\n", distance, distance < 1.0 / 128 ? "" : "  WRONG");
    fflush(stdout);
    return seconds;
}

} // namespace

int main(int count, char **arguments) {
    copy_rate = (count > 1 ? atof(arguments[1]) : 0) * 1e9;
    open_device();
    const rival library;
    for (const shape_case &shape : SHAPES) {
        for (const kind of : {E4M3, I8, U4, U4_ZEROS}) {
            if (count > 2 && strncmp(KINDS[of], arguments[2], strlen(arguments[2])) != 0) {
                continue;
            }
            product p(shape, of);
            for (const int64_t rows :
                 {1, 2, 3, 8, 9, 16, 24, 32, 48, 64, 100, 128, 192, 512, 3001, MAX_ROWS}) {
                const double seconds = measure(&p, rows);
                if (of == E4M3 && rows > 16 && seconds > 0 && library.is_there) {
                    compare(library, &p, rows, seconds);
                }
            }
        }
    }
    return is_bad;
}
