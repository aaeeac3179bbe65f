// SPDX-License-Identifier: Apache-2.0
// ssd on a GPU: Mamba-2's recurrence token by token, in f32.
#include "heads.h"

namespace {

enum { X, DT, A, B, C, D, DT_BIAS, INITIAL_STATES, CU_SEQLENS };

// A number a head, NULL: absent.
struct vector {
    const void *data;
    berth_dtype dtype;

    __device__ float at(int head) const {
        return data ? gpu_load_any(data, dtype, head) : 0.0f;
    }
};

struct operands {
    gpu_sequences sequences;
    gpu_heads_matrices matrices;
    gpu_heads_field x;
    gpu_heads_field y;
    gpu_heads_field dt;
    gpu_heads_field b;
    gpu_heads_field c;
    vector decay;  // A
    vector direct; // D
    vector bias;   // of dt
    int heads_per_group;
    int is_softplus;
};

template <typename T, int PER>
__device__ void step(const operands &all, const gpu_heads_place &place, int64_t token,
                     gpu_heads_part<PER> *m) {
    const int head = place.head;
    const int group = head / all.heads_per_group;
    const int columns = all.matrices.columns;
    float b[PER];
    float c[PER];
    gpu_heads_load<T, PER>(gpu_heads_at<const T>(all.b, token, group), columns, b);
    gpu_heads_load<T, PER>(gpu_heads_at<const T>(all.c, token, group), columns, c);
    float delta = gpu_float(gpu_heads_at<const T>(all.dt, token, 0)[head]) + all.bias.at(head);
    delta = fmaxf(all.is_softplus ? gpu_softplus(delta) : delta, 0.0f);
    const float kept = expf(delta * all.decay.at(head));
    const float direct = all.direct.at(head);
#pragma unroll
    for (int r = 0; r < GPU_HEADS_ROWS; ++r) {
        const int row = place.row + r;
        if (row >= all.matrices.rows) {
            break; // the same for the whole warp
        }
        const float x = gpu_float(gpu_heads_at<const T>(all.x, token, head)[row]);
        float sum = 0;
#pragma unroll
        for (int j = 0; j < PER; ++j) {
            m->at[r][j] = kept * m->at[r][j] + delta * x * b[j];
            sum += m->at[r][j] * c[j];
        }
        sum = gpu_warp_sum(sum);
        if (threadIdx.x == 0) {
            gpu_heads_at<T>(all.y, token, head)[row] = gpu_round<T>(sum + direct * x);
        }
    }
}

template <typename T, int PER> __global__ void ssd_kernel(operands all) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const gpu_heads_place place = gpu_heads_find(all.sequences, all.matrices);
    if (!place.is_there) {
        return;
    }
    gpu_heads_part<PER> m;
    m.load(all.matrices, place);
    for (int64_t token = place.sequence.first; token < place.sequence.end; ++token) {
        step<T, PER>(all, place, token, &m);
    }
    m.store(all.matrices, place);
}

// ---- the host's side ----------------------------------------------------------------------------

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_heads_check(site, B);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    return gpu_heads_new(site, device, "dt_softplus", out_self);
}

vector vector_of(const berth_tensor *tensor) {
    return vector{tensor ? berth_gpu_data(tensor) : nullptr,
                  tensor ? tensor->dtype : BERTH_DTYPE_F32};
}

operands operands_of(const gpu_heads *op, const berth_op_args *args) {
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *b = args->inputs[B];
    operands all = {};
    all.x = gpu_heads_field_of(x);
    all.y = gpu_heads_field_of(args->outputs[0]);
    all.dt = gpu_heads_field_of(args->inputs[DT]);
    all.b = gpu_heads_field_of(b);
    all.c = gpu_heads_field_of(args->inputs[C]);
    all.decay = vector_of(args->inputs[A]);
    all.direct = vector_of(args->inputs[D]);
    all.bias = vector_of(args->inputs[DT_BIAS]);
    all.is_softplus = op->flag;
    all.matrices.heads = static_cast<int>(x->shape[1]);
    all.matrices.rows = static_cast<int>(x->shape[2]);
    all.matrices.columns = static_cast<int>(b->shape[b->ndim - 1]);
    all.heads_per_group = all.matrices.heads / static_cast<int>(b->ndim == 3 ? b->shape[1] : 1);
    return all;
}

berth_status forward(void *self, const berth_op_args *args) {
    const gpu_heads *op = static_cast<const gpu_heads *>(self);
    operands all = operands_of(op, args);
    const berth_status status =
        gpu_heads_open(op, args, {args->inputs[CU_SEQLENS], args->inputs[INITIAL_STATES]},
                       &all.matrices, &all.sequences);
    if (status != BERTH_OK || all.sequences.count == 0) {
        return status;
    }
    const gpu_grid grid = gpu_heads_grid(all.matrices, all.sequences.count);
    return gpu_with_type(args->inputs[X]->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        return all.matrices.columns <= 64    ? gpu_run(op, "ssd", grid, ssd_kernel<T, 2>, all)
               : all.matrices.columns <= 128 ? gpu_run(op, "ssd", grid, ssd_kernel<T, 4>, all)
                                             : gpu_run(op, "ssd", grid, ssd_kernel<T, 8>, all);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_ssd;
const berth_op_impl berth_kernel_ssd = {
    BERTH_GPU_KERNEL("ssd"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
