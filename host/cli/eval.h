// SPDX-License-Identifier: Apache-2.0
// Private to cli/: what `berth eval` has measured, and its report.
#ifndef BERTH_CLI_EVAL_H
#define BERTH_CLI_EVAL_H

#include <math.h>

#include "cli/cli.h"
#include "cli/golden.h"

// What a result may differ by. In 16 bits single logits say little: there the root mean square of
// the errors counts, against what the reference itself loses in bf16.
typedef struct berth_eval_gate {
    double logit;  // single logits and logsumexp; INFINITY: not looked at
    double rms;    // of the errors of logits
    double loss;   // of the mean cross entropy
    double margin; // greedy tokens are compared up to the first step with a smaller margin
    double steady; // share of rows whose logits are within BERTH_EVAL_STEADY; 0: not looked at
    double equal;  // share of prompts whose greedy tokens are equal
    double layer;  // of the output of a layer alone, a share of its row's largest magnitude
} berth_eval_gate;

#define BERTH_EVAL_STEADY 1e-4

// What is known of one prompt, or of all.
typedef struct berth_measure {
    uint64_t request;
    size_t rows; // that have been compared
    size_t steady_rows;
    double logit_error;
    double logsumexp_error;
    double square_sum; // of logit errors
    uint64_t logit_count;
    size_t greedy_equal;
    size_t greedy_compared;
    size_t greedy_seen; // tokens that came out
    bool has_parted;
} berth_measure;

// `seq` ids of held-back text, of which all but the first are predicted.
typedef struct berth_window {
    uint64_t request;
    const int32_t *ids;
    size_t rows; // that have been counted
} berth_window;

typedef struct berth_cross_entropy {
    double sum;
    uint64_t count; // of predicted ids
    double value;   // the mean
    double error;
} berth_cross_entropy;

// What is known of layers that were run alone.
typedef struct berth_layer_gate {
    size_t count;      // of comparisons; 0: the golden file has none
    double error;      // the largest, as a share of the largest magnitude of its row
    const char *worst; // whose that is
    size_t codes;      // of inputs that were compared
    size_t wrong_codes;
} berth_layer_gate;

typedef struct berth_evaluation {
    berth_session *session;
    berth_golden golden;
    berth_measure *measures; // one per prompt
    berth_measure total;
    berth_window *windows;
    size_t window_count;
    berth_cross_entropy loss;
    int64_t vocab_size;
    const char *dtype; // of activations
    berth_eval_gate gate;
    berth_layer_gate linears;
    berth_layer_gate experts;
    bool has_passed;
} berth_evaluation;

// Why not fmax: a NaN must never look like a small error.
static inline double berth_eval_larger(double a, double b) {
    return b <= a ? a : isnan(b) ? INFINITY : b;
}

// A layer alone: its graph, and what its parameters that are no weights are given.
typedef struct berth_eval_operand {
    const char *name;
    berth_dtype dtype;
    const void *data; // need not be aligned
    uint64_t count;
} berth_eval_operand;
typedef struct berth_eval_layer {
    const berth_session *session;
    berth_arena *arena;
    const berth_model_build *build;
    const berth_eval_operand *operands;
    size_t operand_count;
    int64_t rows; // tokens, at positions 0, 1, 2 …
    int32_t id;   // of all of them
} berth_eval_layer;
// Runs it on the device of the session's worker. The plan, which holds the outputs, is the
// caller's.
BERTH_MUST_CHECK berth_status berth_eval_run(const berth_eval_layer *layer, berth_plan **out_plan);
// Columns [first, …) of an output in f32 with what they had to be.
void berth_eval_compare(berth_layer_gate *gate, const char *name, const berth_tensor *got,
                        int64_t first, const berth_stored_tensor *wanted);
// Every linear layer that the golden file knows.
BERTH_MUST_CHECK berth_status berth_eval_linears(berth_evaluation *eval);

// Adds up and judges: sets eval->total and session->answer_is_no, prints a table or JSON.
BERTH_MUST_CHECK berth_status berth_eval_report(berth_evaluation *eval);

#endif
