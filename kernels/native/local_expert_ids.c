// SPDX-License-Identifier: Apache-2.0
// local_expert_ids: chosen experts by their numbers on a rank that has `count` of them from `first`
// on, −1 for the others. What vLLM's expert_map says of experts that are dealt out in order.
//
//   topk_ids  [tokens, k]  i32 or i64; −1: no expert
//   y         [tokens, k]  topk_ids' dtype
#include <berth/op.h>

#include "rules.h"

enum { FIRST, COUNT };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_integer(site, 0));
    if (site->attributes[FIRST]->i64 < 0) {
        return BERTH_RULE_ATTRIBUTE(site, FIRST, "must not be negative, is %lld",
                                    (long long)site->attributes[FIRST]->i64);
    }
    if (site->attributes[COUNT]->i64 < 1) {
        return BERTH_RULE_ATTRIBUTE(site, COUNT, "must be at least 1, is %lld",
                                    (long long)site->attributes[COUNT]->i64);
    }
    berth_rule_give(out, site->inputs[0]);
    return BERTH_OK;
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *ids = args->inputs[0];
    void *y = berth_data(args->outputs[0]);
    for (int64_t i = 0; i < berth_row_count(ids) * berth_row_length(ids); ++i) {
        const int64_t id = berth_integer_at(berth_data(ids), ids->dtype, i);
        const int64_t local = id - site->attributes[FIRST]->i64;
        const int64_t kept = local < 0 || local >= site->attributes[COUNT]->i64 ? -1 : local;
        if (ids->dtype == BERTH_DTYPE_I64) {
            ((int64_t *)y)[i] = kept;
        } else {
            ((int32_t *)y)[i] = (int32_t)kept;
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {BERTH_INPUT("topk_ids")};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("first", BERTH_ATTRIBUTE_I64),
    BERTH_REQUIRED_ATTRIBUTE("count", BERTH_ATTRIBUTE_I64),
};

const berth_op berth_op_local_expert_ids = {
    .size = sizeof(berth_op),
    .name = "local_expert_ids",
    .class_name = "LocalExpertIds",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
    .is_rowwise = berth_every_row,
};
