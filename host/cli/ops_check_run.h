// SPDX-License-Identifier: Apache-2.0
// Private to cli/: one run of one case, between the files that build its graph, its batch and its
// results.
#ifndef BERTH_CLI_OPS_CHECK_RUN_H
#define BERTH_CLI_OPS_CHECK_RUN_H

#include "cli/ops_check.h"
#include "executor/executor.h"
#include "graph/graph.h"

#define BERTH_CHECK_PREFIX "op" // of the one site
#define BERTH_CHECK_ARRAYS 7    // of the batch, block tables and slot mappings last

typedef struct berth_check_run {
    berth_check_case *at;
    const berth_op *op;
    berth_attribute attributes[BERTH_CHECK_TENSORS];
    const berth_attribute *attribute_pointers[BERTH_CHECK_TENSORS];
    berth_graph_builder *builder;
    berth_graph *graph;
    berth_plan *plan;
    const berth_check_tensor *table; // of blocks, NULL: no paged cache
    berth_kv_cache_spec cache;       // layer NULL: none
    int64_t block_count;
    int64_t max_tokens;
    int64_t max_seq_len;
    berth_batch batch;
    berth_batch_view view;
    berth_tensor arrays[BERTH_CHECK_ARRAYS];
    const berth_tensor *array_pointers[2];
    int64_t shapes[BERTH_CHECK_ARRAYS][2];
    int64_t strides[BERTH_CHECK_ARRAYS][2];
} berth_check_run;

BERTH_MUST_CHECK berth_status berth_check_build(berth_check_run *run);
// Why the most rows of any operand: scratch memory is asked for by the number of tokens.
int64_t berth_check_rows_of(berth_check_run *run);
BERTH_MUST_CHECK berth_status berth_check_batch(berth_check_run *run);

#endif
