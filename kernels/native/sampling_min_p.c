// SPDX-License-Identifier: Apache-2.0
// sampling_min_p: logits whose probability is below min_p times the largest become minus infinity.
//
//   logits  [sequences, vocabulary]  f32
//   min_p   [sequences]              f32, 0 switches it off
//   y       like logits
//
// vLLM's MinPLogitsProcessor.
#include <berth/op.h>

#include "sampling_rules.h"

enum { LOGITS, MIN_P };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(sampling_infer(site, out));
    return sampling_option(site, MIN_P, 0);
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *logits = args->inputs[LOGITS];
    const float *min_p = berth_data(args->inputs[MIN_P]);
    const int64_t count = berth_row_length(logits);
    for (int64_t row = 0; row < berth_row_count(logits); ++row) {
        const float *from = berth_row(logits, row);
        float *to = berth_row(args->outputs[0], row);
        const float largest = sampling_largest(from, count);
        const float sum = sampling_sum(from, count, largest);
        const float least = min_p[row] * (1.0f / sum);
        for (int64_t i = 0; i < count; ++i) {
            to[i] = expf(from[i] - largest) / sum < least ? -INFINITY : from[i];
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_INPUT("logits"),
    BERTH_INPUT("min_p"),
};

const berth_op berth_op_sampling_min_p = {
    .size = sizeof(berth_op),
    .name = "sampling_min_p",
    .class_name = "MinPLogitsProcessor",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
};
