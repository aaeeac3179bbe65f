// SPDX-License-Identifier: Apache-2.0
// mla_decode: one query per sequence over a paged cache of latent rows, which serve as key and,
// without their rotated columns, as value; the heads share them.
//
//   query        [n, heads, l + p]         f32, f16 or bf16: latent columns, then rotated ones
//   block_table  [n, blocks per sequence]  optional, with seq_lens [n]; absent: those of the batch
//   y            [n, heads, l]             query's dtype
//   state kv_cache  [blocks, block_size, l + p], any float dtype
//
// `kv_lora_rank` l, `scale` as given; `qk_rope_head_dim`, if given, is p. Row i of the query
// belongs to sequence i and sees all of its seq_lens[i] rows. All in f32, one rounding: vLLM's
// ref_mla.
#include <berth/op.h>

#include <sequences.h>

#include "sequence_rules.h"
#include "softmax_sum.h"

enum { QUERY, BLOCK_TABLE, SEQ_LENS };
enum { ATTR_SCALE, KV_LORA_RANK, QK_ROPE_HEAD_DIM };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const berth_value_type *query = site->inputs[QUERY];
    const int64_t latent = site->attributes[KV_LORA_RANK]->i64;
    BERTH_RULE_TRY(berth_rule_scale(site, ATTR_SCALE));
    BERTH_RULE_TRY(berth_rule_float(site, QUERY));
    BERTH_RULE_TRY(berth_rule_rank(site, QUERY, 3));
    BERTH_RULE_TRY(berth_rule_width(site, QUERY));
    BERTH_RULE_TRY(berth_rule_constant(site, QUERY, 1));
    if (latent < 1 || latent > berth_last_dim(query).b) {
        return BERTH_RULE_ATTRIBUTE(site, KV_LORA_RANK, "must be 1 to %lld, is %lld",
                                    (long long)berth_last_dim(query).b, (long long)latent);
    }
    const berth_attribute *rotated = site->attributes[QK_ROPE_HEAD_DIM];
    if (rotated->kind != BERTH_ATTRIBUTE_NONE && rotated->i64 != berth_last_dim(query).b - latent) {
        return BERTH_RULE_ATTRIBUTE(site, QK_ROPE_HEAD_DIM, "must be %lld as in 'query', is %lld",
                                    (long long)(berth_last_dim(query).b - latent),
                                    (long long)rotated->i64);
    }
    BERTH_RULE_TRY(berth_rule_index(site, BLOCK_TABLE, 2));
    BERTH_RULE_TRY(berth_rule_index(site, SEQ_LENS, 1));
    if (!site->inputs[BLOCK_TABLE] != !site->inputs[SEQ_LENS]) {
        return BERTH_RULE_FAIL(site, SEQ_LENS,
                               "must be there when 'block_table' is, and only then");
    }
    BERTH_RULE_TRY(berth_rule_dim(site, BLOCK_TABLE, 0, query->dims[0]));
    BERTH_RULE_TRY(berth_rule_dim(site, SEQ_LENS, 0, query->dims[0]));
    berth_rule_give(out, query)->dims[2] = BERTH_DIM_CONST(latent);
    return BERTH_OK;
}

// All heads of one sequence.
static void attend(const berth_op_site *site, const berth_op_args *args, const berth_tensor *table,
                   int64_t sequence, int64_t length) {
    const berth_tensor *query = args->inputs[QUERY];
    const berth_tensor *cache = args->states[0];
    const float scale = (float)site->attributes[ATTR_SCALE]->f64;
    const int64_t heads = query->shape[1];
    const void *blocks = berth_row(table, sequence);
    for (int64_t row = sequence * heads; row < (sequence + 1) * heads; ++row) {
        berth_softmax_sum sum =
            berth_softmax_begin(berth_data(args->workspace), site->attributes[KV_LORA_RANK]->i64);
        for (int64_t j = 0; j < length; ++j) {
            const int64_t block = berth_integer_at(blocks, table->dtype, j / cache->shape[1]);
            const void *key = berth_row(cache, block * cache->shape[1] + j % cache->shape[1]);
            const float score = berth_dot(berth_row(query, row), query->dtype, key, cache->dtype,
                                          berth_row_length(query));
            berth_softmax_take(&sum, scale * score, key, cache->dtype);
        }
        berth_softmax_store(&sum, berth_row(args->outputs[0], row), query->dtype);
    }
}

static uint64_t workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)site->attributes[KV_LORA_RANK]->i64 * sizeof(double);
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_batch_view *view = args->batch ? args->batch->host : NULL;
    const berth_tensor *query = args->inputs[QUERY];
    const berth_tensor *cache = args->states[0];
    const berth_tensor *table = args->inputs[BLOCK_TABLE];
    const berth_tensor *lengths = args->inputs[SEQ_LENS];
    BERTH_RULE_TRY(BERTH_STATE_CHECK(site->host, "mla_decode", cache, cache->shape[1],
                                     berth_row_length(query)));
    if (!view && (!table || !lengths)) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                 "mla_decode: needs a batch or 'block_table' and 'seq_lens'");
    }
    table = table ? table : view->block_tables[site->cache_group];
    lengths = lengths ? lengths : view->seq_lens;
    if (query->shape[0] > lengths->shape[0]) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                 "mla_decode: %lld queries for %lld sequences",
                                 (long long)query->shape[0], (long long)lengths->shape[0]);
    }
    for (int64_t i = 0; i < query->shape[0]; ++i) {
        const int64_t length = berth_integer_at(berth_data(lengths), lengths->dtype, i);
        if (length > table->shape[1] * cache->shape[1]) {
            return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                     "mla_decode: sequence %lld of %lld tokens has %lld blocks",
                                     (long long)i, (long long)length, (long long)table->shape[1]);
        }
        attend(site, args, table, i, length);
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("query"),
    BERTH_OPTIONAL_INPUT("block_table"),
    BERTH_OPTIONAL_INPUT("seq_lens"),
};
static const berth_op_argument *const states[] = {BERTH_INPUT("kv_cache")};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("scale", BERTH_ATTRIBUTE_F64),
    BERTH_REQUIRED_ATTRIBUTE("kv_lora_rank", BERTH_ATTRIBUTE_I64),
    BERTH_ABSENT_ATTRIBUTE("qk_rope_head_dim", BERTH_ATTRIBUTE_I64),
};

const berth_op berth_op_mla_decode = {
    .size = sizeof(berth_op),
    .name = "mla_decode",
    .class_name = "MLADecode",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .states = states,
    .state_count = sizeof states / sizeof states[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .reference_workspace = workspace,
};
