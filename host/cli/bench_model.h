// SPDX-License-Identifier: Apache-2.0
// Private to cli/: what `berth bench model` knows of a model that is loaded, and its check.
#ifndef BERTH_CLI_BENCH_MODEL_H
#define BERTH_CLI_BENCH_MODEL_H

#include "base/arena.h"
#include "base/status.h"
#include "cli/bench_onednn.h"
#include "cli/cli.h"
#include "graph/graph.h"

// ---- the work of a step -------------------------------------------------------------------------

// Products of one shape.
typedef struct berth_work_product {
    berth_dim rows; // of the tokens or the logits rows of a step
    int64_t out;
    int64_t in;
    int64_t count;
} berth_work_product;

// Read from the graph and the worker's caches.
typedef struct berth_model_work {
    uint64_t weight_bytes; // all parameters but tables that only an embedding looks rows up in
    bool has_codes;        // weights of codes
    bool has_coded_inputs; // and inputs of products
    berth_work_product *products;
    size_t product_count;
    berth_kv_cache_spec *caches; // one per layer with a cache
    size_t cache_count;
    int64_t width; // of the rows that become logits
} berth_model_work;

BERTH_MUST_CHECK berth_status berth_model_work_read(berth_worker *worker, berth_arena *arena,
                                                    berth_model_work *out);
// Floating-point operations of the products.
double berth_model_work_flops(const berth_model_work *work, int64_t tokens, int64_t rows);
// Bytes that a sequence's next token reads with that many tokens in the caches.
double berth_model_work_cache(const berth_model_work *work, double tokens);
// Rows, columns and inner dimension for a step.
berth_onednn_shape berth_work_product_shape(const berth_work_product *product, int64_t tokens,
                                            int64_t rows);

// ---- requests -----------------------------------------------------------------------------------

// Adds so many requests alike: the same prompt of made-up ids, the same length of output. Whether
// their logits are wanted is a flag, BERTH_BENCH_LOGITS.
#define BERTH_BENCH_LOGITS 1u
BERTH_MUST_CHECK berth_status berth_bench_add(berth_session *session, size_t requests,
                                              size_t prompt, size_t tokens, uint32_t flags);

// ---- the check ----------------------------------------------------------------------------------

// Why fewer of codes: their references widen them again for every row, one by one.
#define BERTH_CHECK_PROMPT          8
#define BERTH_CHECK_PROMPT_OF_CODES 2
#define BERTH_CHECK_TOKENS          3
#define BERTH_CHECK_ROWS            (BERTH_CHECK_PROMPT + BERTH_CHECK_TOKENS - 1)

// Logits of a short prompt and its first tokens as the ops' references compute them.
typedef struct berth_model_check {
    float *logits; // [rows, vocab], of at most BERTH_CHECK_ROWS
    size_t prompt; // its tokens
    size_t rows;   // these and those of the tokens behind, but the last
    int64_t vocab;
    int32_t tokens[BERTH_CHECK_ROWS]; // chosen after the row, from the prompt's last row on
    double limit;                     // of the largest or of the root mean square error
    bool is_rms;
} berth_model_check;

// With a session that runs the references.
BERTH_MUST_CHECK berth_status berth_model_check_record(berth_session *session,
                                                       const berth_model_work *work,
                                                       berth_model_check *out);
// With two records, of the references in float32 and in 16 bits: how far from the former a model in
// 16 bits may be, whose inputs are quantized.
void berth_model_check_allow(berth_model_check *exact, const berth_model_check *rounded);
// So many requests together, of a prompt that begins like the recorded one (at least as long), give
// the same logits.
// INTERNAL with the figures when they do not.
BERTH_MUST_CHECK berth_status berth_model_check_run(berth_session *session,
                                                    const berth_model_check *check, size_t requests,
                                                    size_t prompt);

#endif
