// SPDX-License-Identifier: Apache-2.0
// Recorded steps: where every step of a plan runs on the device and reads what changes from its
// memory, a decode step, one token of each of some sequences, is recorded for that number of
// sequences and from then on queued as a whole. The batch's arrays lie where they lay then, because
// their places follow from their sizes.
#include "executor/stages.h"

static bool is_recordable(const berth_step_note *note) {
    const berth_binding *binding = note->binding;
    return binding != NULL && binding->space == BERTH_SPACE_DEVICE && binding->impl != NULL &&
           (binding->impl->flags & BERTH_IMPL_CAPTURABLE) != 0;
}

berth_status berth_recordings_create(berth_plan *plan) {
    const int64_t most = plan->request.max_sequences < BERTH_RECORDED_SEQUENCES
                             ? plan->request.max_sequences
                             : BERTH_RECORDED_SEQUENCES;
    if (plan->is_host || plan->request.config->enforce_eager ||
        !berth_runtime_records(plan->runtime)) {
        return BERTH_OK;
    }
    for (size_t i = 0; i < plan->step_notes.count; ++i) {
        if (!is_recordable(&plan->step_notes.data[i])) {
            return BERTH_OK;
        }
    }
    plan->recordings = BERTH_ARENA_ARRAY(plan->arena, berth_recording, (size_t)most);
    if (plan->recordings == NULL) {
        return berth_arena_exhausted(plan->arena, "recorded steps");
    }
    plan->recording_count = most;
    return BERTH_OK;
}

berth_recording *berth_recording_find(berth_plan *plan) {
    const berth_batch *batch = &plan->batch;
    if (batch->max_query_len != 1 || batch->token_count != batch->sequence_count ||
        batch->token_count != batch->logits_row_count ||
        batch->sequence_count > plan->recording_count) {
        return NULL;
    }
    berth_recording *recording = &plan->recordings[batch->sequence_count - 1];
    const bool is_other = recording->graph != NULL && recording->used != plan->device_batch.used;
    return is_other ? NULL : recording;
}

void berth_recordings_drop(berth_plan *plan) {
    for (int64_t i = 0; i < plan->recording_count; ++i) {
        berth_runtime_free_graph(plan->runtime, plan->recordings[i].graph);
        plan->recordings[i] = (berth_recording){0};
    }
}
