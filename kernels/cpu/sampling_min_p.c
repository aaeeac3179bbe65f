// SPDX-License-Identifier: Apache-2.0
// sampling_min_p: three sweeps of a row of logits, the largest, the sum, the cut.
#include <cpu/elementwise.h>
#include <cpu/sampling_rows.h>

enum { LOGITS, MIN_P };

static void cut_row(const float *from, float *to, int64_t count, float min_p) {
    const float largest = sampling_largest(from, count);
    const float sum = sampling_sum(from, count, largest);
    const berth_vec least = berth_vec_of(min_p * (1.0f / sum));
    for (int64_t i = 0; i < count; i += BERTH_LANES) {
        const berth_vec x = berth_vec_load_some(from, BERTH_DTYPE_F32, i, count);
        const berth_vec share = berth_vec_exp(x - berth_vec_of(largest)) / berth_vec_of(sum);
        berth_vec_store_some(
            to, BERTH_DTYPE_F32, i, count,
            berth_vec_pick((berth_vec_ints)(share < least), berth_vec_of(-INFINITY), x));
    }
}

static void cut_part(const void *work, int64_t part, int64_t parts) {
    const berth_op_args *args = work;
    const berth_tensor *logits = args->inputs[LOGITS];
    const float *min_p = berth_data(args->inputs[MIN_P]);
    const berth_span rows = berth_share(logits->shape[0], part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        cut_row(berth_row(logits, row), berth_row(args->outputs[0], row), logits->shape[1],
                min_p[row]);
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    const berth_tensor *logits = args->inputs[LOGITS];
    berth_run(((const berth_instance *)self)->cpu, cut_part, args,
              BERTH_SWEEP_COST * logits->shape[0] * logits->shape[1]);
    return BERTH_OK;
}

const berth_op_impl berth_kernel_sampling_min_p = {
    .size = sizeof(berth_op_impl),
    .op = "sampling_min_p",
    .name = "cpu.sampling_min_p",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = berth_instance_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
