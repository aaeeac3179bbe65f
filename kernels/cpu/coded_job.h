// SPDX-License-Identifier: Apache-2.0
// What a step of a mixture of experts in codes (coded_experts.h) knows: rows of the tokens at hand
// by expert, and a slice of them on its way through one of the two stacks.
#ifndef BERTH_KERNELS_CPU_CODED_JOB_H
#define BERTH_KERNELS_CPU_CODED_JOB_H

#include <cpu/coded_experts.h>

// Rows of numbers one behind the other.
typedef struct coded_rows {
    berth_tensor tensor;
    int64_t shape[2];
    int64_t strides[2];
} coded_rows;

// What a stack is multiplied by.
typedef struct coded_side {
    coded_rows x;      // floats or codes, of tokens or of rows
    coded_rows scales; // beside codes
    float *packed;     // by slice
    float *sums;
    float *scales_of_x;
} coded_side;

// The tokens at hand.
typedef struct coded_job {
    experts_job of;
    const coded *self;
    const berth_op_args *args;
    coded_side sides[2];
    coded_rows inner; // what w13 gives: [rows, outputs]
    int64_t rows;
    char *scratch; // of part 0
    int stack;     // whose side is packed
} coded_job;

// A slice on its way through a stack.
typedef struct coded_call {
    packed_job job;
    berth_op_args args;
    const berth_tensor *inputs[2]; // x, and the expert's permutation
    berth_tensor *outputs[1];
    berth_tensor output; // of w13
    berth_tensor weight;
    berth_tensor scales;
    berth_tensor zeros;
    berth_tensor bias;
    berth_tensor permutation;
} coded_call;

static inline void coded_load(const packed_job *in, int64_t row, int64_t first, int64_t count,
                              float *to) {
    packed_load_floats(in->args->inputs[0], in->args->inputs[1], row,
                       (berth_span){first, first + count}, to);
}

// The expert's part of a packed parameter, or NULL.
static inline const berth_tensor *coded_part(const berth_tensor *all, uint64_t offset,
                                             berth_tensor *out) {
    if (!all) {
        return NULL;
    }
    *out = *all;
    out->byte_offset += offset;
    return out;
}

static inline const berth_tensor *coded_row(const berth_tensor *all, int64_t expert,
                                            berth_tensor *out) {
    const uint64_t row = all ? (uint64_t)berth_tensor_row_offset(all, expert) : 0;
    return coded_part(all, all ? row * BERTH_DTYPE_BITS(all->dtype) / 8 : 0, out);
}

static inline void coded_begin(const coded_job *in, int stack, const experts_slice *slice,
                               coded_call *out) {
    const coded_stack *of = &in->self->stacks[stack];
    const coded_place *at = &coded_places[stack];
    const berth_tensor *const *inputs = in->args->inputs;
    const coded_side *side = &in->sides[stack];
    const int is_float = in->self->rule == CODES_INPUT_FLOAT;
    const int is_by_token = stack == 0 && !coded_is_by_row(in->self->rule);
    const int is_static = in->self->rule == CODES_INPUT_STATIC;
    const uint64_t expert = (uint64_t)slice->expert;
    out->output = in->inner.tensor;
    out->inputs[0] = &side->x.tensor;
    out->inputs[1] = coded_row(inputs[at->permutation], slice->expert, &out->permutation);
    out->outputs[0] = &out->output;
    out->args = (berth_op_args){.inputs = out->inputs, .outputs = out->outputs};
    out->job = (packed_job){
        .self = &of->product,
        .args = &out->args,
        .load = is_float ? coded_load : codes_load_of(&of->product),
        .floats = is_float ? coded_load : codes_floats_of(&of->product),
        .plain = is_float && !out->inputs[1] ? &side->x.tensor : NULL,
        .order = is_by_token ? in->of.token : NULL,
        .weight = coded_part(inputs[at->weight], expert * of->weight_bytes, &out->weight),
        .scales = coded_part(inputs[at->scale], expert * of->scale_bytes, &out->scales),
        .zeros = coded_part(inputs[at->zeros], expert * of->zero_bytes, &out->zeros),
        .x_scales = is_float    ? NULL
                    : is_static ? inputs[at->input_scale]
                                : &side->scales.tensor,
        .bias = coded_row(inputs[at->bias], slice->expert, &out->bias),
        .first = slice->first,
        .rows = slice->rows,
        .x = side->packed + slice->first * packed_x_words(&of->product),
        .sums = side->sums + slice->first * of->product.groups,
        .scales_of_x = side->scales_of_x + slice->first * of->product.groups,
    };
}

#endif
