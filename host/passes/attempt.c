// SPDX-License-Identifier: Apache-2.0
// Input: a pattern that was found. Output: whether it is rewritten, and then the fusion that has
// taken its nodes. The one caller of berth_pass_pattern.rewrite, and the judge of what it did: a
// match that cannot be is passed over, a rewrite that is wrong ends the whole build.
#include "passes/rewriting.h"

#include <string.h>

// ---- what the rewrite sees and does -------------------------------------------------------------

static void keep_replacement(const berth_pass_match *match, berth_value old, berth_value value) {
    berth_attempt *attempt = match->context;
    if (attempt->count == BERTH_ATTEMPT_VALUES) {
        const berth_status status = BERTH_FAIL(
            INVALID_ARGUMENT, "more than %d values are replaced at once", BERTH_ATTEMPT_VALUES);
        berth_graph_fail(attempt->in->trial, status, berth_status_message());
        return;
    }
    attempt->old[attempt->count] = old;
    attempt->by[attempt->count++] = value;
}

static berth_status describe(const berth_attempt *attempt, berth_pass_match *out) {
    const berth_rewriting *in = attempt->in;
    const uint64_t count = attempt->found->pattern->node_count;
    const berth_op_site **sites = BERTH_ARENA_ARRAY(in->scratch, const berth_op_site *, count);
    const berth_value **inputs = BERTH_ARENA_ARRAY(in->scratch, const berth_value *, count);
    const berth_value **outputs = BERTH_ARENA_ARRAY(in->scratch, const berth_value *, count);
    berth_op_site *all = BERTH_ARENA_ARRAY(in->scratch, berth_op_site, count);
    if (sites == NULL || inputs == NULL || outputs == NULL || all == NULL) {
        return berth_arena_exhausted(in->scratch, "a match");
    }
    const berth_host *host = berth_registry_host(in->request->registry);
    for (uint64_t i = 0; i < count; ++i) {
        const berth_graph_node *node = &in->graph->nodes[attempt->found->nodes[i]];
        inputs[i] = node->inputs;
        outputs[i] = node->outputs;
        if (node->kind == BERTH_NODE_OP) {
            BERTH_TRY(berth_graph_site(in->graph, node, host, in->scratch, &all[i]));
            sites[i] = &all[i];
        }
    }
    *out = (berth_pass_match){
        .size = sizeof *out,
        .host = host,
        .sites = sites,
        .inputs = inputs,
        .outputs = outputs,
        .node_count = count,
        .context = (void *)(uintptr_t)attempt,
        .replace = keep_replacement,
    };
    return BERTH_OK;
}

// Whether it is a match for the pass. What the builder refused is the trial's first failure, which
// whoever finishes it returns.
static berth_status rewrite(berth_attempt *attempt, bool *out_is_one) {
    const berth_rewriting *in = attempt->in;
    berth_builder face;
    berth_pass_match match;
    BERTH_TRY(describe(attempt, &match));
    berth_writer_open(&face, in);
    attempt->first = (uint32_t)berth_graph_peek(in->trial)->node_count;
    berth_plugin_enter(in->pass->owner, "rewrite");
    const berth_status status = berth_plugin_leave(attempt->found->pattern->rewrite(&match, &face));
    attempt->end = (uint32_t)berth_graph_peek(in->trial)->node_count;
    *out_is_one = status == BERTH_OK;
    if (status == BERTH_NOT_FOUND && !berth_graph_has_failed(in->trial)) {
        berth_status_clear();
        return BERTH_OK;
    }
    if (berth_graph_has_failed(in->trial)) {
        berth_graph *none = NULL;
        berth_graph_builder *trial = in->trial;
        attempt->in->trial = NULL;
        return berth_graph_finish(trial, &none);
    }
    return status;
}

// ---- whether it is right ------------------------------------------------------------------------

static bool is_output_of_match(const berth_attempt *attempt, berth_value value) {
    const berth_graph *graph = attempt->in->graph;
    return value != BERTH_VALUE_NONE && value < graph->value_count &&
           graph->values[value].node != BERTH_NO_NODE &&
           graph->values[value].kind != BERTH_VALUE_MUTATED &&
           berth_found_has(attempt->found, graph->values[value].node);
}

// A value that the new nodes may use, or that may stand for an old one.
static bool is_usable(const berth_attempt *attempt, berth_value value) {
    const berth_graph *trial = berth_graph_peek(attempt->in->trial);
    if (value == BERTH_VALUE_NONE || value >= trial->value_count) {
        return false;
    }
    const berth_graph_value *it = &trial->values[value];
    const bool is_state = it->kind == BERTH_VALUE_STATE || it->kind == BERTH_VALUE_MUTATED;
    const bool is_old = value < attempt->in->graph->value_count;
    return !is_state && !is_output_of_match(attempt, value) &&
           (is_old || it->node == BERTH_NO_NODE || it->node >= attempt->first);
}

static berth_status check_replacements(const berth_attempt *attempt) {
    const berth_graph *trial = berth_graph_peek(attempt->in->trial);
    for (size_t i = 0; i < attempt->count; ++i) {
        const berth_value old = attempt->old[i];
        const berth_value by = attempt->by[i];
        if (!is_output_of_match(attempt, old)) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "it replaces %%%u, which is no output of a matched node",
                              (unsigned)old);
        }
        if (!is_usable(attempt, by)) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "it replaces %%%u by %%%u, which is neither its own nor there "
                              "before the match",
                              (unsigned)old, (unsigned)by);
        }
        if (!berth_type_equal(&trial->values[old].type, &trial->values[by].type)) {
            berth_text text;
            berth_text_init(&text, 1024);
            berth_type_print(&trial->values[old].type, &text);
            berth_text_add_cstr(&text, " by ");
            berth_type_print(&trial->values[by].type, &text);
            const berth_status status =
                BERTH_FAIL(INVALID_ARGUMENT, "it replaces a value of another type: " BERTH_STR_FMT,
                           BERTH_STR_ARG(berth_text_str(&text)));
            berth_text_deinit(&text);
            return status;
        }
    }
    return BERTH_OK;
}

static berth_status check_emitted(const berth_attempt *attempt) {
    const berth_graph *trial = berth_graph_peek(attempt->in->trial);
    for (uint32_t i = attempt->first; i < attempt->end; ++i) {
        const berth_graph_node *node = &trial->nodes[i];
        for (size_t k = 0; k < node->input_count; ++k) {
            if (node->inputs[k] != BERTH_VALUE_NONE && !is_usable(attempt, node->inputs[k])) {
                return BERTH_FAIL(INVALID_ARGUMENT,
                                  "what it emits uses %%%u, which is neither its own nor there "
                                  "before the match",
                                  (unsigned)node->inputs[k]);
            }
        }
    }
    return BERTH_OK;
}

// ---- whether it may be --------------------------------------------------------------------------

static bool is_replaced(const berth_attempt *attempt, berth_value value) {
    for (size_t i = 0; i < attempt->count; ++i) {
        if (attempt->old[i] == value) {
            return true;
        }
    }
    return false;
}

static bool is_lost(const berth_attempt *attempt, berth_value value) {
    return value != BERTH_VALUE_NONE && is_output_of_match(attempt, value) &&
           !is_replaced(attempt, value);
}

// Whether all that others use of the matched nodes is replaced.
static bool is_complete(const berth_attempt *attempt) {
    const berth_graph *graph = attempt->in->graph;
    for (uint32_t i = 0; i < graph->node_count; ++i) {
        const berth_graph_node *node = &graph->nodes[i];
        for (size_t k = 0; k < node->input_count && !berth_found_has(attempt->found, i); ++k) {
            if (is_lost(attempt, node->inputs[k])) {
                return false;
            }
        }
    }
    for (size_t i = 0; i < graph->output_count; ++i) {
        if (is_lost(attempt, graph->outputs[i].value)) {
            return false;
        }
    }
    return true;
}

static berth_status ask(const berth_attempt *attempt, const berth_graph *graph, uint32_t index,
                        const berth_site_record **out_record) {
    const berth_rewriting *in = attempt->in;
    const berth_graph_node *node = &graph->nodes[index];
    berth_op_site site;
    *out_record = NULL;
    if (node->kind != BERTH_NODE_OP) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_graph_site(graph, node, berth_registry_host(in->request->registry), in->scratch,
                               &site));
    return berth_dispatcher_ask(in->dispatcher, node->op, &site, out_record);
}

// The matched site as it would run without the pass. Why an override counts more than a fused op:
// a plugin that replaces an op means that op, wherever it is. An attention backend has a cache laid
// out as no other op reads it.
static bool yields(const berth_site_record *matched, const char *plugin) {
    return matched->is_enabled && !matched->is_backend &&
           (!matched->is_override || strcmp(matched->plugin, plugin) == 0);
}

// Whether the platform has an implementation of the op at that site, and those of the matched nodes
// give way to it. An op that is among them already is no new one.
static berth_status can_run(const berth_attempt *attempt, uint32_t emitted, bool *out_can) {
    const berth_graph *trial = berth_graph_peek(attempt->in->trial);
    const berth_site_record *record = NULL;
    bool is_known = trial->nodes[emitted].kind != BERTH_NODE_OP;
    *out_can = true;
    for (uint64_t i = 0; i < attempt->found->pattern->node_count && !is_known; ++i) {
        is_known = trial->nodes[attempt->found->nodes[i]].op == trial->nodes[emitted].op;
    }
    if (is_known) {
        return BERTH_OK;
    }
    BERTH_TRY(ask(attempt, trial, emitted, &record));
    *out_can = !record->is_native;
    for (uint64_t i = 0; i < attempt->found->pattern->node_count && *out_can; ++i) {
        const berth_site_record *matched = NULL;
        BERTH_TRY(ask(attempt, trial, attempt->found->nodes[i], &matched));
        *out_can = matched == NULL || yields(matched, record->plugin);
    }
    return BERTH_OK;
}

// ---- the attempt --------------------------------------------------------------------------------

static berth_status take(const berth_attempt *attempt) {
    berth_rewriting *in = attempt->in;
    BERTH_TRY(berth_array_push(&in->fusions, attempt->fusion));
    for (uint64_t i = 0; i < attempt->found->pattern->node_count; ++i) {
        in->taken_by[attempt->found->nodes[i]] = (uint32_t)in->fusions.count;
    }
    for (size_t i = 0; i < attempt->count; ++i) {
        in->instead[attempt->old[i]] = attempt->by[i];
    }
    return BERTH_OK;
}

berth_status berth_attempt_make(berth_rewriting *in, const berth_found *found, bool *out_taken) {
    berth_attempt attempt = {.in = in, .found = found};
    *out_taken = false;
    berth_arena_reset(in->scratch);
    BERTH_TRY(rewrite(&attempt, out_taken));
    if (!*out_taken) {
        return BERTH_OK;
    }
    BERTH_TRY(check_emitted(&attempt));
    BERTH_TRY(check_replacements(&attempt));
    *out_taken = is_complete(&attempt) && berth_attempt_place(&attempt);
    for (uint32_t i = attempt.first; i < attempt.end && *out_taken; ++i) {
        BERTH_TRY(can_run(&attempt, i, out_taken));
    }
    return *out_taken ? take(&attempt) : BERTH_OK;
}
