// SPDX-License-Identifier: Apache-2.0
// What the files of the executor call of each other, private to it, in the order of the work.
#ifndef BERTH_EXECUTOR_STAGES_H
#define BERTH_EXECUTOR_STAGES_H

#include "executor/plan.h"

// dispatch.c: a new binding for the site with its decision and record. `site.layer` names the KV
// cache; `is_enforced` is the node's.
BERTH_MUST_CHECK berth_status berth_dispatch(berth_plan *plan, const berth_op_entry *op,
                                             const berth_op_site *site, bool is_enforced,
                                             berth_binding **out_binding);
// notes.c: overrides that no site took, names of custom_ops and fallback_ops that matched nothing.
BERTH_MUST_CHECK berth_status berth_plan_write_notes(berth_plan *plan);

// bind.c: the only callers of an implementation's slots (but forward: run.c) and of an attention
// backend's. `out_reason` is the text of a refusal, NULL when the site is supported.
BERTH_MUST_CHECK berth_status berth_impl_supports(berth_plan *plan, const berth_op_impl *impl,
                                                  const berth_owner *owner,
                                                  const berth_op_site *site,
                                                  const char **out_reason);
BERTH_MUST_CHECK berth_status berth_impl_create(berth_plan *plan, berth_binding *binding);
void berth_impl_destroy(berth_binding *binding);
uint64_t berth_impl_workspace(const berth_plan *plan, const berth_binding *binding);
uint64_t berth_impl_packed_bytes(const berth_binding *binding, uint64_t input);
BERTH_MUST_CHECK berth_status berth_impl_pack(const berth_binding *binding, uint64_t input,
                                              const berth_tensor *source,
                                              const berth_tensor *destination);
bool berth_impl_packs_rows(const berth_binding *binding);
BERTH_MUST_CHECK berth_status berth_impl_pack_rows(const berth_binding *binding, uint64_t input,
                                                   const berth_tensor *source, int64_t first,
                                                   const berth_tensor *destination);
// The platform's backend for the site's layer, or the reason why there is none.
BERTH_MUST_CHECK berth_status berth_backend_find(berth_plan *plan, const berth_op_site *site,
                                                 const berth_attention_backend **out_backend,
                                                 const berth_owner **out_owner,
                                                 const char **out_reason);
// Elements of one state of the site's cache.
typedef struct berth_cache_shape {
    int64_t extents[BERTH_MAX_DIMS];
    uint32_t ndim;
} berth_cache_shape;
BERTH_MUST_CHECK berth_status berth_backend_shape(const berth_plan *plan,
                                                  const berth_binding *binding, uint64_t state,
                                                  int64_t num_blocks, berth_cache_shape *out_shape);
// The cache of a layer, NULL when it has none.
const berth_kv_cache_spec *berth_plan_cache(const berth_plan *plan, const char *layer);

// layout.c: layouts of all values; their numbers for a batch.
BERTH_MUST_CHECK berth_status berth_layout_build(berth_plan *plan);
bool berth_layout_meets(const berth_layout *layout, uint64_t need);
void berth_layout_update(berth_plan *plan, int64_t tokens, int64_t rows);
void berth_layout_dense(const int64_t *shape, uint32_t ndim, int64_t *out_strides);

// place.c: steps, operands and storages for all bound nodes.
BERTH_MUST_CHECK berth_status berth_place(berth_plan *plan);
// storage.c: what place.c makes them with.
BERTH_MUST_CHECK berth_status berth_storage_add(berth_plan *plan, berth_storage storage,
                                                uint32_t *out_index);
BERTH_MUST_CHECK berth_status berth_operand_add(berth_plan *plan, berth_value value,
                                                uint32_t storage, berth_operand **out_operand);
// The value in that space at this point of the plan, after the copies that this takes: as a view
// with the strides of its layout, or without gaps. `layer` is for the record of a copy.
BERTH_MUST_CHECK berth_status berth_operand_get_view(berth_plan *plan, berth_value value,
                                                     berth_space space,
                                                     berth_operand **out_operand);
BERTH_MUST_CHECK berth_status berth_operand_get(berth_plan *plan, berth_value value,
                                                const char *layer, berth_space space,
                                                berth_operand **out_operand);
BERTH_MUST_CHECK berth_status berth_step_add(berth_plan *plan, berth_step step,
                                             berth_step_note note);
// A wait, if this thread is next to read what a platform's streams may still be writing: before
// `next`, or before the executor's own hands when it is NULL.
BERTH_MUST_CHECK berth_status berth_step_settle(berth_plan *plan, const berth_binding *next);
// A planned storage written by the next step, and its operand.
BERTH_MUST_CHECK berth_status berth_planned_add(berth_plan *plan, berth_value value,
                                                berth_space space, berth_operand **out_operand);
// The next step reads or writes the operand.
void berth_operand_touch(berth_plan *plan, const berth_operand *operand);
uint64_t berth_value_bytes(const berth_plan *plan, berth_value value); // for the largest batch

// copy.c: forwards of copy steps; `self` is a berth_copy_step.
berth_status berth_copy_to_device(void *self, const berth_op_args *args);
berth_status berth_copy_to_host(void *self, const berth_op_args *args);
berth_status berth_copy_dense(void *self, const berth_op_args *args); // both in host memory
berth_status berth_copy_wait(void *self, const berth_op_args *args);

// memory.c: offsets of all planned storages of a space; the size of its block.
BERTH_MUST_CHECK berth_status berth_memory_assign(berth_plan *plan, berth_space space);

// parameters.c
BERTH_MUST_CHECK berth_status berth_plan_check_parameters(const berth_plan *plan);

// state.c: a storage and an operand per state, in the space of those who use it; memory for those
// that are no KV cache.
BERTH_MUST_CHECK berth_status berth_states_place(berth_plan *plan);
BERTH_MUST_CHECK berth_status berth_states_create(berth_plan *plan);
// The memory of all KV caches goes, what was recorded on it too; and comes again, as large as it
// was.
void berth_caches_free(berth_plan *plan);
BERTH_MUST_CHECK berth_status berth_caches_alloc(berth_plan *plan);

// storage_memory.c: memory of storages that are not planned.
BERTH_MUST_CHECK berth_status berth_storage_alloc(berth_plan *plan, uint32_t index);
// Fills the storage from host memory.
BERTH_MUST_CHECK berth_status berth_storage_write(berth_plan *plan, uint32_t index,
                                                  const void *data, uint64_t bytes);
void berth_storage_free(berth_plan *plan, uint32_t index);
// The block that all weights lie in where memory is the host's; none of them is in use any more.
void berth_weights_free(berth_plan *plan);
// The block of planned storages on the device, of the size that is known; operands find it.
BERTH_MUST_CHECK berth_status berth_device_block_alloc(berth_plan *plan);
// The memory behind an operand in device memory.
berth_buffer berth_operand_buffer(const berth_plan *plan, const berth_operand *operand);
// Blocks for all planned storages, memory for results; then every operand finds its memory.
BERTH_MUST_CHECK berth_status berth_blocks_create(berth_plan *plan);
void berth_blocks_destroy(berth_plan *plan);

// batch.c: room for the batch in device memory; whether a caller's batch fits the plan; takes one
// in that does: uploads it. Behind it may stand some of nobody's, for which there is room, too.
BERTH_MUST_CHECK berth_status berth_device_batch_create(berth_plan *plan);
BERTH_MUST_CHECK berth_status berth_batch_check(const berth_plan *plan, const berth_batch *batch);
BERTH_MUST_CHECK berth_status berth_batch_begin(berth_plan *plan, const berth_batch *batch,
                                                berth_padding padding);

// choice.c: a step behind all others that picks the largest logit of each row, if the platform can.
BERTH_MUST_CHECK berth_status berth_choice_place(berth_plan *plan);
BERTH_MUST_CHECK berth_status berth_choice_create(berth_plan *plan);
void berth_choice_update(berth_plan *plan, int64_t rows);

// draw.c: behind that, what draws a token of each row, if the platform can.
BERTH_MUST_CHECK berth_status berth_draw_place(berth_plan *plan);
BERTH_MUST_CHECK berth_status berth_draw_create(berth_plan *plan);
void berth_draw_destroy(berth_plan *plan);

// record.c: what the plan's steps allow: one of them recorded; steps filled up with what is
// nobody's.
bool berth_step_is_recordable(const berth_step_note *note);
bool berth_plan_can_be_filled_up(const berth_plan *plan);
// Room for recordings, if all steps can be recorded; the one that such a batch uses, NULL when it
// is not recorded; all gone, pieces too, since memory has moved.
BERTH_MUST_CHECK berth_status berth_recordings_create(berth_plan *plan);
berth_recording *berth_recording_find(const berth_plan *plan, const berth_batch *batch);
void berth_recordings_drop(berth_plan *plan);
// Active steps of the batch that has just begun, as a graph.
BERTH_MUST_CHECK berth_status berth_steps_record(berth_plan *plan, size_t first, size_t count,
                                                 void **out_graph);

// piecewise.c: the same for steps of any batch, cut at what depends on more than the number of
// tokens.
BERTH_MUST_CHECK berth_status berth_piecewise_create(berth_plan *plan);
BERTH_MUST_CHECK berth_status berth_piecewise_record(berth_plan *plan);
const berth_piecewise *berth_piecewise_find(const berth_plan *plan, const berth_batch *batch);
BERTH_MUST_CHECK berth_status berth_piecewise_run(const berth_plan *plan,
                                                  const berth_piecewise *recorded);
void berth_piecewise_drop(berth_plan *plan);

// run.c: keeps the steps that have something to do for the current numbers; calls some of them.
void berth_plan_activate(berth_plan *plan);
BERTH_MUST_CHECK berth_status berth_steps_run(const berth_plan *plan, size_t first, size_t count);

#endif
