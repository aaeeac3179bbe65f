// SPDX-License-Identifier: Apache-2.0
// rms_norm_gated: an rms norm over the last dimension, or over groups of it, times a gate.
//
//   x       [..., hidden]  f32, f16 or bf16
//   weight  [hidden]       any float dtype
//   z       like x         optional: the gate before its activation
//   y       like x
//
// `norm_before_gate`: y = norm(x)·weight·act(z), else y = norm(x·act(z))·weight. `group_size`:
// columns of one mean, a divisor of hidden; absent: all. `activation`: swish (or silu) or sigmoid.
// In f32 with one rounding: vLLM's RMSNormGated.forward_native, and its device kernels.
#include <berth/op.h>

#include "norm.h"

enum { X, WEIGHT, Z };
enum { EPS, GROUP_SIZE, NORM_BEFORE_GATE, ACTIVATION };

static int64_t group_of(const berth_op_site *site) {
    const berth_attribute *size = site->attributes[GROUP_SIZE];
    return size->kind == BERTH_ATTRIBUTE_NONE ? berth_last_dim(site->inputs[X]).b : size->i64;
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_rows(site, X));
    BERTH_RULE_TRY(berth_rule_per_column(site, WEIGHT, X));
    BERTH_RULE_TRY(berth_rule_like(site, Z, X));
    BERTH_RULE_TRY(berth_rule_eps(site, EPS));
    BERTH_RULE_TRY(berth_rule_gate(site, ACTIVATION));
    const int64_t hidden = berth_last_dim(site->inputs[X]).b;
    if (group_of(site) < 1 || hidden % group_of(site) != 0) {
        return BERTH_RULE_ATTRIBUTE(site, GROUP_SIZE, "must divide %lld, is %lld",
                                    (long long)hidden, (long long)group_of(site));
    }
    berth_rule_give(out, site->inputs[X]);
    return BERTH_OK;
}

// values[i] · act(z[i])
static void apply_gate(const berth_op_site *site, const void *z, berth_dtype dtype, int64_t hidden,
                       float *values) {
    for (int64_t i = 0; i < hidden; ++i) {
        values[i] *= berth_gate(site, ACTIVATION, berth_load_at(z, dtype, i));
    }
}

static void normalise(const berth_op_site *site, const berth_tensor *weight, int64_t hidden,
                      float *values) {
    const int64_t group = group_of(site);
    for (int64_t first = 0; first < hidden; first += group) {
        const float scale = berth_rms_scale(values + first, group, berth_site_f64(site, EPS));
        for (int64_t i = first; i < first + group; ++i) {
            values[i] = values[i] * scale * berth_weight_at(weight, i);
        }
    }
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *z = args->inputs[Z];
    const berth_tensor *y = args->outputs[0];
    const int64_t hidden = berth_row_length(y);
    const int is_norm_first = site->attributes[NORM_BEFORE_GATE]->i64 != 0;
    float *values = berth_data(args->workspace); // [hidden]
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        berth_load(berth_row(x, row), x->dtype, 0, hidden, values);
        if (z && !is_norm_first) {
            apply_gate(site, berth_row(z, row), z->dtype, hidden, values);
        }
        normalise(site, args->inputs[WEIGHT], hidden, values);
        if (z && is_norm_first) {
            apply_gate(site, berth_row(z, row), z->dtype, hidden, values);
        }
        berth_store(berth_row(y, row), y->dtype, 0, hidden, values);
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_INPUT("weight"),
    BERTH_OPTIONAL_STRIDED_INPUT("z"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("eps", BERTH_ATTRIBUTE_F64, .f64 = 1e-5),
    BERTH_ABSENT_ATTRIBUTE("group_size", BERTH_ATTRIBUTE_I64),
    BERTH_OPTIONAL_ATTRIBUTE("norm_before_gate", BERTH_ATTRIBUTE_BOOL, .i64 = 0),
    BERTH_OPTIONAL_ATTRIBUTE("activation", BERTH_ATTRIBUTE_STR, .str = "swish"),
};

const berth_op berth_op_rms_norm_gated = {
    .size = sizeof(berth_op),
    .name = "rms_norm_gated",
    .class_name = "RMSNormGated",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    BERTH_ATTRIBUTE_TABLE(attributes),
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
    .reference_workspace = berth_norm_workspace,
    .has_decomposition = 1,
};
