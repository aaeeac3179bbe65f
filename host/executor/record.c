// SPDX-License-Identifier: Apache-2.0
// Recorded steps: where every step of a plan runs on the device and reads what changes from its
// memory, a decode step, one token of each of some sequences, is recorded and from then on queued
// as a whole. The batch's arrays lie where they lay then, because their places follow from that
// number alone.
//
// berth_plan_record does it for some numbers beforehand, and steps in between are filled up with
// sequences that are nobody's. Where that cannot be, because such a sequence would be seen in the
// results of others, each number is recorded for itself the second time that it comes.
#include "executor/stages.h"

#define MOST_WHEN_IT_COMES 512 // sequences of steps that are not recorded beforehand

// ---- what can be recorded -----------------------------------------------------------------------

bool berth_step_is_recordable(const berth_step_note *note) {
    const berth_binding *binding = note->binding;
    return binding != NULL && binding->space == BERTH_SPACE_DEVICE && binding->impl != NULL &&
           (binding->impl->flags & BERTH_IMPL_CAPTURABLE) != 0;
}

static bool is_all_recordable(const berth_plan *plan) {
    for (size_t i = 0; i < plan->step_notes.count; ++i) {
        if (!berth_step_is_recordable(&plan->step_notes.data[i])) {
            return false;
        }
    }
    return true;
}

// What a layer keeps of a whole sequence, or of all of them, has no place that is nobody's.
static bool keeps_states(const berth_plan *plan) {
    bool keeps = false;
    for (size_t i = 0; i < plan->storages.count; ++i) {
        keeps = keeps || plan->storages.data[i].kind == BERTH_STORAGE_STATE;
    }
    for (size_t i = 0; i < plan->request.kv_cache_count; ++i) {
        keeps = keeps || plan->request.kv_caches[i].is_state != 0;
    }
    return keeps;
}

static bool has_symbol(const berth_value_type *type) {
    bool has = false;
    for (uint32_t i = 0; i < type->ndim; ++i) {
        has = has || type->dims[i].symbol != BERTH_SYMBOL_NONE;
    }
    return has;
}

// Rows stand for tokens one by one, the first dimension counts them.
static bool is_by_rows(const berth_value_type *type) {
    bool is = true;
    for (uint32_t i = 0; i < type->ndim; ++i) {
        const berth_dim *dim = &type->dims[i];
        is = is && (dim->symbol == BERTH_SYMBOL_NONE ||
                    (i == 0 && dim->a > 0 && dim->b == 0 && dim->c == 1));
    }
    return is;
}

// A value without rows that is made of rows, such as one scale for all, is made of the last ones,
// too.
static bool keeps_rows_apart(const berth_plan *plan, const berth_graph_node *node) {
    const berth_graph_value *values = plan->graph->values;
    bool has_rows = false;
    bool is_apart = true;
    for (size_t i = 0; i < node->input_count; ++i) {
        has_rows = has_rows || (node->inputs[i] != BERTH_VALUE_NONE &&
                                has_symbol(&values[node->inputs[i]].type));
    }
    for (size_t i = 0; i < node->output_count; ++i) {
        const berth_value_type *type = &values[node->outputs[i]].type;
        const bool is_state = values[node->outputs[i]].kind == BERTH_VALUE_MUTATED;
        is_apart = is_apart && (is_state || !has_rows || (has_symbol(type) && is_by_rows(type)));
    }
    return is_apart;
}

bool berth_plan_can_be_filled_up(const berth_plan *plan) {
    bool can = !keeps_states(plan);
    for (size_t i = 0; i < plan->graph->node_count; ++i) {
        can = can && keeps_rows_apart(plan, &plan->graph->nodes[i]);
    }
    return can;
}

// ---- numbers of sequences -----------------------------------------------------------------------

// The configuration's, as far as so many may run. Why a larger one stands for all of them: the
// largest step would be the only one that is not recorded.
static berth_status choose_sizes(berth_plan *plan) {
    const berth_config *config = plan->request.config;
    const int64_t most =
        config->max_num_seqs < plan->recording_count ? config->max_num_seqs : plan->recording_count;
    berth_capture_sizes given;
    BERTH_TRY(berth_config_capture_sizes(config, plan->arena, &given));
    plan->capture_sizes = given.sizes;
    plan->capture_count = 0;
    for (size_t i = 0; i < given.count; ++i) {
        const int64_t size = given.sizes[i] < most ? given.sizes[i] : most;
        if (plan->capture_count == 0 || plan->capture_sizes[plan->capture_count - 1] != size) {
            plan->capture_sizes[plan->capture_count++] = size;
        }
    }
    return BERTH_OK;
}

berth_status berth_recordings_create(berth_plan *plan) {
    const int64_t most = plan->most_sequences < plan->request.max_tokens ? plan->most_sequences
                                                                         : plan->request.max_tokens;
    if (plan->is_host || !berth_config_records_whole(plan->request.config) ||
        !berth_runtime_records(plan->runtime) || !is_all_recordable(plan)) {
        return BERTH_OK;
    }
    plan->recordings = BERTH_ARENA_ARRAY(plan->arena, berth_recording, (size_t)most);
    if (plan->recordings == NULL) {
        return berth_arena_exhausted(plan->arena, "recorded steps");
    }
    plan->recording_count = most;
    berth_recordings_drop(plan);
    return berth_plan_can_be_filled_up(plan) ? choose_sizes(plan) : BERTH_OK;
}

berth_recording *berth_recording_find(const berth_plan *plan, const berth_batch *batch) {
    const int64_t sequences = batch->sequence_count;
    if (batch->max_query_len != 1 || batch->token_count != sequences || sequences < 1 ||
        batch->logits_row_count != sequences || sequences > plan->recording_count) {
        return NULL;
    }
    const int64_t padded = plan->recordings[sequences - 1].padded;
    return padded > 0 ? &plan->recordings[padded - 1] : NULL;
}

void berth_recordings_drop(berth_plan *plan) {
    berth_piecewise_drop(plan);
    for (int64_t i = 0; i < plan->recording_count; ++i) {
        berth_runtime_free_graph(plan->runtime, plan->recordings[i].graph);
        plan->recordings[i] = (berth_recording){.padded = i < MOST_WHEN_IT_COMES ? i + 1 : 0};
    }
}

// ---- recording ----------------------------------------------------------------------------------

berth_status berth_steps_record(berth_plan *plan, size_t first, size_t count, void **out_graph) {
    void *graph = NULL;
    BERTH_TRY(berth_runtime_record_begin(plan->runtime));
    const berth_status status = berth_steps_run(plan, first, count);
    const berth_status ended = berth_runtime_record_end(plan->runtime, &graph);
    if (status != BERTH_OK || ended != BERTH_OK) {
        berth_runtime_free_graph(plan->runtime, graph);
        return status != BERTH_OK ? status : ended;
    }
    *out_graph = graph;
    return BERTH_OK;
}

// A batch without a sequence, which is then filled up.
typedef struct empty_batch {
    int32_t nothing[1];
    berth_tensor array;
    berth_tensor starts;
    berth_tensor table;
    berth_tensor mapping;
    const berth_tensor *tables[BERTH_CACHE_GROUPS_MAX];
    const berth_tensor *mappings[BERTH_CACHE_GROUPS_MAX];
    berth_batch_view view;
    berth_batch batch;
} empty_batch;

static void describe_empty(empty_batch *it) {
    static const int64_t none[2] = {0, 1};
    static const int64_t one[2] = {1, 1};
    it->nothing[0] = 0;
    it->array = (berth_tensor){
        .size = sizeof it->array,
        .data = it->nothing,
        .device_type = BERTH_MEMORY_HOST,
        .ndim = 1,
        .dtype = BERTH_DTYPE_I32,
        .shape = none,
        .strides = one,
    };
    it->starts = it->array;
    it->starts.shape = one;
    it->table = it->array;
    it->table.ndim = 2;
    it->mapping = it->array;
    it->mapping.dtype = BERTH_DTYPE_I64;
    for (size_t i = 0; i < BERTH_CACHE_GROUPS_MAX; ++i) {
        it->tables[i] = &it->table;
        it->mappings[i] = &it->mapping;
    }
}

static void make_empty(const berth_plan *plan, empty_batch *it) {
    describe_empty(it);
    it->view = (berth_batch_view){
        .size = sizeof it->view,
        .token_ids = &it->array,
        .positions = &it->array,
        .query_start_loc = &it->starts,
        .seq_lens = &it->array,
        .logits_rows = &it->array,
        .block_tables = it->tables,
        .slot_mappings = it->mappings,
    };
    it->batch = (berth_batch){
        .size = sizeof it->batch,
        .host = &it->view,
        .group_count = BERTH_CACHE_GROUPS_MAX,
        .max_query_len = 1,
        .max_seq_len = plan->request.max_seq_len,
    };
}

// Run once, for what is made at the first call, then recorded.
static berth_status record_size(berth_plan *plan, int64_t size) {
    empty_batch empty;
    make_empty(plan, &empty);
    BERTH_TRY(berth_batch_begin(plan, &empty.batch, (berth_padding){size, size}));
    BERTH_TRY(berth_steps_run(plan, 0, plan->active_count));
    return berth_steps_record(plan, 0, plan->active_count, &plan->recordings[size - 1].graph);
}

static berth_status record_sizes(berth_plan *plan) {
    for (size_t i = plan->capture_count; i-- > 0;) {
        BERTH_TRY_NOTE(record_size(plan, plan->capture_sizes[i]),
                       "recording a step of %lld sequences; --enforce-eager goes without",
                       (long long)plan->capture_sizes[i]);
    }
    return berth_runtime_wait(plan->runtime);
}

// Every number of sequences finds the recording that it is filled up for.
static void point_sizes(berth_plan *plan) {
    size_t at = 0;
    for (int64_t i = 0; i < plan->recording_count; ++i) {
        while (at < plan->capture_count && plan->capture_sizes[at] < i + 1) {
            ++at;
        }
        plan->recordings[i].padded = at < plan->capture_count ? plan->capture_sizes[at] : 0;
    }
}

berth_status berth_plan_record(berth_plan *plan) {
    if (!plan->is_ready || plan->needs_cache || plan->capture_count + plan->piecewise_count == 0) {
        return BERTH_OK;
    }
    berth_recordings_drop(plan);
    berth_status status = berth_piecewise_record(plan);
    status = status == BERTH_OK ? record_sizes(plan) : status;
    plan->tokens = 0; // nobody's results
    if (status != BERTH_OK) {
        berth_recordings_drop(plan);
        return status;
    }
    point_sizes(plan);
    return BERTH_OK;
}

size_t berth_plan_captures(const berth_plan *plan) {
    size_t count = 0;
    for (int64_t i = 0; i < plan->recording_count; ++i) {
        count += plan->recordings[i].graph != NULL;
    }
    return count;
}
