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
#include "executor/recordings.h"

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
    const berth_op_library_entry *missed;   // failed, so that its form does not run; NULL: none
    berth_site_record record;
    berth_space space;
    void *self;
    bool is_created; // `self` came from the implementation's create
    bool is_wished;  // native by the user's own -op or none
    uint64_t ns;     // of the last timed run
} berth_binding;

// ---- layouts ------------------------------------------------------------------------------------

typedef enum berth_layout_kind {
    BERTH_LAYOUT_ROOT, // storage of its own
    BERTH_LAYOUT_SLICE,
    BERTH_LAYOUT_RESHAPE,
    BERTH_LAYOUT_COPY, // a reshape that no strides can express: a root, filled from its source
} berth_layout_kind;

// A line of the report after a build.
typedef struct berth_plan_remark {
    const char *text;
    bool is_users; // about a name that the user wrote
} berth_plan_remark;

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
    berth_buffer buffer;          // others, in device memory; owned, but a part of that block
    void *memory;                 // others, in host memory; owned
    void *kept;                   // host memory, its content while the plan sleeps; owned
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
    void *memory;  // host copy of a result in device memory; owned
    float *floats; // of a result in 16 bits; owned
    int64_t shape[BERTH_MAX_DIMS];
    berth_tensor tensor;
} berth_plan_result;

#define BERTH_BATCH_ARRAYS 5 // token_ids, positions, query_start_loc, seq_lens, logits_rows

// An operand that is an array of the batch.
typedef struct berth_plan_input {
    berth_operand *operand;
    size_t array; // index, see BERTH_BATCH_ARRAYS
} berth_plan_input;

typedef struct berth_batch_extent {
    int64_t shape[2];
    int64_t strides[2];
} berth_batch_extent;

// The batch's arrays in device memory: one buffer, a tensor per array, two per cache group. They
// are packed for each step, so that one copy brings all of them; where they lie depends on their
// sizes alone.
typedef struct berth_device_batch {
    berth_buffer buffer;
    unsigned char *staging; // host memory of the same size; owned
    uint64_t used;          // bytes of this step
    uint64_t staged_at;     // downloads and waits before the copy under way
    bool is_staged;         // a copy may be under way
    size_t group_count;
    berth_tensor *tensors;         // [BERTH_BATCH_ARRAYS + 2 * group_count]
    uint64_t *capacities;          // bytes, beside them
    berth_batch_extent *extents;   // beside them
    const berth_tensor **pointers; // to the tables and mappings
    berth_batch_view view;
} berth_device_batch;

// The greedy choice behind the logits.
typedef struct berth_plan_choice {
    berth_operand *logits;
    berth_operand *ids; // i32 [rows]; NULL: the platform does not choose
    int32_t *memory;    // host copy; owned
} berth_plan_choice;

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
    berth_array(berth_plan_remark) notes;

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

    berth_plan_result *results;                  // [graph->output_count]
    berth_array(berth_plan_input) inputs;        // in host memory
    berth_array(berth_plan_input) device_inputs; // in the device's batch
    berth_plan_choice choice;
    berth_recording *recordings; // [recording_count], of one sequence and more
    int64_t recording_count;     // 0: nothing is recorded
    int64_t *capture_sizes;      // [capture_count], ascending; recorded by berth_plan_record
    size_t capture_count;        // 0: steps are not filled up
    berth_array(berth_piece) pieces;
    berth_piecewise *piecewise; // [piecewise_count], by tokens
    size_t piecewise_count; // 0: other steps than those of one token a sequence are not recorded
    berth_buffer weights;   // where the device's memory is host memory: all of them,
    uint64_t weights_used;  // one behind another as they come
    berth_buffer device_block;
    void *host_block;
    uint64_t block_bytes[BERTH_SPACE_COUNT];
    uint64_t parameter_bytes;
    berth_device_batch device_batch;
    berth_batch batch; // what calls see
    int64_t tokens;    // that the extents are for; 0: none
    int64_t rows;
    berth_padding padding;  // of the tokens and sequences, and of the rows
    int64_t most_sequences; // of a batch; the request's number has room for nobody's beside them
    bool is_timed;
    bool is_ready;
    bool is_asleep;   // it was ready before, and gave its memory back
    bool needs_cache; // until berth_plan_set_cache
};

#endif
