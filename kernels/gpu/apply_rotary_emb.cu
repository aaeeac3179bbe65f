// SPDX-License-Identifier: Apache-2.0
// apply_rotary_emb on a GPU: pairs of every head turned by given cosines and sines, which are
// rounded as x is; products and sums in f32, one rounding.
#include "launch.h"

namespace {

constexpr int THREADS = 128;

enum { X, COS, SIN };

struct rotator : gpu_op {
    int is_neox;
    int is_f32; // cosines and sines are not rounded
};

struct operands {
    const void *x;
    void *y;
    int64_t x_strides[3]; // batch, place, head; in elements
    int64_t y_strides[3];
    const void *cosines; // [places, pairs]
    const void *sines;
    berth_dtype cosine_dtype;
    berth_dtype sine_dtype;
    int64_t heads;
    int pairs;
    int is_neox;
    int is_f32;
};

// blockIdx.x: the place; blockIdx.y: the batch.
template <typename T> __global__ void rotate_kernel(operands all) {
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const int64_t place = blockIdx.x;
    const T *x =
        static_cast<const T *>(all.x) + blockIdx.y * all.x_strides[0] + place * all.x_strides[1];
    T *y = static_cast<T *>(all.y) + blockIdx.y * all.y_strides[0] + place * all.y_strides[1];
    for (int64_t at = threadIdx.x; at < all.heads * all.pairs; at += THREADS) {
        const int64_t head = at / all.pairs;
        const int64_t i = at - head * all.pairs;
        const int64_t first = all.is_neox ? i : 2 * i;
        const int64_t second = first + (all.is_neox ? all.pairs : 1);
        float cosine = gpu_load_any(all.cosines, all.cosine_dtype, place * all.pairs + i);
        float sine = gpu_load_any(all.sines, all.sine_dtype, place * all.pairs + i);
        cosine = all.is_f32 ? cosine : gpu_rounded<T>(cosine);
        sine = all.is_f32 ? sine : gpu_rounded<T>(sine);
        const float a = gpu_float(x[head * all.x_strides[2] + first]);
        const float b = gpu_float(x[head * all.x_strides[2] + second]);
        y[head * all.y_strides[2] + first] = gpu_round<T>(a * cosine - b * sine);
        y[head * all.y_strides[2] + second] = gpu_round<T>(b * cosine + a * sine);
    }
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<rotator>(site, device, out_self);
    if (status == BERTH_OK) {
        rotator *self = static_cast<rotator *>(*out_self);
        self->is_neox = berth_site_attribute(site, "is_neox_style")->i64 != 0;
        self->is_f32 = berth_site_attribute(site, "enable_fp32_compute")->i64 != 0;
    }
    return status;
}

// Of 3 dimensions, or of 4 with the batch before them.
void strides_of(const berth_tensor *x, int64_t *out) {
    const int32_t batch = x->ndim - 3;
    out[0] = batch == 1 ? x->strides[0] : 0;
    out[1] = x->strides[batch];
    out[2] = x->strides[batch + 1];
}

berth_status forward(void *self, const berth_op_args *args) {
    const rotator *op = static_cast<const rotator *>(self);
    const berth_tensor *x = args->inputs[X];
    const int64_t batch = x->ndim == 4 ? x->shape[0] : 1;
    const int64_t places = x->shape[x->ndim - 3];
    operands all = {};
    all.x = berth_gpu_data(x);
    all.y = berth_gpu_data(args->outputs[0]);
    strides_of(x, all.x_strides);
    strides_of(args->outputs[0], all.y_strides);
    all.cosines = berth_gpu_data(args->inputs[COS]);
    all.sines = berth_gpu_data(args->inputs[SIN]);
    all.cosine_dtype = args->inputs[COS]->dtype;
    all.sine_dtype = args->inputs[SIN]->dtype;
    all.heads = x->shape[x->ndim - 2];
    all.pairs = static_cast<int>(x->shape[x->ndim - 1] / 2);
    all.is_neox = op->is_neox;
    all.is_f32 = op->is_f32;
    const gpu_grid grid = {dim3(static_cast<unsigned>(places), static_cast<unsigned>(batch)),
                           dim3(THREADS), 0};
    if (batch == 0 || places == 0) {
        return BERTH_OK;
    }
    return gpu_with_type(x->dtype, [&](auto type) {
        return gpu_run(op, "apply_rotary_emb", grid, rotate_kernel<typename decltype(type)::type>,
                       all);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_apply_rotary_emb;
const berth_op_impl berth_kernel_apply_rotary_emb = {
    BERTH_GPU_KERNEL("apply_rotary_emb"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
