// SPDX-License-Identifier: Apache-2.0
// Where an op keeps a matrix per sequence and head. As a function, with 'cu_seqlens', it takes them
// as an input and gives them as its second output, sequence by sequence; else they are its first
// state, by slot.
#ifndef BERTH_KERNELS_MATRICES_H
#define BERTH_KERNELS_MATRICES_H

#include <sequences.h>

// Completes sequences whose starts are 'cu_seqlens' or NULL; `dims` are heads, rows and columns.
static inline berth_status berth_matrices_open(berth_sequences *sequences,
                                               const berth_op_args *args, int64_t tokens,
                                               const int64_t dims[3]) {
    const int is_function = sequences->starts != NULL;
    const berth_tensor *state = is_function ? NULL : args->states[0];
    if (!is_function && !state) {
        return BERTH_PLUGIN_FAIL(sequences->host, BERTH_INVALID_ARGUMENT,
                                 "%s: needs 'cu_seqlens' or the state 'ssm_states'", sequences->op);
    }
    const berth_status status =
        state ? berth_state_check(sequences->host, sequences->op, state, dims, 3) : BERTH_OK;
    return status != BERTH_OK ? status
                              : berth_sequences_open(sequences, args->batch, tokens,
                                                     state ? state->shape[0] : INT64_MAX);
}
#define BERTH_MATRICES_OPEN(sequences, args, tokens, ...)                                          \
    berth_matrices_open((sequences), (args), (tokens), (const int64_t[3]){__VA_ARGS__})

// Whether the sequence has matrices to go through. A function gives even those of a sequence
// without new rows.
static inline int berth_matrices_has(const berth_tensor *cu_seqlens,
                                     const berth_sequence *sequence) {
    return (cu_seqlens || sequence->end > sequence->first) && sequence->slot >= 0;
}

typedef struct berth_matrices {
    const berth_tensor *from; // NULL: they begin with zeros
    const berth_tensor *to;
    int64_t slot;
} berth_matrices;

// Those of the sequence of that number; `initial` is the function's input.
static inline berth_matrices berth_matrices_of(const berth_op_args *args,
                                               const berth_tensor *cu_seqlens,
                                               const berth_tensor *initial,
                                               const berth_sequence *sequence, int64_t number) {
    if (cu_seqlens) {
        return (berth_matrices){.from = initial, .to = args->outputs[1], .slot = number};
    }
    return (berth_matrices){
        .from = sequence->has_state ? args->states[0] : NULL,
        .to = args->states[0],
        .slot = sequence->slot,
    };
}

#endif
