// SPDX-License-Identifier: Apache-2.0
// Input: a graph and all registered passes. Output: the graph after those that are on. Each goes
// over the nodes once, from the last to the first, so that of two matches that share a node the one
// nearer to the outputs counts.
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "passes/narrow.h"
#include "passes/rewriting.h"

#define BLOCK_BYTES (64u << 10)
#define LIMIT_BYTES (256u << 20)

// ---- one pass -----------------------------------------------------------------------------------

// The pass is wrong, whatever status its mistake had: its plugin is to be mended.
static berth_status blame(const berth_rewriting *in, uint32_t root, berth_status status) {
    const berth_graph_node *node = &in->graph->nodes[root];
    const bool is_op = node->kind == BERTH_NODE_OP;
    return status == BERTH_OUT_OF_MEMORY
               ? status
               : BERTH_FAIL(INTERNAL, "pass '%s' of plugin '%s', at node %u (%s%s%s): %s",
                            in->pass->pass.name, in->pass->owner->id, (unsigned)root,
                            is_op ? node->op->op.name : "a view", is_op ? " of layer " : "",
                            is_op ? node->layer : "", berth_status_message());
}

static berth_status try_node(berth_rewriting *in, uint32_t root) {
    const berth_pass *pass = &in->pass->pass;
    berth_found found;
    bool is_taken = false;
    for (uint64_t i = 0; i < pass->pattern_count && !is_taken; ++i) {
        if (berth_pass_find(in, pass->patterns[i], root, &found)) {
            const berth_status status = berth_attempt_make(in, &found, &is_taken);
            if (status != BERTH_OK) {
                return blame(in, root, status);
            }
        }
    }
    return BERTH_OK;
}

static berth_status scan(berth_rewriting *in) {
    for (size_t i = in->graph->node_count; i-- > 0;) {
        BERTH_TRY(try_node(in, (uint32_t)i));
    }
    return BERTH_OK;
}

static berth_status begin(berth_rewriting *in) {
    BERTH_TRY(berth_arena_create(BLOCK_BYTES, LIMIT_BYTES, &in->arena));
    BERTH_TRY(berth_arena_create(BLOCK_BYTES, LIMIT_BYTES, &in->scratch));
    in->taken_by = BERTH_ARENA_ARRAY(in->arena, uint32_t, in->graph->node_count);
    in->instead = BERTH_ARENA_ARRAY(in->arena, berth_value, in->graph->value_count);
    if (in->taken_by == NULL || in->instead == NULL) {
        return berth_arena_exhausted(in->arena, "a pass");
    }
    return berth_trial_begin(in->request->registry, in->graph, &in->trial);
}

// Nobody wants what was tried. A builder ends by being finished; this thread keeps its report.
static void drop_trial(berth_rewriting *in) {
    if (in->trial == NULL) {
        return;
    }
    berth_graph *none = NULL;
    berth_status_report report;
    berth_status_take(&report);
    berth_graph_fail(in->trial, BERTH_WRONG_STATE, "a trial is no graph");
    berth_status ignored = berth_graph_finish(in->trial, &none);
    berth_status_clear();
    if (report.code != BERTH_OK) {
        ignored = berth_status_restore(&report);
    }
    (void)ignored;
}

static berth_status run_pass(berth_rewriting *in, berth_graph **out_graph) {
    BERTH_TRY(begin(in));
    BERTH_TRY(scan(in));
    const berth_status status =
        in->fusions.count > 0 ? berth_rewriting_finish(in, out_graph) : BERTH_OK;
    if (status != BERTH_OK && status != BERTH_OUT_OF_MEMORY) {
        return BERTH_FAIL(INTERNAL, "pass '%s' of plugin '%s': %s", in->pass->pass.name,
                          in->pass->owner->id, berth_status_message());
    }
    BERTH_TRY(status);
    BERTH_INFO("passes", "%s: %zu matches", in->pass->pass.name, in->fusions.count);
    return BERTH_OK;
}

// ---- all of them --------------------------------------------------------------------------------

static int compare(const void *a, const void *b) {
    const berth_pass *left = &(*(const berth_pass_entry *const *)a)->pass;
    const berth_pass *right = &(*(const berth_pass_entry *const *)b)->pass;
    if (left->priority != right->priority) {
        return left->priority > right->priority ? -1 : 1;
    }
    return strcmp(left->name, right->name);
}

static bool is_named(const berth_option_list *list, const char *name) {
    for (size_t i = 0; i < list->count; ++i) {
        if (berth_str_equal_cstr(berth_str_trim(berth_str_from(list->items[i])), name)) {
            return true;
        }
    }
    return false;
}

// The registry has only flags that are keys.
static berth_status is_on(const berth_config *config, const berth_pass *pass, bool *out_is_on) {
    char key[256];
    int64_t value = 1;
    if (pass->flag != NULL) {
        (void)snprintf(key, sizeof key, BERTH_CONFIG_PASS_KEYS "%s", pass->flag);
        BERTH_TRY(berth_config_get_i64(config, key, &value));
    }
    *out_is_on = value != 0 && !is_named(&config->disabled_passes, pass->name);
    return BERTH_OK;
}

// Names in the list that are nobody's would have no effect, and nobody would notice.
static void warn_of_unknown(const berth_plan_request *request, const char **names, size_t count) {
    const berth_option_list *list = &request->config->disabled_passes;
    for (size_t i = 0; i < list->count; ++i) {
        const berth_str item = berth_str_trim(berth_str_from(list->items[i]));
        bool is_known = item.size == 0;
        for (size_t k = 0; k < count && !is_known; ++k) {
            is_known = berth_str_equal_cstr(item, names[k]);
        }
        const char *nearest = is_known ? NULL : berth_str_nearest(item, names, count);
        if (!is_known) {
            BERTH_WARN("passes",
                       BERTH_CONFIG_PASS_KEYS "disabled: there is no pass '" BERTH_STR_FMT
                                              "'%s%s%s",
                       BERTH_STR_ARG(item), nearest == NULL ? "" : "; did you mean '",
                       nearest == NULL ? "" : nearest, nearest == NULL ? "" : "'?");
        }
    }
}

// The passes in their order, and their names in the same, behind which comes the host's own.
static berth_status list_passes(const berth_plan_request *request, berth_arena *arena,
                                const berth_pass_entry ***out_passes) {
    const size_t count = berth_registry_pass_count(request->registry);
    const berth_pass_entry **passes = BERTH_ARENA_ARRAY(arena, const berth_pass_entry *, count);
    const char **names = BERTH_ARENA_ARRAY(arena, const char *, count + 1);
    if (passes == NULL || names == NULL) {
        return berth_arena_exhausted(arena, "the passes");
    }
    for (size_t i = 0; i < count; ++i) {
        passes[i] = berth_registry_pass_at(request->registry, i);
        names[i] = passes[i]->pass.name;
    }
    names[count] = BERTH_NARROW_ROWS;
    warn_of_unknown(request, names, count + 1);
    if (count > 1) {
        qsort(passes, count, sizeof *passes, compare);
    }
    *out_passes = passes;
    return BERTH_OK;
}

// `*graph` is what came of the passes before, NULL: nothing.
static berth_status run_one(const berth_plan_request *request, berth_dispatcher *dispatcher,
                            const berth_pass_entry *pass, berth_graph **graph) {
    bool is_wanted = false;
    BERTH_TRY(is_on(request->config, &pass->pass, &is_wanted));
    if (!is_wanted) {
        BERTH_INFO("passes", "%s: off", pass->pass.name);
        return BERTH_OK;
    }
    berth_rewriting in = {
        .request = request,
        .dispatcher = dispatcher,
        .pass = pass,
        .graph = *graph != NULL ? *graph : request->graph,
    };
    berth_graph *better = NULL;
    const berth_status status = run_pass(&in, &better);
    drop_trial(&in);
    berth_array_free(&in.fusions);
    berth_arena_destroy(in.scratch);
    berth_arena_destroy(in.arena);
    if (better != NULL) {
        berth_graph_destroy(*graph);
        *graph = better;
    }
    return status;
}

// Why before all others: which ops are fused depends on how many rows they may have.
static berth_status narrow(const berth_plan_request *request, berth_graph **graph) {
    const bool is_wanted = !is_named(&request->config->disabled_passes, BERTH_NARROW_ROWS);
    if (is_wanted) {
        BERTH_TRY_NOTE(berth_narrow_rows(request->registry, request->graph, graph),
                       "pass '" BERTH_NARROW_ROWS "'");
    }
    BERTH_INFO("passes", BERTH_NARROW_ROWS ": %s",
               !is_wanted       ? "off"
               : *graph != NULL ? "rows are selected early"
                                : "nothing to do");
    return BERTH_OK;
}

static berth_status run_all(const berth_plan_request *request, berth_dispatcher *dispatcher,
                            berth_arena *arena, berth_graph **graph) {
    const berth_pass_entry **passes = NULL;
    BERTH_TRY(list_passes(request, arena, &passes));
    BERTH_TRY(narrow(request, graph));
    for (size_t i = 0; i < berth_registry_pass_count(request->registry); ++i) {
        BERTH_TRY(run_one(request, dispatcher, passes[i], graph));
    }
    return BERTH_OK;
}

berth_status berth_passes_run(const berth_plan_request *request, berth_graph **out_graph) {
    berth_graph *graph = NULL;
    berth_dispatcher *dispatcher = NULL;
    berth_arena *arena = NULL;
    *out_graph = NULL;
    BERTH_TRY(berth_arena_create(BLOCK_BYTES, LIMIT_BYTES, &arena));
    berth_status status = berth_dispatcher_create(request, &dispatcher);
    if (status == BERTH_OK) {
        status = run_all(request, dispatcher, arena, &graph);
    }
    berth_dispatcher_destroy(dispatcher);
    berth_arena_destroy(arena);
    if (status != BERTH_OK) {
        berth_graph_destroy(graph);
        return status;
    }
    *out_graph = graph;
    return BERTH_OK;
}
