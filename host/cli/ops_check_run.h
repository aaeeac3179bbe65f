// SPDX-License-Identifier: Apache-2.0
// Private to cli/: one run of one case, between the files that build its graph, its batch and its
// results.
#ifndef BERTH_CLI_OPS_CHECK_RUN_H
#define BERTH_CLI_OPS_CHECK_RUN_H

#include "cli/ops_check.h"
#include "executor/executor.h"
#include "graph/graph.h"

#define BERTH_CHECK_ARRAYS 7 // of the batch, block tables and slot mappings last

// A state of the graph, and what the case has for it.
typedef struct berth_check_state {
    const char *layer;
    uint64_t index;
    const berth_check_tensor *tensor;
} berth_check_state;

// Arrays of the batch that a case does not give.
typedef struct berth_check_defaults {
    int32_t *numbers; // 0, 1, 2 …
    int32_t *lengths;
    int32_t bounds[2];
    int64_t *slots;
    int64_t sequences;
} berth_check_defaults;

typedef struct berth_check_run {
    berth_check_case *at;
    const berth_op *op;       // NULL: a layer
    berth_model_build *model; // of a layer; owned
    berth_attribute attributes[BERTH_CHECK_TENSORS];
    const berth_attribute *attribute_pointers[BERTH_CHECK_TENSORS];
    berth_graph_builder *builder;
    berth_graph *graph;
    berth_plan *plan;
    const berth_check_tensor *table; // of blocks, NULL: no paged cache
    berth_kv_cache_spec cache;       // of an op that has a paged one
    const berth_kv_cache_spec *caches;
    size_t cache_count;
    int64_t block_count;
    berth_check_state states[BERTH_MAX_OUTPUTS];
    size_t state_count;
    bool has_rows; // logits of every token are wanted
    int64_t max_tokens;
    int64_t max_seq_len;
    berth_batch batch;
    berth_batch_view view;
    berth_check_defaults defaults;
    berth_tensor arrays[BERTH_CHECK_ARRAYS];
    const berth_tensor *array_pointers[2];
    int64_t shapes[BERTH_CHECK_ARRAYS][2];
    int64_t strides[BERTH_CHECK_ARRAYS][2];
} berth_check_run;

// An attribute's JSON as the kind that a schema wants.
BERTH_MUST_CHECK berth_status berth_check_convert(berth_check_case *at, const berth_json *json,
                                                  uint64_t kind, berth_attribute *out);
// The type of a tensor's dimensions from one on.
berth_value_type berth_check_type(const berth_check_tensor *tensor, uint32_t from_dim);
bool berth_check_is_array(const char *name); // of the batch

// The graph of one op.
BERTH_MUST_CHECK berth_status berth_check_build(berth_check_run *run);
// Why the most rows of any operand: scratch memory is asked for by the number of tokens.
int64_t berth_check_rows_of(berth_check_run *run);
BERTH_MUST_CHECK berth_status berth_check_batch(berth_check_run *run);

// The graph of one layer; its weights given to the plan; the same as results.
BERTH_MUST_CHECK berth_status berth_check_layer_build(berth_check_run *run);
BERTH_MUST_CHECK berth_status berth_check_layer_feed(berth_check_run *run);
BERTH_MUST_CHECK berth_status berth_check_layer_weights(berth_check_run *run,
                                                        berth_check_results *out);
bool berth_check_is_weight(const berth_check_run *run, berth_value value);

#endif
