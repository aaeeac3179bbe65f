// SPDX-License-Identifier: Apache-2.0
// What norms work on: the instance, its workspace, where each row and what is
// multiplied and added to it lie.
#ifndef BERTH_KERNELS_CPU_NORM_SOURCE_H
#define BERTH_KERNELS_CPU_NORM_SOURCE_H

#include <cpu/norm_write.h>
#include <cpu/reads.h>

static inline berth_status berth_norm_create(const berth_op_site *site, const berth_device *device,
                                             void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(berth_norm), out_self);
    if (status == BERTH_OK) {
        berth_norm *self = *out_self;
        self->cpu = device->self;
        self->hidden = site->inputs[0]->dims[site->inputs[0]->ndim - 1].b;
        reads_begin(site, site->inputs[0], device->self);
        self->eps = (float)berth_site_attribute(site, "eps")->f64;
    }
    return status;
}

static inline int64_t berth_norm_group_of(const berth_norm *self) {
    return self->group > 0 ? self->group : self->hidden;
}

// Floats of a part: a weight and a bias of another dtype, values and factors of a row.
static inline int64_t berth_norm_room(const berth_norm *self) {
    const int64_t groups = self->hidden / berth_norm_group_of(self);
    return 3 * self->hidden + groups;
}

static inline uint64_t berth_norm_workspace(void *state, uint64_t tokens) {
    const berth_norm *self = state;
    (void)tokens;
    return (uint64_t)(self->cpu->threads * berth_norm_room(self)) * sizeof(float);
}

static inline int berth_norm_gate_is_sigmoid(const berth_op_site *site) {
    return strcmp(berth_site_attribute(site, "activation")->str, "sigmoid") == 0;
}

// Which of a kernel's operands a row is made of; −1: none.
typedef struct berth_norm_operands {
    int gate;
    int weight;
    int bias;
    int sum; // an output
} berth_norm_operands;

typedef struct berth_norm_job {
    const berth_norm *self;
    const berth_op_args *args;
    const berth_norm_operands *operands;
    int is_past;
} berth_norm_job;

static inline const berth_tensor *berth_norm_input(const berth_norm_job *in, int input) {
    return input < 0 ? NULL : in->args->inputs[input];
}

// What a part's rows are taken from; of a gate, weight or sum that is absent any or NULL.
typedef struct berth_norm_source {
    berth_rows x;
    berth_rows y;
    berth_rows gate;
    berth_rows sum;
    int has_gate;
    int has_sum;
    const berth_tensor *weight;
    int64_t weight_rows;
    berth_dtype vectors; // of weights and biases as rows have them
    float *weight_copy;  // [hidden] for one of another dtype
} berth_norm_source;

// A row of a weight or bias: itself, or a copy in float32; NULL of none.
static inline const void *berth_norm_vector(const berth_tensor *from, int64_t row,
                                            berth_dtype vectors, float *copy) {
    const void *vector = from ? berth_row(from, row) : NULL;
    if (!vector || from->dtype == vectors) {
        return vector;
    }
    berth_load(vector, from->dtype, 0, berth_row_length(from), copy);
    return copy;
}

// To the row at a place.
static inline void berth_norm_point(berth_norm_row *row, const berth_norm_source *of, int64_t at) {
    row->x = berth_rows_at(&of->x, at);
    row->y = berth_rows_at(&of->y, at);
    row->gate = of->has_gate ? berth_rows_at(&of->gate, at) : NULL;
    row->sum = of->has_sum ? berth_rows_at(&of->sum, at) : NULL;
    row->mean = 0;
    if (of->weight_rows > 0) {
        row->weight =
            berth_norm_vector(of->weight, at % of->weight_rows, of->vectors, of->weight_copy);
    }
}

static inline void berth_norm_begin(const berth_norm_job *in, int64_t part, berth_dtype vectors,
                                    berth_norm_source *of, berth_norm_row *row) {
    const berth_norm *self = in->self;
    const int64_t hidden = self->hidden;
    float *room = (float *)berth_data(in->args->workspace) + part * berth_norm_room(self);
    const berth_tensor *gate = berth_norm_input(in, in->operands->gate);
    const berth_tensor *bias = berth_norm_input(in, in->operands->bias);
    const int64_t bytes = BERTH_DTYPE_BITS(in->args->inputs[0]->dtype) / 8;
    const int64_t ahead = berth_fetch_row_ahead(hidden * bytes);
    const int has_sum = gate && in->operands->sum >= 0;
    *of = (berth_norm_source){
        .x = berth_rows_of(in->args->inputs[0]),
        .y = berth_rows_of(in->args->outputs[0]),
        .gate = berth_rows_of(gate ? gate : in->args->inputs[0]),
        .sum = berth_rows_of(in->args->outputs[has_sum ? in->operands->sum : 0]),
        .has_gate = gate != NULL,
        .has_sum = has_sum,
        .weight = berth_norm_input(in, in->operands->weight),
        .weight_rows = self->weight_rows,
        .vectors = vectors,
        .weight_copy = room,
    };
    *row = (berth_norm_row){
        .self = self,
        .hidden = hidden,
        .group = berth_norm_group_of(self),
        .weight = berth_norm_vector(of->weight, 0, vectors, room),
        .bias = berth_norm_vector(bias, 0, vectors, room + hidden),
        .values = room + 2 * hidden,
        .factors = room + 3 * hidden,
        .ahead = reads_ahead(self->cpu, ahead, ahead),
    };
}

#endif
