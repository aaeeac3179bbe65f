// SPDX-License-Identifier: Apache-2.0
// quant_fp8 on a GPU. Scales made on the way, one a token or one for every group of a token's
// columns: a warp has a group; wide ones a block. One for a whole tensor: the largest magnitudes of
// the rows first. Given ones for blocks of x: an element a thread. One a token, or one given for
// all, is the common case and goes by rows (quant_rows.h). Codes and scales are the reference's
// bits: every step is one correctly rounded operation.
#include "quant_rows.h"

#include <fp8.h>

namespace {

enum { X, SCALE, SCALE_UB };
enum { Q, SCALE_OUT };

constexpr int MAX_THREADS = 256;

struct quantiser : gpu_op {
    int64_t group; // columns that share a scale, 0: all
    int is_given;
    int is_per_tensor;
    berth_dim rows; // of x, where they have one dimension before them
    int is_column_major;
    int is_power_of_two;
};

struct operands {
    gpu_rows x;
    gpu_rows q;
    gpu_rows scales;
    const float *bound; // NULL: none
    int64_t width;
    int64_t group;
    int is_column_major;
    int is_power_of_two;
    int multiplies; // by the reciprocal, instead of dividing
};

__device__ float scale_of(const operands &all, float largest) {
    if (all.bound && largest > *all.bound) {
        largest = *all.bound;
    }
    const float scale = gpu_div_rn(largest, BERTH_F8_MAX);
    const float least = scale < BERTH_F8_LEAST_SCALE ? BERTH_F8_LEAST_SCALE : scale;
    return all.is_power_of_two ? exp2f(ceilf(log2f(least))) : least;
}

struct of_token {
    static constexpr bool IS_GIVEN = false;
    operands all;
    __device__ float magnitude(float value) const {
        return fabsf(value);
    }
    __device__ float scale(float largest) const {
        return scale_of(all, largest);
    }
    __device__ float factor(float largest) const {
        return gpu_div_rn(1.0f, scale_of(all, largest));
    }
    __device__ uint8_t code(float value, float factor) const {
        return gpu_to_f8_bits(gpu_mul_rn(value, factor));
    }
    __device__ uint16_t pair(float low, float high, float factor) const {
        return gpu_to_f8_pair(gpu_mul_rn(low, factor), gpu_mul_rn(high, factor));
    }
};

struct as_given {
    static constexpr bool IS_GIVEN = true;
    const float *given;
    __device__ float magnitude(float) const {
        return 0;
    }
    __device__ float scale(float) const {
        return *given;
    }
    __device__ float factor(float) const {
        return gpu_div_rn(1.0f, *given);
    }
    __device__ uint8_t code(float value, float factor) const {
        return gpu_to_f8_bits(gpu_mul_rn(value, factor));
    }
    __device__ uint16_t pair(float low, float high, float factor) const {
        return gpu_to_f8_pair(gpu_mul_rn(low, factor), gpu_mul_rn(high, factor));
    }
};

// The largest magnitude of columns [begin, end) over all threads of the block.
template <typename T>
__device__ float largest_of(const T *x, int64_t begin, int64_t end, float *room) {
    float largest = 0;
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
        const float size = fabsf(gpu_float(x[i]));
        largest = size != size || size > largest ? size : largest;
    }
    return gpu_block_max(largest, room);
}

// blockIdx.x: the token; blockIdx.y: the group.
template <typename T> __global__ void quantise_kernel(operands all) {
    __shared__ float room[MAX_THREADS / 32];
    const int64_t begin = blockIdx.y * all.group;
    const int64_t end = begin + all.group < all.width ? begin + all.group : all.width;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const T *x = gpu_row<const T>(all.x, blockIdx.x);
    uint8_t *q = gpu_row<uint8_t>(all.q, blockIdx.x);
    const float scale = scale_of(all, largest_of(x, begin, end, room));
    const float factor = gpu_div_rn(1.0f, scale);
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
        const float value = gpu_float(x[i]);
        q[i] = gpu_to_f8_bits(all.multiplies ? value * factor : gpu_div_rn(value, scale));
    }
    if (threadIdx.x == 0) {
        float *to = all.is_column_major ? gpu_row<float>(all.scales, blockIdx.y) + blockIdx.x
                                        : gpu_row<float>(all.scales, blockIdx.x) + blockIdx.y;
        *to = scale;
    }
}

// ---- one scale for all, given scales ------------------------------------------------------------

// A block a row.
template <typename T> __global__ void rows_kernel(operands all, float *largest) {
    __shared__ float room[MAX_THREADS / 32];
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const T *x = gpu_row<const T>(all.x, blockIdx.x);
    const float its = largest_of(x, 0, all.width, room);
    if (threadIdx.x == 0) {
        largest[blockIdx.x] = its;
    }
}

// One block: the scale of all rows.
__global__ void tensor_kernel(operands all, const float *largest, int64_t rows) {
    __shared__ float room[MAX_THREADS / 32];
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const float its = largest_of(largest, 0, rows, room);
    if (threadIdx.x == 0) {
        *gpu_row<float>(all.scales, 0) = scale_of(all, its);
    }
}

// Scales for blocks of x: `across` of them side by side, each for so many columns and rows.
struct blocks {
    const float *scales;
    int64_t across;
    int64_t columns;
    int64_t height;
    int64_t rows; // of x; those of q behind them become zero
};

// blockIdx.x: which columns; blockIdx.y: which rows of q.
template <typename T> __global__ void blocks_kernel(operands all, blocks given, int64_t rows) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * MAX_THREADS + threadIdx.x;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    for (int64_t row = blockIdx.y; row < rows && i < all.width; row += gridDim.y) {
        uint8_t code = 0;
        if (row < given.rows) {
            const float scale = given.scales[row / given.height * given.across + i / given.columns];
            const float value = gpu_float(gpu_row<const T>(all.x, row)[i]);
            code = gpu_to_f8_bits(gpu_mul_rn(value, gpu_div_rn(1.0f, scale)));
        }
        gpu_row<uint8_t>(all.q, row)[i] = code;
    }
}

__global__ void copy_kernel(const float *from, float *to, int64_t count) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * MAX_THREADS + threadIdx.x; i < count;
         i += static_cast<int64_t>(gridDim.x) * MAX_THREADS) {
        to[i] = from[i];
    }
}

// ---- the host's side ----------------------------------------------------------------------------

berth_status supports(const berth_op_site *site, const berth_device *) {
    if (berth_site_attribute(site, "column_major_scales")->i64 && site->inputs[X]->ndim != 2) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "scales by columns only of 2 dimensions");
    }
    return gpu_check_rank(site, X);
}

// The rows of x as a dimension; at most one of its dimensions follows the batch.
berth_dim row_dim(const berth_value_type *x) {
    berth_dim rows = BERTH_DIM_CONST(1);
    for (uint32_t i = 0; i + 1 < x->ndim; ++i) {
        const berth_dim dim = x->dims[i];
        const int64_t count = rows.symbol == BERTH_SYMBOL_NONE ? rows.b : dim.b;
        rows = rows.symbol == BERTH_SYMBOL_NONE ? dim : rows;
        rows.a *= count;
        rows.b *= count;
    }
    return rows;
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<quantiser>(site, device, out_self);
    if (status == BERTH_OK) {
        quantiser *self = static_cast<quantiser *>(*out_self);
        const int64_t columns = berth_site_attribute(site, "group_shape")->i64s[1];
        self->group = columns > 0 ? columns : 0;
        self->is_given = berth_site_attribute(site, "static")->i64 != 0;
        self->is_per_tensor =
            !self->is_given && berth_site_attribute(site, "group_shape")->i64s[0] == -1;
        self->rows = row_dim(site->inputs[X]);
        self->is_column_major = berth_site_attribute(site, "column_major_scales")->i64 != 0;
        self->is_power_of_two = berth_site_attribute(site, "use_ue8m0")->i64 != 0;
    }
    return status;
}

// The largest magnitudes of rows, where there is one scale for all.
uint64_t workspace(void *self, uint64_t tokens) {
    const quantiser *op = static_cast<const quantiser *>(self);
    return op->is_per_tensor ? (gpu_extent(op->rows, tokens) + 1) * sizeof(float) : 0;
}

operands operands_of(const quantiser *op, const berth_op_args *args) {
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *bound = args->inputs[SCALE_UB];
    operands all = {};
    all.x = gpu_rows_of(x);
    all.q = gpu_rows_of(args->outputs[Q]);
    all.scales = gpu_rows_of(args->outputs[SCALE_OUT]);
    all.bound = bound ? static_cast<const float *>(berth_gpu_data(bound)) : nullptr;
    all.width = x->shape[x->ndim - 1];
    all.group = op->group > 0 ? op->group : all.width;
    all.is_column_major = op->group > 0 && op->is_column_major;
    all.is_power_of_two = op->group > 0 && op->is_power_of_two;
    all.multiplies = op->group == 0;
    return all;
}

template <typename T>
berth_status run_blocks(const quantiser *op, const berth_op_args *args, const operands &all,
                        const blocks &given) {
    constexpr int64_t MOST = 65535; // of a grid's second dimension
    const int64_t rows = berth_tensor_row_count(args->outputs[Q]);
    const gpu_grid grid = {
        dim3(gpu_ceil(all.width, MAX_THREADS), static_cast<unsigned>(rows < MOST ? rows : MOST)),
        dim3(MAX_THREADS), 0};
    return rows > 0 ? gpu_run(op, "quant_fp8", grid, blocks_kernel<T>, all, given, rows) : BERTH_OK;
}

// One scale for all: it is made, then used as if it had been given.
template <typename T>
berth_status run_tensor(const quantiser *op, const berth_op_args *args, const operands &all) {
    float *largest = static_cast<float *>(berth_gpu_data(args->workspace));
    const int64_t rows = berth_tensor_row_count(args->inputs[X]);
    const blocks one = {reinterpret_cast<const float *>(all.scales.data), 1, all.width, rows, rows};
    const gpu_grid each = {dim3(static_cast<unsigned>(rows)), dim3(MAX_THREADS), 0};
    const gpu_grid whole = {dim3(1), dim3(MAX_THREADS), 0};
    berth_status status = gpu_run(op, "quant_fp8's rows", each, rows_kernel<T>, all, largest);
    status = status == BERTH_OK ? gpu_run(op, "quant_fp8's scale", whole, tensor_kernel, all,
                                          static_cast<const float *>(largest), rows)
                                : status;
    return status == BERTH_OK ? run_blocks<T>(op, args, all, one) : status;
}

template <typename T>
berth_status run_given(const quantiser *op, const berth_op_args *args, const operands &all) {
    const berth_tensor *out = args->outputs[SCALE_OUT];
    const int64_t rows = berth_tensor_row_count(args->inputs[X]);
    const int64_t down = out->ndim < 2 || out->shape[0] == 0 ? 1 : out->shape[0];
    const int64_t across = out->ndim < 2 ? 1 : out->shape[1];
    const int64_t count =
        berth_tensor_row_count(out) * out->shape[out->ndim > 0 ? out->ndim - 1 : 0];
    const float *from = static_cast<const float *>(berth_gpu_data(args->inputs[SCALE]));
    const blocks given = {from, across, all.width / across, (rows + down - 1) / down, rows};
    const gpu_grid grid = {dim3(gpu_ceil(count, MAX_THREADS)), dim3(MAX_THREADS), 0};
    const berth_status status = gpu_run(op, "quant_fp8's scales", grid, copy_kernel, from,
                                        static_cast<float *>(berth_gpu_data(out)), count);
    return status == BERTH_OK ? run_blocks<T>(op, args, all, given) : status;
}

// A scale for each group of each row; what q has behind the rows of x becomes zero.
template <typename T>
berth_status run_groups(const quantiser *op, const berth_op_args *args, const operands &all) {
    const int64_t rows = berth_tensor_row_count(args->inputs[X]);
    const gpu_grid grid = {dim3(static_cast<unsigned>(rows), gpu_ceil(all.width, all.group)),
                           dim3(all.group <= 256 ? 32 : MAX_THREADS), 0};
    const int64_t padded = berth_tensor_row_count(args->outputs[Q]);
    operands behind = all;
    behind.q.data += rows * all.q.outer_gap;
    const gpu_grid zeros = {
        dim3(gpu_ceil(all.width, MAX_THREADS), static_cast<unsigned>(padded - rows)),
        dim3(MAX_THREADS), 0};
    const berth_status status = gpu_run(op, "quant_fp8", grid, quantise_kernel<T>, all);
    return status == BERTH_OK && padded > rows
               ? gpu_run(op, "quant_fp8's padding", zeros, blocks_kernel<T>, behind, blocks{},
                         padded - rows)
               : status;
}

berth_status forward(void *self, const berth_op_args *args) {
    const quantiser *op = static_cast<const quantiser *>(self);
    const operands all = operands_of(op, args);
    const int64_t rows = berth_tensor_row_count(args->inputs[X]);
    const int has_rows = rows > 0 && rows == berth_tensor_row_count(args->outputs[Q]);
    if (rows == 0 && !op->is_given) {
        return BERTH_OK;
    }
    if (has_rows && op->is_given && args->outputs[SCALE_OUT]->ndim < 2) {
        const berth_tensor *given = args->inputs[SCALE];
        return gpu_quant_rows(op, args,
                              as_given{static_cast<const float *>(berth_gpu_data(given))});
    }
    if (has_rows && !op->is_given && !op->is_per_tensor && op->group == 0) {
        return gpu_quant_rows(op, args, of_token{all});
    }
    return gpu_with_type(args->inputs[X]->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        return op->is_given        ? run_given<T>(op, args, all)
               : op->is_per_tensor ? run_tensor<T>(op, args, all)
                                   : run_groups<T>(op, args, all);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_quant_fp8;
const berth_op_impl berth_kernel_quant_fp8 = {
    BERTH_GPU_KERNEL("quant_fp8"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
