// SPDX-License-Identifier: Apache-2.0
// vocab_parallel_mask: token ids as the rows of one rank's share of a vocabulary. mask_rows then
// makes zeros of the rows that the mask names, so that the sum over the ranks is the embedding.
//
//   token_ids     [...]  i32 or i64
//   masked_input  [...]  token_ids' dtype; 0 for an id of another rank
//   input_mask    [...]  bool, 1 for an id of another rank
//
// The rank has the ids [org_vocab_start_index, org_vocab_end_index), in rows from 0 on, then
// `num_org_vocab_padding` rows, then [added_vocab_start_index, added_vocab_end_index). vLLM's
// get_masked_input_and_mask; with one rank vLLM leaves ids as they are.
#include <berth/op.h>

#include "rules.h"

enum { MASKED_INPUT, INPUT_MASK };
enum { ORG_START, ORG_END, PADDING, ADDED_START, ADDED_END };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_integer(site, 0));
    for (uint64_t i = ORG_START; i <= ADDED_END; ++i) {
        const int64_t value = site->attributes[i]->i64;
        const int is_end = i == ORG_END || i == ADDED_END;
        const int64_t least = is_end ? site->attributes[i - 1]->i64 : 0;
        if (value < least) {
            return BERTH_RULE_ATTRIBUTE(site, i, "must be at least %lld, is %lld", (long long)least,
                                        (long long)value);
        }
    }
    berth_rule_give(out, site->inputs[0]);
    berth_rule_give(out, site->inputs[0])->dtype = BERTH_DTYPE_BOOL;
    return BERTH_OK;
}

static int64_t number(const berth_op_site *site, int attribute) {
    return site->attributes[attribute]->i64;
}

static int is_within(const berth_op_site *site, int start, int64_t id) {
    return id >= number(site, start) && id < number(site, start + 1);
}

// The row of an id that the rank has, −1 otherwise.
static int64_t row_of(const berth_op_site *site, int64_t id) {
    if (is_within(site, ORG_START, id)) {
        return id - number(site, ORG_START);
    }
    return is_within(site, ADDED_START, id)
               ? id - number(site, ADDED_START) + number(site, ORG_END) - number(site, ORG_START) +
                     number(site, PADDING)
               : -1;
}

static berth_status reference(void *self, const berth_op_args *args) {
    const berth_tensor *ids = args->inputs[0];
    const int64_t width = berth_row_length(ids);
    for (int64_t i = 0; i < berth_row_count(ids) * width; ++i) {
        const int64_t row = row_of(self, berth_integer_at(berth_data(ids), ids->dtype, i));
        const int64_t masked = row < 0 ? 0 : row;
        if (ids->dtype == BERTH_DTYPE_I64) {
            ((int64_t *)berth_data(args->outputs[MASKED_INPUT]))[i] = masked;
        } else {
            ((int32_t *)berth_data(args->outputs[MASKED_INPUT]))[i] = (int32_t)masked;
        }
        ((uint8_t *)berth_data(args->outputs[INPUT_MASK]))[i] = row < 0;
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {BERTH_INPUT("token_ids")};
static const berth_op_attribute *const attributes[] = {
    BERTH_REQUIRED_ATTRIBUTE("org_vocab_start_index", BERTH_ATTRIBUTE_I64),
    BERTH_REQUIRED_ATTRIBUTE("org_vocab_end_index", BERTH_ATTRIBUTE_I64),
    BERTH_OPTIONAL_ATTRIBUTE("num_org_vocab_padding", BERTH_ATTRIBUTE_I64, .i64 = 0),
    BERTH_OPTIONAL_ATTRIBUTE("added_vocab_start_index", BERTH_ATTRIBUTE_I64, .i64 = 0),
    BERTH_OPTIONAL_ATTRIBUTE("added_vocab_end_index", BERTH_ATTRIBUTE_I64, .i64 = 0),
};

const berth_op berth_op_vocab_parallel_mask = {
    .size = sizeof(berth_op),
    .name = "vocab_parallel_mask",
    .class_name = "VocabParallelMask",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .attributes = attributes,
    .attribute_count = sizeof attributes / sizeof attributes[0],
    .infer = infer,
    .reference = reference,
};
