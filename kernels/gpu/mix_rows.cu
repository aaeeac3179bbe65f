// SPDX-License-Identifier: Apache-2.0
// mix_rows on a GPU: base plus several x, each token with coefficients of its own; one sum in f32
// in the order of the x.
#include "each.h"

namespace {

constexpr int MAX_COUNT = 8; // of x

enum { BASE, COEFFICIENTS, FIRST };

struct formula {
    gpu_rows base;
    gpu_rows coefficients;
    gpu_rows x[MAX_COUNT];
    int count;
    float offset; // of every coefficient

    template <typename T> __device__ float at(int64_t row, int64_t i) const {
        const T *shares = gpu_row<const T>(coefficients, row);
        float sum = gpu_float(gpu_row<const T>(base, row)[i]);
#pragma unroll
        for (int k = 0; k < MAX_COUNT; ++k) {
            if (k < count) {
                sum += (gpu_float(shares[k]) + offset) * gpu_float(gpu_row<const T>(x[k], row)[i]);
            }
        }
        return sum;
    }
};

struct mixer : gpu_op {
    int count;
    float offset;
};

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<mixer>(site, device, out_self);
    if (status == BERTH_OK) {
        mixer *self = static_cast<mixer *>(*out_self);
        self->offset = static_cast<float>(berth_site_attribute(site, "offset")->f64);
        while (self->count < MAX_COUNT &&
               FIRST + self->count < static_cast<int>(site->input_count) &&
               site->inputs[FIRST + self->count]) {
            ++self->count;
        }
    }
    return status;
}

berth_status forward(void *self, const berth_op_args *args) {
    const mixer *op = static_cast<const mixer *>(self);
    formula mix = {};
    mix.base = gpu_rows_of(args->inputs[BASE]);
    mix.coefficients = gpu_rows_of(args->inputs[COEFFICIENTS]);
    mix.count = op->count;
    mix.offset = op->offset;
    for (int k = 0; k < op->count; ++k) {
        mix.x[k] = gpu_rows_of(args->inputs[FIRST + k]);
    }
    return gpu_with_type(args->inputs[BASE]->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        return gpu_each<T, T>(op, mix, args->outputs[0]);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_mix_rows;
const berth_op_impl berth_kernel_mix_rows = {
    BERTH_GPU_KERNEL("mix_rows"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = gpu_each_supports,
    .create = create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
