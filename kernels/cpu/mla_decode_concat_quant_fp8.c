// SPDX-License-Identifier: Apache-2.0
// mla_decode_concat_quant_fp8: both parts of a head straight to its codes.
#include <cpu/cpu.h>
#include <cpu/fp8_codes.h>

enum { DECODE_QL_NOPE, DECODE_Q_PE, SCALE };

static void quantise(const berth_tensor *x, int64_t row, float scale, uint8_t *to) {
    const void *from = berth_row(x, row);
    const int64_t width = berth_row_length(x);
    const berth_vec factor = berth_vec_of(scale);
    for (int64_t i = 0; i < width; i += BERTH_LANES) {
        const berth_vec_bytes codes =
            vec_to_f8(berth_vec_load_some(from, x->dtype, i, width) * factor);
        const int64_t count = width - i < BERTH_LANES ? width - i : BERTH_LANES;
        memcpy(to + i, &codes, (size_t)count);
    }
}

static void quantise_part(const void *work, int64_t part, int64_t parts) {
    const berth_op_args *args = work;
    const berth_tensor *nope = args->inputs[DECODE_QL_NOPE];
    const float factor = 1.0f / *(const float *)berth_data(args->inputs[SCALE]);
    const berth_span rows = berth_share(berth_row_count(nope), part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        uint8_t *to = berth_row(args->outputs[0], row);
        quantise(nope, row, factor, to);
        quantise(args->inputs[DECODE_Q_PE], row, factor, to + berth_row_length(nope));
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    return berth_run_rows(self, args, quantise_part, args->outputs[0]);
}

const berth_op_impl berth_kernel_mla_decode_concat_quant_fp8 = {
    .size = sizeof(berth_op_impl),
    .op = "mla_decode_concat_quant_fp8",
    .name = "cpu.mla_decode_concat_quant_fp8",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = berth_instance_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
