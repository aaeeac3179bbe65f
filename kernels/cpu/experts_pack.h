// SPDX-License-Identifier: Apache-2.0
// How rows of the matrices of all experts get into panels (linear_panel.h), as they arrive: any
// rows of a stack [experts, rows, columns], which need not begin or end with a panel or an expert.
#ifndef BERTH_KERNELS_CPU_EXPERTS_PACK_H
#define BERTH_KERNELS_CPU_EXPERTS_PACK_H

#include <cpu/linear_panel.h>

// The rows of all experts as one matrix.
static inline berth_tensor experts_all_rows(const berth_tensor *stack, int64_t shape[2],
                                            int64_t strides[2]) {
    berth_tensor rows = *stack;
    shape[0] = stack->shape[0] * stack->shape[1];
    shape[1] = stack->shape[2];
    strides[0] = stack->strides[1];
    strides[1] = 1;
    rows.ndim = 2;
    rows.shape = shape;
    rows.strides = strides;
    return rows;
}

// The matrices of an expert; of two the panels lie in turns.
typedef struct experts_stack {
    int64_t rows;    // of an expert
    int64_t outputs; // of a matrix
    int64_t matrices;
    int is_in_turns; // even rows are the first matrix's
} experts_stack;

// Rows [first, end) of an expert, which are those of `source` from `at` on.
typedef struct experts_piece {
    const berth_tensor *source;
    int64_t at;
    int64_t first;
    int64_t end;
} experts_piece;

// Outputs that a matrix has in the rows before `row` of an expert.
static inline int64_t experts_outputs_before(const experts_stack *self, int64_t matrix,
                                             int64_t row) {
    if (self->is_in_turns) {
        return (row + 1 - matrix) / 2;
    }
    const int64_t outputs = row - matrix * self->outputs;
    return outputs < 0 ? 0 : at_most(outputs, self->outputs);
}

// Packs up to a panel of rows as its outputs [first, end), leaving those beside them as they are.
// Outputs without a row become zero.
static inline void pack_outputs(const berth_tensor *rows, int64_t first, int64_t end, char *panel) {
    float packed[2 * PACKED_PAIRS * PANEL];
    const int64_t pairs = pieces(rows->shape[1], 2);
    const int64_t element = rows->dtype == BERTH_DTYPE_F16 ? 2 : 4; // of bf16 a pair
    const int64_t line = PANEL * element;
    slab piece;
    for (int64_t pair = 0; pair < pairs; pair += PACKED_PAIRS) {
        const int64_t bytes = at_most(PACKED_PAIRS, pairs - pair) * pair_bytes(rows->dtype);
        load_slab(&piece, rows, 0, 2 * pair);
        pack_slab(&piece, rows->dtype, at_most(PACKED_PAIRS, pairs - pair), (char *)packed);
        for (int64_t at = 0; at < bytes; at += line) {
            memcpy(panel + at + first * element, (const char *)packed + at,
                   (size_t)((end - first) * element));
        }
        panel += bytes;
    }
}

// What of the piece belongs to a matrix, to the expert's panels.
static inline void experts_put_matrix(const experts_stack *self, const experts_piece *piece,
                                      int64_t matrix, char *panels) {
    const berth_tensor *source = piece->source;
    const int64_t step = 1 + self->is_in_turns;
    const int64_t bytes = panel_bytes(source->shape[1], source->dtype);
    const int64_t end = experts_outputs_before(self, matrix, piece->end);
    for (int64_t output = experts_outputs_before(self, matrix, piece->first), count = 0;
         output < end; output += count) {
        const int64_t place = output % PANEL;
        const int64_t row =
            self->is_in_turns ? 2 * output + matrix : matrix * self->outputs + output;
        count = at_most(PANEL - place, end - output);
        const int64_t shape[] = {count, source->shape[1]};
        const int64_t strides[] = {step * source->strides[0], 1};
        berth_tensor rows = *source;
        rows.shape = shape;
        rows.strides = strides;
        rows.byte_offset += (uint64_t)((piece->at + row - piece->first) * source->strides[0]) *
                            BERTH_DTYPE_BITS(rows.dtype) / 8;
        char *panel = panels + (output / PANEL * self->matrices + matrix) * bytes;
        const int64_t last = output + count == self->outputs ? PANEL : place + count;
        if (place == 0 && last == PANEL) {
            pack_panels(&rows, panel);
        } else {
            pack_outputs(&rows, place, last, panel);
        }
    }
}

// Rows of all experts, from row `first` on, to where they belong.
static inline void experts_put(const experts_stack *self, const berth_tensor *source, int64_t first,
                               char *to) {
    const int64_t of_expert = pieces(self->outputs, PANEL) * self->matrices *
                              panel_bytes(source->shape[1], source->dtype);
    for (int64_t at = 0, count = 0; at < source->shape[0]; at += count) {
        const int64_t row = (first + at) % self->rows;
        count = at_most(self->rows - row, source->shape[0] - at);
        const experts_piece piece = {source, at, row, row + count};
        for (int64_t matrix = 0; matrix < self->matrices; ++matrix) {
            experts_put_matrix(self, &piece, matrix, to + (first + at) / self->rows * of_expert);
        }
    }
}

#endif
