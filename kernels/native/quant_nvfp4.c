// SPDX-License-Identifier: Apache-2.0
// quant_nvfp4: groups of 16 inputs in e2m1, each with a scale in e4m3 and all with one given scale.
//
//   x              [..., k]       f32, f16 or bf16; k a multiple of 16
//   global_scale   f32            one element, a divisor
//   scale_divisor  f32            optional, one element; since revision 2
//   q              [..., k]       i8: twice the numbers of e2m1, which are whole
//   scale          [..., k / 16]  f32: what q is multiplied by
//
// With g the global scale, l = e4m3(min(g · (max|x| · (1 / 6)), 448)), the code is
// e2m1(x · (1 / (l · (1 / g)))) and its scale l / g; with a scale divisor d it is l / d. Where d is
// a power of two q · scale has six bits, so every float dtype has it, and d / g is a factor of what
// becomes of x. Why i8: numbers of e2m1 are multiplied as integers, exactly.
#include <berth/op.h>

#include "rules.h"

#include <codes.h>
#include <nvfp4.h>

#include <math.h>

enum { X, GLOBAL_SCALE, SCALE_DIVISOR };
enum { Q, SCALE };

#define GROUP BERTH_NVFP4_GROUP

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, X));
    BERTH_RULE_TRY(berth_rule_width(site, X));
    for (uint64_t i = GLOBAL_SCALE; i <= SCALE_DIVISOR; ++i) {
        BERTH_RULE_TRY(berth_rule_f32(site, i));
        BERTH_RULE_TRY(berth_rule_rank(site, i, 1));
        BERTH_RULE_TRY(berth_rule_dim(site, i, 0, BERTH_DIM_CONST(1)));
    }
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

// The scale, before its divisor.
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
    return local;
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *x = args->inputs[X];
    const float global = *(const float *)berth_data(args->inputs[GLOBAL_SCALE]);
    const berth_tensor *given = args->inputs[SCALE_DIVISOR];
    const float divisor = given ? *(const float *)berth_data(given) : global;
    for (int64_t row = 0; row < berth_row_count(x); ++row) {
        int8_t *q = berth_row(args->outputs[Q], row);
        float *scales = berth_row(args->outputs[SCALE], row);
        for (int64_t first = 0; first < berth_row_length(x); first += GROUP) {
            float group[GROUP];
            berth_load(berth_row(x, row), x->dtype, first, GROUP, group);
            scales[first / GROUP] = 0.5f * (quantise_group(group, global, q + first) / divisor);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_INPUT("global_scale"),
    BERTH_LATER_INPUT("scale_divisor", 2),
};

const berth_op berth_op_quant_nvfp4 = {
    .size = sizeof(berth_op),
    .name = "quant_nvfp4",
    .class_name = "QuantNVFP4",
    .revision = 2,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
    .compatible_revision = 1,
};
