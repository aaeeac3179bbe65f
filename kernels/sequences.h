// SPDX-License-Identifier: Apache-2.0
// The sequences of one call of an op that keeps a state per sequence: which rows are new, which
// slot of the state is theirs, and whether that slot already holds what came before them.
//
// A call names them by inputs, as vLLM's functions do, or leaves the inputs away and means the
// sequences of the batch; then the slot of a sequence is the first block of its block table, and it
// holds something when the sequence is longer than its new rows.
#ifndef BERTH_KERNELS_SEQUENCES_H
#define BERTH_KERNELS_SEQUENCES_H

#include <berth/op.h>

#include <tensor.h>

typedef struct berth_sequence {
    int64_t first; // row of its first new token
    int64_t end;   // row behind its last one
    int64_t slot;  // of its state, below 0: it is passed over
    int has_state; // 0: it begins with zeros
} berth_sequence;

typedef struct berth_sequences {
    // Set by the caller; tensors NULL where the op was not given the input.
    const berth_host *host;
    const char *op;
    uint64_t cache_group;
    const berth_tensor *starts;    // query_start_loc [count + 1]
    const berth_tensor *slots;     // [count]; NULL beside starts: sequence i has slot i
    const berth_tensor *has_state; // bool [count]; NULL beside starts: none has
    // Set by berth_sequences_open.
    const berth_tensor *lengths; // seq_lens of the batch, NULL when starts was given
    int64_t count;
} berth_sequences;

static inline int64_t berth_sequences_at(const berth_tensor *tensor, int64_t index) {
    return berth_integer_at(berth_row(tensor, tensor->ndim == 2 ? index : 0), tensor->dtype,
                            tensor->ndim == 2 ? 0 : index);
}

static inline berth_sequence berth_sequence_at(const berth_sequences *self, int64_t index) {
    berth_sequence out = {
        .first = berth_sequences_at(self->starts, index),
        .end = berth_sequences_at(self->starts, index + 1),
        .slot = self->slots ? berth_sequences_at(self->slots, index) : index,
    };
    if (self->lengths) {
        out.has_state = berth_sequences_at(self->lengths, index) > out.end - out.first;
    } else if (self->has_state) {
        out.has_state = ((const uint8_t *)berth_data(self->has_state))[index] != 0;
    }
    return out;
}

// Completes the caller's part and checks it against the op's rows and the state's slots (INT64_MAX:
// the op has no slots), so that nobody has to ask again.
static inline berth_status berth_sequences_open(berth_sequences *self, const berth_batch *batch,
                                                int64_t rows, int64_t slot_count) {
    if (!self->starts) {
        const berth_batch_view *view = batch ? batch->host : NULL;
        if (!view) {
            return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                     "%s: needs a batch or 'query_start_loc'", self->op);
        }
        self->starts = view->query_start_loc;
        self->lengths = view->seq_lens;
        self->slots = slot_count == INT64_MAX ? NULL : view->block_tables[self->cache_group];
    }
    self->count = self->starts->shape[0] - 1;
    for (int64_t i = 0; i < self->count; ++i) {
        const berth_sequence at = berth_sequence_at(self, i);
        if (at.first < 0 || at.end < at.first || at.end > rows) {
            return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                     "%s: sequence %lld has the rows %lld to %lld of %lld",
                                     self->op, (long long)i, (long long)at.first, (long long)at.end,
                                     (long long)rows);
        }
        if (at.slot >= slot_count) {
            return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                     "%s: sequence %lld has state slot %lld of %lld", self->op,
                                     (long long)i, (long long)at.slot, (long long)slot_count);
        }
    }
    return BERTH_OK;
}

// The slot of a row, of an op with one row per sequence: its own number where the op was not given
// the input.
static inline int64_t berth_slot_at(const berth_tensor *slots, int64_t row) {
    return slots ? berth_integer_at(berth_data(slots), slots->dtype, row) : row;
}

// That none of these rows names a slot that the state does not have.
static inline berth_status berth_slots_check(const berth_host *host, const char *op,
                                             const berth_tensor *slots, int64_t rows,
                                             int64_t slot_count) {
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t slot = berth_slot_at(slots, row);
        if (slot >= slot_count) {
            return BERTH_PLUGIN_FAIL(host, BERTH_INVALID_ARGUMENT,
                                     "%s: row %lld has state slot %lld of %lld", op, (long long)row,
                                     (long long)slot, (long long)slot_count);
        }
    }
    return BERTH_OK;
}

// That a state is of a float dtype and has these dimensions behind the first, the slots. Why at run
// time: a shape rule sees no states.
static inline berth_status berth_state_check(const berth_host *host, const char *op,
                                             const berth_tensor *state, const int64_t *dims,
                                             int32_t count) {
    int is_right = berth_is_float(state->dtype) && state->ndim == count + 1;
    for (int32_t i = 0; is_right && i < count; ++i) {
        is_right = state->shape[i + 1] == dims[i];
    }
    return is_right ? BERTH_OK
                    : BERTH_PLUGIN_FAIL(host, BERTH_INVALID_ARGUMENT,
                                        "%s: the state does not have the shape that its inputs "
                                        "ask for",
                                        op);
}
#define BERTH_STATE_CHECK(host, op, state, ...)                                                    \
    berth_state_check((host), (op), (state), (const int64_t[]){__VA_ARGS__},                       \
                      (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

#endif
