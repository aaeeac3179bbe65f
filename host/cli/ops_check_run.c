// SPDX-License-Identifier: Apache-2.0
// Input: a case of an op. Output: what the session's platform computes for it.
#include <string.h>

#include "base/convert.h"
#include "cli/ops_check_run.h"

#define TEXT_BYTES 1024

// ---- running ------------------------------------------------------------------------------------

static berth_status create_plan(berth_check_run *run) {
    berth_check_case *at = run->at;
    run->max_tokens = berth_check_rows_of(run);
    run->max_seq_len = run->max_tokens;
    const berth_check_tensor *lengths = berth_check_input(at, "seq_lens");
    for (int64_t i = 0; lengths && i < berth_check_elements(lengths); ++i) {
        const int64_t length = (int64_t)berth_check_at(lengths, i);
        run->max_seq_len = length > run->max_seq_len ? length : run->max_seq_len;
    }
    if (run->table && run->cache_count > 0) {
        const int64_t most = run->table->shape[1] * run->caches[0].block_size;
        run->max_seq_len = most > run->max_seq_len ? most : run->max_seq_len;
    }
    const berth_plan_request request = {
        .registry = at->check->session->registry,
        .config = &at->check->session->config,
        .graph = run->graph,
        .runtime = at->check->runtime,
        .kv_caches = run->caches,
        .kv_cache_count = run->cache_count,
        .max_tokens = run->max_tokens,
        .max_sequences = run->max_tokens,
        .max_seq_len = run->max_seq_len,
    };
    return berth_plan_create(&request, &run->plan);
}

// A parameter that stands for an empty operand has one row of zeros.
static berth_status feed_parameters(berth_check_run *run) {
    if (run->model) {
        BERTH_TRY(berth_check_layer_feed(run));
    }
    for (size_t i = 1; i < run->graph->value_count; ++i) {
        const berth_graph_value *value = &run->graph->values[i];
        if (value->kind != BERTH_VALUE_PARAMETER || berth_check_is_weight(run, (berth_value)i)) {
            continue;
        }
        const berth_check_tensor *tensor = berth_check_input(run->at, value->name);
        const uint64_t bytes =
            berth_dtype_bytes(value->type.dtype, (uint64_t)berth_type_elements(&value->type, 0, 0));
        void *data = tensor && tensor->bytes == bytes
                         ? tensor->data
                         : berth_arena_alloc(run->at->arena, (size_t)bytes, 64);
        if (!data) {
            return berth_arena_exhausted(run->at->arena, "operands");
        }
        BERTH_TRY(berth_plan_set_parameter(run->plan, (berth_value)i, data, bytes));
    }
    return BERTH_OK;
}

// The tensors of the case that are states of the graph, in the order of their declaration.
static berth_status find_states(berth_check_run *run) {
    for (size_t i = 1; i < run->graph->value_count; ++i) {
        const berth_graph_value *value = &run->graph->values[i];
        if (value->kind != BERTH_VALUE_STATE) {
            continue;
        }
        const char *name = run->op ? run->op->states[value->state]->name
                           : run->state_count < BERTH_MAX_OUTPUTS
                               ? run->at->row->states[run->state_count]
                               : NULL;
        const berth_check_tensor *tensor = name ? berth_check_input(run->at, name) : NULL;
        if (!name && run->cache_count > 0) {
            continue; // a cache that the step itself fills
        }
        if (!tensor) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "state %llu of '%s' is none that the golden file's row names",
                              (unsigned long long)value->state, value->name);
        }
        run->states[run->state_count++] = (berth_check_state){
            .layer = value->name,
            .index = value->state,
            .tensor = tensor,
        };
    }
    return BERTH_OK;
}

static berth_status feed_states(berth_check_run *run) {
    if (run->cache_count > 0) {
        const berth_kv_cache_config config = {
            .size = sizeof config,
            .num_blocks = run->block_count,
            .group_count = 1,
        };
        BERTH_TRY(berth_plan_set_cache(run->plan, &config));
    }
    BERTH_TRY(find_states(run));
    for (size_t i = 0; i < run->state_count; ++i) {
        const berth_check_state *state = &run->states[i];
        BERTH_TRY(berth_plan_write_state(run->plan, state->layer, state->index, state->tensor->data,
                                         state->tensor->bytes));
    }
    return BERTH_OK;
}

// The names of those who ran the sites of the op, each once.
static berth_status note_who(berth_check_run *run) {
    berth_text text;
    berth_text_init(&text, TEXT_BYTES);
    for (size_t i = 0; i < berth_plan_site_count(run->plan); ++i) {
        const berth_site_record *site = berth_plan_site(run->plan, i);
        if ((!run->op || strcmp(site->op, run->op->name) == 0) &&
            (!text.data || !strstr(text.data, site->implementation))) {
            berth_text_add_format(&text, "%s%s%s", text.size > 0 ? ", " : "", site->implementation,
                                  site->is_bounced ? " (bounced)" : "");
        }
    }
    run->at->ran = berth_arena_strdup(run->at->arena, text.data ? text.data : "");
    berth_text_deinit(&text);
    return run->at->ran ? BERTH_OK : berth_arena_exhausted(run->at->arena, "names");
}

// Outputs of a plan are at least 32 bits wide; back to the type that the op gave.
static berth_status narrow(berth_check_run *run, berth_dtype dtype, berth_check_tensor *tensor) {
    if (tensor->dtype == dtype) {
        return BERTH_OK;
    }
    const uint64_t count = (uint64_t)berth_check_elements(tensor);
    void *data = berth_arena_alloc(run->at->arena, (size_t)tensor->bytes + 1, 64);
    if (!data) {
        return berth_arena_exhausted(run->at->arena, "results");
    }
    berth_convert(tensor->dtype, tensor->data, dtype, data, count);
    tensor->data = data;
    tensor->dtype = dtype;
    tensor->bytes = berth_dtype_bytes(dtype, count);
    return BERTH_OK;
}

static berth_status take_output(berth_check_run *run, const char *name, berth_value value,
                                berth_check_tensor *out) {
    const berth_tensor *tensor = NULL;
    BERTH_TRY(berth_plan_output(run->plan, name, &tensor));
    *out = (berth_check_tensor){
        .dtype = tensor->dtype,
        .ndim = (uint32_t)tensor->ndim,
    };
    memcpy(out->shape, tensor->shape, (size_t)tensor->ndim * sizeof *tensor->shape);
    out->bytes = berth_dtype_bytes(out->dtype, (uint64_t)berth_check_elements(out));
    out->data = berth_arena_alloc(run->at->arena, (size_t)out->bytes + 1, 64);
    if (!out->data) {
        return berth_arena_exhausted(run->at->arena, "results");
    }
    memcpy(out->data, (const char *)tensor->data + tensor->byte_offset, (size_t)out->bytes);
    return narrow(run, run->graph->values[value].type.dtype, out);
}

static berth_status take_results(berth_check_run *run, berth_check_results *out) {
    for (size_t i = 0; i < run->graph->output_count; ++i) {
        const berth_graph_output *output = &run->graph->outputs[i];
        BERTH_TRY(take_output(run, output->name, output->value, &out->outputs[i]));
    }
    out->output_count = run->graph->output_count;
    for (size_t i = 0; i < run->state_count; ++i) {
        const berth_check_state *state = &run->states[i];
        berth_check_tensor *after = &out->named[out->named_count++];
        *after = *state->tensor;
        after->data = berth_arena_alloc(run->at->arena, (size_t)after->bytes + 1, 64);
        if (!after->data) {
            return berth_arena_exhausted(run->at->arena, "results");
        }
        BERTH_TRY(berth_plan_read_state(run->plan, state->layer, state->index, after->data,
                                        after->bytes));
    }
    return run->model ? berth_check_layer_weights(run, out) : BERTH_OK;
}

static berth_status run_all(berth_check_run *run, berth_check_results *out) {
    run->table = berth_check_input(run->at, "block_table");
    BERTH_TRY(run->op ? berth_check_build(run) : berth_check_layer_build(run));
    BERTH_TRY(create_plan(run));
    BERTH_TRY(feed_parameters(run));
    BERTH_TRY(berth_plan_ready(run->plan));
    BERTH_TRY(feed_states(run));
    BERTH_TRY(berth_check_batch(run));
    BERTH_TRY(berth_plan_run(run->plan, &run->batch));
    BERTH_TRY(note_who(run));
    return take_results(run, out);
}

berth_status berth_check_execute(berth_check_case *at, berth_check_results *out) {
    *out = (berth_check_results){.output_count = 0};
    const berth_op_entry *op =
        at->op ? berth_registry_find_op(at->check->session->registry, at->op) : NULL;
    if (at->op && !op) {
        return BERTH_FAIL(NOT_FOUND, "there is no op '%s'", at->op);
    }
    berth_check_run *run = BERTH_ARENA_NEW(at->arena, berth_check_run);
    if (!run) {
        return berth_arena_exhausted(at->arena, "a run");
    }
    *run = (berth_check_run){.at = at, .op = op ? &op->op : NULL};
    const berth_status status = run_all(run, out);
    berth_plan_destroy(run->plan);
    if (run->model) {
        berth_model_destroy(run->model); // the graph is its own
    } else {
        berth_graph_destroy(run->graph);
    }
    return status;
}

// ---- handing over -------------------------------------------------------------------------------

static const berth_check_tensor *find_named(const berth_check_results *results, const char *name) {
    for (size_t i = 0; i < results->named_count; ++i) {
        if (strcmp(results->named[i].name, name) == 0) {
            return &results->named[i];
        }
    }
    return NULL;
}

// Where the row lists a name, its place; else the next one.
static size_t place_of(const berth_check_row *row, const char *name, size_t next) {
    for (size_t i = 0; i < BERTH_MAX_OUTPUTS && row->outputs[i]; ++i) {
        if (strcmp(row->outputs[i], name) == 0) {
            return i;
        }
    }
    return row->outputs[0] ? BERTH_MAX_OUTPUTS : next;
}

berth_status berth_check_give(berth_check_case *at, const berth_check_results *results) {
    size_t next = 0;
    for (size_t i = 0; i < at->output_count; ++i) {
        berth_check_output *output = &at->outputs[i];
        const berth_check_tensor *named = find_named(results, output->name);
        const size_t place = place_of(at->row, output->name, next);
        if (named) {
            output->got = *named;
        } else if (place < results->output_count) {
            output->got = results->outputs[place];
            ++next;
        }
    }
    return BERTH_OK;
}
