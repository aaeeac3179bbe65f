// SPDX-License-Identifier: Apache-2.0
// merge_attn_states: attention over two disjoint sets of keys put together from the attention over
// each and the logarithms of their sums of exponentials.
//
//   prefix_output, suffix_output  [tokens, heads, d]  f32, f16 or bf16, one dtype
//   prefix_lse, suffix_lse        [heads, tokens] f32
//   output                        like prefix_output
//   output_lse                    like prefix_lse
//
// With m the larger of both and w = e^(lse − m):  output = (p·wp + s·ws) / (wp + ws),
// output_lse = ln(wp + ws) + m. +∞ means an empty side and counts as −∞; two empty sides give 0 and
// −∞. All in f32, one rounding: vLLM's merge_attn_states_torch.
#include <berth/op.h>

#include "rules.h"

#include <math.h>

enum { PREFIX_OUTPUT, PREFIX_LSE, SUFFIX_OUTPUT, SUFFIX_LSE };
enum { OUTPUT, OUTPUT_LSE };

static berth_status check_lse(const berth_op_site *site, uint64_t input) {
    const berth_value_type *output = site->inputs[PREFIX_OUTPUT];
    if (site->inputs[input]->dtype != BERTH_DTYPE_F32) {
        return BERTH_RULE_FAIL(site, input, "must be f32");
    }
    BERTH_RULE_TRY(berth_rule_rank(site, input, 2));
    BERTH_RULE_TRY(berth_rule_dim(site, input, 0, output->dims[1]));
    return berth_rule_dim(site, input, 1, output->dims[0]);
}

static berth_status infer(const berth_op_site *site, berth_op_result *out) {
    BERTH_RULE_TRY(berth_rule_float(site, PREFIX_OUTPUT));
    BERTH_RULE_TRY(berth_rule_rank(site, PREFIX_OUTPUT, 3));
    BERTH_RULE_TRY(berth_rule_width(site, PREFIX_OUTPUT));
    BERTH_RULE_TRY(berth_rule_same_dtype(site, SUFFIX_OUTPUT, PREFIX_OUTPUT));
    BERTH_RULE_TRY(berth_rule_same_shape(site, SUFFIX_OUTPUT, PREFIX_OUTPUT));
    BERTH_RULE_TRY(check_lse(site, PREFIX_LSE));
    BERTH_RULE_TRY(check_lse(site, SUFFIX_LSE));
    berth_rule_give(out, site->inputs[PREFIX_OUTPUT]);
    berth_rule_give(out, site->inputs[PREFIX_LSE]);
    return BERTH_OK;
}

static float lse_at(const berth_tensor *tensor, int64_t head, int64_t token) {
    const float lse = berth_load_at(berth_row(tensor, head), tensor->dtype, token);
    return lse == INFINITY ? -INFINITY : lse;
}

static void merge(const berth_op_args *args, int64_t token, int64_t head) {
    const berth_tensor *prefix = args->inputs[PREFIX_OUTPUT];
    const berth_tensor *suffix = args->inputs[SUFFIX_OUTPUT];
    const berth_tensor *output = args->outputs[OUTPUT];
    const int64_t row = token * prefix->shape[1] + head;
    const float prefix_lse = lse_at(args->inputs[PREFIX_LSE], head, token);
    const float suffix_lse = lse_at(args->inputs[SUFFIX_LSE], head, token);
    const float largest = fmaxf(prefix_lse, suffix_lse);
    const int is_empty = largest == -INFINITY;
    const float prefix_weight = is_empty ? 0 : expf(prefix_lse - largest);
    const float suffix_weight = is_empty ? 0 : expf(suffix_lse - largest);
    const float total = prefix_weight + suffix_weight;
    for (int64_t i = 0; i < berth_row_length(prefix); ++i) {
        const float p = berth_load_at(berth_row(prefix, row), prefix->dtype, i);
        const float s = berth_load_at(berth_row(suffix, row), suffix->dtype, i);
        // Why the questions: an empty side may hold anything, NaN included.
        const float sum = (prefix_weight > 0 ? p * (prefix_weight / total) : 0) +
                          (suffix_weight > 0 ? s * (suffix_weight / total) : 0);
        berth_store_at(berth_row(output, row), output->dtype, i, total != total ? total : sum);
    }
    berth_store_at(berth_row(args->outputs[OUTPUT_LSE], head), BERTH_DTYPE_F32, token,
                   logf(total) + largest);
}

static berth_status reference(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *prefix = args->inputs[PREFIX_OUTPUT];
    for (int64_t token = 0; token < prefix->shape[0]; ++token) {
        for (int64_t head = 0; head < prefix->shape[1]; ++head) {
            merge(args, token, head);
        }
    }
    return BERTH_OK;
}

static const berth_op_argument *const inputs[] = {
    BERTH_STRIDED_INPUT("prefix_output"),
    BERTH_INPUT("prefix_lse"),
    BERTH_STRIDED_INPUT("suffix_output"),
    BERTH_INPUT("suffix_lse"),
};

const berth_op berth_op_merge_attn_states = {
    .size = sizeof(berth_op),
    .name = "merge_attn_states",
    .class_name = "MergeAttnStates",
    .revision = 1,
    .inputs = inputs,
    .input_count = sizeof inputs / sizeof inputs[0],
    .infer = infer,
    .reference = reference,
};
