// SPDX-License-Identifier: Apache-2.0
// What a plan is made of, private to executor. In the order of the work: bindings (who runs a
// node), layouts (which values are views of which), storages and operands (where values lie), steps
// (what a run calls), memory.
//
// There are two spaces. On a platform whose memory is host memory everything lies in the device's;
// else native ops run in the host's, on copies.
#ifndef BERTH_EXECUTOR_PLAN_H
#define BERTH_EXECUTOR_PLAN_H

#include "base/array.h"
#include "executor/executor.h"

#define BERTH_NO_STORAGE UINT32_MAX
#define BERTH_LAST_STEP  (UINT32_MAX - 1) // a storage that lives to the end of the run

typedef enum berth_space {
    BERTH_SPACE_DEVICE,
    BERTH_SPACE_HOST,
} berth_space;
#define BERTH_SPACE_COUNT 2

// ---- bindings -----------------------------------------------------------------------------------

// An op site and who runs it. Lives as long as the plan: its site is `self` of a reference.
typedef struct berth_binding {
    berth_op_site site;
    const berth_op_entry *op;
    const berth_op_impl *impl;              // NULL: the op's reference
    const berth_owner *owner;               // of the implementation
    const berth_attention_backend *backend; // when the platform chose one
    berth_site_record record;
    berth_space space;
    void *self;
    bool is_created; // `self` came from the implementation's create
    bool is_wished;  // native by the user's own -op or none
} berth_binding;

// ---- layouts ------------------------------------------------------------------------------------

typedef enum berth_layout_kind {
    BERTH_LAYOUT_ROOT, // storage of its own
    BERTH_LAYOUT_SLICE,
    BERTH_LAYOUT_RESHAPE,
    BERTH_LAYOUT_COPY, // a reshape that no strides can express: a root, filled from its source
} berth_layout_kind;

// How a value lies in the storage of its root. The innermost stride is always 1.
typedef struct berth_layout {
    berth_layout_kind kind;
    berth_value root;
    uint32_t breaks; // bit i: dims i - 1 and i do not follow one another in memory
    // Reshape: per dim the source's dim whose stride the dim's group ends with; whether the dim is
    // the last of its group.
    uint8_t source_dim[BERTH_MAX_DIMS];
    bool is_group_end[BERTH_MAX_DIMS];
} berth_layout;

// A value's numbers for the symbols of a run.
typedef struct berth_extent {
    int64_t shape[BERTH_MAX_DIMS];
    int64_t strides[BERTH_MAX_DIMS];
    int64_t offset; // elements from the beginning of the root
    int64_t elements;
} berth_extent;

// ---- storages and operands ----------------------------------------------------------------------

typedef enum berth_storage_kind {
    BERTH_STORAGE_PLANNED,   // in its space's block, at an offset
    BERTH_STORAGE_INPUT,     // an array of the batch
    BERTH_STORAGE_PARAMETER, // as stored
    BERTH_STORAGE_PACKED,    // a parameter in the layout of the site that packed it
    BERTH_STORAGE_CACHE,     // a state of a KV cache: allocated by berth_plan_set_cache
    BERTH_STORAGE_STATE,     // another state: as declared, zero at first
} berth_storage_kind;

typedef struct berth_storage {
    berth_storage_kind kind;
    berth_space space;
    berth_value value;            // the root
    uint64_t bytes;               // for the largest batch
    uint32_t first;               // planned: the step that writes it
    uint32_t last;                // the last step that touches it
    uint64_t offset;              // planned: in the block
    berth_buffer buffer;          // others, in device memory; owned
    void *memory;                 // others, in host memory; owned
    const berth_binding *binding; // packed: for this site,
    uint64_t input;               // as this input
    bool is_set;                  // parameters
} berth_storage;

// What a tensor pointer of a call points to.
typedef struct berth_operand {
    berth_tensor tensor;
    berth_value value; // BERTH_VALUE_NONE: a workspace
    uint32_t storage;
    bool is_dense;                   // a copy without gaps: its own strides, not the value's
    int64_t shape[BERTH_MAX_DIMS];   // states and workspaces only
    int64_t strides[BERTH_MAX_DIMS]; // dense ones, states and workspaces
} berth_operand;

// ---- steps --------------------------------------------------------------------------------------

// All that a run reads of a step.
typedef struct berth_step {
    berth_op_forward_fn forward;
    void *self;
    const berth_op_args *args;
} berth_step;

// What stands beside a step: for planning, for reports.
typedef struct berth_step_note {
    berth_binding *binding;    // NULL: a copy of the executor's own
    berth_op_args *args;       // of the step, to fill in
    berth_operand *workspace;  // NULL: none
    const berth_value *values; // what it writes; skipped when all have no elements now
    size_t value_count;
    bool has_states; // never skipped
} berth_step_note;

// `self` of a copy step.
typedef struct berth_copy_step {
    berth_plan *plan;
    const berth_operand *from;
    const berth_operand *to;
    berth_value value; // whose elements are copied; of a transfer the root
} berth_copy_step;

// ---- outputs, batch -----------------------------------------------------------------------------

typedef struct berth_plan_result {
    const char *name;
    berth_operand *operand;
    void *memory; // host copy of a result in device memory; owned
    berth_tensor tensor;
} berth_plan_result;

#define BERTH_BATCH_ARRAYS 5 // token_ids, positions, query_start_loc, seq_lens, logits_rows

// An operand that is an array of the batch.
typedef struct berth_plan_input {
    berth_operand *operand;
    size_t array; // index, see BERTH_BATCH_ARRAYS
} berth_plan_input;

// The batch's arrays in device memory: one buffer, a tensor per array, two per cache group.
typedef struct berth_device_batch {
    berth_buffer buffer;
    size_t group_count;
    berth_tensor *tensors; // [BERTH_BATCH_ARRAYS + 2 * group_count]
    uint64_t *capacities;  // bytes, beside them
    const berth_tensor **tables;
    const berth_tensor **mappings;
    berth_batch_view view;
} berth_device_batch;

// ---- the plan -----------------------------------------------------------------------------------

struct berth_plan {
    berth_arena *arena;
    berth_plan_request request;
    const berth_graph *graph;
    berth_runtime *runtime;
    bool is_host; // the device's memory is host memory
    berth_custom_ops custom_ops;

    berth_array(berth_binding *) bindings;
    berth_dispatch_counters counters;
    berth_array(const char *) notes;

    berth_layout *layouts;  // [value_count]
    berth_extent *extents;  // [value_count]
    uint32_t *last_uses;    // [value_count], of roots: node that uses it last, BERTH_LAST_STEP
    berth_operand **homes;  // [value_count * BERTH_SPACE_COUNT], NULL: not there
    berth_operand **denses; // the same for copies without gaps
    berth_array(berth_storage) storages;
    berth_array(berth_operand *) operands;

    berth_array(berth_step) steps;
    berth_array(berth_step_note) step_notes;
    berth_step *active; // those that the current numbers leave, [active_count]
    const berth_step_note **active_notes;
    size_t active_count;
    bool is_unsettled; // while planning: a step that may still run stands before

    berth_plan_result *results; // [graph->output_count]
    berth_array(berth_plan_input) inputs;
    berth_buffer device_block;
    void *host_block;
    uint64_t block_bytes[BERTH_SPACE_COUNT];
    uint64_t parameter_bytes;
    berth_device_batch device_batch;
    berth_batch batch; // what calls see
    int64_t tokens;    // that the extents are for; 0: none
    int64_t rows;
    bool is_ready;
    bool needs_cache; // until berth_plan_set_cache
};

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
// The platform's backend for the site's layer, or the reason why there is none.
BERTH_MUST_CHECK berth_status berth_backend_find(berth_plan *plan, const berth_op_site *site,
                                                 const berth_attention_backend **out_backend,
                                                 const berth_owner **out_owner,
                                                 const char **out_reason);
BERTH_MUST_CHECK berth_status berth_backend_shape(const berth_plan *plan,
                                                  const berth_binding *binding, uint64_t state,
                                                  int64_t num_blocks,
                                                  int64_t out_shape[BERTH_MAX_DIMS],
                                                  uint32_t *out_ndim);
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
BERTH_MUST_CHECK berth_status berth_parameters_check(const berth_plan *plan);

// state.c: a storage and an operand per state, in the space of those who use it; memory for those
// that are no KV cache.
BERTH_MUST_CHECK berth_status berth_states_place(berth_plan *plan);
BERTH_MUST_CHECK berth_status berth_states_create(berth_plan *plan);

// storage_memory.c: memory of storages that are not planned.
BERTH_MUST_CHECK berth_status berth_storage_alloc(berth_plan *plan, uint32_t index);
// Fills the storage from host memory.
BERTH_MUST_CHECK berth_status berth_storage_write(berth_plan *plan, uint32_t index,
                                                  const void *data, uint64_t bytes);
void berth_storage_free(berth_plan *plan, uint32_t index);
// The memory behind an operand in device memory.
berth_buffer berth_operand_buffer(const berth_plan *plan, const berth_operand *operand);
// Blocks for all planned storages, memory for results; then every operand finds its memory.
BERTH_MUST_CHECK berth_status berth_blocks_create(berth_plan *plan);
void berth_blocks_destroy(berth_plan *plan);

// batch.c: room for the batch in device memory; takes a batch in: checks it, uploads it.
BERTH_MUST_CHECK berth_status berth_device_batch_create(berth_plan *plan);
BERTH_MUST_CHECK berth_status berth_batch_begin(berth_plan *plan, const berth_batch *batch);

// run.c: keeps the steps that have something to do for the current numbers.
void berth_plan_activate(berth_plan *plan);

#endif
