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
    bool has_passed;
} berth_evaluation;

// Why not fmax: a NaN must never look like a small error.
static inline double berth_eval_larger(double a, double b) {
    return b <= a ? a : isnan(b) ? INFINITY : b;
}

// Adds up and judges: sets eval->total and session->answer_is_no, prints a table or JSON.
BERTH_MUST_CHECK berth_status berth_eval_report(berth_evaluation *eval);

#endif
