// SPDX-License-Identifier: Apache-2.0
// sampling_penalties: makes tokens that were there already less likely.
//
//   logits                 [sequences, vocabulary]  f32
//   prompt_token_ids       [sequences, length]      i32 or i64, padded by any id out of range, as
//   output_token_ids       [sequences, length]      the other
//   presence_penalties     [sequences]              f32, subtracted once from what was put out
//   frequency_penalties    [sequences]              f32, subtracted as often as it was put out
//   repetition_penalties   [sequences]              f32, for all tokens of both: divides positive
//                                                   logits, multiplies the others, before the rest
//   y                      like logits
//
// vLLM's apply_all_penalties.
#include <berth/op.h>

#include "sampling_rules.h"

enum {
    LOGITS,
    PROMPT_TOKEN_IDS,
    OUTPUT_TOKEN_IDS,
    PRESENCE_PENALTIES,
    FREQUENCY_PENALTIES,
    REPETITION_PENALTIES,
};

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(sampling_infer(site, out));
    for (uint64_t ids = PROMPT_TOKEN_IDS; ids <= OUTPUT_TOKEN_IDS; ++ids) {
        BERTH_RULE_TRY(berth_rule_integer(site, ids));
        BERTH_RULE_TRY(berth_rule_rank(site, ids, 2));
        BERTH_RULE_TRY(berth_rule_dim(site, ids, 0, site->inputs[LOGITS]->dims[0]));
    }
    for (uint64_t option = PRESENCE_PENALTIES; option <= REPETITION_PENALTIES; ++option) {
        BERTH_RULE_TRY(sampling_option(site, option, 0));
    }
    return BERTH_OK;
}

// How often every token stands in a row of ids.
static void count_ids(const berth_tensor *ids, int64_t row, int32_t *counts, int64_t vocabulary) {
    memset(counts, 0, (size_t)vocabulary * sizeof *counts);
    for (int64_t i = 0; i < berth_row_length(ids); ++i) {
        const int64_t id = berth_integer_at(berth_row(ids, row), ids->dtype, i);
        if (id >= 0 && id < vocabulary) {
            ++counts[id];
        }
    }
}

static float option_at(const berth_op_args *args, uint64_t option, int64_t row) {
    return ((const float *)berth_data(args->inputs[option]))[row];
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *logits = args->inputs[LOGITS];
    const int64_t vocabulary = berth_row_length(logits);
    int32_t *in_prompt = berth_data(args->workspace);
    int32_t *in_output = in_prompt + vocabulary;
    for (int64_t row = 0; row < berth_row_count(logits); ++row) {
        const float *from = berth_row(logits, row);
        float *to = berth_row(args->outputs[0], row);
        const float repetition = option_at(args, REPETITION_PENALTIES, row);
        count_ids(args->inputs[PROMPT_TOKEN_IDS], row, in_prompt, vocabulary);
        count_ids(args->inputs[OUTPUT_TOKEN_IDS], row, in_output, vocabulary);
        for (int64_t i = 0; i < vocabulary; ++i) {
            const float factor = in_prompt[i] + in_output[i] > 0 ? repetition : 1;
            to[i] = from[i] > 0 ? from[i] / factor : from[i] * factor;
            to[i] -= option_at(args, FREQUENCY_PENALTIES, row) * (float)in_output[i];
            to[i] -= option_at(args, PRESENCE_PENALTIES, row) * (float)(in_output[i] > 0);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_INPUT("logits"),
    BERTH_INPUT("prompt_token_ids"),
    BERTH_INPUT("output_token_ids"),
    BERTH_INPUT("presence_penalties"),
    BERTH_INPUT("frequency_penalties"),
    BERTH_INPUT("repetition_penalties"),
};

const berth_op berth_op_sampling_penalties = {
    .size = sizeof(berth_op),
    .name = "sampling_penalties",
    .class_name = "ApplyPenalties",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
    .reference_workspace = sampling_two_a_token,
};
