// SPDX-License-Identifier: Apache-2.0
// fused_packed_linear: y = f(x) · ((codes of weight − zero points), scaled)ᵀ + bias, where f is a
// norm or an activation: packed_linear of what rms_norm or silu_and_mul gives, bit by bit.
//
//   x             [..., k]  [..., 2k] before silu_and_mul; f32, f16 or bf16
//   weight        [n, k]    codes as packed_linear has them; u4 and e2m1 are [n, k / 2]
//   weight_scale  [ceil(n / rows), ceil(k / columns)]  f32, f16 or bf16
//   zero_points   like weight_scale, u8: optional, of u4 and u8
//   permutation   [k]       optional, i32: the input that column k of the weight is for
//   residual      like x    optional, of rms_norm
//   norm_weight   [k]       optional, of rms_norm
//   bias          [n]       optional, any float dtype
//   y             [..., n]  x's dtype
//   residual_out  like x    only with `residual`: x + residual
//
// `prologue` is f, "rms_norm" or "silu_and_mul"; `eps` is the norm's; `code` and `group_shape` are
// packed_linear's. fused_product.h has more.
#include <berth/op.h>

#include "fused_product.h"

extern const berth_op berth_op_packed_linear;

enum { X, WEIGHT, WEIGHT_SCALE, ZERO_POINTS, PERMUTATION, RESIDUAL, NORM_WEIGHT, BIAS };

// What packed_linear has under the same names.
static const uint64_t own[] = {WEIGHT, WEIGHT_SCALE, ZERO_POINTS, PERMUTATION, BIAS};
enum { OWN_COUNT = sizeof own / sizeof own[0] };

static void begin_packed(fused_part *part, const berth_op_site *site, const berth_value_type *f) {
    fused_begin(part, site, &berth_op_packed_linear);
    fused_give(part, "x", X, f);
    for (uint64_t i = 0; i < OWN_COUNT; ++i) {
        fused_give_own(part, own[i]);
    }
    fused_hand_on(part, "code");
    fused_hand_on(part, "group_shape");
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    berth_value_type of_x;
    berth_value_type of_sum = {0};
    berth_value_type of_y;
    fused_part packed;
    BERTH_RULE_TRY(fused_infer_floats(site, RESIDUAL, &of_x, &of_sum));
    begin_packed(&packed, site, &of_x);
    BERTH_RULE_TRY(fused_infer(&packed, &of_y, NULL));
    return fused_give_out(site, RESIDUAL, &of_y, &of_sum, out);
}

// In the workspace: a row of f(x), then what packed_linear asks for.
static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const int64_t width = fused_width(site);
    float *room = berth_data(args->workspace);
    fused_part packed;
    fused_row f;
    begin_packed(&packed, site, NULL);
    for (uint64_t i = 0; i < OWN_COUNT; ++i) {
        fused_pass_own(&packed, args, own[i]);
    }
    fused_pass(&packed, "x", fused_lay(&f, room, args->inputs[X]->dtype, width));
    for (int64_t row = 0; row < berth_row_count(args->outputs[FUSED_Y]); ++row) {
        fused_row y;
        BERTH_RULE_TRY(fused_run_prologue(site, args, RESIDUAL, row, &f.tensor));
        fused_row_of(&y, args->outputs[FUSED_Y], row);
        BERTH_RULE_TRY(fused_run(&packed, &y.tensor, NULL, room + width));
    }
    return BERTH_OK;
}

static uint64_t reference_workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)fused_width(site) * sizeof(float) +
           fused_product_room(site, &berth_op_packed_linear);
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_INPUT("weight"),
    BERTH_INPUT("weight_scale"),
    BERTH_OPTIONAL_INPUT("zero_points"),
    BERTH_OPTIONAL_INPUT("permutation"),
    FUSED_PROLOGUE_INPUTS,
    BERTH_OPTIONAL_INPUT("bias"),
};
static const berth_op_attribute *const attributes[] = {
    FUSED_PROLOGUE_ATTRIBUTES,
    BERTH_REQUIRED_ATTRIBUTE("code", BERTH_ATTRIBUTE_STR),
    BERTH_REQUIRED_ATTRIBUTE("group_shape", BERTH_ATTRIBUTE_I64S),
};

const berth_op berth_op_fused_packed_linear = {
    .size = sizeof(berth_op),
    .name = "fused_packed_linear",
    .class_name = "FusedPackedLinear",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
    .reference_workspace = reference_workspace,
};
