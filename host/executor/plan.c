// SPDX-License-Identifier: Apache-2.0
// The life of a plan: bound and placed at creation, filled with weights, made ready, run,
// destroyed.
#include "executor/stages.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

#define BLOCK_BYTES (64u << 10)
#define LIMIT_BYTES (512u << 20)

// ---- creation -----------------------------------------------------------------------------------

static berth_status check_request(const berth_plan_request *request) {
    const berth_config *config = request->config;
    if (config->compilation_mode > 0 && config->compilation_backend != NULL &&
        strcmp(config->compilation_backend, "inductor") == 0) {
        return BERTH_FAIL(UNSUPPORTED,
                          "compilation.backend inductor with compilation.mode %lld: there is no "
                          "compiler yet; use mode 0 or backend eager",
                          (long long)config->compilation_mode);
    }
    if (request->max_tokens < 1 || request->max_sequences < 1 || request->max_seq_len < 1) {
        return BERTH_FAIL(
            INVALID_ARGUMENT,
            "a plan for %lld tokens, %lld sequences, %lld tokens a sequence: all must "
            "be at least 1",
            (long long)request->max_tokens, (long long)request->max_sequences,
            (long long)request->max_seq_len);
    }
    return BERTH_OK;
}

// Judged for every op, not only for those of the model: a list that contradicts itself is wrong
// whatever it is used with.
static berth_status check_spellings(const berth_plan *plan) {
    const berth_registry *registry = plan->request.registry;
    for (size_t i = 0; i < berth_registry_op_count(registry); ++i) {
        const berth_op *op = &berth_registry_op_at(registry, i)->op;
        berth_op_wish wish;
        BERTH_TRY(berth_custom_ops_wants(&plan->custom_ops, op->name, op->class_name, &wish));
    }
    return BERTH_OK;
}

static berth_status bind_nodes(berth_plan *plan) {
    const berth_host *host = berth_registry_host(plan->request.registry);
    for (size_t i = 0; i < plan->graph->node_count; ++i) {
        const berth_graph_node *node = &plan->graph->nodes[i];
        if (node->kind != BERTH_NODE_OP) {
            continue;
        }
        berth_op_site site;
        berth_binding *binding = NULL;
        BERTH_TRY(berth_graph_site(plan->graph, node, host, plan->arena, &site));
        BERTH_TRY(berth_dispatch(plan, node->op, &site, node->is_enforced, &binding));
        binding->record.pass = node->made_by;
    }
    return BERTH_OK;
}

// ---- fallbacks ----------------------------------------------------------------------------------

static bool is_listed(const berth_config *config, const berth_op *op) {
    for (size_t i = 0; i < config->fallback_ops.count; ++i) {
        const berth_str item = berth_str_trim(berth_str_from(config->fallback_ops.items[i]));
        if (berth_str_equal_cstr(item, op->name) || berth_str_equal_cstr(item, op->class_name)) {
            return true;
        }
    }
    return false;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Ids of bounced ops that nothing allows, sorted, each once.
static size_t collect_bounced(const berth_plan *plan, const char **names) {
    size_t count = 0;
    for (size_t i = 0; i < plan->bindings.count; ++i) {
        const berth_binding *binding = plan->bindings.data[i];
        if (binding->record.is_bounced && !is_listed(plan->request.config, &binding->op->op)) {
            names[count++] = binding->record.op;
        }
    }
    if (count > 0) {
        qsort(names, count, sizeof(*names), compare_names);
    }
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) {
        if (kept == 0 || strcmp(names[kept - 1], names[i]) != 0) {
            names[kept++] = names[i];
        }
    }
    return kept;
}

static berth_status judge_fallbacks(const berth_plan *plan) {
    const char **names = BERTH_ARENA_ARRAY(plan->arena, const char *, plan->bindings.count);
    if (names == NULL) {
        return berth_arena_exhausted(plan->arena, "op names");
    }
    const size_t count = collect_bounced(plan, names);
    if (count == 0 || plan->request.config->allow_fallback) {
        return BERTH_OK;
    }
    berth_text text;
    berth_text_init(&text, 2048);
    for (size_t i = 0; i < count; ++i) {
        berth_text_add_format(&text, "%s%s", i == 0 ? "" : ", ", names[i]);
    }
    const char *list = NULL;
    berth_status status = berth_text_finish(&text, &list);
    if (status == BERTH_OK) {
        status = BERTH_FAIL(UNSUPPORTED,
                            "platform '%s' has no implementation of %s; run them on the host with "
                            "--allow-fallback, or list them in fallback_ops",
                            berth_runtime_device(plan->runtime)->platform, list);
    }
    berth_text_deinit(&text);
    return status;
}

// Where steps are recorded, room for what they are filled up with beside as many as there may be.
static void make_room(berth_plan *plan) {
    plan->most_sequences = plan->request.max_sequences;
    if (!plan->is_host && berth_config_records_pieces(plan->request.config) &&
        berth_runtime_records(plan->runtime)) {
        plan->request.max_sequences += BERTH_NOBODYS_MOST;
    }
}

// All that the decisions of dispatch rest on.
static berth_status begin(berth_plan *plan) {
    const berth_platform_entry *platform = berth_runtime_platform(plan->runtime);
    BERTH_TRY(check_request(&plan->request));
    make_room(plan);
    BERTH_TRY(berth_arena_create(BLOCK_BYTES, LIMIT_BYTES, &plan->arena));
    BERTH_TRY(berth_custom_ops_parse(
        plan->request.config, platform != NULL ? platform->platform.default_custom_ops : NULL,
        &plan->custom_ops));
    return check_spellings(plan);
}

static berth_status build(berth_plan *plan) {
    BERTH_TRY(berth_layout_build(plan));
    BERTH_TRY(bind_nodes(plan));
    BERTH_TRY(berth_place(plan));
    BERTH_TRY(judge_fallbacks(plan));
    BERTH_TRY(berth_choice_place(plan));
    BERTH_TRY(berth_draw_place(plan));
    return berth_plan_write_notes(plan);
}

static berth_status create(const berth_plan_request *request,
                           berth_status (*finish)(berth_plan *plan), berth_plan **out_plan) {
    berth_plan *plan = berth_alloc(sizeof(*plan));
    if (plan == NULL) {
        return BERTH_FAIL(OUT_OF_MEMORY, "no memory for a plan");
    }
    plan->request = *request;
    plan->graph = request->graph;
    plan->runtime = request->runtime;
    plan->is_host = berth_runtime_is_host(request->runtime);
    berth_status status = begin(plan);
    if (status == BERTH_OK && finish != NULL) {
        status = finish(plan);
    }
    if (status != BERTH_OK) {
        berth_plan_destroy(plan);
        return status;
    }
    *out_plan = plan;
    return BERTH_OK;
}

berth_status berth_plan_create(const berth_plan_request *request, berth_plan **out_plan) {
    return create(request, build, out_plan);
}

// ---- decisions without a plan -------------------------------------------------------------------

// A plan of bindings alone.
struct berth_dispatcher {
    berth_plan *plan;
};

berth_status berth_dispatcher_create(const berth_plan_request *request,
                                     berth_dispatcher **out_dispatcher) {
    berth_plan_request bare = *request;
    berth_plan *plan = NULL;
    bare.graph = NULL;
    BERTH_TRY(create(&bare, NULL, &plan));
    berth_dispatcher *dispatcher = BERTH_ARENA_NEW(plan->arena, berth_dispatcher);
    if (dispatcher == NULL) {
        const berth_status status = berth_arena_exhausted(plan->arena, "dispatch records");
        berth_plan_destroy(plan);
        return status;
    }
    dispatcher->plan = plan;
    *out_dispatcher = dispatcher;
    return BERTH_OK;
}

berth_status berth_dispatcher_ask(berth_dispatcher *dispatcher, const berth_op_entry *op,
                                  const berth_op_site *site, const berth_site_record **out_record) {
    berth_binding *binding = NULL;
    BERTH_TRY(berth_dispatch(dispatcher->plan, op, site, false, &binding));
    *out_record = &binding->record;
    return BERTH_OK;
}

void berth_dispatcher_destroy(berth_dispatcher *dispatcher) {
    if (dispatcher != NULL) {
        berth_plan_destroy(dispatcher->plan);
    }
}

// ---- records ------------------------------------------------------------------------------------

size_t berth_plan_site_count(const berth_plan *plan) {
    return plan->bindings.count;
}

const berth_site_record *berth_plan_site(const berth_plan *plan, size_t index) {
    return &plan->bindings.data[index]->record;
}

berth_dispatch_counters berth_plan_counters(const berth_plan *plan) {
    return plan->counters;
}

size_t berth_plan_note_count(const berth_plan *plan) {
    return plan->notes.count;
}

const char *berth_plan_note(const berth_plan *plan, size_t index) {
    return plan->notes.data[index].text;
}

bool berth_plan_note_is_users(const berth_plan *plan, size_t index) {
    return plan->notes.data[index].is_users;
}

// ---- readiness ----------------------------------------------------------------------------------

// A workspace lives for one step.
static berth_status add_workspace(berth_plan *plan, uint32_t step, uint64_t bytes) {
    berth_step_note *note = &plan->step_notes.data[step];
    const berth_storage storage = {
        .kind = BERTH_STORAGE_PLANNED,
        .space = note->binding->space,
        .bytes = bytes,
        .first = step,
        .last = step,
    };
    uint32_t index = 0;
    berth_operand *operand = NULL;
    BERTH_TRY(berth_storage_add(plan, storage, &index));
    BERTH_TRY(berth_operand_add(plan, BERTH_VALUE_NONE, index, &operand));
    operand->shape[0] = (int64_t)bytes;
    operand->strides[0] = 1;
    operand->tensor.ndim = 1;
    operand->tensor.dtype = BERTH_DTYPE_U8;
    operand->tensor.shape = operand->shape;
    operand->tensor.strides = operand->strides;
    note->args->workspace = &operand->tensor;
    return BERTH_OK;
}

static berth_status create_steps(berth_plan *plan) {
    for (size_t i = 0; i < plan->bindings.count; ++i) {
        BERTH_TRY(berth_impl_create(plan, plan->bindings.data[i]));
    }
    for (uint32_t i = 0; i < plan->steps.count; ++i) {
        const berth_binding *binding = plan->step_notes.data[i].binding;
        if (binding == NULL) {
            continue;
        }
        plan->steps.data[i].forward =
            binding->impl != NULL ? binding->impl->forward : binding->op->op.reference;
        plan->steps.data[i].self = binding->self;
        const uint64_t bytes = berth_impl_workspace(plan, binding);
        if (bytes > 0) {
            BERTH_TRY(add_workspace(plan, i, bytes));
        }
    }
    plan->active = BERTH_ARENA_ARRAY(plan->arena, berth_step, plan->steps.count);
    plan->active_notes = BERTH_ARENA_ARRAY(plan->arena, const berth_step_note *, plan->steps.count);
    return plan->active != NULL && plan->active_notes != NULL
               ? BERTH_OK
               : berth_arena_exhausted(plan->arena, "the plan's steps");
}

berth_status berth_plan_ready(berth_plan *plan) {
    if (plan->is_ready || plan->is_asleep) {
        return BERTH_FAIL(WRONG_STATE, "the plan is %s already",
                          plan->is_asleep ? "asleep" : "ready");
    }
    BERTH_TRY(berth_plan_check_parameters(plan));
    BERTH_TRY(create_steps(plan));
    BERTH_TRY(berth_blocks_create(plan));
    BERTH_TRY(berth_device_batch_create(plan));
    BERTH_TRY(berth_states_create(plan));
    BERTH_TRY(berth_choice_create(plan));
    BERTH_TRY(berth_draw_create(plan));
    BERTH_TRY(berth_recordings_create(plan));
    BERTH_TRY(berth_piecewise_create(plan));
    plan->is_ready = true;
    BERTH_INFO("executor", "plans %zu steps for %zu ops in %llu bytes of activations",
               plan->steps.count, plan->bindings.count,
               (unsigned long long)berth_plan_activation_bytes(plan));
    return BERTH_OK;
}

uint64_t berth_plan_activation_bytes(const berth_plan *plan) {
    uint64_t bytes = plan->device_batch.buffer.bytes;
    for (size_t i = 0; i < BERTH_SPACE_COUNT; ++i) {
        bytes += plan->block_bytes[i];
    }
    for (size_t i = 0; i < plan->graph->output_count; ++i) {
        const berth_plan_result *result = &plan->results[i];
        bytes += result->memory != NULL ? berth_value_bytes(plan, result->operand->value) : 0;
    }
    return bytes;
}

uint64_t berth_plan_parameter_bytes(const berth_plan *plan) {
    return plan->parameter_bytes;
}

void berth_plan_destroy(berth_plan *plan) {
    if (plan == NULL) {
        return;
    }
    berth_recordings_drop(plan);
    for (size_t i = plan->bindings.count; i-- > 0;) {
        berth_impl_destroy(plan->bindings.data[i]);
    }
    berth_blocks_destroy(plan);
    berth_array_free(&plan->bindings);
    berth_array_free(&plan->notes);
    berth_array_free(&plan->storages);
    berth_array_free(&plan->operands);
    berth_array_free(&plan->steps);
    berth_array_free(&plan->step_notes);
    berth_array_free(&plan->pieces);
    berth_array_free(&plan->inputs);
    berth_array_free(&plan->device_inputs);
    berth_arena_destroy(plan->arena);
    berth_free(plan);
}
