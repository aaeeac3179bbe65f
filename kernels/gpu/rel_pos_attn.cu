// SPDX-License-Identifier: Apache-2.0
// rel_pos_attn on a GPU: encoder.h over images, in three steps. Tables are stretched and turned
// over, so that the rows for neighbouring distances lie side by side; of these each query makes its
// bias for every row and every column of the image; with that it attends.
#include "encoder.h"

#include <math.h>

namespace {

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32; // queries of a block that makes biases

enum { QKV, REL_POS_H, REL_POS_W };

struct encoder : gpu_op {
    berth_dim images;
    int has_tables;
    int rows;
    int columns;
    int heads;
    int width;
};

// ---- tables -------------------------------------------------------------------------------------

// One of the two: what it is made of, and the floats that it becomes, [width, distances].
struct table {
    const void *from;
    berth_dtype dtype;
    int rows; // of `from`
    int distances;
    float *to;
};

struct tables {
    table of[2]; // rows, columns
    int width;
};

__device__ float rounded_to(berth_dtype dtype, float value) {
    return dtype == BERTH_DTYPE_BF16  ? gpu_rounded<gpu_bf16>(value)
           : dtype == BERTH_DTYPE_F16 ? gpu_rounded<gpu_f16>(value)
                                      : value;
}

// Every step rounded where the reference does.
__device__ float stretched(const table &all, int width, int distance, int i) {
    if (all.rows == all.distances) {
        return gpu_load_any(all.from, all.dtype, static_cast<int64_t>(distance) * width + i);
    }
    const float step = gpu_div_rn(static_cast<float>(all.rows), static_cast<float>(all.distances));
    const float along = gpu_mul_rn(static_cast<float>(distance) + 0.5f, step);
    const float place = fmaxf(gpu_add_rn(along, -0.5f), 0.0f);
    const int below = static_cast<int>(place);
    const int above = min(below + 1, all.rows - 1);
    const float share = place - static_cast<float>(below);
    const float low = gpu_load_any(all.from, all.dtype, static_cast<int64_t>(below) * width + i);
    const float high = gpu_load_any(all.from, all.dtype, static_cast<int64_t>(above) * width + i);
    return rounded_to(all.dtype,
                      gpu_add_rn(gpu_mul_rn(1.0f - share, low), gpu_mul_rn(share, high)));
}

// blockIdx.y: which table.
__global__ void tables_kernel(tables all) {
    const table &its = all.of[blockIdx.y];
    const int at = static_cast<int>(blockIdx.x * THREADS + threadIdx.x);
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    if (at < its.distances * all.width) {
        its.to[at] = stretched(its, all.width, at % its.distances, at / its.distances);
    }
}

// ---- biases -------------------------------------------------------------------------------------

struct biases {
    gpu_encoder_field query;
    const float *by_row; // [width, 2 · rows − 1]
    const float *by_column;
    float *to; // [tokens, heads, rows + columns]
    int rows;
    int columns;
    int tokens;
    int heads;
    int width;
};

// A warp a query, a lane some rows and columns of its image. blockIdx.x: which tokens; blockIdx.y:
// the head.
template <typename T> __global__ void bias_kernel(biases all) {
    __shared__ float queries[WARPS][GPU_ENCODER_WIDTH];
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int head = static_cast<int>(blockIdx.y);
    const int token = static_cast<int>(blockIdx.x) * WARPS + warp;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    if (token < all.tokens) {
        const T *from = gpu_encoder_at<const T>(all.query, token, head);
        for (int i = lane; i < all.width; i += 32) {
            queries[warp][i] = gpu_float(from[i]);
        }
    }
    __syncthreads();
    if (token >= all.tokens) {
        return;
    }
    const int place = token % (all.rows * all.columns);
    const int row = place / all.columns;
    const int column = place - row * all.columns;
    const int count = all.rows + all.columns;
    float *to = all.to + (static_cast<int64_t>(token) * all.heads + head) * count;
    for (int i = lane; i < count; i += 32) {
        const bool is_row = i < all.rows;
        const int distances = 2 * (is_row ? all.rows : all.columns) - 1;
        const int distance =
            is_row ? row - i + all.rows - 1 : column - (i - all.rows) + all.columns - 1;
        const float *from = (is_row ? all.by_row : all.by_column) + distance;
        float sum = 0;
        for (int k = 0; k < all.width; ++k) {
            sum += queries[warp][k] * from[static_cast<int64_t>(k) * distances];
        }
        to[i] = gpu_rounded<T>(sum);
    }
}

// ---- the host's side ----------------------------------------------------------------------------

berth_status supports(const berth_op_site *site, const berth_device *) {
    const int64_t heads = berth_site_attribute(site, "num_heads")->i64;
    return gpu_encoder_check(site, site->inputs[QKV]->dims[3].b / 3 / heads);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<encoder>(site, device, out_self);
    if (status == BERTH_OK) {
        encoder *self = static_cast<encoder *>(*out_self);
        const berth_dim *dims = site->inputs[QKV]->dims;
        self->images = dims[0];
        self->has_tables = site->inputs[REL_POS_H] != nullptr;
        self->rows = static_cast<int>(dims[1].b);
        self->columns = static_cast<int>(dims[2].b);
        self->heads = static_cast<int>(berth_site_attribute(site, "num_heads")->i64);
        self->width = static_cast<int>(dims[3].b) / 3 / self->heads;
    }
    return status;
}

int64_t table_floats(const encoder *op, int size) {
    return static_cast<int64_t>(2 * size - 1) * op->width;
}

uint64_t workspace(void *self, uint64_t tokens) {
    const encoder *op = static_cast<const encoder *>(self);
    const uint64_t pixels = static_cast<uint64_t>(op->rows) * static_cast<uint64_t>(op->columns);
    const uint64_t queries =
        gpu_extent(op->images, tokens) * pixels * static_cast<uint64_t>(op->heads);
    const uint64_t floats =
        static_cast<uint64_t>(table_floats(op, op->rows) + table_floats(op, op->columns)) +
        queries * static_cast<uint64_t>(op->rows + op->columns);
    return op->has_tables ? floats * sizeof(float) : 0;
}

table table_of(const berth_tensor *from, int size, float *to) {
    return table{berth_gpu_data(from), from->dtype, static_cast<int>(from->shape[0]), 2 * size - 1,
                 to};
}

// The biases of all queries, in the workspace.
berth_status make_biases(const encoder *op, const berth_op_args *args, gpu_encoder_call *call) {
    float *by_row = static_cast<float *>(berth_gpu_data(args->workspace));
    float *by_column = by_row + table_floats(op, op->rows);
    float *to = by_column + table_floats(op, op->columns);
    const tables both = {
        {table_of(args->inputs[REL_POS_H], op->rows, by_row),
         table_of(args->inputs[REL_POS_W], op->columns, by_column)},
        op->width
    };
    const int longest = op->rows > op->columns ? op->rows : op->columns;
    const gpu_grid all_tables = {dim3(gpu_ceil(table_floats(op, longest), THREADS), 2),
                                 dim3(THREADS), 0};
    const berth_status status =
        gpu_run(op, "rel_pos_attn's tables", all_tables, tables_kernel, both);
    if (status != BERTH_OK) {
        return status;
    }
    const biases all = {call->query, by_row,       by_column, to,       op->rows,
                        op->columns, call->tokens, op->heads, op->width};
    const gpu_grid grid = {dim3(gpu_ceil(call->tokens, WARPS), static_cast<unsigned>(op->heads)),
                           dim3(THREADS), 0};
    call->bias = to;
    return gpu_with_type(args->inputs[QKV]->dtype, [&](auto type) {
        return gpu_run(op, "rel_pos_attn's biases", grid,
                       bias_kernel<typename decltype(type)::type>, all);
    });
}

// Heads from some column on of [images, rows, columns, …].
gpu_encoder_field field_of(const encoder *op, const berth_tensor *x, int column) {
    gpu_encoder_field out = {};
    out.data = static_cast<char *>(berth_gpu_data(x)) + column * BERTH_DTYPE_BITS(x->dtype) / 8;
    out.outer_gap = x->strides[0];
    out.middle_gap = x->strides[1];
    out.inner_gap = x->strides[2];
    out.head_gap = op->width;
    out.middle = op->rows;
    out.inner = op->columns;
    return out;
}

berth_status forward(void *self, const berth_op_args *args) {
    const encoder *op = static_cast<const encoder *>(self);
    const berth_tensor *qkv = args->inputs[QKV];
    const int dim = op->heads * op->width;
    gpu_encoder_call call = {};
    call.query = field_of(op, qkv, 0);
    call.key = field_of(op, qkv, dim);
    call.value = field_of(op, qkv, 2 * dim);
    call.out = field_of(op, args->outputs[0], 0);
    call.rows = op->rows;
    call.columns = op->columns;
    call.length = op->rows * op->columns;
    call.tokens = static_cast<int>(qkv->shape[0]) * call.length;
    call.heads = op->heads;
    call.kv_heads = op->heads;
    call.width = op->width;
    call.scale = 1.0f / sqrtf(static_cast<float>(op->width));
    if (call.tokens == 0) {
        return BERTH_OK;
    }
    const berth_status status = op->has_tables ? make_biases(op, args, &call) : BERTH_OK;
    return status == BERTH_OK ? gpu_encoder_run(op, call, qkv->dtype) : status;
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_rel_pos_attn;
const berth_op_impl berth_kernel_rel_pos_attn = {
    BERTH_GPU_KERNEL("rel_pos_attn"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
