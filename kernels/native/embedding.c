// SPDX-License-Identifier: Apache-2.0
// embedding: y[t] = weight[token_ids[t]], converted to `out_dtype`.
//
//   token_ids  [tokens]         i32 or i64, 0 to vocabulary − 1
//   weight     [vocabulary, d]  f32, f16 or bf16
//   y          [tokens, d]      `out_dtype` ("f32", "f16", "bf16"), the weight's when it is ""
//
// What vLLM's VocabParallelEmbedding does on one rank. An id outside the vocabulary fails the step.
#include <berth/op.h>

#include "rules.h"

enum { TOKEN_IDS, WEIGHT };
enum { OUT_DTYPE };

// The dtype of that name, the weight's for "", none for any other text.
static berth_dtype out_dtype(const berth_op_site *site) {
    const char *name = site->attributes[OUT_DTYPE]->str;
    if (strcmp(name, "") == 0) {
        return site->inputs[WEIGHT]->dtype;
    }
    return strcmp(name, "f32") == 0    ? BERTH_DTYPE_F32
           : strcmp(name, "f16") == 0  ? BERTH_DTYPE_F16
           : strcmp(name, "bf16") == 0 ? BERTH_DTYPE_BF16
                                       : BERTH_DTYPE_NONE;
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_integer(site, TOKEN_IDS));
    BERTH_RULE_TRY(berth_rule_rank(site, TOKEN_IDS, 1));
    BERTH_RULE_TRY(berth_rule_float(site, WEIGHT));
    BERTH_RULE_TRY(berth_rule_rank(site, WEIGHT, 2));
    BERTH_RULE_TRY(berth_rule_width(site, WEIGHT));
    if (out_dtype(site) == BERTH_DTYPE_NONE) {
        return BERTH_RULE_ATTRIBUTE(site, OUT_DTYPE, "must be f32, f16, bf16 or empty, is '%s'",
                                    site->attributes[OUT_DTYPE]->str);
    }
    berth_value_type *y = berth_rule_give(out, site->inputs[WEIGHT]);
    y->dtype = out_dtype(site);
    y->dims[0] = site->inputs[TOKEN_IDS]->dims[0];
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *ids = args->inputs[TOKEN_IDS];
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *y = args->outputs[0];
    const void *id_row = berth_data(ids);
    for (int64_t token = 0; token < y->shape[0]; ++token) {
        const int64_t id = berth_integer_at(id_row, ids->dtype, token);
        if (id < 0 || id >= weight->shape[0]) {
            return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                     "embedding: token id %lld is not in the vocabulary of %lld",
                                     (long long)id, (long long)weight->shape[0]);
        }
        const void *from = berth_row(weight, id);
        void *to = berth_row(y, token);
        for (int64_t i = 0; i < y->shape[1]; ++i) {
            berth_store_at(to, y->dtype, i, berth_load_at(from, weight->dtype, i));
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_INPUT("token_ids"),
    BERTH_INPUT("weight"),
};
static const berth_op_attribute *const attributes[] = {
    BERTH_OPTIONAL_ATTRIBUTE("out_dtype", BERTH_ATTRIBUTE_STR, .str = ""),
};

const berth_op berth_op_embedding = {
    .size = sizeof(berth_op),
    .name = "embedding",
    .class_name = "Embedding",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
};
