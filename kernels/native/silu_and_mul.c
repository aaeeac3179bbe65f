// SPDX-License-Identifier: Apache-2.0
// silu_and_mul: y = silu(gate) · up with silu(v) = v / (1 + exp(−v)).
//
//   x  [..., 2d]  f32, f16 or bf16; the first half is the gate, the second `up`
//   y  [..., d]   x's dtype
//
// silu is rounded to y's dtype before the product: vLLM's SiluAndMul.forward_native, and its device
// kernels too.
#include <berth/op.h>

#include "rules.h"

#include <math.h>

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, 0));
    BERTH_RULE_TRY(berth_rule_width(site, 0));
    const int64_t width = berth_last_dim(site->inputs[0]).b;
    if (width % 2 != 0) {
        return BERTH_RULE_FAIL(site, 0, "must have an even last dimension, has %lld",
                               (long long)width);
    }
    berth_value_type *y = berth_rule_give(out, site->inputs[0]);
    y->dims[y->ndim - 1] = BERTH_DIM_CONST(width / 2);
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[0];
    const berth_tensor *y = args->outputs[0];
    const int64_t width = berth_row_length(y);
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        const void *from = berth_row(x, row);
        void *to = berth_row(y, row);
        for (int64_t i = 0; i < width; ++i) {
            const float gate = berth_load_at(from, x->dtype, i);
            const float up = berth_load_at(from, x->dtype, width + i);
            const float silu = berth_round_to(y->dtype, gate / (1.0f + expf(-gate)));
            berth_store_at(to, y->dtype, i, silu * up);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {BERTH_STRIDED_INPUT("x")};

const berth_op berth_op_silu_and_mul = {
    .size = sizeof(berth_op),
    .name = "silu_and_mul",
    .class_name = "SiluAndMul",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
    .has_decomposition = 1,
};
