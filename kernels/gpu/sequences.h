// SPDX-License-Identifier: Apache-2.0
// The sequences of one call of an op on a GPU that keeps a state per sequence: kernels/sequences.h
// on the device, where starts, slots and lengths lie. Nothing is checked there; a slot below 0 is
// passed over.
#ifndef BERTH_KERNELS_GPU_SEQUENCES_H
#define BERTH_KERNELS_GPU_SEQUENCES_H

#include "launch.h"

struct gpu_sequences {
    const void *starts; // query_start_loc; NULL: row i is sequence i, and has a state
    berth_dtype starts_dtype;
    const void *slots; // NULL: sequence i has slot i
    berth_dtype slots_dtype;
    int64_t slot_gap; // elements from one sequence's slot to the next one's
    const uint8_t *has_state;
    const int32_t *lengths; // of the batch; NULL where an input says the starts
    int count;
};

struct gpu_sequence {
    int64_t first; // row of its first new token
    int64_t end;   // row behind its last one
    int64_t slot;
    bool has_state;
};

static __device__ inline gpu_sequence gpu_sequence_at(const gpu_sequences &all, int index) {
    gpu_sequence out = {index, index + 1, index, true};
    if (all.slots) {
        out.slot = gpu_integer(all.slots, all.slots_dtype, index * all.slot_gap);
    }
    if (all.starts) {
        out.first = gpu_integer(all.starts, all.starts_dtype, index);
        out.end = gpu_integer(all.starts, all.starts_dtype, index + 1);
        out.has_state = all.lengths ? all.lengths[index] > out.end - out.first
                                    : all.has_state && all.has_state[index];
    }
    return out;
}

// The last sequence that begins at or before the row.
static __device__ inline int gpu_sequence_of(const gpu_sequences &all, int64_t row) {
    int low = 0;
    int high = all.count - 1;
    if (!all.starts) {
        return static_cast<int>(row);
    }
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (gpu_integer(all.starts, all.starts_dtype, middle) <= row) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

// ---- the host's side ----------------------------------------------------------------------------

// Operands by which a call may name its sequences; NULL where it was not given one.
struct gpu_sequence_inputs {
    const berth_tensor *starts;
    const berth_tensor *slots;
    const berth_tensor *has_state;
};

static inline gpu_sequences gpu_sequences_given(const gpu_sequence_inputs &from) {
    gpu_sequences out = {};
    out.starts = berth_gpu_data(from.starts);
    out.starts_dtype = from.starts->dtype;
    out.slots = from.slots ? berth_gpu_data(from.slots) : nullptr;
    out.slots_dtype = from.slots ? from.slots->dtype : from.starts->dtype;
    out.slot_gap = 1;
    out.has_state =
        from.has_state ? static_cast<const uint8_t *>(berth_gpu_data(from.has_state)) : nullptr;
    out.count = static_cast<int>(from.starts->shape[0] - 1);
    return out;
}

// Those that the inputs name, else those of the batch, with the first blocks of a cache group as
// slots.
static inline berth_status gpu_sequences_open(const gpu_op *op, const berth_batch *batch,
                                              uint64_t cache_group, const gpu_sequence_inputs &from,
                                              gpu_sequences *out) {
    if (from.starts) {
        *out = gpu_sequences_given(from);
        return BERTH_OK;
    }
    if (!batch || !batch->device) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_INVALID_ARGUMENT,
                                 "needs a batch, or an input that says where sequences begin");
    }
    const berth_batch_view *view = batch->device;
    const berth_tensor *table = view->block_tables[cache_group];
    *out = gpu_sequences{};
    out->starts = berth_gpu_data(view->query_start_loc);
    out->starts_dtype = view->query_start_loc->dtype;
    out->slots = berth_gpu_data(table);
    out->slots_dtype = table->dtype;
    out->slot_gap = table->strides[0];
    out->lengths = static_cast<const int32_t *>(berth_gpu_data(view->seq_lens));
    out->count = static_cast<int>(batch->sequence_count);
    return BERTH_OK;
}

#endif
