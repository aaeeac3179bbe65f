// SPDX-License-Identifier: Apache-2.0
// Input: a ready plan and a batch. Output: the steps have run, or the first failure with op, layer,
// implementation and plugin. The loop below is all that stands between two forwards.
#include "executor/stages.h"

#include <string.h>

#include "base/clock.h"
#include "base/convert.h"
#include "base/frame.h"

// ---- what runs ----------------------------------------------------------------------------------

// Whether the step writes something for the current numbers.
static bool has_work(const berth_plan *plan, const berth_step_note *note) {
    for (size_t i = 0; i < note->value_count; ++i) {
        if (plan->extents[note->values[i]].elements > 0) {
            return true;
        }
    }
    return note->has_states || note->value_count == 0;
}

void berth_plan_activate(berth_plan *plan) {
    plan->active_count = 0;
    for (size_t i = 0; i < plan->steps.count; ++i) {
        if (has_work(plan, &plan->step_notes.data[i])) {
            plan->active[plan->active_count] = plan->steps.data[i];
            plan->active_notes[plan->active_count++] = &plan->step_notes.data[i];
        }
    }
}

// ---- running ------------------------------------------------------------------------------------

// Why only here: a frame per call would cost more than the call. One stands around the whole run,
// and learns after a failure whose call it was. Why cold: inlined, it costs every call a register.
static __attribute__((noinline, cold)) berth_status explain(const berth_plan *plan, size_t index,
                                                            berth_status status) {
    const berth_binding *binding = plan->active_notes[index]->binding;
    if (binding == NULL) {
        berth_frame_pop();
        berth_status_note(__FILE__, __LINE__, "copying an operand of graph '%s'",
                          plan->graph->name);
        return status;
    }
    berth_frame *frame = berth_frame_top();
    frame->owner = binding->owner;
    frame->slot = "forward";
    const berth_status code = berth_plugin_leave(status);
    berth_status_note(__FILE__, __LINE__, "running op '%s' of layer '%s' by '%s' of plugin %s %s",
                      binding->record.op, binding->record.layer, binding->record.implementation,
                      binding->record.plugin, binding->record.version);
    return code;
}

berth_status berth_steps_run(const berth_plan *plan, size_t first, size_t count) {
    berth_plugin_enter(NULL, "forward");
    const berth_step *end = plan->active + first + count;
    for (const berth_step *step = plan->active + first; step != end; ++step) {
        const berth_status status = step->forward(step->self, step->args);
        if (status != BERTH_OK) {
            return explain(plan, (size_t)(step - plan->active), status);
        }
    }
    return berth_plugin_leave(BERTH_OK);
}

static berth_status run_timed(const berth_plan *plan) {
    berth_plugin_enter(NULL, "forward");
    for (size_t i = 0; i < plan->active_count; ++i) {
        const berth_step *step = &plan->active[i];
        berth_binding *binding = plan->active_notes[i]->binding;
        const uint64_t start = berth_clock_ns();
        berth_status status = step->forward(step->self, step->args);
        if (status == BERTH_OK) {
            status = berth_runtime_wait(plan->runtime);
        }
        if (status != BERTH_OK) {
            return explain(plan, i, status);
        }
        if (binding) {
            binding->ns = berth_clock_ns() - start;
        }
    }
    return berth_plugin_leave(BERTH_OK);
}

void berth_plan_set_timed(berth_plan *plan, bool is_timed) {
    plan->is_timed = is_timed;
}

uint64_t berth_plan_site_ns(const berth_plan *plan, size_t index) {
    return plan->bindings.data[index]->ns;
}

// Recorded when it is there, or the second time that it comes.
static berth_status run_recorded(berth_plan *plan, const berth_batch *batch,
                                 berth_recording *recording) {
    const int64_t padding =
        recording->graph != NULL ? recording->padded - batch->sequence_count : 0;
    BERTH_TRY(berth_batch_begin(plan, batch, (berth_padding){padding, padding}));
    if (recording->graph == NULL && !recording->is_seen) {
        recording->is_seen = true;
        return berth_steps_run(plan, 0, plan->active_count);
    }
    if (recording->graph == NULL) {
        BERTH_TRY(berth_steps_record(plan, 0, plan->active_count, &recording->graph));
    }
    return berth_runtime_replay(plan->runtime, recording->graph);
}

berth_status berth_plan_run(berth_plan *plan, const berth_batch *batch) {
    if (!plan->is_ready || plan->needs_cache) {
        return BERTH_FAIL(WRONG_STATE, "a plan runs after berth_plan_%s",
                          plan->is_asleep  ? "wake_up"
                          : plan->is_ready ? "set_cache"
                                           : "ready");
    }
    BERTH_TRY(berth_batch_check(plan, batch));
    berth_recording *recording = plan->is_timed ? NULL : berth_recording_find(plan, batch);
    if (recording != NULL) {
        return run_recorded(plan, batch, recording);
    }
    const berth_piecewise *pieces = plan->is_timed ? NULL : berth_piecewise_find(plan, batch);
    const berth_padding padding = {pieces != NULL ? pieces->tokens - batch->token_count : 0, 0};
    BERTH_TRY(berth_batch_begin(plan, batch, padding));
    return plan->is_timed   ? run_timed(plan)
           : pieces != NULL ? berth_piecewise_run(plan, pieces)
                            : berth_steps_run(plan, 0, plan->active_count);
}

// ---- results ------------------------------------------------------------------------------------

static berth_status download(berth_plan *plan, berth_plan_result *result, uint64_t elements) {
    const berth_operand *operand = result->operand;
    result->tensor.data = result->memory;
    result->tensor.byte_offset = 0;
    result->tensor.device_type = BERTH_MEMORY_HOST;
    result->tensor.device_id = 0;
    return berth_runtime_download(plan->runtime, result->memory,
                                  berth_operand_buffer(plan, operand), operand->tensor.byte_offset,
                                  berth_dtype_bytes(operand->tensor.dtype, elements));
}

static void widen(berth_plan_result *result, uint64_t elements) {
    berth_tensor *tensor = &result->tensor;
    berth_convert(tensor->dtype, (const char *)tensor->data + tensor->byte_offset, BERTH_DTYPE_F32,
                  result->floats, elements);
    tensor->data = result->floats;
    tensor->byte_offset = 0;
    tensor->dtype = BERTH_DTYPE_F32;
}

// The rows that are somebody's: they come first.
static uint64_t shape_result(const berth_plan *plan, berth_plan_result *result) {
    const berth_value_type *type = &plan->graph->values[result->operand->value].type;
    uint64_t elements = 1;
    for (uint32_t i = 0; i < type->ndim; ++i) {
        result->shape[i] = berth_dim_value(type->dims[i], plan->tokens - plan->padding.sequences,
                                           plan->rows - plan->padding.rows);
        elements *= (uint64_t)result->shape[i];
    }
    return elements;
}

static berth_status fetch(berth_plan *plan, berth_plan_result *result) {
    result->tensor = result->operand->tensor;
    result->tensor.shape = result->shape;
    const uint64_t elements = shape_result(plan, result);
    if (result->memory != NULL) {
        BERTH_TRY(download(plan, result, elements));
    } else if (plan->is_host) {
        BERTH_TRY(berth_runtime_wait(plan->runtime));
    }
    if (result->floats != NULL) {
        widen(result, elements);
    }
    return BERTH_OK;
}

berth_status berth_plan_output(berth_plan *plan, const char *name,
                               const berth_tensor **out_tensor) {
    if (plan->tokens == 0) {
        return BERTH_FAIL(WRONG_STATE, "the plan has not run yet");
    }
    for (size_t i = 0; i < plan->graph->output_count; ++i) {
        berth_plan_result *result = &plan->results[i];
        if (strcmp(result->name, name) == 0) {
            BERTH_TRY_NOTE(fetch(plan, result), "fetching the output '%s'", name);
            *out_tensor = &result->tensor;
            return BERTH_OK;
        }
    }
    return BERTH_FAIL(NOT_FOUND, "the model has no output '%s'", name);
}
