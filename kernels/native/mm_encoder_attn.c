// SPDX-License-Identifier: Apache-2.0
// mm_encoder_attn: attention of an image or audio encoder. Every token sees all tokens of its own
// segment; nothing is cached.
//
//   query       [batch, tokens, heads · d]      f32, f16 or bf16; also [batch, tokens, heads, d]
//   key, value  [batch, tokens, kv_heads · d]   query's dtype and rank
//   cu_seqlens  [n + 1]                         optional, for a batch of 1: where segments begin;
//                                               without it every row of the batch is one
//   y           like query
//
// `num_heads` query heads of `head_size`, `num_kv_heads` (absent: as many) key heads; query head i
// reads key head i / (heads / kv_heads). `scale`, absent: 1/√head_size.
// All in f32, one rounding: vLLM's forward_native, whose precision between the two products is that
// of PyTorch's back end.
#include <berth/op.h>

#include "sequence_rules.h"
#include "softmax_sum.h"

enum { QUERY, KEY, VALUE, CU_SEQLENS };
enum { NUM_HEADS, HEAD_SIZE, ATTR_SCALE, NUM_KV_HEADS };

static int64_t kv_heads_of(const berth_op_site *site) {
    const berth_attribute *heads = site->attributes[NUM_KV_HEADS];
    return heads->kind == BERTH_ATTRIBUTE_NONE ? site->attributes[NUM_HEADS]->i64 : heads->i64;
}

// [batch, tokens, heads · d] or [batch, tokens, heads, d].
static berth_status check_heads(const berth_op_site *site, uint64_t input, int64_t heads) {
    const berth_value_type *query = site->inputs[QUERY];
    const int64_t size = site->attributes[HEAD_SIZE]->i64;
    const int is_flat = query->ndim == 3;
    BERTH_RULE_TRY(berth_rule_same_dtype(site, input, QUERY));
    BERTH_RULE_TRY(berth_rule_rank(site, input, is_flat ? 3 : 4));
    BERTH_RULE_TRY(berth_rule_dim(site, input, 0, query->dims[0]));
    BERTH_RULE_TRY(berth_rule_dim(site, input, 1, query->dims[1]));
    BERTH_RULE_TRY(berth_rule_dim(site, input, 2, BERTH_DIM_CONST(is_flat ? heads * size : heads)));
    return is_flat ? BERTH_OK : berth_rule_dim(site, input, 3, BERTH_DIM_CONST(size));
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    const int64_t heads = site->attributes[NUM_HEADS]->i64;
    const int64_t kv_heads = kv_heads_of(site);
    if (heads < 1 || site->attributes[HEAD_SIZE]->i64 < 1) {
        return BERTH_RULE_ATTRIBUTE(site, heads < 1 ? NUM_HEADS : HEAD_SIZE, "must be at least 1");
    }
    if (kv_heads < 1 || heads % kv_heads != 0) {
        return BERTH_RULE_ATTRIBUTE(site, NUM_KV_HEADS, "must divide %lld, is %lld",
                                    (long long)heads, (long long)kv_heads);
    }
    BERTH_RULE_TRY(berth_rule_scale(site, ATTR_SCALE));
    BERTH_RULE_TRY(berth_rule_float(site, QUERY));
    BERTH_RULE_TRY(check_heads(site, QUERY, heads));
    BERTH_RULE_TRY(check_heads(site, KEY, kv_heads));
    BERTH_RULE_TRY(check_heads(site, VALUE, kv_heads));
    BERTH_RULE_TRY(berth_rule_starts(site, CU_SEQLENS));
    if (site->inputs[CU_SEQLENS] &&
        !berth_dim_is(site->inputs[QUERY]->dims[0], BERTH_DIM_CONST(1))) {
        return BERTH_RULE_FAIL(site, CU_SEQLENS, "must be absent for a batch of more than 1");
    }
    berth_rule_give(out, site->inputs[QUERY]);
    return BERTH_OK;
}

// One head's part of a token's row.
static const void *head_of(const berth_tensor *x, int64_t token, int64_t head, int64_t size) {
    if (x->ndim == 4) {
        return berth_row(x, token * x->shape[2] + head);
    }
    return (const char *)berth_row(x, token) + head * size * (BERTH_DTYPE_BITS(x->dtype) / 8);
}

// All heads of the tokens [first, end), which see each other.
static void attend(const berth_op_site *site, const berth_op_args *args, int64_t first,
                   int64_t end) {
    const berth_tensor *query = args->inputs[QUERY];
    const berth_dtype dtype = query->dtype;
    const int64_t heads = site->attributes[NUM_HEADS]->i64;
    const int64_t group = heads / kv_heads_of(site);
    const int64_t size = site->attributes[HEAD_SIZE]->i64;
    const berth_attribute *given = site->attributes[ATTR_SCALE];
    const float scale =
        given->kind == BERTH_ATTRIBUTE_NONE ? 1.0f / sqrtf((float)size) : (float)given->f64;
    for (int64_t row = first * heads; row < end * heads; ++row) {
        const int64_t head = row % heads;
        const void *q = head_of(query, row / heads, head, size);
        berth_softmax_sum sum = berth_softmax_begin(berth_data(args->workspace), size);
        for (int64_t j = first; j < end; ++j) {
            const void *k = head_of(args->inputs[KEY], j, head / group, size);
            const void *v = head_of(args->inputs[VALUE], j, head / group, size);
            berth_softmax_take(&sum, scale * berth_dot(q, dtype, k, dtype, size), v, dtype);
        }
        berth_softmax_store(&sum, (void *)head_of(args->outputs[0], row / heads, head, size),
                            dtype);
    }
}

static uint64_t workspace(const berth_op_site *site, uint64_t tokens) {
    (void)tokens;
    return (uint64_t)site->attributes[HEAD_SIZE]->i64 * sizeof(double);
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *query = args->inputs[QUERY];
    const berth_tensor *starts = args->inputs[CU_SEQLENS];
    const int64_t tokens = query->shape[1];
    for (int64_t i = 0; !starts && i < query->shape[0]; ++i) {
        attend(site, args, i * tokens, (i + 1) * tokens);
    }
    for (int64_t i = 0; starts && i + 1 < starts->shape[0]; ++i) {
        const int64_t first = berth_integer_at(berth_data(starts), starts->dtype, i);
        const int64_t end = berth_integer_at(berth_data(starts), starts->dtype, i + 1);
        if (first < 0 || end > tokens) {
            return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                     "mm_encoder_attn: segment %lld has the tokens %lld to %lld of "
                                     "%lld",
                                     (long long)i, (long long)first, (long long)end,
                                     (long long)tokens);
        }
        attend(site, args, first, end);
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("query"),
    BERTH_STRIDED_INPUT("key"),
    BERTH_STRIDED_INPUT("value"),
    BERTH_OPTIONAL_INPUT("cu_seqlens"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("num_heads", BERTH_ATTRIBUTE_I64),
    BERTH_REQUIRED_ATTRIBUTE("head_size", BERTH_ATTRIBUTE_I64),
    BERTH_ABSENT_ATTRIBUTE("scale", BERTH_ATTRIBUTE_F64),
    BERTH_ABSENT_ATTRIBUTE("num_kv_heads", BERTH_ATTRIBUTE_I64),
};

const berth_op berth_op_mm_encoder_attn = {
    .size = sizeof(berth_op),
    .name = "mm_encoder_attn",
    .class_name = "MMEncoderAttention",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .reference_workspace = workspace,
};
