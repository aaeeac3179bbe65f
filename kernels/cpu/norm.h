// SPDX-License-Identifier: Apache-2.0
// What norms but rms_norm share around a row (norm_row.h): the instance, the operands, all rows.
#ifndef BERTH_KERNELS_CPU_NORM_H
#define BERTH_KERNELS_CPU_NORM_H

#include <cpu/norm_row.h>

#define BERTH_NORM_VECTORS 3 // of a row's width that a part has in the workspace

static inline berth_status berth_norm_create(const berth_op_site *site, const berth_device *device,
                                             void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(berth_norm), out_self);
    if (status == BERTH_OK) {
        berth_norm *self = *out_self;
        self->cpu = device->self;
        self->hidden = site->inputs[0]->dims[site->inputs[0]->ndim - 1].b;
        self->eps = (float)berth_site_attribute(site, "eps")->f64;
    }
    return status;
}

static inline uint64_t berth_norm_workspace(void *state, uint64_t tokens) {
    const berth_norm *self = state;
    (void)tokens;
    return (uint64_t)(self->cpu->threads * BERTH_NORM_VECTORS * self->hidden) * sizeof(float);
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

// A row of a weight or bias as floats: itself, or a copy; NULL of none.
static inline const float *berth_norm_floats(const berth_tensor *vectors, int64_t row,
                                             float *copy) {
    const void *vector = vectors ? berth_row(vectors, row) : NULL;
    if (!vector || vectors->dtype == BERTH_DTYPE_F32) {
        return vector;
    }
    berth_load(vector, vectors->dtype, 0, berth_row_length(vectors), copy);
    return copy;
}

// Fills in what all rows of a part share.
static inline void berth_norm_begin(const berth_norm_job *in, int64_t part, berth_norm_row *row) {
    const int64_t hidden = berth_row_length(in->args->inputs[0]);
    float *vectors = (float *)berth_data(in->args->workspace) + part * BERTH_NORM_VECTORS * hidden;
    *row = (berth_norm_row){
        .self = in->self,
        .hidden = hidden,
        .weight = berth_norm_floats(berth_norm_input(in, in->operands->weight), 0, vectors),
        .bias = berth_norm_floats(berth_norm_input(in, in->operands->bias), 0, vectors + hidden),
        .values = vectors + 2 * hidden,
        .weight_copy = vectors,
    };
}

// The row of the weight that row i of x has.
static inline void berth_norm_turn(const berth_norm_job *in, int64_t i, berth_norm_row *row) {
    if (in->self->weight_rows > 0) {
        const berth_tensor *weight = berth_norm_input(in, in->operands->weight);
        row->weight = berth_norm_floats(weight, i % in->self->weight_rows, row->weight_copy);
    }
}

// The rows of a part's tensors; of a gate or sum that is absent any.
typedef struct berth_norm_tensors {
    berth_rows x;
    berth_rows y;
    berth_rows gate;
    berth_rows sum;
    int has_gate;
    int has_sum;
} berth_norm_tensors;

static inline berth_norm_tensors berth_norm_tensors_of(const berth_norm_job *in) {
    const berth_tensor *gate = berth_norm_input(in, in->operands->gate);
    const int has_sum = gate && in->operands->sum >= 0;
    return (berth_norm_tensors){
        .x = berth_rows_of(in->args->inputs[0]),
        .y = berth_rows_of(in->args->outputs[0]),
        .gate = berth_rows_of(gate ? gate : in->args->inputs[0]),
        .sum = berth_rows_of(in->args->outputs[has_sum ? in->operands->sum : 0]),
        .has_gate = gate != NULL,
        .has_sum = has_sum,
    };
}

static inline void berth_norm_point(berth_norm_row *row, const berth_norm_tensors *of, int64_t at,
                                    int64_t next) {
    row->x = berth_rows_at(&of->x, at);
    row->y = berth_rows_at(&of->y, at);
    row->gate = of->has_gate ? berth_rows_at(&of->gate, at) : NULL;
    row->sum = of->has_sum ? berth_rows_at(&of->sum, at) : NULL;
    row->next_x = berth_rows_at(&of->x, next);
    row->next_gate = of->has_gate ? berth_rows_at(&of->gate, next) : NULL;
}

// `one` is a constant function where this is inlined.
typedef void (*berth_norm_one)(const berth_norm_row *row, berth_sweep_kind as);
BERTH_INLINE void berth_norm_rows(const berth_norm_job *in, berth_norm_one one, berth_dtype dtype,
                                  int64_t part, int64_t parts) {
    const berth_norm_tensors tensors = berth_norm_tensors_of(in);
    const berth_span rows = berth_share(berth_row_count(in->args->inputs[0]), part, parts);
    berth_norm_row row;
    berth_norm_begin(in, part, &row);
    for (int64_t i = rows.first; i < rows.end; ++i) {
        berth_norm_point(&row, &tensors, i, i + 1 < rows.end ? i + 1 : i);
        berth_norm_turn(in, i, &row);
        if (in->is_past && berth_vec_can_pass(row.y) && (!row.sum || berth_vec_can_pass(row.sum))) {
            one(&row, (berth_sweep_kind){.dtype = dtype, .is_past = 1});
        } else {
            one(&row, (berth_sweep_kind){.dtype = dtype});
        }
    }
    berth_past_end();
}

BERTH_INLINE void berth_norm_part(const berth_norm_job *in, berth_norm_one one, int64_t part,
                                  int64_t parts) {
    const berth_dtype dtype = in->args->inputs[0]->dtype;
    if (dtype == BERTH_DTYPE_F32) {
        berth_norm_rows(in, one, BERTH_DTYPE_F32, part, parts);
    } else if (dtype == BERTH_DTYPE_BF16) {
        berth_norm_rows(in, one, BERTH_DTYPE_BF16, part, parts);
    } else {
        berth_norm_rows(in, one, BERTH_DTYPE_F16, part, parts);
    }
}

static inline berth_status berth_norm_run(const berth_norm *self, const berth_op_args *args,
                                          const berth_norm_operands *operands, berth_work_fn part) {
    const berth_tensor *x = args->inputs[0];
    const int64_t elements = berth_row_count(x) * berth_row_length(x);
    const berth_norm_job in = {
        .self = self,
        .args = args,
        .operands = operands,
        .is_past = berth_is_past(elements, x->dtype),
    };
    berth_run(self->cpu, part, &in, 2 * elements);
    return BERTH_OK;
}

// The part and the forward of a kernel: `one` does a row, `operands` says what it is made of.
#define BERTH_NORM(one, which)                                                                     \
    static void part_of(const void *work, int64_t part, int64_t parts) {                           \
        berth_norm_part(work, one, part, parts);                                                   \
    }                                                                                              \
    static berth_status forward(void *self, const berth_op_args *args) {                           \
        return berth_norm_run(self, args, &(which), part_of);                                      \
    }

#define BERTH_NORM_KERNEL(op_name, op_create)                                                      \
    .size = sizeof(berth_op_impl), .op = (op_name), .name = "cpu." op_name,                        \
    .dispatch_key = BERTH_DISPATCH_CPU, .flags = BERTH_IMPL_DETERMINISTIC, .create = (op_create),  \
    .workspace = berth_norm_workspace, .forward = forward, .destroy = berth_instance_free

#endif
