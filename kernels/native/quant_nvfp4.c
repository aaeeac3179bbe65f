// SPDX-License-Identifier: Apache-2.0
// quant_nvfp4: groups of 16 inputs in e2m1, each with a scale in e4m3 and all with one given scale.
//
//   x             [..., k]       f32, f16 or bf16; k a multiple of 16
//   global_scale  f32            one element, a divisor
//   q             [..., k]       i8: twice the numbers of e2m1, which are whole
//   scale         [..., k / 16]  f32: what q is multiplied by
//
// With g the global scale, l = e4m3(min(g · (max|x| · (1 / 6)), 448)) and the code is
// e2m1(x · (1 / (l · (1 / g)))). Why i8: numbers of e2m1 are multiplied as integers, exactly.
#include <berth/op.h>

#include "rules.h"

#include <codes.h>
#include <nvfp4.h>

#include <math.h>

enum { X, GLOBAL_SCALE };
enum { Q, SCALE };

#define GROUP BERTH_NVFP4_GROUP

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, X));
    BERTH_RULE_TRY(berth_rule_width(site, X));
    BERTH_RULE_TRY(berth_rule_f32(site, GLOBAL_SCALE));
    BERTH_RULE_TRY(berth_rule_rank(site, GLOBAL_SCALE, 1));
    BERTH_RULE_TRY(berth_rule_dim(site, GLOBAL_SCALE, 0, BERTH_DIM_CONST(1)));
    const int64_t k = berth_last_dim(site->inputs[X]).b;
    if (k % GROUP != 0) {
        return BERTH_RULE_FAIL(site, X, "must have a multiple of 16 in its last dimension");
    }
    berth_rule_give(out, site->inputs[X])->dtype = BERTH_DTYPE_I8;
    berth_value_type *scale = berth_rule_give(out, site->inputs[X]);
    scale->dtype = BERTH_DTYPE_F32;
    scale->dims[scale->ndim - 1] = BERTH_DIM_CONST(k / GROUP);
    return BERTH_OK;
}

static float quantise_group(const float *x, float global, int8_t *q) {
    float largest = 0;
    for (int i = 0; i < GROUP; ++i) {
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    }
    const float local = berth_nvfp4_local(largest, global);
    const float factor = berth_nvfp4_factor(local, global);
    for (int i = 0; i < GROUP; ++i) {
        q[i] = (int8_t)berth_e2m1_twice(berth_to_e2m1(x[i] * factor));
    }
    return 0.5f * (local / global);
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[X];
    const float global = *(const float *)berth_data(args->inputs[GLOBAL_SCALE]);
    for (int64_t row = 0; row < berth_row_count(x); ++row) {
        int8_t *q = berth_row(args->outputs[Q], row);
        float *scales = berth_row(args->outputs[SCALE], row);
        for (int64_t first = 0; first < berth_row_length(x); first += GROUP) {
            float group[GROUP];
            berth_load(berth_row(x, row), x->dtype, first, GROUP, group);
            scales[first / GROUP] = quantise_group(group, global, q + first);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_INPUT("global_scale"),
};

const berth_op berth_op_quant_nvfp4 = {
    .size = sizeof(berth_op),
    .name = "quant_nvfp4",
    .class_name = "QuantNVFP4",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
};
