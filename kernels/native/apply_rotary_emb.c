// SPDX-License-Identifier: Apache-2.0
// apply_rotary_emb: rotates the pairs of every head by given angles.
//
//   x         [seq, heads, d] or [batch, seq, heads, d]  f32, f16 or bf16
//   cos, sin  [seq, d / 2]                               any float dtype
//   y         like x
//
// Pair i of a head is (i, i + d/2) in neox style, (2i, 2i + 1) otherwise:
//   o1 = x1·cos − x2·sin,  o2 = x2·cos + x1·sin.
// cos, sin, products and sums are rounded to x's dtype; with `enable_fp32_compute` all is f32 with
// one rounding, like vLLM's device kernels always: ApplyRotaryEmb.forward_native.
#include <berth/op.h>

#include "rules.h"

enum { X, COS, SIN };
enum { IS_NEOX_STYLE, ENABLE_FP32_COMPUTE };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, X));
    BERTH_RULE_TRY(berth_rule_width(site, X));
    const berth_value_type *x = site->inputs[X];
    if (x->ndim != 3 && x->ndim != 4) {
        return BERTH_RULE_FAIL(site, X, "must have 3 or 4 dimensions, has %u", x->ndim);
    }
    const int64_t width = berth_last_dim(x).b;
    if (width % 2 != 0) {
        return BERTH_RULE_FAIL(site, X, "must have an even last dimension, has %lld",
                               (long long)width);
    }
    for (uint64_t input = COS; input <= SIN; ++input) {
        BERTH_RULE_TRY(berth_rule_float(site, input));
        BERTH_RULE_TRY(berth_rule_rank(site, input, 2));
        BERTH_RULE_TRY(berth_rule_dim(site, input, 0, x->dims[x->ndim - 3]));
        BERTH_RULE_TRY(berth_rule_dim(site, input, 1, BERTH_DIM_CONST(width / 2)));
    }
    berth_rule_give(out, x);
    return BERTH_OK;
}

// One head; `dtype` is the one that every step is rounded to.
static void rotate(const berth_op_site *site, const berth_op_args *args, int64_t row,
                   berth_dtype dtype) {
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *cosines = args->inputs[COS];
    const berth_tensor *sines = args->inputs[SIN];
    const int64_t pairs = berth_row_length(x) / 2;
    const int64_t place = row / x->shape[x->ndim - 2] % x->shape[x->ndim - 3];
    const int64_t step = site->attributes[IS_NEOX_STYLE]->i64 != 0 ? 1 : 2;
    const int64_t distance = step == 1 ? pairs : 1;
    const void *from = berth_row(x, row);
    void *to = berth_row(args->outputs[0], row);
    for (int64_t i = 0; i < pairs; ++i) {
        const float c =
            berth_round_to(dtype, berth_load_at(berth_row(cosines, place), cosines->dtype, i));
        const float s =
            berth_round_to(dtype, berth_load_at(berth_row(sines, place), sines->dtype, i));
        const float x1 = berth_load_at(from, x->dtype, i * step);
        const float x2 = berth_load_at(from, x->dtype, i * step + distance);
        berth_store_at(to, x->dtype, i * step,
                       berth_round_to(dtype, x1 * c) - berth_round_to(dtype, x2 * s));
        berth_store_at(to, x->dtype, i * step + distance,
                       berth_round_to(dtype, x2 * c) + berth_round_to(dtype, x1 * s));
    }
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[X];
    const int is_f32 = site->attributes[ENABLE_FP32_COMPUTE]->i64 != 0;
    for (int64_t row = 0; row < berth_row_count(x); ++row) {
        rotate(site, args, row, is_f32 ? BERTH_DTYPE_F32 : x->dtype);
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_INPUT("cos"),
    BERTH_INPUT("sin"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("is_neox_style", BERTH_ATTRIBUTE_BOOL, .i64 = 1),
    BERTH_OPTIONAL_ATTRIBUTE("enable_fp32_compute", BERTH_ATTRIBUTE_BOOL, .i64 = 0),
};

const berth_op berth_op_apply_rotary_emb = {
    .size = sizeof(berth_op),
    .name = "apply_rotary_emb",
    .class_name = "ApplyRotaryEmb",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .has_decomposition = 1,
};
