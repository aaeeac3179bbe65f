// SPDX-License-Identifier: Apache-2.0
// Private to cli/: what a reference computed from a checkpoint, read from golden.json and the
// .safetensors beside it, for `berth eval`.
#ifndef BERTH_CLI_GOLDEN_H
#define BERTH_CLI_GOLDEN_H

#include "base/arena.h"
#include "base/json.h"
#include "base/status.h"
#include "model/model.h"

typedef struct berth_golden_prompt {
    const int32_t *ids;
    size_t id_count;
    const int32_t *greedy_ids; // the reference's output, past any end-of-text id
    const double *margins;     // [greedy_count], its best logit minus its second best
    size_t greedy_count;
    const berth_stored_tensor *logits;     // f32 [id_count, columns]
    const berth_stored_tensor *logsumexp;  // f32 [id_count]; NULL: not given
    const berth_stored_tensor *top_ids;    // i32 [id_count, top_count]; NULL: not given
    const berth_stored_tensor *top_logits; // f32, the same shape
    size_t top_count;
} berth_golden_prompt;

typedef struct berth_golden {
    const char *path; // borrowed
    const char *name; // of the checkpoint
    berth_golden_prompt *prompts;
    size_t prompt_count;
    const berth_stored_tensor *columns; // i32 [column_count]; NULL: logits have every column
    size_t column_count;
    double val_loss; // mean cross entropy
    int64_t val_tokens;
    int64_t seq; // ids in a window
    double
        bf16_rms; // of the logits' errors when the reference itself computes in bf16; 0: not given
    double bf16_margin; // the largest of a token that the reference itself misses in bf16
    // Of a quantized checkpoint, where a last bit can turn into a whole step of a quantizer: the
    // share of tokens that no order of sums moves, 1 for every other golden file; the rms of what
    // such orders move; the rms of computing with inputs that are not quantized.
    bool is_quantized;
    const char *probe;        // the linear layer of the tensors probe_*; NULL: none
    const char *probe_expert; // the expert of probe_expert_*; NULL: none
    double steady_tokens;
    double f32_rms;
    double wrong_rms;

    berth_json *root;        // owned
    berth_safetensors *file; // owned
} berth_golden;

// Reads and checks everything but ids, which the engine checks. Arrays live in the arena.
BERTH_MUST_CHECK berth_status berth_golden_open(const char *path, berth_arena *arena,
                                                berth_golden *out);
void berth_golden_close(berth_golden *golden);

// The held-back ids in a file like validation.json: its entry named as the golden file names its
// checkpoint, else as the golden file's folder, else "micro".
BERTH_MUST_CHECK berth_status berth_golden_read_ids(const berth_golden *golden, const char *path,
                                                    berth_arena *arena, const int32_t **out_ids,
                                                    size_t *out_count);

// Element `index` of a tensor, which may lie anywhere in its file.
float berth_stored_f32(const berth_stored_tensor *tensor, size_t index);
int32_t berth_stored_i32(const berth_stored_tensor *tensor, size_t index);

#endif
