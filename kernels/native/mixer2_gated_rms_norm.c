// SPDX-License-Identifier: Apache-2.0
// mixer2_gated_rms_norm: y = weight · norm(x · silu(gate)), the norm over groups of the whole row.
//
//   x, gate  [tokens, full_hidden_size / tp_size]  f32, f16 or bf16: what this rank has of the row
//   weight   like one row                          any float dtype; absent without `use_rms_norm`
//   all_reduced_sum_of_squares  [tokens, 1]        f32, the sum over all ranks: needed when the one
//                                                  group spans several ranks
//   y        like x
//
// `use_rms_norm` 0: y = x · silu(gate). The normalised value is rounded before the weight: vLLM's
// Mixer2RMSNormGated.forward_native; its Triton kernel rounds once, and its device path without the
// norm rounds silu; both are within the tolerance.
#include <berth/op.h>

#include "norm.h"

enum { X, GATE, WEIGHT, SUM_OF_SQUARES };
enum { FULL_HIDDEN_SIZE, FULL_N_GROUPS, USE_RMS_NORM, EPS, TP_SIZE, TP_RANK };

static int64_t attribute(const berth_op_site *site, uint64_t index) {
    return site->attributes[index]->i64;
}

static int spans_ranks(const berth_op_site *site) {
    return attribute(site, FULL_N_GROUPS) == 1 && attribute(site, TP_SIZE) > 1;
}

static berth_status check_sizes(const berth_op_site *site) {
    const int64_t hidden = attribute(site, FULL_HIDDEN_SIZE);
    const int64_t ranks = attribute(site, TP_SIZE);
    const int64_t groups = attribute(site, FULL_N_GROUPS);
    if (ranks < 1) {
        return BERTH_RULE_ATTRIBUTE(site, TP_SIZE, "must be at least 1, is %lld", (long long)ranks);
    }
    if (hidden != berth_last_dim(site->inputs[X]).b * ranks) {
        return BERTH_RULE_ATTRIBUTE(site, FULL_HIDDEN_SIZE,
                                    "must be tp_size times the last dimension of 'x', is %lld",
                                    (long long)hidden);
    }
    if (groups < 1 || hidden % groups != 0 || (groups > 1 && groups % ranks != 0)) {
        return BERTH_RULE_ATTRIBUTE(
            site, FULL_N_GROUPS,
            "must divide the row of %lld, in whole groups on each of %lld ranks, is %lld",
            (long long)hidden, (long long)ranks, (long long)groups);
    }
    if (attribute(site, TP_RANK) < 0 || attribute(site, TP_RANK) >= ranks) {
        return BERTH_RULE_ATTRIBUTE(site, TP_RANK, "must be 0 to %lld, is %lld",
                                    (long long)ranks - 1, (long long)attribute(site, TP_RANK));
    }
    return BERTH_OK;
}

static berth_status check_norm(const berth_op_site *site) {
    const int is_norm = attribute(site, USE_RMS_NORM) != 0;
    if (is_norm && !site->inputs[WEIGHT]) {
        return BERTH_RULE_FAIL(site, WEIGHT, "must be there with use_rms_norm");
    }
    if (is_norm && spans_ranks(site) && !site->inputs[SUM_OF_SQUARES]) {
        return BERTH_RULE_FAIL(site, SUM_OF_SQUARES, "must be there when ranks share one group");
    }
    return BERTH_OK;
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_rows(site, X));
    BERTH_RULE_TRY(berth_rule_rank(site, X, 2));
    BERTH_RULE_TRY(berth_rule_like(site, GATE, X));
    BERTH_RULE_TRY(berth_rule_per_column(site, WEIGHT, X));
    BERTH_RULE_TRY(berth_rule_float(site, SUM_OF_SQUARES));
    BERTH_RULE_TRY(berth_rule_rank(site, SUM_OF_SQUARES, 2));
    BERTH_RULE_TRY(berth_rule_dim(site, SUM_OF_SQUARES, 0, site->inputs[X]->dims[0]));
    BERTH_RULE_TRY(berth_rule_dim(site, SUM_OF_SQUARES, 1, BERTH_DIM_CONST(1)));
    BERTH_RULE_TRY(berth_rule_eps(site, EPS));
    BERTH_RULE_TRY(check_sizes(site));
    BERTH_RULE_TRY(check_norm(site));
    berth_rule_give(out, site->inputs[X]);
    return BERTH_OK;
}

// The factor of the group that begins at `values`.
static float scale_of(const berth_op_site *site, const berth_op_args *args, int64_t row,
                      const float *values, int64_t group) {
    const double eps = berth_site_f64(site, EPS);
    const berth_tensor *sums = args->inputs[SUM_OF_SQUARES];
    if (!spans_ranks(site)) {
        return berth_rms_scale(values, group, eps);
    }
    const float sum = berth_load_at(berth_row(sums, row), sums->dtype, 0);
    return 1.0f / sqrtf(sum / (float)attribute(site, FULL_HIDDEN_SIZE) + (float)eps);
}

static void normalise(const berth_op_site *site, const berth_op_args *args, int64_t row,
                      float *values) {
    const berth_tensor *y = args->outputs[0];
    const int64_t hidden = berth_row_length(y);
    const int64_t whole = attribute(site, FULL_HIDDEN_SIZE) / attribute(site, FULL_N_GROUPS);
    const int64_t group = whole < hidden ? whole : hidden;
    for (int64_t first = 0; first < hidden; first += group) {
        const float scale = scale_of(site, args, row, values + first, group);
        for (int64_t i = first; i < first + group; ++i) {
            const float normal = berth_round_to(y->dtype, values[i] * scale);
            values[i] = berth_weight_at(args->inputs[WEIGHT], i) * normal;
        }
    }
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *y = args->outputs[0];
    const int64_t hidden = berth_row_length(y);
    float *values = berth_data(args->workspace); // [hidden]
    for (int64_t row = 0; row < berth_row_count(y); ++row) {
        const void *gates = berth_row(args->inputs[GATE], row);
        berth_load(berth_row(x, row), x->dtype, 0, hidden, values);
        for (int64_t i = 0; i < hidden; ++i) {
            values[i] *= berth_silu(berth_load_at(gates, x->dtype, i));
        }
        if (attribute(site, USE_RMS_NORM) != 0) {
            normalise(site, args, row, values);
        }
        berth_store(berth_row(y, row), y->dtype, 0, hidden, values);
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("x"),
    BERTH_STRIDED_INPUT("gate"),
    BERTH_OPTIONAL_INPUT("weight"),
    BERTH_OPTIONAL_INPUT("all_reduced_sum_of_squares"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("full_hidden_size", BERTH_ATTRIBUTE_I64),
    BERTH_REQUIRED_ATTRIBUTE("full_n_groups", BERTH_ATTRIBUTE_I64),
    BERTH_OPTIONAL_ATTRIBUTE("use_rms_norm", BERTH_ATTRIBUTE_BOOL, .i64 = 1),
    BERTH_OPTIONAL_ATTRIBUTE("eps", BERTH_ATTRIBUTE_F64, .f64 = 1e-6),
    BERTH_OPTIONAL_ATTRIBUTE("tp_size", BERTH_ATTRIBUTE_I64, .i64 = 1),
    BERTH_OPTIONAL_ATTRIBUTE("tp_rank", BERTH_ATTRIBUTE_I64, .i64 = 0),
};

const berth_op berth_op_mixer2_gated_rms_norm = {
    .size = sizeof(berth_op),
    .name = "mixer2_gated_rms_norm",
    .class_name = "Mixer2RMSNormGated",
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
