// SPDX-License-Identifier: Apache-2.0
// sampling_top_k_top_p: all but the likeliest tokens become minus infinity.
//
//   logits  [sequences, vocabulary]  f32
//   k       [sequences]              optional, i32 or i64: the k largest stay, and what equals the
//                                    k-th; off below 1 and from the vocabulary's size on
//   p       [sequences]              optional, f32: of those, from the least likely on, tokens go
//                                    as long as they have a probability of at most 1 − p together;
//                                    the likeliest stays
//   y       like logits
//
// vLLM's apply_top_k_top_p_pytorch. Of equal logits the one with the lower id goes first.
#include <berth/op.h>

#include "sampling_order.h"
#include "sampling_rules.h"

enum { LOGITS, K, P };

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(sampling_infer(site, out));
    BERTH_RULE_TRY(sampling_option(site, K, 1));
    return sampling_option(site, P, 0);
}

// ---- cuts ---------------------------------------------------------------------------------------

static void keep_k(float *logits, const int32_t *order, int64_t count, int64_t k) {
    if (k < 1 || k >= count) {
        return;
    }
    const float least = logits[order[count - k]];
    for (int64_t i = 0; i < count; ++i) {
        logits[i] = logits[i] < least ? -INFINITY : logits[i];
    }
}

static void keep_p(float *logits, const int32_t *order, int64_t count, float p) {
    const float largest = logits[order[count - 1]];
    const float sum = sampling_sum(logits, count, largest);
    float gone = 0;
    for (int64_t i = 0; i < count - 1; ++i) {
        gone += expf(logits[order[i]] - largest) / sum;
        if (!(gone <= 1.0f - p)) {
            return;
        }
        logits[order[i]] = -INFINITY;
    }
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *logits = args->inputs[LOGITS];
    const berth_tensor *k = args->inputs[K];
    const berth_tensor *p = args->inputs[P];
    const int64_t count = berth_row_length(logits);
    int32_t *order = berth_data(args->workspace);
    for (int64_t row = 0; row < berth_row_count(logits); ++row) {
        float *to = berth_row(args->outputs[0], row);
        memcpy(to, berth_row(logits, row), (size_t)count * sizeof *to);
        sampling_sort(to, 0, count, order, order + count);
        if (k) {
            keep_k(to, order, count, berth_integer_at(berth_data(k), k->dtype, row));
        }
        if (p) {
            keep_p(to, order, count, ((const float *)berth_data(p))[row]);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_INPUT("logits"),
    BERTH_OPTIONAL_INPUT("k"),
    BERTH_OPTIONAL_INPUT("p"),
};

const berth_op berth_op_sampling_top_k_top_p = {
    .size = sizeof(berth_op),
    .name = "sampling_top_k_top_p",
    .class_name = "TopKTopPSampler",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
    .reference_workspace = sampling_two_a_token,
};
