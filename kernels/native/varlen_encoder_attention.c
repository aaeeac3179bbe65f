// SPDX-License-Identifier: Apache-2.0
// varlen_encoder_attention: attention of an encoder over a flattened batch. Every token sees all
// tokens of its own sequence, or those within a window; nothing is cached.
//
//   query       [tokens, heads, d]     f32, f16 or bf16
//   key, value  [tokens, kv_heads, d]  query's dtype
//   seq_lens    [n]                    optional: lengths of the sequences, one after another;
//                                      absent: those of the batch
//   y           like query
//
// `scale` as given; `sliding_window` w: token i sees j when |i − j| < w; 0: all. Query head i reads
// key head i / (heads / kv_heads). All in f32, one rounding: vLLM's ref_varlen_encoder_attn.
#include <berth/op.h>

#include <varlen.h>

#include "sequence_rules.h"
#include "softmax_sum.h"

enum { QUERY, KEY, VALUE, SEQ_LENS };
enum { ATTR_SCALE, SLIDING_WINDOW };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const berth_value_type *query = site->inputs[QUERY];
    BERTH_RULE_TRY(berth_rule_float(site, QUERY));
    BERTH_RULE_TRY(berth_rule_rank(site, QUERY, 3));
    BERTH_RULE_TRY(berth_rule_width(site, QUERY));
    BERTH_RULE_TRY(berth_rule_constant(site, QUERY, 1));
    BERTH_RULE_TRY(berth_rule_same_dtype(site, KEY, QUERY));
    BERTH_RULE_TRY(berth_rule_rank(site, KEY, 3));
    BERTH_RULE_TRY(berth_rule_dim(site, KEY, 0, query->dims[0]));
    BERTH_RULE_TRY(berth_rule_constant(site, KEY, 1));
    BERTH_RULE_TRY(berth_rule_dim(site, KEY, 2, query->dims[2]));
    if (query->dims[1].b % site->inputs[KEY]->dims[1].b != 0) {
        return BERTH_RULE_FAIL(site, KEY, "must have a number of heads that divides %lld",
                               (long long)query->dims[1].b);
    }
    BERTH_RULE_TRY(berth_rule_same_dtype(site, VALUE, QUERY));
    BERTH_RULE_TRY(berth_rule_same_shape(site, VALUE, KEY));
    BERTH_RULE_TRY(berth_rule_index(site, SEQ_LENS, 1));
    BERTH_RULE_TRY(berth_rule_scale(site, ATTR_SCALE));
    if (site->attributes[SLIDING_WINDOW]->i64 < 0) {
        return BERTH_RULE_ATTRIBUTE(site, SLIDING_WINDOW, "must not be negative, is %lld",
                                    (long long)site->attributes[SLIDING_WINDOW]->i64);
    }
    berth_rule_give(out, query);
    return BERTH_OK;
}

// All heads of the tokens [first, end) of one sequence.
static void attend(const void *self, const berth_op_args *args, int64_t first, int64_t end) {
    const berth_op_site *site = self;
    const berth_tensor *query = args->inputs[QUERY];
    const berth_tensor *key = args->inputs[KEY];
    const berth_dtype dtype = query->dtype;
    const int64_t heads = query->shape[1];
    const int64_t window = site->attributes[SLIDING_WINDOW]->i64;
    const float scale = (float)site->attributes[ATTR_SCALE]->f64;
    for (int64_t row = first * heads; row < end * heads; ++row) {
        const int64_t token = row / heads;
        const int64_t kv_head = row % heads / (heads / key->shape[1]);
        const int64_t begin = window > 0 && token - window + 1 > first ? token - window + 1 : first;
        const int64_t stop = window > 0 && token + window < end ? token + window : end;
        berth_softmax_sum sum =
            berth_softmax_begin(berth_data(args->workspace), berth_row_length(query));
        for (int64_t j = begin; j < stop; ++j) {
            const void *k = berth_row(key, j * key->shape[1] + kv_head);
            const void *v = berth_row(args->inputs[VALUE], j * key->shape[1] + kv_head);
            const float score = berth_dot(berth_row(query, row), dtype, k, dtype, sum.width);
            berth_softmax_take(&sum, scale * score, v, dtype);
        }
        berth_softmax_store(&sum, berth_row(args->outputs[0], row), dtype);
    }
}

static uint64_t workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)berth_last_dim(site->inputs[QUERY]).b * sizeof(double);
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    return berth_varlen_each(site->host, args, args->inputs[SEQ_LENS], attend, site);
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("query"),
    BERTH_STRIDED_INPUT("key"),
    BERTH_STRIDED_INPUT("value"),
    BERTH_OPTIONAL_INPUT("seq_lens"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("scale", BERTH_ATTRIBUTE_F64),
    BERTH_OPTIONAL_ATTRIBUTE("sliding_window", BERTH_ATTRIBUTE_I64, .i64 = 0),
};

const berth_op berth_op_varlen_encoder_attention = {
    .size = sizeof(berth_op),
    .name = "varlen_encoder_attention",
    .class_name = "EncoderOnlyAttention",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .reference_workspace = workspace,
};
