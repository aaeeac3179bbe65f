// SPDX-License-Identifier: Apache-2.0
// gated_delta_rule on a GPU: the recurrence of gated delta nets token by token, in f32.
#include "heads.h"

#include "activation.h"

namespace {

constexpr float LENGTH_EPS = 1e-6f; // under the root of a length

enum { QUERY, KEY, VALUE, GATE, BETA, A_LOG, DT_BIAS, INITIAL_STATE, CU_SEQLENS };

struct operands {
    gpu_sequences sequences;
    gpu_heads_matrices matrices;
    gpu_heads_field query;
    gpu_heads_field key;
    gpu_heads_field value;
    gpu_heads_field y;
    gpu_heads_field gate; // [tokens, heads]
    gpu_heads_field beta;
    const void *decay; // A_log
    berth_dtype decay_dtype;
    const void *bias; // dt_bias
    berth_dtype bias_dtype;
    int heads_per_key;
    int is_normed;
};

// A row of query or key, brought to length 1 where the site wants it.
template <typename T, int PER>
__device__ void load_row(const operands &all, const T *from, float *out) {
    gpu_heads_load<T, PER>(from, all.matrices.columns, out);
    float sum = 0;
#pragma unroll
    for (int j = 0; j < PER; ++j) {
        sum += out[j] * out[j];
    }
    const float length = all.is_normed ? sqrtf(gpu_warp_sum(sum) + LENGTH_EPS) : 1.0f;
#pragma unroll
    for (int j = 0; j < PER; ++j) {
        out[j] /= length;
    }
}

template <int PER> __device__ float product(const float *a, const float *b) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < PER; ++j) {
        sum += a[j] * b[j];
    }
    return gpu_warp_sum(sum);
}

template <typename T, int PER>
__device__ void step(const operands &all, const gpu_heads_place &place, int64_t token,
                     gpu_heads_part<PER> *s) {
    const int head = place.head;
    const int key_head = head / all.heads_per_key;
    float key[PER];
    float query[PER];
    load_row<T, PER>(all, gpu_heads_at<const T>(all.key, token, key_head), key);
    load_row<T, PER>(all, gpu_heads_at<const T>(all.query, token, key_head), query);
    const float gate = gpu_float(gpu_heads_at<const T>(all.gate, token, 0)[head]) +
                       gpu_load_any(all.bias, all.bias_dtype, head);
    const float fade =
        expf(-expf(gpu_load_any(all.decay, all.decay_dtype, head)) * gpu_softplus(gate));
    const float beta =
        gpu_sigmoid<float>(gpu_float(gpu_heads_at<const T>(all.beta, token, 0)[head]));
    const float scale = 1.0f / sqrtf(static_cast<float>(all.matrices.columns));
#pragma unroll
    for (int r = 0; r < GPU_HEADS_ROWS; ++r) {
        const int row = place.row + r;
        if (row >= all.matrices.rows) {
            break; // the same for the whole warp
        }
#pragma unroll
        for (int j = 0; j < PER; ++j) {
            s->at[r][j] *= fade;
        }
        const float said = product<PER>(s->at[r], key);
        const float wanted = gpu_float(gpu_heads_at<const T>(all.value, token, head)[row]);
#pragma unroll
        for (int j = 0; j < PER; ++j) {
            s->at[r][j] += beta * (wanted - said) * key[j];
        }
        const float sum = product<PER>(s->at[r], query);
        if (threadIdx.x == 0) {
            gpu_heads_at<T>(all.y, token, head)[row] = gpu_round<T>(sum * scale);
        }
    }
}

template <typename T, int PER> __global__ void delta_kernel(operands all) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const gpu_heads_place place = gpu_heads_find(all.sequences, all.matrices);
    if (!place.is_there) {
        return;
    }
    gpu_heads_part<PER> s;
    s.load(all.matrices, place);
    for (int64_t token = place.sequence.first; token < place.sequence.end; ++token) {
        step<T, PER>(all, place, token, &s);
    }
    s.store(all.matrices, place);
}

// ---- the host's side ----------------------------------------------------------------------------

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_heads_check(site, KEY);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    return gpu_heads_new(site, device, "use_qk_l2norm_in_kernel", out_self);
}

operands operands_of(const gpu_heads *op, const berth_op_args *args) {
    const berth_tensor *key = args->inputs[KEY];
    const berth_tensor *value = args->inputs[VALUE];
    operands all = {};
    all.query = gpu_heads_field_of(args->inputs[QUERY]);
    all.key = gpu_heads_field_of(key);
    all.value = gpu_heads_field_of(value);
    all.y = gpu_heads_field_of(args->outputs[0]);
    all.gate = gpu_heads_field_of(args->inputs[GATE]);
    all.beta = gpu_heads_field_of(args->inputs[BETA]);
    all.decay = berth_gpu_data(args->inputs[A_LOG]);
    all.decay_dtype = args->inputs[A_LOG]->dtype;
    all.bias = berth_gpu_data(args->inputs[DT_BIAS]);
    all.bias_dtype = args->inputs[DT_BIAS]->dtype;
    all.is_normed = op->flag;
    all.matrices.heads = static_cast<int>(value->shape[value->ndim - 2]);
    all.matrices.rows = static_cast<int>(value->shape[value->ndim - 1]);
    all.matrices.columns = static_cast<int>(key->shape[key->ndim - 1]);
    all.heads_per_key = all.matrices.heads / static_cast<int>(key->shape[key->ndim - 2]);
    return all;
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_heads *op = static_cast<const gpu_heads *>(self);
    operands all = operands_of(op, args);
    const berth_status status =
        gpu_heads_open(op, args, {args->inputs[CU_SEQLENS], args->inputs[INITIAL_STATE]},
                       &all.matrices, &all.sequences);
    if (status != BERTH_OK || all.sequences.count == 0) {
        return status;
    }
    const gpu_grid grid = gpu_heads_grid(all.matrices, all.sequences.count);
    return gpu_with_type(args->inputs[QUERY]->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        const char *name = "gated_delta_rule";
        return all.matrices.columns <= 64    ? gpu_run(op, name, grid, delta_kernel<T, 2>, all)
               : all.matrices.columns <= 128 ? gpu_run(op, name, grid, delta_kernel<T, 4>, all)
                                             : gpu_run(op, name, grid, delta_kernel<T, 8>, all);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_gated_delta_rule;
const berth_op_impl berth_kernel_gated_delta_rule = {
    BERTH_GPU_KERNEL("gated_delta_rule"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
