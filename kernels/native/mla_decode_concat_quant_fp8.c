// SPDX-License-Identifier: Apache-2.0
// mla_decode_concat_quant_fp8: the two parts of an absorbed MLA query put together and quantised
// with one given scale.
//
//   decode_ql_nope  [tokens, heads, l]      f32, f16 or bf16
//   decode_q_pe     [tokens, heads, p]      decode_ql_nope's dtype
//   scale           [1] f32
//   q               [tokens, heads, l + p]  f8_e4m3fn
//
// `static` and `group_shape` may only say what holds anyway: one given scale for all.
// q = x · (1 / scale), cut at ±448 and rounded once; a NaN stays one. vLLM's class falls back to
// its own concatenating form on ROCm and XPU and fails there; this is its forward_native.
#include <berth/op.h>

#include "rules.h"

enum { DECODE_QL_NOPE, DECODE_Q_PE, SCALE };
enum { STATIC, GROUP_SHAPE };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const berth_value_type *nope = site->inputs[DECODE_QL_NOPE];
    for (uint64_t input = DECODE_QL_NOPE; input <= DECODE_Q_PE; ++input) {
        BERTH_RULE_TRY(berth_rule_float(site, input));
        BERTH_RULE_TRY(berth_rule_same_dtype(site, input, DECODE_QL_NOPE));
        BERTH_RULE_TRY(berth_rule_rank(site, input, 3));
        BERTH_RULE_TRY(berth_rule_width(site, input));
        BERTH_RULE_TRY(berth_rule_dim(site, input, 0, nope->dims[0]));
        BERTH_RULE_TRY(berth_rule_dim(site, input, 1, nope->dims[1]));
    }
    const berth_attribute *group = site->attributes[GROUP_SHAPE];
    if (!site->attributes[STATIC]->i64) {
        return BERTH_RULE_ATTRIBUTE(site, STATIC, "must be true: the scale is given");
    }
    if (group->kind != BERTH_ATTRIBUTE_NONE &&
        !(group->count == 2 && group->i64s[0] == -1 && group->i64s[1] == -1)) {
        return BERTH_RULE_ATTRIBUTE(site, GROUP_SHAPE, "must be [-1, -1]: one scale for all");
    }
    if (site->inputs[SCALE]->dtype != BERTH_DTYPE_F32) {
        return BERTH_RULE_FAIL(site, SCALE, "must be f32");
    }
    BERTH_RULE_TRY(berth_rule_rank(site, SCALE, 1));
    BERTH_RULE_TRY(berth_rule_dim(site, SCALE, 0, BERTH_DIM_CONST(1)));
    berth_value_type *q = berth_rule_give(out, nope);
    q->dtype = BERTH_DTYPE_F8_E4M3FN;
    q->dims[2].b += berth_last_dim(site->inputs[DECODE_Q_PE]).b;
    return BERTH_OK;
}

static void quantise(const berth_tensor *x, int64_t row, float factor, uint8_t *to) {
    const void *from = berth_row(x, row);
    for (int64_t i = 0; i < berth_row_length(x); ++i) {
        to[i] = berth_to_f8(berth_load_at(from, x->dtype, i) * factor);
    }
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *nope = args->inputs[DECODE_QL_NOPE];
    const float factor = 1.0f / *(const float *)berth_data(args->inputs[SCALE]);
    for (int64_t row = 0; row < berth_row_count(nope); ++row) {
        uint8_t *to = berth_row(args->outputs[0], row);
        quantise(nope, row, factor, to);
        quantise(args->inputs[DECODE_Q_PE], row, factor, to + berth_row_length(nope));
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("decode_ql_nope"),
    BERTH_STRIDED_INPUT("decode_q_pe"),
    BERTH_INPUT("scale"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("static", BERTH_ATTRIBUTE_BOOL, .i64 = 1),
    BERTH_ABSENT_ATTRIBUTE("group_shape", BERTH_ATTRIBUTE_I64S),
};

const berth_op berth_op_mla_decode_concat_quant_fp8 = {
    .size = sizeof(berth_op),
    .name = "mla_decode_concat_quant_fp8",
    .class_name = "_DecodeConcatQuantFP8",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
};
