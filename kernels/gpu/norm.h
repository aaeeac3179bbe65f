// SPDX-License-Identifier: Apache-2.0
// What the norms beside rms_norm share on a GPU: a block a row, or a group of a row, which is read
// three times at most, from the first cache but once; sums in f32, one rounding. A kernel is its
// formula, derived from gpu_norm_formula, which says what it may have.
#ifndef BERTH_KERNELS_GPU_NORM_H
#define BERTH_KERNELS_GPU_NORM_H

#include "activation.h"

#include <string.h>

#define GPU_NORM_THREADS  256
#define GPU_NORM_OPERANDS 3

// An operand like x, or one of a value a column (of any type), or absent.
struct gpu_norm_operand {
    gpu_rows rows;
    const void *columns; // [hidden]
    berth_dtype dtype;
};

// What a formula sees of a row.
template <typename T> struct gpu_norm_row {
    const T *x;
    const T *like[GPU_NORM_OPERANDS]; // NULL where an operand is a column's, or absent
    const gpu_norm_operand *operands;

    __device__ float of_column(int operand, int64_t i, float otherwise) const {
        const gpu_norm_operand *from = &operands[operand];
        return from->columns ? gpu_load_any(from->columns, from->dtype, i) : otherwise;
    }
    __device__ float of_row(int operand, int64_t i) const {
        return gpu_float(like[operand][i]);
    }
};

// A formula that has nothing of its own: x / sqrt(mean(x²) + eps).
struct gpu_norm_formula {
    static constexpr bool IS_CENTRED = false; // the mean is taken away first
    static constexpr int OPERANDS = 1;        // operand i is input 1 + i of the op
    static constexpr int COLUMNS = 1;         // bit i: operand i is a value a column, else like x
    static constexpr int RESIDUAL = -1;       // the operand for which `value` is the second output
    float eps;

    // The formula's numbers. The columns of one mean, 0: all.
    int64_t read(const berth_op_site *) {
        return 0;
    }
    // What the mean runs over.
    template <typename T> __device__ float value(const gpu_norm_row<T> &row, int64_t i) const {
        return gpu_float(row.x[i]);
    }
    // The mean of the squares from their sum in this row's `count` values.
    template <typename T>
    __device__ float mean(const gpu_norm_row<T> &, float squares, float count) const {
        return squares / count;
    }
    // y[i] from the scaled value.
    template <typename T>
    __device__ float finish(const gpu_norm_row<T> &, int64_t, float normal) const {
        return normal;
    }
};

// The same with a gate: sigmoid, or silu, also called swish.
struct gpu_norm_gate : gpu_norm_formula {
    static constexpr int OPERANDS = 2;
    int is_sigmoid;

    int64_t read(const berth_op_site *site) {
        is_sigmoid = strcmp(berth_site_attribute(site, "activation")->str, "sigmoid") == 0;
        return 0;
    }
    __device__ float gate(float z) const {
        return is_sigmoid ? gpu_sigmoid<float>(z) : gpu_silu<float>(z);
    }
};

struct gpu_norm_call {
    gpu_rows x;
    gpu_rows y;
    gpu_rows sums; // absent: nobody wants x + residual
    gpu_norm_operand operands[GPU_NORM_OPERANDS];
    int64_t hidden;
    int64_t group; // columns of one mean, a divisor of hidden
};

// blockIdx.x: the row; blockIdx.y: the group.
template <typename T, typename F>
static __global__ void gpu_norm_kernel(F formula, gpu_norm_call call) {
    __shared__ float room[2][GPU_NORM_THREADS / 32];
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    gpu_norm_row<T> row = {};
    row.x = gpu_row<const T>(call.x, blockIdx.x);
    row.operands = call.operands;
    for (int i = 0; i < GPU_NORM_OPERANDS; ++i) {
        row.like[i] = call.operands[i].rows.data
                          ? gpu_row<const T>(call.operands[i].rows, blockIdx.x)
                          : nullptr;
    }
    const int64_t begin = blockIdx.y * call.group;
    const int64_t end = begin + call.group;
    const float count = static_cast<float>(call.group);
    float mean = 0;
    if (F::IS_CENTRED) {
        float sum = 0;
        for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
            sum += formula.template value<T>(row, i);
        }
        mean = gpu_block_sum(sum, room[0]) / count;
    }
    float squares = 0;
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
        const float value = formula.template value<T>(row, i) - mean;
        squares += value * value;
    }
    squares = gpu_block_sum(squares, room[1]);
    const float scale = 1.0f / sqrtf(formula.template mean<T>(row, squares, count) + formula.eps);
    T *y = gpu_row<T>(call.y, blockIdx.x);
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
        const float value = formula.template value<T>(row, i);
        if (call.sums.data) {
            gpu_row<T>(call.sums, blockIdx.x)[i] = gpu_round<T>(value);
        }
        y[i] = gpu_round<T>(formula.template finish<T>(row, i, (value - mean) * scale));
    }
}

// ---- the host's side ----------------------------------------------------------------------------

template <typename F> struct gpu_norm : gpu_op {
    F formula;
    int64_t group; // 0: the row
};

template <typename F>
static berth_status gpu_norm_supports(const berth_op_site *site, const berth_device *) {
    const berth_status status = gpu_check_floats(site, 0);
    return status == BERTH_OK && F::RESIDUAL >= 0 ? gpu_check_same(site, 1 + F::RESIDUAL, 0)
                                                  : status;
}

template <typename F>
static berth_status gpu_norm_create(const berth_op_site *site, const berth_device *device,
                                    void **out_self) {
    const berth_status status = gpu_new<gpu_norm<F>>(site, device, out_self);
    if (status == BERTH_OK) {
        gpu_norm<F> *self = static_cast<gpu_norm<F> *>(*out_self);
        self->formula.eps = gpu_attribute_f32(site, "eps");
        self->group = self->formula.read(site);
    }
    return status;
}

template <typename F> static void gpu_norm_take(const berth_op_args *args, gpu_norm_call *call) {
    for (int i = 0; i < F::OPERANDS; ++i) {
        const berth_tensor *operand = args->inputs[1 + i];
        const bool is_column = F::COLUMNS >> i & 1;
        if (operand) {
            call->operands[i].dtype = operand->dtype;
            call->operands[i].columns = is_column ? berth_gpu_data(operand) : nullptr;
            call->operands[i].rows = gpu_rows_of(is_column ? nullptr : operand);
        }
    }
}

template <typename F> static berth_status gpu_norm_forward(void *self, const berth_op_args *args) {
    const gpu_norm<F> *op = static_cast<const gpu_norm<F> *>(self);
    const berth_tensor *x = args->inputs[0];
    gpu_norm_call call = {};
    call.x = gpu_rows_of(x);
    call.y = gpu_rows_of(args->outputs[0]);
    call.sums =
        gpu_rows_of(F::RESIDUAL >= 0 && args->inputs[1 + F::RESIDUAL] ? args->outputs[1] : nullptr);
    call.hidden = x->shape[x->ndim - 1];
    call.group = op->group > 0 ? op->group : call.hidden;
    gpu_norm_take<F>(args, &call);
    const int64_t rows = berth_tensor_row_count(x);
    if (rows == 0 || call.hidden == 0) {
        return BERTH_OK;
    }
    const gpu_grid grid = {
        dim3(static_cast<unsigned>(rows), static_cast<unsigned>(call.hidden / call.group)),
        dim3(GPU_NORM_THREADS), 0};
    return gpu_with_type(x->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        return gpu_run(op, "a norm", grid, gpu_norm_kernel<T, F>, op->formula, call);
    });
}

#define GPU_NORM_SLOTS(formula)                                                                    \
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,                                     \
    .supports = gpu_norm_supports<formula>, .create = gpu_norm_create<formula>,                    \
    .forward = gpu_norm_forward<formula>, .destroy = gpu_destroy

#endif
