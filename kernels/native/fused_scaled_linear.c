// SPDX-License-Identifier: Apache-2.0
// fused_scaled_linear: y = (codes of f(x), scaled) · (codes of weight, scaled)ᵀ + bias, where f is
// a norm, an activation or nothing: scaled_linear of what quant_fp8 or quant_int8, by the weight's
// dtype, makes of what rms_norm or silu_and_mul gives, bit by bit.
//
//   x                 [..., k]  [..., 2k] before silu_and_mul; f32, f16 or bf16
//   weight            [n, k]    i8 or f8_e4m3fn
//   weight_scale      [ceil(n / rows), ceil(k / columns)]  f32, f16 or bf16
//   residual          like x    optional, of rms_norm
//   norm_weight       [k]       optional, of rms_norm
//   input_scale       f32 [1]   optional: of all codes of f(x); without it every row has its own
//   input_zero_point  i8 [1]    optional, beside input_scale, of i8: quant_int8's
//   sum_bias          [n]       optional, i32, of i8: scaled_linear's
//   bias              [n]       optional, any float dtype
//   y                 [..., n]  `dtype`
//   residual_out      like x    only with `residual`: x + residual
//
// `prologue` is f: "rms_norm", "silu_and_mul" or "none"; `eps` is the norm's. `input_group_shape`,
// rows and columns of f(x) that share a scale: [1, -1] without input_scale, [-1, -1] with it, and
// no other. `group_shape`, that of weight_scale, and `dtype` are scaled_linear's. fused_product.h
// has more.
#include <berth/op.h>

#include "fused_product.h"

extern const berth_op berth_op_quant_fp8;
extern const berth_op berth_op_quant_int8;
extern const berth_op berth_op_scaled_linear;

enum {
    X,
    WEIGHT,
    WEIGHT_SCALE,
    RESIDUAL,
    NORM_WEIGHT,
    INPUT_SCALE,
    INPUT_ZERO_POINT,
    SUM_BIAS,
    BIAS,
};
enum { PROLOGUE, EPS, INPUT_GROUP_SHAPE, GROUP_SHAPE, DTYPE };

// What scaled_linear has under the same names.
static const uint64_t own[] = {WEIGHT, WEIGHT_SCALE, SUM_BIAS, BIAS};
enum { OWN_COUNT = sizeof own / sizeof own[0] };

static int is_whole(const berth_op_site *site) {
    return site->inputs[WEIGHT]->dtype == BERTH_DTYPE_I8;
}

// ---- shape rule ---------------------------------------------------------------------------------

static berth_status check_one(const berth_op_site *site, uint64_t input, berth_dtype dtype) {
    const berth_value_type *type = site->inputs[input];
    if (type && type->dtype != dtype) {
        return BERTH_RULE_FAIL(site, input, "must be %s", dtype == BERTH_DTYPE_I8 ? "i8" : "f32");
    }
    BERTH_RULE_TRY(berth_rule_rank(site, input, 1));
    return berth_rule_dim(site, input, 0, BERTH_DIM_CONST(1));
}

static berth_status check_codes(const berth_op_site *site) {
    const berth_dtype dtype = site->inputs[WEIGHT]->dtype;
    if (dtype != BERTH_DTYPE_I8 && dtype != BERTH_DTYPE_F8_E4M3FN) {
        return BERTH_RULE_FAIL(site, WEIGHT, "must be i8 or f8_e4m3fn");
    }
    BERTH_RULE_TRY(check_one(site, INPUT_SCALE, BERTH_DTYPE_F32));
    BERTH_RULE_TRY(check_one(site, INPUT_ZERO_POINT, BERTH_DTYPE_I8));
    if (site->inputs[INPUT_ZERO_POINT] && (!is_whole(site) || !site->inputs[INPUT_SCALE])) {
        return BERTH_RULE_FAIL(site, INPUT_ZERO_POINT, "is for codes of i8 by a given scale only");
    }
    const berth_attribute *shape = site->attributes[INPUT_GROUP_SHAPE];
    const int64_t rows = site->inputs[INPUT_SCALE] ? -1 : 1;
    return shape->count == 2 && shape->i64s[0] == rows && shape->i64s[1] == -1
               ? BERTH_OK
               : BERTH_RULE_ATTRIBUTE(site, INPUT_GROUP_SHAPE, "must be [%lld, -1] %s input_scale",
                                      (long long)rows, rows == 1 ? "without" : "beside");
}

// ---- its parts ----------------------------------------------------------------------------------

static void begin_quantiser(fused_part *part, const berth_op_site *site,
                            const berth_value_type *f) {
    fused_begin(part, site, is_whole(site) ? &berth_op_quant_int8 : &berth_op_quant_fp8);
    fused_give(part, "x", X, f);
    fused_give(part, "scale", INPUT_SCALE, site->inputs[INPUT_SCALE]);
    if (is_whole(site)) {
        fused_give(part, "zero_point", INPUT_ZERO_POINT, site->inputs[INPUT_ZERO_POINT]);
        return;
    }
    fused_set(part, "static")->i64 = site->inputs[INPUT_SCALE] != NULL;
    berth_attribute *shape = fused_set(part, "group_shape");
    shape->i64s = site->attributes[INPUT_GROUP_SHAPE]->i64s;
    shape->count = site->attributes[INPUT_GROUP_SHAPE]->count;
}

static void begin_scaled(fused_part *part, const berth_op_site *site, const berth_value_type *q,
                         const berth_value_type *scale) {
    fused_begin(part, site, &berth_op_scaled_linear);
    fused_give(part, "x", X, q);
    fused_give(part, "x_scale", X, scale);
    for (uint64_t i = 0; i < OWN_COUNT; ++i) {
        fused_give_own(part, own[i]);
    }
    fused_hand_on(part, "group_shape");
    fused_hand_on(part, "dtype");
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    berth_value_type f;
    berth_value_type sum = {0};
    berth_value_type q;
    berth_value_type scale;
    berth_value_type y;
    fused_part part;
    BERTH_RULE_TRY(fused_infer_prologue(site, RESIDUAL, &f, &sum));
    BERTH_RULE_TRY(check_codes(site));
    begin_quantiser(&part, site, &f);
    BERTH_RULE_TRY(fused_infer(&part, &q, &scale));
    begin_scaled(&part, site, &q, &scale);
    BERTH_RULE_TRY(fused_infer(&part, &y, NULL));
    return fused_give_out(site, RESIDUAL, &y, &sum, out);
}

// ---- reference ----------------------------------------------------------------------------------

// A row of each, in the workspace before what scaled_linear asks for.
typedef struct middle {
    fused_row f;
    fused_row scale;
    fused_row q;
} middle;

// Their room, in floats.
static uint64_t middle_size(const berth_op_site *site) {
    return 2 * (uint64_t)fused_width(site) + 1;
}

static void lay_out(middle *self, const berth_op_site *site, float *room) {
    const int64_t width = fused_width(site);
    fused_lay(&self->f, room, site->inputs[X]->dtype, width);
    fused_lay(&self->scale, room + width, BERTH_DTYPE_F32, 1);
    fused_lay(&self->q, room + width + 1, site->inputs[WEIGHT]->dtype, width);
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *y = args->outputs[FUSED_Y];
    float *room = berth_data(args->workspace);
    fused_part quantiser;
    fused_part scaled;
    middle at;
    fused_row out;
    lay_out(&at, site, room);
    begin_quantiser(&quantiser, site, NULL);
    fused_pass(&quantiser, "x", &at.f.tensor);
    fused_pass(&quantiser, "scale", args->inputs[INPUT_SCALE]);
    if (is_whole(site)) {
        fused_pass(&quantiser, "zero_point", args->inputs[INPUT_ZERO_POINT]);
    }
    begin_scaled(&scaled, site, NULL, NULL);
    fused_pass(&scaled, "x", &at.q.tensor);
    fused_pass(&scaled, "x_scale", &at.scale.tensor);
    for (uint64_t i = 0; i < OWN_COUNT; ++i) {
        fused_pass_own(&scaled, args, own[i]);
    }
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        BERTH_RULE_TRY(fused_run_prologue(site, args, RESIDUAL, row, &at.f.tensor));
        BERTH_RULE_TRY(fused_run(&quantiser, &at.q.tensor, &at.scale.tensor, NULL));
        BERTH_RULE_TRY(
            fused_run(&scaled, fused_row_of(&out, y, row), NULL, room + middle_size(site)));
    }
    return BERTH_OK;
}

static uint64_t reference_workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return middle_size(site) * sizeof(float) + fused_product_room(site, &berth_op_scaled_linear);
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_INPUT("weight"),
    BERTH_INPUT("weight_scale"),
    FUSED_PROLOGUE_INPUTS,
    BERTH_OPTIONAL_INPUT("input_scale"),
    BERTH_OPTIONAL_INPUT("input_zero_point"),
    BERTH_OPTIONAL_INPUT("sum_bias"),
    BERTH_OPTIONAL_INPUT("bias"),
};
static const berth_op_attribute *const attributes[] = {
    FUSED_PROLOGUE_ATTRIBUTES,
    BERTH_REQUIRED_ATTRIBUTE("input_group_shape", BERTH_ATTRIBUTE_I64S),
    BERTH_REQUIRED_ATTRIBUTE("group_shape", BERTH_ATTRIBUTE_I64S),
    BERTH_REQUIRED_ATTRIBUTE("dtype", BERTH_ATTRIBUTE_STR),
};

const berth_op berth_op_fused_scaled_linear = {
    .size = sizeof(berth_op),
    .name = "fused_scaled_linear",
    .class_name = "FusedScaledLinear",
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
